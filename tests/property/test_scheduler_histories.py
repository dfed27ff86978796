"""Random histories through the real scheduler, KV manager and engine core, with a worker whose tokens depend on every block.

The oracle is the request alone (`solo_output`). What must hold after every step, and at the end, is section by section
the list of invariants in scheduler.py and request_state.py.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from tests.fakes.history_worker import HistoryWorker, make_request, solo_output, solo_scores
from tests.fakes.inline_executor import InlineFutures
from tests.fakes.pool_checks import check_pool

from octavo.kv.host_blocks import HostBlocks
from octavo.kv.manager import KVManager
from octavo.kv.tier import KVTier
from octavo.scheduler.admission import Limits
from octavo.scheduler.request_state import Status
from octavo.scheduler.scheduler import Scheduler

VOCAB = 7
BLOCK = 4
SHARED = [[], [1, 2, 3, 4, 5, 6, 0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 6, 6, 6, 6], [0] * 9]
PROMPTS = st.builds(lambda shared, own: shared + own, st.sampled_from(SHARED), st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=6))


class SchedulerMachine(RuleBasedStateMachine):
    @initialize(num_blocks=st.integers(9, 30), caching=st.booleans(), data=st.data())
    def start(self, num_blocks, caching, data):
        budget = data.draw(st.integers(1, 40), "budget")
        self.max_model_len = 8 * BLOCK
        self.limits = Limits(
            max_model_len=self.max_model_len,
            max_num_seqs=data.draw(st.integers(1, min(6, budget)), "seqs"),
            max_num_batched_tokens=budget,
            vocab_size=VOCAB,
            long_prefill_token_threshold=data.draw(st.sampled_from([0, 1, 3, 8]), "threshold"),
            watermark=data.draw(st.sampled_from([0.0, 0.2]), "watermark"),
        )
        self.worker = HistoryWorker(num_blocks, BLOCK, VOCAB)
        tier = None
        if tier_blocks := data.draw(st.sampled_from([0, 0, 3, 100]), "blocks of the tier"):
            mode = data.draw(st.sampled_from(["auto", "swap", "recompute"]), "preemption mode")
            tier = KVTier(HostBlocks(tier_blocks * 8 * BLOCK, 8 * BLOCK), self.worker.read_block, 8 * BLOCK, mode, InlineFutures)
        self.scheduler = Scheduler(self.limits, KVManager(num_blocks, BLOCK, enable_prefix_caching=caching, tier=tier))
        self.requests = {}
        self.outputs = {}
        self.scores = {}
        self.endings = {}
        self.aborted = set()

    def take_in(self, deltas):
        for delta in deltas:
            assert delta.request_id not in self.endings, "a delta after the final one"
            assert not (delta.prompt_logprobs and self.outputs[delta.request_id]), "a score after a token"
            self.outputs[delta.request_id] += delta.token_ids
            self.scores[delta.request_id] += delta.prompt_logprobs or []
            if delta.finish_reason is not None:
                self.endings[delta.request_id] = (delta.finish_reason, delta.stop_reason)

    @rule(prompt=PROMPTS, max_tokens=st.none() | st.integers(1, 12), resumed=st.integers(0, 3), data=st.data())
    def add(self, prompt, max_tokens, resumed, data):
        request_id = f"r{len(self.requests)}"
        chosen = {
            "eos": data.draw(st.sampled_from([(), (3,)]), "eos"),
            "salt": data.draw(st.sampled_from(["", "", "tenant"]), "salt"),
            "stop_token_ids": data.draw(st.sampled_from([(), (5,)]), "stop"),
            "max_tokens": max_tokens,
            "prompt_logprobs": data.draw(st.sampled_from([None, None, 0]), "scores"),
            "min_tokens": data.draw(st.integers(0, min(4, max_tokens or 4)), "min_tokens"),
        }
        request = make_request(request_id, prompt, **chosen)
        expected = solo_output(request, vocab_size=VOCAB, max_model_len=self.max_model_len)
        sent = expected[0][: min(resumed, len(expected[0]) - 1)]  # as after an engine restart
        self.requests[request_id] = (request, expected)
        self.outputs[request_id] = list(sent)
        self.scores[request_id] = [] if chosen["prompt_logprobs"] is None or not sent else solo_scores(prompt)
        refused_or_done = self.scheduler.add(make_request(request_id, prompt, resume=sent, **chosen))
        assert refused_or_done is None

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def abort(self, data):
        ids = data.draw(st.lists(st.sampled_from([*self.requests, "unknown"]), min_size=1, max_size=3))
        deltas = self.scheduler.abort(ids)
        assert all(delta.finish_reason == "abort" and not delta.token_ids for delta in deltas)
        self.aborted |= {delta.request_id for delta in deltas}
        self.take_in(deltas)
        assert self.scheduler.abort(ids) == []

    @rule(count=st.integers(1, 6))
    def steps(self, count):
        for _ in range(count):
            self.step()

    @rule(running_too=st.booleans())
    def reset(self, running_too):
        if running_too:
            self.scheduler.preempt_all()
        assert self.scheduler.kv.reset_prefix_cache() == (self.scheduler.num_running == 0)

    def step(self):
        scheduler = self.scheduler
        unfinished = len(self.requests) - len(self.endings)
        oldest = scheduler._running[0] if scheduler._running else None
        plan = scheduler.plan()
        if plan is None:
            assert unfinished == 0
            return
        assert oldest is None or oldest.status is Status.RUNNING, "the oldest was preempted"
        assert 0 < plan.num_tokens <= self.limits.max_num_batched_tokens
        assert plan.num_logits <= self.limits.max_num_seqs
        assert len(plan.rows) <= scheduler.num_running <= self.limits.max_num_seqs
        if self.limits.long_prefill_token_threshold and unfinished > 1:
            assert all(row.num_tokens <= self.limits.long_prefill_token_threshold for row in plan.rows)
        for row in plan.rows:
            state = scheduler._states[row.request_id]
            assert state.status is Status.RUNNING
            assert row.start == state.num_computed_tokens
            assert row.start + row.num_tokens <= len(state.table.block_ids) * BLOCK
        self.take_in(scheduler.apply(plan, self.worker.execute(plan)))
        self.check_between_steps()

    def check_between_steps(self):
        scheduler = self.scheduler
        running, waiting = scheduler._running, list(scheduler._waiting._states.values())
        order = [int(state.request_id[1:]) for state in [*running, *waiting]]
        assert order == sorted(order), "first come, first served"
        assert set(scheduler._states) == {state.request_id for state in [*running, *waiting]} == set(self.requests) - set(self.endings)
        for state in running:
            assert state.status is Status.RUNNING
            assert 0 < state.num_computed_tokens < state.num_tokens < state.stop.max_total
        for state in waiting:
            assert state.status in (Status.WAITING, Status.PREEMPTED)
            assert state.num_computed_tokens == 0
            assert state.table.block_ids == []
        check_pool(scheduler.kv.pool, [state.table for state in running])

    def teardown(self):
        if not hasattr(self, "scheduler"):
            return
        # Alone and one after another, nobody needs more steps than it has tokens; preemption may repeat work, boundedly.
        bound = 40 + 4 * sum(len(request.prompt_token_ids) + len(expected[0]) for request, expected in self.requests.values())
        for _ in range(bound):
            if not self.scheduler.has_requests:
                break
            self.step()
        assert not self.scheduler.has_requests, "no request waits for ever"
        for request_id, (request, (tokens, reason, stop_reason)) in self.requests.items():
            scores = [] if request.params.prompt_logprobs is None else solo_scores(request.prompt_token_ids)
            assert self.scores[request_id] == scores[: len(self.scores[request_id])]
            if request_id in self.aborted:
                assert self.endings[request_id] == ("abort", None)
                assert self.outputs[request_id] == tokens[: len(self.outputs[request_id])]
            else:
                assert self.endings[request_id] == (reason, stop_reason)
                assert self.outputs[request_id] == tokens
                assert self.scores[request_id] == scores
        assert set(self.endings) == set(self.requests)
        pool = self.scheduler.kv.pool
        assert pool.num_free == pool.num_usable
        assert self.scheduler.num_running == self.scheduler.num_waiting == 0


SchedulerMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=30, deadline=None, derandomize=True)
TestSchedulerHistories = SchedulerMachine.TestCase
