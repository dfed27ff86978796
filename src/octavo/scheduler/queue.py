"""Requests that wait for a place in the batch, in the order in which they get one. Every operation is O(1), for a queue may be long."""

from __future__ import annotations

from collections import OrderedDict

from octavo.scheduler.request_state import RequestState


class FcfsQueue:
    """First come, first served; a preempted request is restored to the front, so arrival order holds for it too."""

    def __init__(self) -> None:
        self._states: OrderedDict[str, RequestState] = OrderedDict()

    def __len__(self) -> int:
        return len(self._states)

    def push(self, state: RequestState) -> None:
        self._states[state.request_id] = state

    def restore(self, state: RequestState) -> None:
        """Put back a request that was running."""
        self._states[state.request_id] = state
        self._states.move_to_end(state.request_id, last=False)

    def head(self) -> RequestState | None:
        """Return the request whose turn it is, without taking it."""
        return next(iter(self._states.values()), None)

    def pop(self) -> RequestState:
        """Take the head; raises KeyError when the queue is empty."""
        return self._states.popitem(last=False)[1]

    def remove(self, state: RequestState) -> None:
        del self._states[state.request_id]
