import time

import pytest
from tests.fakes.history_worker import HistoryWorker, make_request, solo_output

from octavo.engine import core as core_module
from octavo.engine.core import EngineCore
from octavo.engine.executor import InlineExecutor
from octavo.errors import EngineError
from octavo.kv.manager import KVManager
from octavo.messages.wire import ControlRequest
from octavo.scheduler.admission import Limits
from octavo.scheduler.scheduler import Scheduler

VOCAB = 500


def make_core(*, num_blocks=60, **limits):
    chosen = {"max_model_len": 60, "max_num_seqs": 8, "max_num_batched_tokens": 32, "vocab_size": VOCAB} | limits
    worker = HistoryWorker(num_blocks, 4, VOCAB)
    return EngineCore(Scheduler(Limits(**chosen), KVManager(num_blocks, 4)), InlineExecutor(worker)), worker


def run(core):
    """Return (request id -> tokens, request id -> final delta, all stats)."""
    tokens, finals, stats = {}, {}, []
    while core.has_work:
        outputs = core.step()
        for delta in outputs.deltas:
            assert delta.request_id not in finals
            tokens.setdefault(delta.request_id, []).extend(delta.token_ids)
            if delta.finish_reason:
                finals[delta.request_id] = delta
        if outputs.stats:
            stats.append(outputs.stats)
    return tokens, finals, stats


def eight_requests():
    return [make_request(f"r{n}", list(range(n, n + 9 + n)), max_tokens=6 + n) for n in range(8)]


@pytest.mark.parametrize("culprit", ["r0", "r3", "r7"])
def test_a_request_that_breaks_the_step_fails_alone_and_the_others_do_not_notice(culprit):
    core, worker = make_core()
    worker.faults = {culprit: 2}  # in the batch, and once more alone
    requests = eight_requests()
    for request in requests:
        core.add(request)
    tokens, finals, _ = run(core)
    for request in requests:
        if request.request_id == culprit:
            assert finals[culprit].finish_reason == "error"
            assert "InjectedFault" in finals[culprit].error
        else:
            expected, reason, _ = solo_output(request, vocab_size=VOCAB, max_model_len=60)
            assert tokens[request.request_id] == expected
            assert finals[request.request_id].finish_reason == reason


def test_a_fault_that_passes_fails_nobody():
    core, worker = make_core()
    worker.faults = {"r5": 1}
    requests = eight_requests()
    for request in requests:
        core.add(request)
    tokens, finals, _ = run(core)
    assert len(finals) == 8
    for request in requests:
        assert tokens[request.request_id] == solo_output(request, vocab_size=VOCAB, max_model_len=60)[0]


def test_a_fault_in_the_middle_of_an_answer_keeps_what_was_sent():
    core, worker = make_core()
    for request in eight_requests():
        core.add(request)
    core.step()
    worker.faults = {"r0": 2}
    _, finals, _ = run(core)
    assert finals["r0"].finish_reason == "error"
    assert len(finals) == 8
    assert core.reset_prefix_cache()  # no block is held


def test_a_failed_step_leaves_nothing_in_the_prefix_cache():
    core, worker = make_core()
    worker.faults = {"bad": 2}
    core.add(make_request("bad", list(range(20)), max_tokens=2))
    run(core)
    core.add(make_request("again", list(range(20)), max_tokens=2))
    _, finals, _ = run(core)
    assert finals["again"].num_cached_tokens == 0


def test_a_refused_request_gets_one_final_delta_with_the_reason():
    core, _ = make_core()
    core.add(make_request("long", [1] * 60))
    assert core.has_work
    outputs = core.step()
    assert outputs.stats is None
    (delta,) = outputs.deltas
    assert (delta.request_id, delta.finish_reason) == ("long", "error")
    assert "this server takes 60" in delta.error
    assert core.step() is None
    assert not core.has_work


def test_a_second_request_with_an_unfinished_id_raises():
    core, _ = make_core()
    core.add(make_request("r", [1]))
    with pytest.raises(EngineError):
        core.add(make_request("r", [1]))


