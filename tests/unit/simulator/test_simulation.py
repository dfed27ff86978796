from math import inf

import pytest

from octavo.kv.manager import KVManager
from octavo.messages.wire import GenerateRequest
from octavo.params import SamplingParams
from octavo.scheduler.admission import Limits
from octavo.simulator.fake_model import FakeModel
from octavo.simulator.simulation import Arrival, Caps, Simulation
from octavo.simulator.step_time import StepTime
from octavo.simulator.traffic import VOCAB_SIZE, Traffic, draw_traffic

SECOND = StepTime(base_s=1.0)  # a step takes a second


def simulate(arrivals, *, seqs=4, budget=64, blocks=100, step_time=SECOND, **options):
    limits = Limits(max_model_len=256, max_num_seqs=seqs, max_num_batched_tokens=budget, vocab_size=VOCAB_SIZE)
    return Simulation(limits, KVManager(blocks, 16), FakeModel(VOCAB_SIZE), step_time, **options).run(arrivals)


def ask(name, at_s=0.0, *, prompt_len=8, output_len=3, abort_s=None, seed=0):
    params = SamplingParams(max_tokens=output_len, ignore_eos=True, seed=seed)
    prompt = [100 + seed] * prompt_len
    return Arrival(at_s, GenerateRequest(request_id=name, prompt_token_ids=prompt, params=params, arrival_s=at_s), abort_s)


def test_a_lone_request_gets_a_token_each_step():
    (story,) = simulate([ask("a")], depth=1).stories
    assert story.times_s == [1.0, 2.0, 3.0]
    assert (story.ending, story.end_s, story.sent_s) == ("length", 3.0, 0.0)


def test_tokens_depend_on_seed_and_position_alone():
    alone = simulate([ask("a", seed=5)]).stories[0].token_ids
    beside = simulate([ask("b", seed=6), ask("c", seed=7), ask("a", 0.5, seed=5)], budget=5)
    assert next(story for story in beside.stories if story.request.request_id == "a").token_ids == alone


def test_who_comes_during_a_step_waits_for_the_next_one():
    late = simulate([ask("a", output_len=9), ask("b", 1.5)], depth=1).stories[1]
    assert (late.sent_s, late.times_s[0]) == (1.5, 3.0)


def test_who_comes_while_a_step_is_planned_ahead_waits_for_the_one_after_it():
    late = simulate([ask("a", output_len=9), ask("b", 1.5)], depth=2).stories[1]
    assert late.times_s[0] == 4.0


def test_the_clock_jumps_over_idle_time():
    outcome = simulate([ask("a"), ask("b", 1000.0)])
    assert (outcome.seconds, outcome.num_steps) == (1003.0, 6)


def test_a_step_costs_its_tokens_and_what_it_reads():
    outcome = simulate([ask("a", prompt_len=8, output_len=2)], step_time=StepTime(token_s=1.0, pair_s=0.01), depth=1)
    assert outcome.stories[0].times_s == pytest.approx([8 + 0.36, 8 + 0.36 + 1 + 0.09])


def test_a_caller_that_leaves_gets_no_more_tokens():
    story = simulate([ask("a", output_len=50, abort_s=5.0)], depth=1).stories[0]
    assert (story.ending, len(story.token_ids), story.end_s) == ("abort", 5, 5.0)


def test_the_cap_on_requests_refuses_those_beyond_it():
    outcome = simulate([ask(f"r{number}") for number in range(5)], caps=Caps(max_num_queued_reqs=2))
    assert [story.ending for story in outcome.stories] == ["length"] * 2 + ["refused"] * 3


def test_the_cap_on_tokens_takes_the_request_that_crosses_it():
    outcome = simulate([ask(f"r{number}") for number in range(5)], caps=Caps(max_num_queued_tokens=15))
    assert [story.ending for story in outcome.stories] == ["length"] * 2 + ["refused"] * 3
    later = [ask("r0", output_len=20), ask("r1", 3.5)]
    assert [story.ending for story in simulate(later, caps=Caps(max_num_queued_tokens=8)).stories] == ["length"] * 2


def test_callers_wait_for_a_place_and_send_when_one_is_free():
    outcome = simulate([ask("a"), ask("b"), ask("c", 50.0)], caps=Caps(max_concurrency=1))
    assert [story.sent_s for story in outcome.stories] == [0.0, 3.0, 50.0]


def test_a_request_that_can_never_fit_is_refused():
    outcome = simulate([ask("a", prompt_len=8, output_len=200)], blocks=4)
    assert (outcome.stories[0].ending, outcome.num_steps) == ("refused", 0)


def test_a_pool_too_small_for_all_preempts_and_ends_each_request():
    outcome = simulate([ask(f"r{number}", prompt_len=15, output_len=60, seed=number) for number in range(4)], blocks=9)
    assert outcome.counters.preemptions > 0
    assert all((story.ending, len(story.token_ids)) == ("length", 60) for story in outcome.stories)
    assert max(sample.kv_usage for sample in outcome.samples) > 0.8
    assert max(sample.num_waiting for sample in outcome.samples) >= 1
    assert outcome.samples[-1].kv_usage == 0.0


def test_a_shared_prefix_is_found_in_the_cache():
    shared = simulate(draw_traffic(Traffic(20, 0.5, 16, 4, prefix_len=64), seed=1)).counters
    own = simulate(draw_traffic(Traffic(20, 0.5, 80, 4), seed=1)).counters
    assert shared.prefix_cache_hits == 19 * 64
    assert own.prefix_cache_hits == 0


def test_a_simulated_second_of_many_steps_takes_little_time():
    outcome = simulate(draw_traffic(Traffic(50, inf, 32, 40), seed=0), step_time=StepTime(base_s=0.001))
    assert outcome.num_steps >= 500
    assert outcome.seconds == pytest.approx(outcome.num_steps * 0.001)
