"""`InFlight`: the choices that an engine works on, each from when it is taken on to its final event.

With what it knows of them, a new engine can go on where one that died stopped: prompt and tokens sent so far, whose continuation is
the same (decisions 4 and 5 of docs/map.md). A request that was in flight during two crashes is failed, not tried a third time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal

from octavo.client.choice import Choice
from octavo.client.events import Events
from octavo.client.load import Load
from octavo.client.pooling import PoolChoice
from octavo.messages.wire import ControlRequest, PauseMode, ToEngine, TokenDelta

MAX_CRASHES_OF_A_REQUEST = 2


class _Flight:
    """One choice, and where its events go."""

    def __init__(self, choice: Choice | PoolChoice, stream: Events[Any], *, is_held: bool) -> None:
        self.choice = choice
        self.stream = stream
        self.crashes = 0
        self.num_queued_tokens = len(choice.request.prompt_token_ids)  # until its first token
        self.is_held = is_held


class InFlight:
    """Counted in `load`. Ids are those that the engine knows choices by."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._flights: dict[str, _Flight] = {}

    def __len__(self) -> int:
        return len(self._flights)

    def __contains__(self, engine_id: str) -> bool:
        return engine_id in self._flights

    def take_on(self, choice: Choice | PoolChoice, stream: Events[Any], *, is_held: bool = False) -> None:
        """`is_held`: it came while the engine was paused, which has not begun with it."""
        flight = _Flight(choice, stream, is_held=is_held)
        self._flights[choice.request.request_id] = flight
        self._load.unfinished.inc()
        self._load.queued_tokens.inc(flight.num_queued_tokens)

    def drop(self, engine_ids: Iterable[str]) -> list[str]:
        """Forget these choices, whose events nobody reads any more; return those that were unfinished."""
        unfinished = [engine_id for engine_id in engine_ids if engine_id in self._flights]
        for engine_id in unfinished:
            self._let_go(engine_id)
        return unfinished

    def deliver(self, delta: TokenDelta) -> bool:
        """Hand the delta's event to its reader; return whether a stop string has ended a request the engine still runs."""
        flight = self._flights.get(delta.request_id)
        if flight is None:  # aborted, or ended by a stop string: the engine had not heard yet
            return False
        event = flight.choice.feed(delta)
        if event.finish_reason is not None:
            self._let_go(delta.request_id)
        elif flight.num_queued_tokens and delta.token_ids:
            self._leave_queue(flight)
        flight.stream.put(event)
        return flight.choice.ended_by_stop_string

    def finish(self, engine_ids: Iterable[str], reason: Literal["abort", "error"], error: str | None = None) -> None:
        """Give each of these choices its final event."""
        for engine_id in engine_ids:
            self.deliver(TokenDelta(engine_id, [], finish_reason=reason, error=error))

    def finish_all(self, reason: Literal["abort", "error"], error: str | None = None) -> None:
        self.finish(list(self._flights), reason, error)

    def ids_of(self, request_id: str) -> list[str]:
        """Return the ids of what is unfinished of a caller's request."""
        return [
            engine_id
            for engine_id, flight in self._flights.items()
            if isinstance(flight.choice, Choice) and flight.choice.request_id == request_id
        ]

    @property
    def begun_ids(self) -> list[str]:
        """Those that the engine had before it was paused."""
        return [engine_id for engine_id, flight in self._flights.items() if not flight.is_held]

    def release_held(self) -> None:
        for flight in self._flights.values():
            flight.is_held = False

    def count_crash(self) -> None:
        """The engine that worked on all of them has died: fail those whom that has happened to too often."""
        for engine_id, flight in list(self._flights.items()):
            flight.crashes += 1
            if flight.crashes >= MAX_CRASHES_OF_A_REQUEST:
                self.finish([engine_id], "error", f"the engine crashed {flight.crashes} times while this request was running")

    def resumed(self, pause: PauseMode | None) -> Iterator[ToEngine]:
        """Yield what a new engine is told: every choice, and in between the pause, which those that are held come after."""
        held = {engine_id for engine_id, flight in self._flights.items() if flight.is_held or pause == "keep"}
        yield from (flight.choice.resumed() for engine_id, flight in self._flights.items() if engine_id not in held)
        if pause is not None:
            yield ControlRequest(0, "pause", mode=pause)
        yield from (self._flights[engine_id].choice.resumed() for engine_id in self._flights if engine_id in held)

    def _let_go(self, engine_id: str) -> None:
        self._leave_queue(self._flights.pop(engine_id))
        self._load.unfinished.inc(-1)

    def _leave_queue(self, flight: _Flight) -> None:
        self._load.queued_tokens.inc(-flight.num_queued_tokens)
        flight.num_queued_tokens = 0
