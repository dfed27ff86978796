"""Spans become steps whose every moment is named once, and pictures of them; a traced server is one that answers."""

import json
import re
from xml.etree import ElementTree

import pytest
from tests.fakes.tiny_chat import write_tiny_chat

from octavo.bench.tracing.cycles import COMPUTE, OUTSIDE, Lanes, shares
from octavo.bench.tracing.spans import Recorder, Span, innermost, read_spans, write_spans
from octavo.bench.tracing.views import chrome_trace, names_of, page, text_lanes
from octavo.cli.bench import bench_main
from octavo.errors import ConfigError, EngineError


def cuts(spans):
    return [(span.name, span.begin_ns, span.end_ns) for span in innermost([Span("x", *span) for span in spans], "-")]


def test_a_moment_belongs_to_the_innermost_span():
    assert cuts([("outer", 1, 10), ("inner", 2, 5), ("core", 3, 4), ("next", 12, 15)]) == [
        ("outer", 1, 2),
        ("inner", 2, 3),
        ("core", 3, 4),
        ("inner", 4, 5),
        ("outer", 5, 10),
        ("-", 10, 12),
        ("next", 12, 15),
    ]


def test_spans_that_touch_and_spans_of_no_length_take_nothing_from_others():
    assert cuts([("a", 1, 5), ("b", 5, 9), ("empty", 7, 7)]) == [("a", 1, 5), ("b", 5, 7), ("b", 7, 9)]
    assert cuts([]) == []


def test_cpu_time_goes_to_whom_it_was_spent_for():
    spans = [Span("x", "outer", 100, 200, cpu_begin_ns=10, cpu_end_ns=60), Span("x", "inner", 120, 140, cpu_begin_ns=25, cpu_end_ns=30)]
    spans.append(Span("x", "next", 230, 250, cpu_begin_ns=67, cpu_end_ns=80))
    found = [(piece.name, piece.cpu_end_ns - piece.cpu_begin_ns) for piece in innermost(spans, "-")]
    assert found == [("outer", 15), ("inner", 5), ("outer", 30), ("-", 7), ("next", 13)]


def a_run(num_steps, rows=2):
    """Steps of 100 ns: the engine looks for messages, computes from 20 to 80 on two threads, and the server sends from 90 on."""
    spans = []
    for start in range(100, 100 * num_steps + 100, 100):
        spans += [
            Span("engine", "messages in", start, start + 5),
            Span("engine", "rest of the step", start + 5, start + 90),
            Span("engine", "forward", start + 20, start + 80, rows, rows),
            Span("thread 0", "attention", start + 20, start + 80),
            Span("thread 1", "attention", start + 40, start + 60),
            Span("thread 1", "waits", start + 60, start + 80),
            Span("server", "idle", start, start + 90),
            Span("server", "send", start + 92, start + 98),
            Span("server Thread-1", "send", start, start + 100),
        ]
    return spans


def test_each_lane_of_a_step_adds_up_to_the_step():
    steps = Lanes(a_run(9)).steps(2)
    assert {step.us for step in steps} == {0.1}
    found = {(share.lane, share.name): round(share.us * 1e3) for share in shares(steps)}
    assert all((share.cpu_us is None) == (share.lane == COMPUTE) for share in shares(steps))
    assert found == {
        ("server", "idle"): 90,
        ("server", "answers (asyncio, ASGI)"): 4,
        ("server", "send"): 6,
        ("engine", "forward"): 60,
        ("engine", "rest of the step"): 25,
        ("engine", "loop"): 10,
        ("engine", "messages in"): 5,
        (COMPUTE, "attention"): 40,
        (COMPUTE, OUTSIDE): 50,
        (COMPUTE, "waits"): 10,
    }


def test_steps_of_other_sizes_are_left_out():
    spans = a_run(9)
    with pytest.raises(EngineError, match="only 0 steps had 3 streams"):
        Lanes(spans).steps(3)
    mixed = [Span(*span.__reduce__()[1][:4], 2, 7) if span.name == "forward" and span.begin_ns < 400 else span for span in spans]
    assert min(step.begin_ns for step in Lanes(mixed).steps(2)) >= 400


