"""`Roster`: who waits, who runs and who has ended, and the blocks that go with it.

Which request, when and for how many tokens, the scheduler says; what that does to queues, blocks and counts is done here, all of it
or nothing.

Invariants: `states` holds the requests that wait and those that run, no others; `running` is in order of rank; who waits has no
blocks; running[0] fits alone, for admission made sure of it, and is preempted only by `preempt_all`.
"""

from __future__ import annotations

from bisect import bisect_left, insort

from octavo.kv.manager import KVManager, PrefixHit
from octavo.messages.wire import GenerateRequest, TokenDelta, TokenLogprobs
from octavo.scheduler.admission import Limits
from octavo.scheduler.counters import Counters
from octavo.scheduler.queue import FairQueue, RankedQueue, WaitingQueue
from octavo.scheduler.request_state import RequestState, Status, rank_of
from octavo.scheduler.stop import Ending


class Roster:
    def __init__(self, limits: Limits, kv: KVManager, counters: Counters) -> None:
        self.states: dict[str, RequestState] = {}
        self.waiting: WaitingQueue = RankedQueue() if limits.policy == "priority" else FairQueue()
        self.running: list[RequestState] = []
        self._limits = limits
        self._kv = kv
        self._counters = counters
        self._watermark_blocks = int(limits.watermark * kv.pool.num_blocks)
        self._closed_rows: list[str] = []  # requests that left `running` since they were last taken
        self._num_added = 0

    def open(self, request: GenerateRequest) -> RequestState:
        """Return the state of a request, which stands in no queue yet."""
        table = self._kv.open(adapter=request.adapter, cache_salt=request.cache_salt)
        self._num_added += 1
        rank = (request.priority if self._limits.policy == "priority" else 0, self._num_added)
        return RequestState(request, table, self._limits.max_model_len, rank)

    def enqueue(self, state: RequestState) -> None:
        self.states[state.request_id] = state
        self.waiting.push(state)

    def try_admit(self, state: RequestState, hit: PrefixHit, num_tokens: int) -> bool:
        """Move a request from waiting to running, with what was found of it and blocks for `num_tokens` more; return whether it fits."""
        num_cached = hit.num_tokens
        if not self._kv.try_admit(state.table, hit, num_cached + num_tokens, state.num_tokens, self._spare_blocks()):
            return False
        self.waiting.take(state)
        self.waiting.charge(state, state.num_tokens - num_cached)
        if state.status is Status.WAITING:
            self._count_hit(state, num_cached)
        state.status = Status.RUNNING
        state.num_planned_tokens = num_cached
        insort(self.running, state, key=rank_of)
        return True

    def extend(self, state: RequestState, num_tokens: int) -> list[int] | None:
        """Return the blocks added so that `state` covers `num_tokens`, preempting from the end of running; None when that met `state`."""
        while (added := self._kv.try_extend(state.table, num_tokens)) is None:
            victim = self.running[-1]
            self._preempt_last()
            if victim is state:
                return None
        return added

    def preempt_all(self) -> None:
        while self.running:
            self._preempt_last()

    def end(
        self,
        state: RequestState,
        ending: Ending,
        *,
        token_ids: list[int] | None = None,
        logprobs: list[TokenLogprobs] | None = None,
        error: str | None = None,
    ) -> TokenDelta:
        """Take the request out of every table and return its final delta."""
        if state.status is Status.RUNNING:
            del self.running[bisect_left(self.running, state.rank, key=rank_of)]
            self._closed_rows.append(state.request_id)
        else:
            self.waiting.take(state)
        self.waiting.charge(state, state.num_tokens - state.num_prompt_tokens)
        self._kv.release(state.table)
        state.status = Status.FINISHED
        state.quiet_until = 0
        del self.states[state.request_id]
        return TokenDelta(
            state.request_id,
            token_ids or [],
            *ending,
            logprobs,
            state.num_cached_tokens,
            error,
            num_preemptions=state.num_preemptions,
            num_loaded_tokens=state.num_loaded_tokens,
        )

    def take_closed_rows(self) -> list[str]:
        """Return the requests that have left running since this was last asked: the worker closes their rows."""
        closed, self._closed_rows = self._closed_rows, []
        return closed

    def _preempt_last(self) -> None:
        state = self.running.pop()
        self._closed_rows.append(state.request_id)
        self._kv.release(state.table)
        state.status = Status.PREEMPTED
        state.num_planned_tokens = state.plain_until = state.quiet_until = 0
        state.num_preemptions += 1
        self._counters.preemptions += 1
        self.waiting.push(state)

    def _spare_blocks(self) -> int:
        """Return the blocks that must stay free beside running requests when one is admitted: the watermark, and one for
        each, or the newcomer would be preempted at once. A lone request needs none."""
        return max(self._watermark_blocks, len(self.running)) if self.running else 0

    def _count_hit(self, state: RequestState, num_cached: int) -> None:
        """Count what was found of a request that is admitted for the first time."""
        num_loaded = state.table.num_loaded_tokens
        state.num_cached_tokens = min(num_cached, state.num_prompt_tokens)
        state.num_loaded_tokens = min(num_loaded, state.num_cached_tokens)
        counters = self._counters
        counters.prefix_cache_queries += state.num_tokens
        counters.prefix_cache_hits += num_cached - num_loaded
        if self._kv.has_tier:
            counters.external_queries += state.num_tokens
            counters.external_hits += num_loaded
