import pytest
from msgspec.structs import replace
from tests.fakes.history_worker import HistoryWorker, make_request, solo_output, solo_scores
from tests.fakes.inline_executor import InlineFutures

from octavo.errors import EngineError
from octavo.kv.host_blocks import HostBlocks
from octavo.kv.manager import KVManager
from octavo.kv.tier import KVTier
from octavo.messages.step import StepResult
from octavo.scheduler.admission import Limits
from octavo.scheduler.counters import Counters
from octavo.scheduler.scheduler import Scheduler

VOCAB = 1000


class Rig:
    """A scheduler and its worker, stepped by hand."""

    def __init__(self, *, num_blocks=50, block_size=4, **limits):
        chosen = {"max_model_len": 100, "max_num_seqs": 8, "max_num_batched_tokens": 16, "vocab_size": VOCAB} | limits
        self.scheduler = Scheduler(Limits(**chosen), KVManager(num_blocks, block_size))
        self.worker = HistoryWorker(num_blocks, block_size, VOCAB)

    def add(self, request_id, num_prompt, **params):
        request = make_request(request_id, [(7 * i + len(request_id)) % VOCAB for i in range(num_prompt)], **params)
        self.scheduler.add(request)
        return request

    def step(self):
        """Return ({request id: tokens scheduled}, deltas)."""
        plan = self.scheduler.plan()
        deltas = self.scheduler.apply(plan, self.worker.execute(plan))
        return {row.request_id: row.num_tokens for row in plan.rows}, deltas

    def run(self):
        deltas = []
        while self.scheduler.has_requests:
            deltas += self.step()[1]
        return deltas


def test_running_requests_come_first_and_a_long_prompt_gets_what_is_left():
    rig = Rig()
    rig.add("short", 3, max_tokens=50)
    rig.add("long", 40)
    assert rig.step()[0] == {"short": 3, "long": 13}
    assert rig.step()[0] == {"short": 1, "long": 15}
    assert rig.step()[0] == {"short": 1, "long": 12}
    assert rig.step()[0] == {"short": 1, "long": 1}


def test_total_scheduled_is_prompt_plus_output_minus_one():
    rig = Rig()
    rig.add("r", 10, max_tokens=5)
    rig.run()
    assert sum(plan.num_tokens for plan in rig.worker.plans) == 14


def test_the_long_prefill_threshold_spares_a_lone_request():
    rig = Rig(long_prefill_token_threshold=5)
    rig.add("long", 40)
    assert rig.step()[0] == {"long": 16}
    rig.add("other", 8)
    assert rig.step()[0] == {"long": 5, "other": 5}


def test_a_short_prompt_behind_a_long_one_is_answered_in_the_next_step_and_streams_keep_their_pace():
    rig = Rig(num_blocks=2200, max_model_len=8000, max_num_batched_tokens=512, max_num_seqs=16)
    rig.add("stream", 8, max_tokens=100)
    rig.step()
    rig.add("long", 7000, max_tokens=1)
    rig.step()
    rig.add("short", 60, max_tokens=2)
    scheduled, deltas = rig.step()
    assert "short" in {delta.request_id for delta in deltas}
    assert sum(scheduled.values()) == 512
    steps = 2
    while "long" not in {delta.request_id for delta in deltas}:
        scheduled, deltas = rig.step()
        steps += 1
        assert scheduled["stream"] == 1
    assert steps == 14  # 7,000 tokens at 511 a step: the short one cost the long one nothing


def test_with_an_adaptive_threshold_the_cap_is_an_equal_share_at_least():
    rig = Rig(max_num_batched_tokens=64, long_prefill_token_threshold=4, adaptive_threshold=True)
    rig.add("a", 90)
    rig.add("b", 90)
    assert rig.step()[0] == {"a": 32, "b": 32}


def test_without_chunked_prefill_a_prompt_waits_until_it_fits_a_step_whole():
    rig = Rig(chunked_prefill=False, max_num_batched_tokens=100)
    rig.add("first", 60, max_tokens=2)
    rig.add("second", 60, max_tokens=1)
    assert rig.step()[0] == {"first": 60}
    assert rig.step()[0] == {"first": 1, "second": 60}


