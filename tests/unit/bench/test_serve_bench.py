"""A load test sends what its workload says, when it says so, and its figures are those of the records."""

import json
import math
import random
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from octavo.bench import svg
from octavo.bench.compare import compare, differing_settings
from octavo.bench.datasets import (
    Lengths,
    file_sessions,
    multi_turn_sessions,
    random_sessions,
    shared_prefix_sessions,
    trace_sessions,
)
from octavo.bench.figures import concurrency, figures, tokens_per_second
from octavo.bench.http_stream import Answer
from octavo.bench.pareto import pareto_front, sweep_page
from octavo.bench.report import page
from octavo.bench.serving import Record, Run
from octavo.cli.bench_serve_view import block
from octavo.errors import ConfigError
from octavo.simulator.arrivals import Ramp, arrival_times


class WordCounter:
    """One token a word of two letters; 676 words."""

    vocab_size = 676

    def decode(self, ids):
        return "".join(f" {chr(97 + token_id // 26)}{chr(97 + token_id % 26)}" for token_id in ids)

    def encode(self, text, *, add_special_tokens=True):
        return [(ord(word[0]) - 97) * 26 + ord(word[1]) - 97 for word in text.split()]


COUNTER = WordCounter()


def prompts(sessions):
    return [turn.prompt for session in sessions for turn in session.turns]


def test_random_prompts_have_their_length_and_their_common_prefix():
    sessions = random_sessions(20, Lengths(30, 5, 0.2), 10, COUNTER, random.Random(0))
    heads = {tuple(prompt.split()[:10]) for prompt in prompts(sessions)}
    assert len(heads) == 1
    assert all(24 <= session.turns[0].input_len - 10 <= 36 for session in sessions)
    assert len(set(prompts(sessions))) == 20


def test_the_same_seed_draws_the_same_prompts_and_another_draws_others():
    drawn = [prompts(random_sessions(5, Lengths(8, 1), 0, COUNTER, random.Random(seed))) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1]
    assert not set(drawn[0]) & set(drawn[2])


def test_prefix_repetition_uses_every_prefix_equally():
    sessions = shared_prefix_sessions(12, Lengths(4, 2), 6, 3, COUNTER, random.Random(0))
    heads = [tuple(prompt.split()[:6]) for prompt in prompts(sessions)]
    assert sorted(heads.count(head) for head in set(heads)) == [4, 4, 4]


def test_a_multi_turn_user_asks_as_often_as_said():
    sessions = multi_turn_sessions(3, Lengths(4, 2), 5, COUNTER, random.Random(0))
    assert [len(session.turns) for session in sessions] == [5, 5, 5]


def test_files_of_prompts_and_of_conversations_are_read(tmp_path):
    path = tmp_path / "talk.jsonl"
    talk = [{"from": "human", "value": "aa bb"}, {"from": "gpt", "value": "cc dd ee"}]
    path.write_text(json.dumps({"prompt": "aa", "output_tokens": 7}) + "\n" + json.dumps({"conversations": talk}) + "\n")
    sessions = file_sessions(path, 4, 9, COUNTER, random.Random(0))
    assert sorted((session.turns[0].input_len, session.turns[0].output_len) for session in sessions) == [(1, 7), (1, 7), (2, 3), (2, 3)]


@pytest.mark.parametrize("text", ["{", "[1]", "{}\n", '{"prompt": ""}\n'])
def test_a_file_that_holds_no_prompts_is_refused(tmp_path, text):
    path = tmp_path / "bad.jsonl"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"bad\.jsonl"):
        file_sessions(path, 1, 1, COUNTER, random.Random(0))


def test_a_trace_comes_in_order_and_begins_at_nought(tmp_path):
    path = tmp_path / "trace.jsonl"
    lines = [{"timestamp": at, "input_length": 3, "output_length": 2} for at in (12.5, 10.0)]
    path.write_text("\n".join(map(json.dumps, lines)))
    assert [session.arrival_s for session in trace_sessions(path, COUNTER, random.Random(0))] == [0.0, 2.5]
    path.write_text('{"timestamp": 1, "input_length": 0, "output_length": 2}')
    with pytest.raises(ConfigError, match="input_length 0"):
        trace_sessions(path, COUNTER, random.Random(0))


def test_arrivals_have_the_rate_asked_for_and_bursts_as_asked():
    steady, poisson, bursty = (arrival_times(2000, 50.0, shape, random.Random(3)) for shape in (100.0, 1.0, 0.1))
    spreads = []
    for times in (steady, poisson, bursty):
        gaps = [later - sooner for sooner, later in pairwise(times)]
        assert times == sorted(times)
        assert times[-1] == pytest.approx(2000 / 50, rel=0.05)
        mean = sum(gaps) / len(gaps)
        spreads.append(math.sqrt(sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) / mean)
    assert spreads[0] < 0.2
    assert 0.8 < spreads[1] < 1.2
    assert spreads[2] > 2
    assert arrival_times(3, math.inf, 1.0, random.Random(0)) == [0.0] * 3