def test_an_aborted_request_gets_one_final_delta():
    core, _ = make_core()
    core.add(make_request("a", [1, 2, 3], max_tokens=30))
    core.step()
    core.abort(["a", "a", "unknown"])
    core.abort(["a"])
    outputs = core.step()
    assert [(delta.request_id, delta.finish_reason) for delta in outputs.deltas] == [("a", "abort")]
    assert core.step() is None


def test_figures_of_all_steps_add_up():
    core, _ = make_core()
    requests = eight_requests()
    for request in requests:
        core.add(request)
    tokens, _, stats = run(core)
    prompts = sum(len(request.prompt_token_ids) for request in requests)
    outputs = sum(map(len, tokens.values()))
    assert sum(one.num_prompt_tokens for one in stats) == prompts - sum(one.prefix_cache_hits for one in stats)
    assert sum(one.num_output_tokens for one in stats) == outputs
    assert sum(one.prefix_cache_queries for one in stats) == prompts
    assert sum(one.num_scheduled_tokens for one in stats) == sum(one.num_prompt_tokens for one in stats) + outputs - len(requests)
    assert [one.step_id for one in stats] == list(range(1, len(stats) + 1))
    assert stats[-1].kv_usage == 0
    assert all(one.step_s >= one.schedule_s >= 0 for one in stats)


def test_control_verbs_are_answered():
    core, _ = make_core()
    assert core.control(ControlRequest(3, "ping")).control_id == 3
    core.add(make_request("a", [1, 2, 3], max_tokens=30))
    core.step()
    refused = core.control(ControlRequest(4, "reset_prefix_cache"))
    assert not refused.ok
    assert "running" in refused.message
    core.abort(["a"])
    assert core.control(ControlRequest(5, "reset_prefix_cache")).ok


def test_a_reset_with_running_requests_lets_them_start_over_with_the_same_answer():
    core, _ = make_core()
    core.add(make_request("a", list(range(9)), max_tokens=12))
    tokens = [token for _ in range(3) for delta in core.step().deltas for token in delta.token_ids]
    assert core.control(ControlRequest(1, "reset_prefix_cache", reset_running_requests=True)).ok
    outputs, finals, stats = run(core)
    assert tokens + outputs["a"] == solo_output(make_request("a", list(range(9)), max_tokens=12), vocab_size=VOCAB, max_model_len=60)[0]
    assert sum(step.num_prompt_tokens for step in stats) == 9, "the prompt is computed again"
    assert finals["a"].num_cached_tokens == 0


def test_the_begin_of_a_request_is_told_once_with_its_first_delta():
    core, _ = make_core(max_num_batched_tokens=8, max_num_seqs=8)
    before = time.monotonic()
    requests = [make_request(f"r{n}", list(range(20 + n)), max_tokens=4) for n in range(3)]
    for request in requests:
        core.add(request)
    begun = {}
    while core.has_work:
        for delta in core.step().deltas:
            if delta.request_id not in begun:
                begun[delta.request_id] = delta.begun_s
            else:
                assert delta.begun_s is None
    assert before < begun["r0"] < begun["r1"] < begun["r2"] < time.monotonic()


def test_a_request_that_ends_before_its_first_step_never_began():
    core, _ = make_core()
    core.add(make_request("r0", [1, 2, 3], max_tokens=4))
    core.abort(["r0"])
    (delta,) = core.step().deltas
    assert (delta.finish_reason, delta.begun_s) == ("abort", None)


def test_the_last_delta_says_how_often_a_request_lost_its_place():
    core, _ = make_core(num_blocks=12)
    for number in range(4):
        core.add(make_request(f"r{number}", list(range(number, number + 8)), max_tokens=20))
    _, finals, stats = run(core)
    assert sum(delta.num_preemptions for delta in finals.values()) == sum(step.num_preemptions for step in stats) > 0
    assert finals["r0"].num_preemptions == 0