def test_by_priority_the_lowest_value_runs_first_and_the_highest_is_preempted_first():
    rig = Rig(num_blocks=11, max_model_len=40, policy="priority", max_num_batched_tokens=64)
    for name, priority in (("a", 5), ("bb", -1), ("ccc", 0)):
        rig.add(name, 12, max_tokens=20, priority=priority)
    order = [delta.request_id for delta in rig.run() if delta.finish_reason]
    assert rig.scheduler.counters.preemptions > 0
    assert order == ["bb", "ccc", "a"]


def test_under_fcfs_a_priority_changes_nothing():
    rig = Rig(max_num_seqs=1)
    rig.add("a", 4, max_tokens=1, priority=9)
    rig.add("b", 4, max_tokens=1, priority=-9)
    assert [delta.request_id for delta in rig.run()] == ["a", "b"]


def test_a_tenant_with_few_requests_does_not_wait_for_all_of_anothers():
    rig = Rig(max_num_seqs=1, max_num_batched_tokens=2000, max_model_len=2000, num_blocks=600)
    for number in range(20):
        rig.add(f"many-{number}", 1000, max_tokens=1, tenant="many", salt=str(number))
    for number in range(2):
        rig.add(f"few-{number}", 1000, max_tokens=1, tenant="few", salt=str(number))
    order = [delta.request_id for delta in rig.run()]
    assert max(order.index("few-0"), order.index("few-1")) < 6
    assert [name for name in order if name.startswith("many")] == [f"many-{number}" for number in range(20)]


def test_a_plan_may_be_made_while_another_runs_but_not_a_third():
    rig = Rig()
    rig.add("r", 4, max_tokens=3)
    first, second = rig.scheduler.plan(), rig.scheduler.plan()
    assert [(row.start, row.num_tokens, row.wants_sample) for row in second.rows] == [(4, 1, True)]
    with pytest.raises(EngineError, match="2 plans are in flight"):
        rig.scheduler.plan()
    deltas = [rig.scheduler.apply(plan, rig.worker.execute(plan))[0] for plan in (first, second)]
    third = rig.scheduler.plan()
    assert rig.scheduler.plan() is None, "the last token is being sampled: nothing is left to compute"
    deltas += rig.scheduler.apply(third, rig.worker.execute(third))
    alone = make_request("r", [(7 * i + 1) % VOCAB for i in range(4)], max_tokens=3)
    assert [token for delta in deltas for token in delta.token_ids] == solo_output(alone, vocab_size=VOCAB, max_model_len=100)[0]


def test_no_more_than_max_num_seqs_run():
    rig = Rig(max_num_seqs=2)
    for name in "abc":
        rig.add(name, 2, max_tokens=2)
    assert rig.step()[0] == {"a": 2, "b": 2}
    assert (rig.scheduler.num_running, rig.scheduler.num_waiting) == (2, 1)
    assert rig.step()[0] == {"a": 1, "b": 1}
    assert rig.step()[0] == {"c": 2}


def test_a_shared_prefix_is_computed_once_and_reported_as_cached():
    rig = Rig(max_num_batched_tokens=64)
    rig.add("a", 21, max_tokens=1)
    rig.run()
    prompt = make_request("a", [(7 * i + 1) % VOCAB for i in range(21)]).prompt_token_ids
    rig.scheduler.add(make_request("b", [*prompt, 5], max_tokens=1))
    scheduled, deltas = rig.step()
    assert scheduled == {"b": 2}
    assert deltas[0].num_cached_tokens == 20
    counters = rig.scheduler.counters
    assert (counters.prefix_cache_queries, counters.prefix_cache_hits, counters.prompt_tokens) == (21 + 22, 20, 21 + 2)


def test_when_blocks_run_out_the_last_comer_is_preempted_and_answers_stay_the_same():
    rig = Rig(num_blocks=11, max_model_len=40)
    requests = [rig.add(name, 12, max_tokens=20) for name in ("a", "bb", "ccc")]
    deltas = rig.run()
    assert rig.scheduler.counters.preemptions > 0
    assert sum(row.request_id == "a" for plan in rig.worker.plans for row in plan.new_rows) == 1, "the oldest was preempted"
    for request in requests:
        tokens = [token for delta in deltas if delta.request_id == request.request_id for token in delta.token_ids]
        assert tokens == solo_output(request, vocab_size=VOCAB, max_model_len=40)[0]
    order = [delta.request_id for delta in deltas if delta.finish_reason]
    assert order == ["a", "bb", "ccc"]