@pytest.mark.parametrize("strategy", ["linear", "exponential"])
def test_a_ramp_speeds_up(strategy):
    times = arrival_times(1000, Ramp(strategy, 1.0, 100.0), 1.0, random.Random(1))
    assert times[100] - times[0] > 5 * (times[-1] - times[-100])


def record(start_s, ttft_s, itls_s, error=None):
    answer = Answer(ttft_s, ttft_s + sum(itls_s), list(itls_s), "x", 10, 1 + len(itls_s), 4, error)
    return Record(start_s, 10, answer)


def test_figures_are_those_of_the_whole_answers():
    run = Run([record(0, 0.1, [0.05] * 4), record(0.5, 0.3, [0.1] * 4), record(0.6, 0.0, [], "503: full")], 2.0, (8, 20))
    result = figures(run, {"ttft": 200, "tpot": 60}, (99,))
    assert (result["completed"], result["failed"], result["total_output_tokens"]) == (2, 1, 10)
    assert result["output_throughput"] == 5.0
    assert result["request_goodput"] == 0.5
    assert result["mean_ttft_ms"] == pytest.approx(200)
    assert result["median_tpot_ms"] == pytest.approx(75)
    assert result["prefix_cache_hit_rate"] == 0.4
    assert result["cached_input_tokens"] == 8
    text = block(result | {"max_concurrency": None, "request_rate": "inf"}, ["ttft"], run)
    assert "Failed requests:                                       1" in text


def test_tokens_and_requests_are_counted_over_time():
    records = [record(0, 0.5, [0.4, 0.2]), record(0.8, 0.1, [])]
    assert tokens_per_second(records) == [3, 1]
    assert concurrency(records) == [1, 2, 1, 0]


def test_a_run_with_no_whole_answer_has_no_times():
    result = figures(Run([record(0, 0, [], "no connection")], 1.0), {})
    assert result["median_ttft_ms"] is None
    assert "-" in block(result, ["ttft"], Run())


def test_the_page_is_whole_in_itself_and_escapes_what_servers_say():
    run = Run([record(0, 0.1, [0.1]), record(0, 0, [], "<script>alert(1)</script>")], 1.0)
    html = page("a & b", figures(run, {}), run)
    assert "<script" not in html
    assert "http://" not in html.replace("http://www.w3.org/2000/svg", "")
    for chart in html.split("<svg")[1:]:
        ElementTree.fromstring("<svg" + chart.split("</svg>")[0] + "</svg>")


def test_the_page_has_the_times_that_the_terminal_has():
    run = Run([record(0, 0.25, [0.1, 0.1])], 1.0)
    html = page("a", figures(run, {}), run)
    assert "<td>Time to First Token</td><td>250.0</td>" in html
    assert "<th>p99</th>" in html


def test_a_legend_stands_above_the_plot_and_inside_the_chart():
    chart = ElementTree.fromstring(svg.line_chart("t", "x", "y", {"first": [(0, 1)], "second of them": [(1, 1)]}))
    names = {element.text: element for element in chart.iter() if element.tag.endswith("text")}
    first, second = names["first"], names["second of them"]
    assert float(first.get("y")) == float(second.get("y")) < svg.TOP
    assert svg.LEFT < float(first.get("x")) < float(second.get("x")) < svg.WIDTH - svg.RIGHT


def test_what_is_beaten_in_a_sweep_is_a_dot_and_no_line():
    results = [
        {"c": c, "output_throughput": tokens, "median_tpot_ms": ms} for c, tokens, ms in ((1, 10.0, 5.0), (2, 8.0, 6.0), (4, 20.0, 9.0))
    ]
    html = sweep_page(["c"], results)
    chart = ElementTree.fromstring(html[html.index("<svg") : html.index("</svg>")] + "</svg>")
    assert [len(line.get("points").split()) for line in chart.iter() if line.tag.endswith("polyline")] == [2]
    assert sum(element.tag.endswith("circle") for element in chart.iter()) == 3
    assert html.count("<td>●</td>") == 2


@pytest.mark.parametrize("values", [[], [0.0], [1e-9], [3.0, 1e6]])
def test_charts_of_any_values_are_xml(values):
    for chart in (
        svg.histogram("t", "x", values),
        svg.line_chart("t", "x", "y", {"a": [(value, value) for value in values]}),
        svg.span_chart("t", "x", "y", [[(0, value)] for value in values]),
    ):
        ElementTree.fromstring(chart)


def test_results_are_compared_by_what_is_better():
    rows = {
        row.name: row for row in compare([{"output_throughput": 100, "mean_ttft_ms": 10}, {"output_throughput": 150, "mean_ttft_ms": 12}])
    }
    assert rows["output_throughput"].verdicts == ("same", "better")
    assert rows["mean_ttft_ms"].verdicts == ("same", "worse")
    assert rows["mean_ttft_ms"].ratios[1] == pytest.approx(1.2)
    assert differing_settings([{"num_prompts": 1}, {"num_prompts": 2}]) == {"num_prompts": (1, 2)}


def test_the_pareto_front_is_what_nothing_beats():
    results = [{"output_throughput": rate, "median_tpot_ms": ms} for rate, ms in ((10, 5), (20, 6), (15, 7), (20, 9), (30, None))]
    assert pareto_front(results) == [0, 1]
