"""Random histories through the real scheduler, KV manager and engine core, with a worker whose tokens depend on every block.

The oracle is the request alone (`solo_output`). What must hold after every step, and at the end, is section by section
the list of invariants in scheduler.py and request_state.py. A step may be planned while the one before it has not run.
"""

from collections import deque

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from tests.fakes.history_worker import HistoryWorker, make_request, solo_output, solo_scores
from tests.fakes.inline_executor import InlineFutures
from tests.fakes.scheduler_checks import check_plan, check_states

from octavo.engine.core import EngineCore
from octavo.engine.executor import InlineExecutor, ThreadExecutor
from octavo.kv.groups import Groups
from octavo.kv.host_blocks import HostBlocks
from octavo.kv.manager import KVManager
from octavo.kv.tier import KVTier
from octavo.scheduler.admission import Limits
from octavo.scheduler.request_state import Status
from octavo.scheduler.scheduler import Scheduler
from octavo.specs.kv import FULL_ATTENTION, AttentionSpan

VOCAB = 7
BLOCK = 4
MAX_MODEL_LEN = 8 * BLOCK
SHARED = [[], [1, 2, 3, 4, 5, 6, 0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 6, 6, 6, 6], [0] * 9]
SPANS = st.sampled_from(
    [
        (FULL_ATTENTION,),
        (FULL_ATTENTION,),
        (AttentionSpan("sliding", 6),),
        (FULL_ATTENTION, AttentionSpan("sliding", 5)),
        (AttentionSpan("chunked", 6), FULL_ATTENTION, AttentionSpan("sliding", 9)),
    ]
)
PROMPTS = st.builds(lambda shared, own: shared + own, st.sampled_from(SHARED), st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=6))


@st.composite
def limits(draw):
    budget = draw(st.integers(1, 40))
    chunked = draw(st.sampled_from([True, True, True, False])) or budget < MAX_MODEL_LEN
    return Limits(
        max_model_len=MAX_MODEL_LEN,
        max_num_seqs=draw(st.integers(1, min(6, budget))),
        max_num_batched_tokens=budget,
        vocab_size=VOCAB,
        long_prefill_token_threshold=draw(st.sampled_from([0, 0, 1, 3, 8])),
        adaptive_threshold=draw(st.booleans()),
        chunked_prefill=chunked,
        watermark=draw(st.sampled_from([0.0, 0.2])),
        policy=draw(st.sampled_from(["fcfs", "priority"])),
    )