def test_a_request_that_waits_too_long_for_its_first_step_is_refused_and_nobody_else(monkeypatch):
    now = 100.0
    monkeypatch.setattr(core_module.time, "monotonic", lambda: now)
    core, _ = make_core(max_num_seqs=2, max_queue_s=5.0)
    for number in range(3):
        core.add(make_request(f"r{number}", [number, 1, 2], max_tokens=8))
    core.step()  # r0 and r1 run
    now = 104.0
    core.add(make_request("r3", [3, 1, 2], max_tokens=8))
    now = 106.0
    _, finals, _ = run(core)
    assert finals["r2"].finish_reason == "error"
    assert finals["r2"].error_code == "server_overloaded"
    assert "5 s" in finals["r2"].error
    assert [finals[name].finish_reason for name in ("r0", "r1", "r3")] == ["length"] * 3


def test_a_preempted_request_has_had_its_first_step_and_is_not_refused(monkeypatch):
    now = 100.0
    monkeypatch.setattr(core_module.time, "monotonic", lambda: now)
    core, _ = make_core(num_blocks=12, max_queue_s=5.0)
    for number in range(4):
        core.add(make_request(f"r{number}", list(range(number, number + 4)), max_tokens=24))
    preemptions, tokens = 0, 0
    while core.has_work:
        outputs = core.step()
        preemptions += outputs.stats.num_preemptions if outputs.stats else 0
        tokens += sum(len(delta.token_ids) for delta in outputs.deltas)
        now += 2.0 if preemptions else 0.0
    assert preemptions
    assert tokens == 4 * 24


def pause(core, mode):
    assert core.control(ControlRequest(1, "pause", mode=mode)).ok


def resume(core):
    assert core.control(ControlRequest(2, "resume")).ok


@pytest.mark.parametrize("mode", ["abort", "wait", "keep"])
def test_a_request_that_comes_during_a_pause_begins_after_it(mode):
    core, _ = make_core()
    pause(core, mode)
    request = make_request("r0", [1, 2, 3], max_tokens=5)
    core.add(request)
    assert not core.has_work
    assert core.step() is None
    resume(core)
    tokens, finals, _ = run(core)
    assert tokens["r0"] == solo_output(request, vocab_size=VOCAB, max_model_len=60)[0]
    assert finals["r0"].finish_reason == "length"


def test_pausing_with_keep_lets_requests_stand_still_and_costs_no_token():
    core, _ = make_core()
    requests = eight_requests()
    for request in requests:
        core.add(request)
    tokens = {}
    for _ in range(3):
        for delta in core.step().deltas:
            tokens.setdefault(delta.request_id, []).extend(delta.token_ids)
    pause(core, "keep")
    while core.has_work:
        for delta in core.step().deltas:
            tokens.setdefault(delta.request_id, []).extend(delta.token_ids)
    assert core.step() is None
    resume(core)
    rest, finals, _ = run(core)
    for request in requests:
        name = request.request_id
        assert tokens.get(name, []) + rest[name] == solo_output(request, vocab_size=VOCAB, max_model_len=60)[0]
        assert finals[name].finish_reason is not None


def test_pausing_with_abort_ends_what_is_there_and_gives_back_its_blocks():
    core, _ = make_core()
    for request in eight_requests():
        core.add(request)
    core.step()
    pause(core, "abort")
    assert core.reset_prefix_cache()
    _, finals, _ = run(core)
    assert {delta.finish_reason for delta in finals.values()} == {"abort"}
    assert len(finals) == 8


def test_pausing_with_wait_lets_what_is_there_come_to_its_end():
    core, _ = make_core()
    for request in eight_requests():
        core.add(request)
    core.step()
    pause(core, "wait")
    core.add(make_request("late", [4, 5], max_tokens=2))
    _, finals, _ = run(core)
    assert set(finals) == {f"r{number}" for number in range(8)}
    resume(core)
    assert set(run(core)[1]) == {"late"}


def test_a_held_request_can_be_aborted():
    core, _ = make_core()
    pause(core, "keep")
    core.add(make_request("r0", [1], max_tokens=5))
    core.abort(["r0"])
    assert core.has_work
    assert [delta.finish_reason for delta in core.step().deltas] == ["abort"]
    resume(core)
    assert not core.has_work
