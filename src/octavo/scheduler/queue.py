"""Requests that wait for a place in the batch. Adding, taking and removing cost O(log n) at most, for a queue may be long.

`RankedQueue` hands them out by rank. `FairQueue` keeps one for each tenant and lets tenants take turns by deficit round
robin, counted in tokens (Shreedhar & Varghese 1995): who has credit left is served, who has none gets a quantum and goes
to the end of the line. Tokens are charged when they are known: those to compute at admission, those generated at the end.
With one tenant its order is that of the RankedQueue, first come, first served.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from typing import Protocol

from octavo.scheduler.request_state import Rank, RequestState

QUANTUM = 1024  # tokens that a tenant may have computed before the next one's turn


class WaitingQueue(Protocol):
    def __len__(self) -> int: ...

    def push(self, state: RequestState) -> None:
        """Add a request, a new one or one that was preempted."""
        ...

    def head(self) -> RequestState | None:
        """Return the request whose turn it is, without taking it; the same one until the queue changes."""
        ...

    def take(self, state: RequestState) -> None:
        """Remove a request that is in the queue."""
        ...

    def charge(self, state: RequestState, num_tokens: int) -> None:
        """Count `num_tokens` of service for the request's tenant."""
        ...


class RankedQueue:
    """Lowest rank first. A request taken from the middle leaves its heap entry behind, which is dropped when it comes up."""

    def __init__(self) -> None:
        self._heap: list[tuple[Rank, RequestState]] = []
        self._members: set[RequestState] = set()

    def __len__(self) -> int:
        return len(self._members)

    def push(self, state: RequestState) -> None:
        self._members.add(state)
        heappush(self._heap, (state.rank, state))

    def head(self) -> RequestState | None:
        while self._heap and self._heap[0][1] not in self._members:
            heappop(self._heap)
        return self._heap[0][1] if self._heap else None

    def take(self, state: RequestState) -> None:
        self._members.remove(state)
        if len(self._heap) > 2 * len(self._members) + 64:  # mostly entries left behind
            self._heap = sorted((member.rank, member) for member in self._members)

    def charge(self, state: RequestState, num_tokens: int) -> None:
        """Nothing: rank alone decides."""


class FairQueue:
    """A tenant's credit lives as long as it waits, and owes nobody while no other tenant waits: idle time earns nothing."""

    def __init__(self) -> None:
        self._queues: dict[str, RankedQueue] = {}
        self._turns: deque[str] = deque()  # tenants that wait, the next one first
        self._credit: dict[str, int] = {}
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def push(self, state: RequestState) -> None:
        tenant = state.request.tenant
        if tenant not in self._queues:
            self._queues[tenant] = RankedQueue()
            self._turns.append(tenant)
            self._credit[tenant] = 0
        self._queues[tenant].push(state)
        self._length += 1

    def head(self) -> RequestState | None:
        while self._turns:
            tenant = self._turns[0]
            if len(self._turns) == 1:
                self._credit[tenant] = QUANTUM
            if self._credit[tenant] > 0:
                return self._queues[tenant].head()
            self._credit[tenant] += QUANTUM
            self._turns.rotate(-1)
        return None

    def take(self, state: RequestState) -> None:
        tenant = state.request.tenant
        queue = self._queues[tenant]
        queue.take(state)
        self._length -= 1
        if not queue:
            del self._queues[tenant], self._credit[tenant]
            self._turns.remove(tenant)

    def charge(self, state: RequestState, num_tokens: int) -> None:
        tenant = state.request.tenant
        if tenant in self._credit:
            self._credit[tenant] -= num_tokens
