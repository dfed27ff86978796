"""Each rule alone: the state that it names, and the near one that it must not."""

import dataclasses
import math

import pytest

from octavo.doctor.diagnosis import RULES, command_line, diagnose
from octavo.doctor.finding import Change, Evidence, Sign
from octavo.doctor.observation import Counts, Histogram, Observation, Sample, Settings, Times
from octavo.doctor.scheduling_rules import LONG_PROMPT_STALLS

BOUNDS = (1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, math.inf)
KNOWN = Settings(model="m", max_num_seqs=8, max_num_batched_tokens=256, block_size=16, num_blocks=101)


def gauges(running, waiting, kv_usage, count=9):
    return tuple(Sample(index * 0.5, running, waiting, kv_usage) for index in range(count))


def steps(**counts):
    """Return a histogram: le_64=30 puts 30 steps of 64 tokens into that bucket."""
    by_bound = {float(name.removeprefix("le_")): count for name, count in counts.items()}
    return Histogram(BOUNDS, tuple(by_bound.get(bound, 0.0) for bound in BOUNDS), sum(b * c for b, c in by_bound.items()))


def seen(**fields):
    defaults = {"source": "test", "seconds": 10.0, "settings": KNOWN, "mean_prompt_tokens": 20.0, "mean_output_tokens": 12.0}
    return Observation(**(defaults | fields))


STATES = {
    "unhealthy": (seen(illness="503 server_draining"), seen()),
    "failures": (seen(counts=Counts(failed=1, finished=9)), seen(counts=Counts(finished=9))),
    "thrash": (
        seen(counts=Counts(preemptions=12, finished=10), samples=gauges(8, 4, 0.9)),
        seen(counts=Counts(preemptions=12, finished=100), samples=gauges(8, 4, 0.9)),
    ),
    "kv_memory": (seen(samples=gauges(5, 3, 0.99)), seen(samples=gauges(5, 0, 0.99))),
    "batch_width": (seen(samples=gauges(8, 3, 0.3)), seen(samples=gauges(8, 0, 0.3))),
    "token_budget": (
        seen(step_tokens=steps(le_256=50, le_8=50), counts=Counts(generation_tokens=400), samples=gauges(4, 0, 0.1)),
        seen(samples=gauges(4, 0, 0.1), step_tokens=steps(le_256=5, le_8=95), counts=Counts(generation_tokens=760)),
    ),
    "long_prompt_stalls": (
        seen(itl=Times(500, 0.03, 0.02, 0.4), step_tokens=steps(le_8=480, le_256=20), samples=gauges(3, 0, 0.2)),
        seen(itl=Times(500, 0.03, 0.02, 0.4), step_tokens=steps(le_8=500), samples=gauges(3, 0, 0.2)),
    ),
    "front_end": (
        seen(counts=Counts(cpu_s=9.2, generation_tokens=50_000)),
        seen(counts=Counts(cpu_s=5.0, generation_tokens=50_000)),
    ),
    "memory_bandwidth": (
        seen(
            settings=dataclasses.replace(KNOWN, weight_bytes=10**9, bandwidth=2e10),
            step_tokens=steps(le_8=150),
            counts=Counts(generation_tokens=1200),
        ),
        seen(
            settings=dataclasses.replace(KNOWN, weight_bytes=10**9, bandwidth=2e10),
            step_tokens=steps(le_8=50),
            counts=Counts(generation_tokens=400),
        ),
    ),
    "speculation": (
        seen(counts=Counts(drafts=100, draft_tokens=400, accepted_tokens=10)),
        seen(counts=Counts(drafts=100, draft_tokens=400, accepted_tokens=200)),
    ),
    "cache_churn": (
        seen(counts=Counts(prefix_queries=3000, prefix_hits=100), before=Counts(prefix_queries=1000, prefix_hits=800)),
        seen(counts=Counts(prefix_queries=3000, prefix_hits=2000), before=Counts(prefix_queries=1000, prefix_hits=800)),
    ),
    "queue": (
        seen(samples=tuple(Sample(index * 0.5, 4, 2.0 * index, 0.2) for index in range(9)), settings=Settings()),
        seen(samples=gauges(4, 2, 0.2), settings=Settings()),
    ),
    "slo": (
        seen(ttft=Times(20, 0.3, 0.2, 1.4), settings=dataclasses.replace(KNOWN, ttft_slo_s=1.0)),
        seen(ttft=Times(20, 0.3, 0.2, 0.9), settings=dataclasses.replace(KNOWN, ttft_slo_s=1.0)),
    ),
    "under_use": (seen(samples=gauges(1, 0, 0.1)), seen(samples=gauges(4, 0, 0.1))),
}


def names(observation):
    return [finding.rule for finding in diagnose(observation).findings]


def test_every_rule_is_held_here():
    assert set(STATES) == {rule.name for rule in RULES}


@pytest.mark.parametrize("name", STATES)
def test_a_rule_names_its_state(name):
    assert name in names(STATES[name][0])


@pytest.mark.parametrize("name", STATES)
def test_a_rule_is_silent_about_the_near_state(name):
    assert name not in names(STATES[name][1])