def test_a_preempted_request_comes_back_only_when_it_need_not_leave_again_at_once():
    rig = Rig(num_blocks=17, max_model_len=48)  # a load in which coming back into the last free block means leaving twice more
    for name, num_prompt, max_tokens in (("a", 4, 17), ("bb", 12, 24), ("ccc", 5, 9), ("dddd", 14, 27)):
        rig.add(name, num_prompt, max_tokens=max_tokens)
    rig.run()
    assert rig.scheduler.counters.preemptions == 1


def test_a_step_that_preempts_admits_nobody():
    rig = Rig(num_blocks=11, max_model_len=40)
    for name in ("a", "bb", "ccc"):
        rig.add(name, 12, max_tokens=20)
    rig.add("tiny", 1, max_tokens=1)
    seen = 0
    while rig.scheduler.has_requests:
        before = rig.scheduler.counters.preemptions
        rig.step()
        if rig.scheduler.counters.preemptions > before:
            seen += 1
            assert rig.worker.plans[-1].new_rows == []
    assert seen > 0


def test_what_a_preempted_request_finds_of_itself_is_not_reported_as_cached():
    rig = Rig(num_blocks=11, max_model_len=40)
    for name in ("a", "bb", "ccc"):
        rig.add(name, 12, max_tokens=20)
    deltas = rig.run()
    assert rig.scheduler.counters.preemptions > 0
    assert {delta.num_cached_tokens for delta in deltas} == {0}
    assert rig.scheduler.counters.prefix_cache_queries == 36
    assert rig.scheduler.counters.prefix_cache_hits == 0


def test_a_block_is_found_as_soon_as_its_last_token_is_computed():
    rig = Rig()
    rig.scheduler.add(make_request("first", list(range(4)), max_tokens=1))
    rig.run()
    rig.scheduler.add(make_request("second", list(range(5)), max_tokens=1))
    assert rig.step()[0] == {"second": 1}


def test_the_watermark_keeps_blocks_free_beside_running_requests_but_never_stops_a_lone_one():
    rig = Rig(num_blocks=11, watermark=0.5, max_num_batched_tokens=40, max_model_len=41)
    rig.add("large", 32, max_tokens=2)  # 8 of 10 blocks: more than the watermark leaves
    rig.add("small", 4, max_tokens=2)
    assert rig.step()[0] == {"large": 32}
    assert rig.step()[0] == {"large": 1}
    assert rig.step()[0] == {"small": 4}


def test_an_abort_ends_a_request_once_in_any_state():
    rig = Rig(max_num_seqs=1)
    rig.add("running", 4)
    rig.add("waiting", 4)
    rig.step()
    deltas = rig.scheduler.abort(["running", "waiting", "running", "unknown"])
    assert [(delta.request_id, delta.finish_reason) for delta in deltas] == [("running", "abort"), ("waiting", "abort")]
    assert rig.scheduler.abort(["running"]) == []
    assert rig.scheduler.kv.pool.usage == 0
    assert rig.scheduler.plan() is None


def test_an_abort_between_plan_and_result_gives_no_later_output():
    rig = Rig()
    rig.add("a", 4)
    rig.add("b", 4)
    plan = rig.scheduler.plan()
    result = rig.worker.execute(plan)
    rig.scheduler.abort(["a"])
    assert [delta.request_id for delta in rig.scheduler.apply(plan, result)] == ["b"]


def test_nan_fails_its_request_alone_and_its_blocks_are_not_found_again():
    rig = Rig(max_num_batched_tokens=64)
    rig.worker.nan = {"sick"}
    rig.add("sick", 12, max_tokens=3)
    rig.add("healthy", 12, max_tokens=1)
    deltas = rig.run()
    sick, healthy = deltas
    assert (sick.request_id, sick.finish_reason, sick.token_ids) == ("sick", "error", [])
    assert "NaN" in sick.error
    assert (healthy.request_id, healthy.finish_reason) == ("healthy", "length")
    assert rig.scheduler.counters.nan_rows == 1
    rig.add("sick", 12, max_tokens=1)  # the same prompt again
    assert rig.step()[0] == {"sick": 12}


def test_tokens_sampled_after_the_end_are_trimmed():
    rig = Rig()
    rig.add("r", 4, max_tokens=2)
    plan = rig.scheduler.plan()
    result = rig.worker.execute(plan)
    result.sampled[0].token_ids.extend([5, 6, 7])
    (delta,) = rig.scheduler.apply(plan, result)
    assert delta.token_ids[1:] == [5]
    assert delta.finish_reason == "length"


