"""Prompts give way to the pace of answers in progress: alone, and in the scheduler on a clock of its own."""

from itertools import pairwise

import pytest

from octavo.kv.manager import KVManager
from octavo.messages.wire import GenerateRequest
from octavo.params import SamplingParams
from octavo.scheduler.admission import Limits
from octavo.scheduler.pace import LEAST_TOKENS, PromptPace
from octavo.simulator.fake_model import FakeModel
from octavo.simulator.simulation import Arrival, Simulation
from octavo.simulator.step_time import StepTime

SLOW = StepTime(base_s=0.01, token_s=0.0005, pair_s=1e-6)  # 512 tokens behind 7,000 take 4 s


def test_a_step_that_took_too_long_sets_the_number_to_what_fits():
    pace = PromptPace(0.2, 512)
    assert pace.num_tokens == 512
    pace.observe(512, 0.8)
    assert pace.num_tokens == 128


def test_a_short_step_raises_it_to_twice_at_most_and_to_what_a_step_holds():
    pace = PromptPace(0.2, 512)
    pace.observe(512, 1.6)
    assert pace.num_tokens == 64
    pace.observe(60, 0.01)
    assert pace.num_tokens == 128
    pace.observe(128, 0.16)
    assert pace.num_tokens == 160
    pace.observe(20, 0.19)  # few tokens tell little: what was known to fit still does
    assert pace.num_tokens == 160
    for _ in range(5):
        pace.observe(160, 0.01)
    assert pace.num_tokens == 512


def test_however_slow_a_prompt_moves_on():
    pace = PromptPace(0.2, 512)
    pace.observe(512, 1000.0)
    assert pace.num_tokens == LEAST_TOKENS


@pytest.mark.parametrize(("wished_s", "tokens", "seconds"), [(None, 512, 9.0), (0.2, LEAST_TOKENS - 1, 9.0), (0.2, 512, 0.0)])
def test_what_says_nothing_of_prompts_changes_nothing(wished_s, tokens, seconds):
    pace = PromptPace(wished_s, 512)
    pace.observe(tokens, seconds)
    assert pace.num_tokens == 512


def stories(arrivals, mixed_step_s, **limits):
    limits = Limits(max_model_len=8192, max_num_seqs=16, max_num_batched_tokens=512, vocab_size=50, mixed_step_s=mixed_step_s, **limits)
    return Simulation(limits, KVManager(2000, 16), FakeModel(50), SLOW).run(arrivals).stories


def arrival(at_s, name, num_prompt, max_tokens):
    prompt = [(len(name) * 7 + position) % 50 for position in range(num_prompt)]
    params = SamplingParams(max_tokens=max_tokens, seed=0, ignore_eos=True)
    return Arrival(at_s, GenerateRequest(request_id=name, prompt_token_ids=prompt, params=params, arrival_s=at_s))


def behind_a_long_one(mixed_step_s):
    """Return the longest gap of a stream while a long prompt is computed, the seconds of that, those of a short one behind it."""
    found = {
        story.request.request_id: story
        for story in stories([arrival(0.0, "stream", 20, 2000), arrival(1.0, "long", 7000, 1), arrival(1.5, "short", 60, 1)], mixed_step_s)
    }
    long_s, short_s = (found[name].times_s[0] - found[name].sent_s for name in ("long", "short"))
    times = [time_s for time_s in found["stream"].times_s if 1.0 < time_s <= found["long"].times_s[0]]
    return max(then - first for first, then in pairwise(times)), long_s, short_s


def test_streams_keep_their_pace_beside_a_long_prompt_and_it_costs_the_prompt_little():
    paced_gap, paced_long, paced_short = behind_a_long_one(0.2)
    free_gap, free_long, free_short = behind_a_long_one(None)
    assert free_gap > 3
    assert paced_gap < 0.7  # two steps of the full size, planned before anything was known
    assert paced_long < 1.15 * free_long
    assert paced_short < free_short < free_long / 4


def test_a_prompt_with_nobody_beside_it_gets_the_whole_step():
    (alone,) = stories([arrival(0.0, "long", 7000, 1)], 0.2)
    (free,) = stories([arrival(0.0, "long", 7000, 1)], None)
    assert alone.times_s == free.times_s


def test_without_chunks_nothing_is_cut():
    arrivals = [arrival(0.0, "stream", 20, 50), arrival(0.1, "whole", 500, 1)]
    found = stories(arrivals, 0.01, chunked_prefill=False)
    assert [story.ending for story in found] == ["length", "length"]