class Histories(RuleBasedStateMachine):
    """What both machines share: requests made at random, their outputs and ends as they come."""

    def begin(self):
        self.requests = {}
        self.outputs = {}
        self.scores = {}
        self.endings = {}
        self.aborted = set()

    def make_memory(self, data, limits):
        """Make the worker and its KV manager, some with a tier beyond the pool."""
        num_blocks = data.draw(st.integers(9, 30), "blocks")
        spans = data.draw(SPANS, "spans")
        num_blocks *= 3 * len(spans) - 2  # so that a request of full length fits
        self.worker = HistoryWorker(num_blocks, BLOCK, VOCAB, spans=spans)
        tier = None
        if tier_blocks := data.draw(st.sampled_from([0, 0, 3, 100]), "blocks of the tier"):
            mode = data.draw(st.sampled_from(["auto", "swap", "recompute"]), "preemption mode")
            tier = KVTier(HostBlocks(tier_blocks * 8 * BLOCK, 8 * BLOCK), self.worker.read_block, 8 * BLOCK, mode, InlineFutures)
        groups = Groups(BLOCK, spans, 2 * limits.max_num_batched_tokens)  # two steps may be under way
        caching = data.draw(st.booleans(), "caching")
        self.kv = KVManager(num_blocks, BLOCK, groups=groups, enable_prefix_caching=caching, tier=tier)

    def take_in(self, deltas):
        for delta in deltas:
            assert delta.request_id not in self.endings, "a delta after the final one"
            assert delta.token_ids or delta.prompt_logprobs or delta.finish_reason, "a delta that says nothing"
            assert not (delta.prompt_logprobs and self.outputs[delta.request_id]), "a score after a token"
            self.outputs[delta.request_id] += delta.token_ids
            self.scores[delta.request_id] += delta.prompt_logprobs or []
            if delta.finish_reason is not None:
                self.endings[delta.request_id] = (delta.finish_reason, delta.stop_reason)

    def draw_request(self, data, prompt):
        request_id = f"r{len(self.requests)}"
        max_tokens = data.draw(st.none() | st.integers(1, 12), "max_tokens")
        chosen = {
            "eos": data.draw(st.sampled_from([(), (3,)]), "eos"),
            "salt": data.draw(st.sampled_from(["", "", "salt"]), "salt"),
            "tenant": data.draw(st.sampled_from(["", "", "other", "third"]), "tenant"),
            "priority": data.draw(st.integers(-1, 2), "priority"),
            "stop_token_ids": data.draw(st.sampled_from([(), (5,)]), "stop"),
            "max_tokens": max_tokens,
            "prompt_logprobs": data.draw(st.sampled_from([None, None, 0]), "scores"),
            "min_tokens": data.draw(st.integers(0, min(4, max_tokens or 4)), "min_tokens"),
        }
        request = make_request(request_id, prompt, **chosen)
        expected = solo_output(request, vocab_size=VOCAB, max_model_len=MAX_MODEL_LEN)
        resumed = data.draw(st.integers(0, 3), "resumed")
        sent = expected[0][: min(resumed, len(expected[0]) - 1)]  # as after an engine restart
        self.requests[request_id] = (request, expected)
        self.outputs[request_id] = list(sent)
        self.scores[request_id] = [] if chosen["prompt_logprobs"] is None or not sent else solo_scores(prompt)
        return make_request(request_id, prompt, resume=sent, **chosen)

    def step_bound(self):
        """Alone and one after another, nobody needs more steps than it has tokens; preemption may repeat work, boundedly."""
        return 40 + 4 * sum(len(request.prompt_token_ids) + len(expected[0]) for request, expected in self.requests.values())

    def check_outcomes(self, failed=frozenset()):
        for request_id, (request, (tokens, reason, stop_reason)) in self.requests.items():
            scores = [] if request.params.prompt_logprobs is None else solo_scores(request.prompt_token_ids)
            assert self.scores[request_id] == scores[: len(self.scores[request_id])]
            if self.endings[request_id][0] in ("abort", "error"):
                assert request_id in (self.aborted if self.endings[request_id][0] == "abort" else failed)
                assert self.outputs[request_id] == tokens[: len(self.outputs[request_id])]
            else:
                assert self.endings[request_id] == (reason, stop_reason)
                assert self.outputs[request_id] == tokens
                assert self.scores[request_id] == scores
        assert set(self.endings) == set(self.requests)


