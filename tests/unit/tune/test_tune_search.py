"""The search, with an invented machine in place of a server."""

import itertools
import random

import pytest

from octavo.bench.http_stream import Answer
from octavo.bench.objective import Objective
from octavo.bench.serving import Record, Run
from octavo.cli.tune import is_valid, read_base
from octavo.errors import ConfigError
from octavo.tune.candidates import Candidate, Knob, first_candidates, knobs_for, neighbours
from octavo.tune.flags_file import flags_file
from octavo.tune.search import Trial, search
from octavo.tune.verdict import compare

SEATS = Knob("max-num-seqs", ("1", "2", "4", "8", "16"))
BUDGET = Knob("max-num-batched-tokens", ("16", "64", "256"))
KNOBS = (SEATS, BUDGET)
BAD = Candidate.of({"max-num-seqs": "1", "max-num-batched-tokens": "16"})
FIGURES = {"output_throughput": 10.0, "p99_ttft_ms": 5.0, "p99_itl_ms": None}


def anything(candidate):
    return True


def machine(noise, seed=3):
    """Return a measure whose score grows with the seats up to 8 and with the budget, times some noise."""
    rng = random.Random(seed)

    def measure(candidate, share):
        turned = dict(candidate.values)
        seats, budget = int(turned.get("max-num-seqs", 4)), int(turned.get("max-num-batched-tokens", 64))
        return Trial(candidate, 10 * min(seats, 8) * (1 + budget / 256) * rng.uniform(1 - noise, 1 + noise), FIGURES)

    return measure


def run(measure, base=BAD, has_time=lambda: True, seed=0):
    return search(base, KNOBS, anything, measure, width=9, rng=random.Random(seed), has_time=has_time)


@pytest.mark.parametrize("seed", range(5))
def test_a_badly_flagged_base_is_improved_and_the_search_says_why_it_is_sure(seed):
    outcome = run(machine(0.05, seed), seed=seed)
    assert outcome.is_sure
    assert outcome.against_base.low > 2
    assert "surely better" in outcome.why or "as good as each other" in outcome.why


def test_a_base_that_is_best_stays():
    best = Candidate.of({"max-num-seqs": "8", "max-num-batched-tokens": "256"})
    outcome = run(machine(0.01), base=best)
    assert outcome.against_base.mean == pytest.approx(1, abs=0.05)
    assert dict(outcome.best.values)["max-num-batched-tokens"] == "256"


def test_noise_larger_than_the_difference_is_not_called_sure():
    rng = random.Random(1)
    outcome = run(lambda candidate, share: Trial(candidate, rng.uniform(1, 100), FIGURES))
    assert not outcome.is_sure
    assert "not sure after 8 rounds" in outcome.why


def test_the_final_has_three_rounds_even_when_time_is_up():
    runs = itertools.count()
    outcome = run(machine(0.3), has_time=lambda: next(runs) < 6)
    assert all(len(scores) >= 3 for scores in outcome.finals.values())
    assert outcome.base in outcome.finals


def test_candidates_that_fail_lose():
    def measure(candidate, share):
        if dict(candidate.values).get("max-num-seqs") == "16":
            return Trial(candidate, 0.0, failure="out of memory")
        return machine(0.0)(candidate, share)

    assert dict(run(measure).best.values).get("max-num-seqs") != "16"


def test_as_good_as_each_other_the_one_with_fewer_flags_is_taken():
    outcome = run(lambda candidate, share: Trial(candidate, 50.0, FIGURES), base=Candidate())
    assert outcome.best == Candidate()


def test_first_candidates_begin_with_base_and_defaults_and_are_all_valid():
    found = first_candidates(BAD, KNOBS, 10, lambda each: dict(each.values).get("max-num-seqs") != "16", random.Random(0))
    assert found[:2] == [BAD, Candidate()]
    assert len(found) == len(set(found)) == 10
    assert not any(dict(each.values).get("max-num-seqs") == "16" for each in found)


def test_neighbours_turn_one_knob_by_one_step():
    near = neighbours(BAD, KNOBS, anything)
    assert near == [BAD.turned("max-num-seqs", "2"), BAD.turned("max-num-batched-tokens", "64")]


def test_switches_and_values_become_words():
    candidate = Candidate.of({"max-num-seqs": "8", "async-scheduling": "off"})
    assert candidate.words() == ["--no-async-scheduling", "--max-num-seqs", "8"]
    assert str(Candidate()) == "defaults"


def test_knobs_are_flags_of_the_program_and_can_be_kept():
    flags = ("max-num-seqs", "threads", "block-size")
    assert [knob.flag for knob in knobs_for(2, flags, ["block-size"])] == ["max-num-seqs", "threads"]
    assert [knob.flag for knob in knobs_for(1, flags, [])] == ["max-num-seqs", "block-size"]  # one CPU leaves no choice


def test_the_base_is_taken_out_of_serve_flags():
    words = ["--max-num-seqs", "2", "--no-enable-prefix-caching", "--block-size=32", "--max-model-len", "1k"]
    base, fixed = read_base("m", words, {"max-num-seqs", "block-size"})
    assert base == Candidate.of({"max-num-seqs": "2", "block-size": "32"})
    assert fixed == ["--no-enable-prefix-caching", "--max-model-len", "1k"]
    with pytest.raises(ConfigError):
        read_base("m", ["--max-num-sex", "2"], set())


def test_flags_that_do_not_go_together_are_no_candidate():
    assert not is_valid("m", ["--max-num-seqs", "64", "--max-num-batched-tokens", "32"])
    assert is_valid("m", ["--max-num-seqs", "32", "--max-num-batched-tokens", "64"])


def test_ratios_of_the_same_rounds_cancel_what_disturbs_all():
    ratio = compare([20, 10, 40, 18], [10, 5, 20, 9])
    assert ratio.is_better
    assert (ratio.mean, ratio.low) == (pytest.approx(2), pytest.approx(2))
    assert compare([100, 101, 99], [100, 100, 100]).is_same
    assert not compare([100, 50, 200], [100, 100, 100]).is_sure
    assert not compare([100], [50]).is_sure


def test_only_answers_within_the_objective_count():
    quick = Answer(ttft_s=0.1, latency_s=1.0, itls_s=[0.02] * 9, num_output_tokens=10)
    slow = Answer(ttft_s=0.9, latency_s=2.0, itls_s=[0.02] * 9, num_output_tokens=10)
    jerky = Answer(ttft_s=0.1, latency_s=2.0, itls_s=[0.02, 0.5] * 5, num_output_tokens=10)
    broken = Answer(ttft_s=0.1, num_output_tokens=10, error="gone")
    run = Run([Record(0.0, 5, answer) for answer in (quick, slow, jerky, broken)], duration_s=2.0)
    assert Objective().score(run) == 15
    assert Objective(ttft_s=0.5).score(run) == 10
    assert Objective(ttft_s=0.5, itl_s=0.05).score(run) == 5


def test_the_file_is_one_that_serve_reads(tmp_path):
    from octavo.config.flag_files import expand_files

    outcome = run(machine(0.02))
    path = tmp_path / "tuned.flags"
    path.write_text(flags_file("a model", ["--max-model-len", "1k"], outcome, ["on this machine"]))
    assert expand_files([f"@{path}"]) == ["--model", "a model", "--max-model-len", "1k", *outcome.best.words()]
    assert "# on this machine\n" in path.read_text()
    assert "of the score before" in path.read_text()