def test_a_step_is_drawn_to_scale():
    step = Lanes(a_run(9)).steps(2)[0]
    names = names_of([step])
    letters = {lane: dict(zip(known, "abcdef", strict=False)) for lane, known in names.items()}
    assert text_lanes(step, 10, letters) == [
        ("server", " " * 9 + "a"),
        ("engine", "dbaaaaaabc"),
        ("thread 0", "  aaaaaa  "),
        ("thread 1", "    aa    "),
    ]
    drawn = page("A & B", {2: step})
    assert "http" not in drawn
    assert "A &amp; B" in drawn
    drawing = ElementTree.fromstring(re.search(r"<svg.*</svg>", drawn, re.DOTALL).group())
    widths = [float(mark.get("width")) for mark in drawing.iter("rect") if mark.find("title") is not None and "attention" in mark[0].text]
    assert widths[0] == pytest.approx(3 * widths[1])


def test_the_trace_viewer_gets_processes_threads_and_microseconds():
    trace = chrome_trace(a_run(2))["traceEvents"]
    names = {(event["pid"], event["args"]["name"]) for event in trace if event["name"] == "thread_name"}
    assert names == {(2, "engine"), (2, "thread 0"), (2, "thread 1"), (1, "server"), (1, "server Thread-1")}
    forwards = [event for event in trace if event["name"] == "forward"]
    assert [(event["ts"], event["dur"], event["args"]) for event in forwards] == [
        (0.02, 0.06, {"rows": 2, "tokens": 2}),
        (0.12, 0.06, {"rows": 2, "tokens": 2}),
    ]


class Door:
    def open(self, width):
        if width < 0:
            raise ValueError(width)
        return width + 1


def test_a_timed_method_does_what_it_did_and_leaves_a_span_even_when_it_raises(tmp_path):
    class Timed(Door):
        pass

    recorder = Recorder("server")
    recorder.time(Timed, "open", "opening")
    assert Timed().open(2) == 3
    with pytest.raises(ValueError, match="-1"):
        Timed().open(-1)
    assert [(span.lane, span.name) for span in recorder.spans] == [("server", "opening")] * 2
    assert all(span.end_ns >= span.begin_ns for span in recorder.spans)
    write_spans(tmp_path / "spans", recorder.spans)
    assert read_spans(tmp_path / "spans") == recorder.spans


def test_a_servers_steps_are_shown_process_by_process(tmp_path, capsys):
    model = tmp_path / "tiny"
    model.mkdir()
    write_tiny_chat(model)
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(
        json.dumps(config | {"max_position_embeddings": 4096})
    )  # answers so long that two meet on a busy machine
    files = {name: tmp_path / name for name in ("html", "trace", "json")}
    flags = ["--html", files["html"], "--trace", files["trace"], "--output-json", files["json"]]
    words = ["profile", "--streams", "1,2", "--input-len", "3", "--output-len", "1000", *flags, "--", model, "--log-level", "error"]
    assert bench_main([str(word) for word in words]) == 0
    shown = capsys.readouterr().out
    assert "2 streams: a step of" in shown
    assert re.search(r"thread 0 │.*\w.*│", shown)
    assert re.search(r"forward +\| [\d,]+ \([\d,]+\) +\| [\d,]+ \([\d,]+\)", shown)
    means = json.loads(files["json"].read_text())
    for found in means.values():
        lanes = ("server", "engine", "engine octavo-step", COMPUTE)
        sums = {lane: sum(share["us"] for share in found if share["lane"] == lane) for lane in lanes}
        assert max(sums.values()) == pytest.approx(min(sums.values()), rel=1e-6)
    assert files["html"].read_text().count("<svg") == 2
    assert any(event["name"] == "attention" for event in json.loads(files["trace"].read_text())["traceEvents"])


@pytest.mark.parametrize("words", [["--html", "x"], ["--streams", "0"], ["--streams", "1", "--threads", "1"], ["--", "--threads", "1"]])
def test_what_does_not_go_together_is_said(words):
    with pytest.raises(ConfigError):
        bench_main(["profile", *words])