class SchedulerMachine(Histories):
    @initialize(limits=limits(), depth=st.integers(1, 2), data=st.data())
    def start(self, limits, depth, data):
        self.begin()
        self.limits = limits
        self.depth = depth
        self.make_memory(data, limits)
        self.scheduler = Scheduler(limits, self.kv)
        self.in_flight = deque()

    @rule(prompt=PROMPTS, data=st.data())
    def add(self, prompt, data):
        assert self.scheduler.add(self.draw_request(data, prompt)) is None

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def abort(self, data):
        ids = data.draw(st.lists(st.sampled_from([*self.requests, "unknown"]), min_size=1, max_size=3))
        deltas = self.scheduler.abort(ids)
        assert all(delta.finish_reason == "abort" and not delta.token_ids for delta in deltas)
        self.aborted |= {delta.request_id for delta in deltas}
        self.take_in(deltas)
        assert self.scheduler.abort(ids) == []
        self.check()

    @rule(count=st.integers(1, 6))
    def steps(self, count):
        for _ in range(count):
            self.step()

    @rule(running_too=st.booleans())
    def reset(self, running_too):
        if running_too:
            while self.in_flight:
                self.finish_oldest()
            self.scheduler.preempt_all()
        assert self.scheduler.kv.reset_prefix_cache() == (self.scheduler.num_running == 0)

    def step(self):
        while len(self.in_flight) < self.depth and (plan := self.plan()):
            self.in_flight.append(plan)
        if self.in_flight:
            self.finish_oldest()
        else:
            assert not self.scheduler.has_requests

    def finish_oldest(self):
        plan = self.in_flight.popleft()
        self.take_in(self.scheduler.apply(plan, self.worker.execute(plan)))
        self.check()

    def plan(self):
        scheduler = self.scheduler
        first = scheduler._roster.running[0] if scheduler._roster.running else None
        preemptions = scheduler.counters.preemptions
        plan = scheduler.plan()
        assert first is None or first.status is Status.RUNNING, "the first in rank was preempted"
        if plan is not None:
            assert scheduler.counters.preemptions == preemptions or not plan.new_rows
            check_plan(scheduler, self.limits, plan)
        self.check()
        return plan

    def check(self):
        check_states(self.scheduler, self.limits, len(self.in_flight))
        assert set(self.scheduler._roster.states) == set(self.requests) - set(self.endings)

    def teardown(self):
        if not hasattr(self, "scheduler"):
            return
        for _ in range(self.step_bound()):
            if not (self.scheduler.has_requests or self.in_flight):
                break
            self.step()
        assert not self.scheduler.has_requests, "no request waits for ever"
        self.check_outcomes()
        pool = self.scheduler.kv.pool
        assert pool.num_free == pool.num_usable
        assert self.scheduler.num_running == self.scheduler.num_waiting == 0


class EngineMachine(Histories):
    """The same through the engine core, where steps fail, rows turn out NaN, and the next step may be under way meanwhile."""

    @initialize(limits=limits(), executor=st.sampled_from([InlineExecutor, ThreadExecutor]), data=st.data())
    def start(self, limits, executor, data):
        self.begin()
        self.make_memory(data, limits)
        self.core = EngineCore(Scheduler(limits, self.kv), executor(self.worker))
        self.sick = set()

    @rule(prompt=PROMPTS, data=st.data())
    def add(self, prompt, data):
        self.core.add(self.draw_request(data, prompt))

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def abort(self, data):
        ids = data.draw(st.lists(st.sampled_from([*self.requests]), min_size=1, max_size=3))
        self.aborted |= set(ids) - set(self.endings)
        self.core.abort(ids)

    @precondition(lambda self: self.requests)
    @rule(data=st.data(), times=st.integers(1, 3))
    def break_steps(self, data, times):
        request_id = data.draw(st.sampled_from([*self.requests]))
        self.worker.faults[request_id] = times
        self.sick.add(request_id)

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def turn_to_nan(self, data):
        request_id = data.draw(st.sampled_from([*self.requests]))
        self.worker.nan.add(request_id)
        self.sick.add(request_id)

    @rule()
    def reset_with_all_that_runs(self):
        assert self.core.reset_prefix_cache(reset_running_requests=True)

    @rule(count=st.integers(1, 6))
    def steps(self, count):
        for _ in range(count):
            if (outputs := self.core.step()) is not None:
                self.take_in(outputs.deltas)

    def teardown(self):
        if not hasattr(self, "core"):
            return
        for _ in range(self.step_bound()):
            if not self.core.has_work:
                break
            self.steps(1)
        assert not self.core.has_work
        failed = {request_id for request_id, (reason, _) in self.endings.items() if reason == "error"}
        assert failed <= self.sick, "a fault reached a neighbour"
        self.check_outcomes(failed)
        assert self.core.reset_prefix_cache(), "no block is held"


SchedulerMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=30, deadline=None, derandomize=True)
EngineMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None, derandomize=True)
TestSchedulerHistories = SchedulerMachine.TestCase
TestEngineHistories = EngineMachine.TestCase