def test_an_observation_without_figures_is_healthy():
    assert diagnose(Observation("nothing", 1.0)).is_healthy
    assert names(Observation("nothing", 1.0)) == []


def test_a_full_pool_is_not_taken_for_a_narrow_batch():
    assert names(seen(samples=gauges(8, 3, 0.99))) == ["kv_memory"]


def test_requests_as_large_as_the_pool_fill_it_at_less_than_all():
    large = seen(samples=gauges(1, 3, 0.6), mean_prompt_tokens=900.0, mean_output_tokens=100.0)
    assert names(large) == ["kv_memory"]
    assert "batch_width" not in names(large)


def test_stalls_are_mended_by_the_length_of_a_mixed_step_or_in_vllm_by_the_piece_of_a_prompt():
    stalling, _ = STATES["long_prompt_stalls"]
    of_vllm = dataclasses.replace(stalling, settings=Settings(program="vllm", max_num_batched_tokens=2048))
    slightly = dataclasses.replace(stalling, itl=Times(500, 0.03, 0.02, 0.12))
    changes = [LONG_PROMPT_STALLS.check(each).changes for each in (stalling, slightly, of_vllm)]
    assert changes == [
        ((Change("mixed-step-ms", "100"),),),
        ((Change("mixed-step-ms", "60"),),),
        ((Change("long-prefill-token-threshold", "256"),),),
    ]


def test_without_the_flag_a_plateau_tells_the_width():
    plateau = seen(settings=Settings(), samples=gauges(6, 3, 0.2))
    assert names(plateau) == ["batch_width"]
    moving = seen(settings=Settings(), samples=(*gauges(6, 3, 0.2, 5), *gauges(7, 3, 0.2, 5)))
    assert names(moving) == []


def test_seats_and_pool_count_over_all_engines():
    two = dataclasses.replace(KNOWN, num_engines=2)
    assert names(seen(settings=two, samples=gauges(8, 3, 0.3))) == []
    assert names(seen(settings=two, samples=gauges(16, 3, 0.3))) == ["batch_width"]


def test_a_server_that_is_slow_to_tell_its_metrics_has_a_busy_front_end():
    slow = tuple(dataclasses.replace(sample, answer_s=0.9) for sample in gauges(3, 0, 0.1))
    assert "front_end" in names(seen(samples=slow, counts=Counts(generation_tokens=4000)))
    assert "front_end" not in names(seen(samples=slow))  # no token was sent: it is something else


def test_one_prompt_at_a_time_that_fits_is_not_held_up_by_the_budget():
    full = {"step_tokens": steps(le_256=50, le_8=50), "counts": Counts(generation_tokens=400), "samples": gauges(1, 0, 0.1)}
    assert "token_budget" not in names(seen(**full))
    assert "token_budget" in names(seen(**full, mean_prompt_tokens=2000.0))


def test_an_admission_cap_that_is_reached_is_a_queue():
    capped = dataclasses.replace(KNOWN, max_num_queued_reqs=6)
    assert "queue" in names(seen(settings=capped, samples=gauges(5, 1, 0.2)))
    assert "queue" not in names(seen(settings=capped, samples=gauges(3, 0, 0.2)))


def test_requests_that_are_turned_away_are_a_queue():
    assert names(seen(counts=Counts(finished=50, refused=10))) == ["queue"]
    assert names(seen(counts=Counts(finished=50, expired=10))) == ["queue"]
    assert names(seen(counts=Counts(finished=500, refused=1))) == []


def test_a_note_gives_way_to_a_finding():
    assert names(seen(samples=gauges(1, 0, 0.1), counts=Counts(failed=1))) == ["failures"]


def test_the_command_names_only_flags_that_the_program_has():
    sign = Sign((), ((Change("no-such-flag", "2"),), (Change("max-num-seqs", "4"),)))
    assert command_line(sign, Settings(model="m")) == "octavo serve m --max-num-seqs 4"
    assert command_line(sign, Settings(program="vllm", model="m")) == "vllm serve m --no-such-flag 2"
    assert command_line(Sign((), ((Change("no-such-flag", "2"),),)), Settings()) is None


def test_a_flag_to_leave_out_is_said_so():
    found = diagnose(dataclasses.replace(STATES["speculation"][0], settings=Settings(program="vllm", model="m"))).findings
    assert found[0].command == "vllm serve m # without --speculative-config"


@pytest.mark.parametrize(
    ("evidence", "text"),
    [
        (Evidence("pool", 0.934, "%"), "pool: 93%"),
        (Evidence("p99", 0.25, "s"), "p99: 250 ms"),
        (Evidence("p99", 12.34, "s"), "p99: 12.3 s"),
        (Evidence("preemptions", 1200.0), "preemptions: 1,200"),
    ],
)
def test_evidence_reads_well(evidence, text):
    assert str(evidence) == text


def test_a_quantile_is_linear_within_its_bucket():
    histogram = Histogram((1.0, 2.0, math.inf), (2.0, 2.0, 0.0), 5.0)
    assert histogram.quantile(0.5) == 1.0
    assert histogram.quantile(0.75) == 1.5
    assert Histogram((1.0, math.inf), (0.0, 3.0), 9.0).quantile(0.99) == 1.0  # all that is known: above it