def test_resumed_output_counts_but_is_not_sent_again():
    whole = make_request("r", [1, 2, 3], max_tokens=6)
    tokens, _, _ = solo_output(whole, vocab_size=VOCAB, max_model_len=100)
    rig = Rig()
    assert rig.scheduler.add(make_request("r", [1, 2, 3], max_tokens=6, resume=tokens[:4])) is None
    assert [token for delta in rig.run() for token in delta.token_ids] == tokens[4:]


def test_a_request_resumed_at_its_end_ends_at_once():
    rig = Rig()
    delta = rig.scheduler.add(make_request("r", [1, 2, 3], max_tokens=2, resume=[8, 9]))
    assert (delta.finish_reason, delta.token_ids) == ("length", [])
    assert not rig.scheduler.has_requests


def test_an_id_in_use_is_refused():
    rig = Rig()
    rig.add("r", 3)
    with pytest.raises(EngineError, match="unfinished"):
        rig.add("r", 3)


def test_the_worker_is_told_to_close_every_row_that_ended():
    rig = Rig()
    for name in "abc":
        rig.add(name, 3, max_tokens=1)
    rig.run()
    rig.add("last", 3, max_tokens=1)
    rig.step()
    assert set(rig.worker.rows) == {"last"}


def test_a_prompt_that_wants_its_logprobs_leaves_the_others_their_logits():
    rig = Rig(max_num_seqs=4)
    rig.add("short", 2, max_tokens=9)
    rig.add("scored", 12, prompt_logprobs=0)
    assert rig.step()[0] == {"short": 2, "scored": 3}
    assert rig.step()[0] == {"short": 1, "scored": 3}


def test_logprobs_of_a_prompt_come_once_and_from_positions_that_were_computed():
    rig = Rig(max_num_seqs=8)
    rig.add("first", 12, max_tokens=1)
    rig.run()
    request = make_request("again", [(7 * i + 5) % VOCAB for i in range(12)], max_tokens=1, prompt_logprobs=0)
    rig.scheduler.add(request)
    deltas = rig.run()
    scores = [score for delta in deltas for score in delta.prompt_logprobs or []]
    assert scores == solo_scores(request.prompt_token_ids)
    assert deltas[-1].num_cached_tokens == 0
    assert all(not delta.token_ids for delta in deltas[:-1])


def test_a_request_resumed_in_mid_prompt_gets_the_rest_of_its_logprobs():
    rig = Rig()
    request = replace(make_request("half", list(range(10)), max_tokens=1, prompt_logprobs=0), num_scored_tokens=4)
    rig.scheduler.add(request)
    assert [score for delta in rig.run() for score in delta.prompt_logprobs or []] == solo_scores(request.prompt_token_ids)[4:]


def test_preempting_all_frees_every_block_and_all_go_on():
    rig = Rig()
    requests = [rig.add(f"r{'x' * number}", 6, max_tokens=8) for number in range(3)]
    deltas = [delta for _ in range(4) for delta in rig.step()[1]]
    rig.scheduler.preempt_all()
    assert (rig.scheduler.num_running, rig.scheduler.num_waiting) == (0, 3)
    assert rig.scheduler.kv.pool.num_free == rig.scheduler.kv.pool.num_usable
    deltas += rig.run()
    for request in requests:
        tokens = [token_id for delta in deltas if delta.request_id == request.request_id for token_id in delta.token_ids]
        assert tokens == solo_output(request, vocab_size=VOCAB, max_model_len=100)[0]


def test_nothing_is_preempted_while_a_plan_is_in_flight():
    rig = Rig()
    rig.add("r", 6)
    rig.scheduler.plan()
    with pytest.raises(EngineError, match="in flight"):
        rig.scheduler.preempt_all()


def test_a_request_fails_once_and_its_blocks_are_not_found_again():
    rig = Rig()
    rig.add("r", 9, max_tokens=5)
    rig.step()
    delta = rig.scheduler.fail("r", "why")
    assert (delta.finish_reason, delta.error, delta.token_ids) == ("error", "why", [])
    assert rig.scheduler.fail("r", "why") is None
    rig.add("r", 9, max_tokens=5)
    rig.run()
    assert rig.scheduler.counters.prefix_cache_hits == 0


def test_what_was_sampled_after_the_end_is_not_kept():
    rig = Rig()
    rig.add("r", 4, max_tokens=9, stop_token_ids=(77,))
    plan = rig.scheduler.plan()
    state = rig.scheduler._roster.states["r"]
    sampled = replace(rig.worker.execute(plan).sampled[0], token_ids=[11, 77, 12, 13])
    (delta,) = rig.scheduler.apply(plan, replace(rig.worker.execute(replace(plan, new_rows=[], rows=[])), sampled=[sampled]))
    assert (delta.token_ids, delta.finish_reason, delta.stop_reason) == ([11, 77], "stop", 77)
    assert state.token_ids[4:] == [11, 77]


def test_an_answer_may_be_resumed_at_the_end_of_the_context():
    rig = Rig()
    delta = rig.scheduler.add(make_request("r", [1] * 10, resume=[2] * 90))
    assert delta.finish_reason == "length"


def test_how_long_a_step_took_is_told_to_the_kv_memory(monkeypatch):
    rig = Rig()
    heard = []
    monkeypatch.setattr(rig.scheduler.kv, "observe_step", lambda *step: heard.append(step))
    rig.add("r", 6)
    plan = rig.scheduler.plan()
    rig.scheduler.apply(plan, replace(rig.worker.execute(plan), device_s=0.25))
    assert heard == [(6, 0.25)]


def test_counters_are_exact():
    rig = Rig()
    assert rig.scheduler.counters == Counters(0, 0, 0, 0, 0, 0)
    rig.add("r", 10, max_tokens=5)
    rig.run()
    rig.add("r", 10, max_tokens=3)
    rig.run()
    counters = rig.scheduler.counters
    assert (counters.prompt_tokens, counters.output_tokens) == (10 + 2, 5 + 3)
    assert (counters.prefix_cache_queries, counters.prefix_cache_hits) == (20, 8)
    assert (counters.preemptions, counters.nan_rows) == (0, 0)


def test_preemptions_are_counted_for_each_request():
    rig = Rig()
    rig.add("r", 6)
    state = rig.scheduler._roster.states["r"]
    for number in (1, 2):
        rig.step()
        rig.scheduler.preempt_all()
        assert (state.num_preemptions, rig.scheduler.counters.preemptions) == (number, number)


def test_a_newcomer_is_loaded_from_the_tier_though_preempted_requests_are_recomputed():
    rig = Rig(num_blocks=9)
    tier = KVTier(HostBlocks(100 * 32, 32), rig.worker.read_block, 32, "recompute", InlineFutures)
    rig.scheduler = Scheduler(rig.scheduler.limits, KVManager(9, 4, tier=tier))
    rig.add("r", 13, max_tokens=1)
    rig.run()
    rig.add("other", 30, max_tokens=1)  # takes every block of the pool
    rig.run()
    rig.add("r", 13, max_tokens=1)
    plan = rig.scheduler.plan()
    assert len(plan.loads) == 3
    (delta,) = rig.scheduler.apply(plan, rig.worker.execute(plan))
    assert (delta.num_cached_tokens, delta.num_loaded_tokens) == (12, 12)
    counters = rig.scheduler.counters
    assert (counters.prefix_cache_queries, counters.prefix_cache_hits) == (13 + 30 + 13, 0)
    assert (counters.external_queries, counters.external_hits) == (13 + 30 + 13, 12)


def test_what_is_left_of_a_budget_stays_unused_when_no_block_is_free_for_it():
    rig = Rig(num_blocks=7, max_num_batched_tokens=8)
    requests = [rig.add("r", 13, max_tokens=4), rig.add("rr", 11, max_tokens=4)]
    deltas = rig.run()
    assert any(plan.num_tokens < 8 and not all(row.wants_sample for row in plan.rows) for plan in rig.worker.plans)
    for request in requests:
        tokens = [token_id for delta in deltas if delta.request_id == request.request_id for token_id in delta.token_ids]
        assert tokens == solo_output(request, vocab_size=VOCAB, max_model_len=100)[0]


def test_only_a_request_that_waits_for_its_first_step_is_refused_for_waiting():
    rig = Rig()
    request = rig.add("r", 6, max_tokens=4)
    assert rig.scheduler.refuse("unknown", "too late") is None
    rig.step()
    assert rig.scheduler.refuse("r", "too late") is None, "it runs"
    rig.scheduler.preempt_all()
    assert rig.scheduler.refuse("r", "too late") is None, "it has had its first step"
    tokens = [token_id for delta in rig.run() for token_id in delta.token_ids]
    assert tokens == solo_output(request, vocab_size=VOCAB, max_model_len=100)[0][1:]
    rig.add("late", 6)
    delta = rig.scheduler.refuse("late", "too late")
    assert (delta.finish_reason, delta.error, delta.error_code) == ("error", "too late", "server_overloaded")
    assert not rig.scheduler.has_requests


def test_the_tier_is_asked_for_a_preempted_request_as_such_from_the_first_preemption_on():
    rig = Rig()
    asked = []
    is_ready = rig.scheduler.kv.is_ready
    rig.scheduler.kv.is_ready = lambda *args, was_preempted: asked.append(was_preempted) or is_ready(*args, was_preempted=was_preempted)
    rig.add("r", 6, max_tokens=8)
    rig.step()
    rig.scheduler.preempt_all()
    rig.step()
    assert asked == [False, True]


def test_requests_that_leave_the_middle_of_the_queue_leave_no_memory_behind():
    rig = Rig(max_num_seqs=1, policy="priority")
    rig.add("running", 6, max_tokens=50)
    rig.step()
    rig.add("first", 6)
    for number in range(2000):
        rig.add(f"later-{number}", 6)
        rig.scheduler.abort([f"later-{number}"])
    assert len(rig.scheduler._roster.waiting._heap) < 100
    assert rig.scheduler.num_waiting == 1


def test_of_several_tokens_of_one_sample_those_behind_the_end_are_dropped():
    rig = Rig()
    rig.add("r", 6, max_tokens=20, eos=(999,))
    rig.step()
    plan = rig.scheduler.plan()
    (sample,) = rig.worker.execute(plan).sampled
    result = StepResult(step_id=plan.step_id, sampled=[replace(sample, token_ids=[7, 999])], device_s=0.0)
    (delta,) = rig.scheduler.apply(plan, result)
    assert (delta.token_ids, delta.finish_reason) == ([7, 999], "stop")
    assert not rig.scheduler.has_requests


def test_a_prompt_in_progress_leaves_a_token_for_each_request_behind_it():
    rig = Rig(max_num_batched_tokens=8)
    rig.add("long", 90)
    for number in range(4):
        rig.add(f"short-{number}", 1, max_tokens=60)
    for _ in range(5):
        assert rig.step()[0] == {"long": 4} | {f"short-{number}": 1 for number in range(4)}


def test_the_last_token_of_a_budget_is_handed_out_too():
    rig = Rig(max_num_batched_tokens=5, max_num_seqs=2)
    rig.add("long", 20)
    assert rig.step()[0] == {"long": 5}, "4 at first, a block, and the one that nobody else wants"


def test_with_nothing_beyond_the_pool_no_request_is_deferred():
    rig = Rig()
    assert rig.scheduler.num_deferred == 0
    rig.add("r", 6)
    rig.step()
    assert rig.scheduler.num_deferred == 0


def test_a_resumed_request_has_no_prompt_token_left_to_score():
    rig = Rig()
    rig.scheduler.add(make_request("r", [1, 2, 3, 4], resume=[5], prompt_logprobs=0, max_tokens=5))
    rig.scheduler.add(make_request("new", [1, 2, 3, 4], prompt_logprobs=0, max_tokens=5))
    assert [state.num_unscored_tokens for state in rig.scheduler._roster.states.values()] == [0, 3]


def test_the_pace_of_prompts_is_read_off_the_tokens_beyond_one_a_row():
    rig = Rig(max_num_batched_tokens=64, mixed_step_s=0.1)
    rig.add("stream", 2, max_tokens=50)
    rig.step()
    rig.add("long", 90)
    plan = rig.scheduler.plan()
    assert plan.num_tokens == 64
    rig.scheduler.apply(plan, replace(rig.worker.execute(plan), device_s=0.31))
    assert rig.step()[0] == {"stream": 1, "long": 21}, "62 took 0.31 s, so 20 and one a row take 0.1"


def test_a_request_that_decodes_asks_the_kv_memory_only_at_the_borders_of_blocks():
    rig = Rig(block_size=16, num_blocks=20)
    rig.add("r", 8, max_tokens=60)
    rig.step()
    kv, asked = rig.scheduler.kv, []
    for name in ("try_extend", "commit"):
        method = getattr(kv, name)
        setattr(kv, name, lambda *args, method=method, name=name: asked.append(name) or method(*args))
    for _ in range(48):
        rig.step()
    assert sorted(asked) == ["commit"] * 3 + ["try_extend"] * 3
