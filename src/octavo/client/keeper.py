"""`EngineKeeper`: keeps an engine going. One that dies is replaced, one that hangs is killed, and what was in flight goes on; after too
many deaths it is given up. Knows of requests only that `InFlight` can resume or fail them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from octavo.client.deaths import Deaths
from octavo.client.engine_process import Connection
from octavo.client.engine_wire import HELLO
from octavo.client.in_flight import InFlight
from octavo.errors import EngineDead, StartupError
from octavo.messages.wire import ControlKind, ControlReply, ControlRequest, FromEngine, PauseMode, ToEngine
from octavo.metrics.figures import Gauge

HEARTBEAT_S = 1.0  # between pings, which the engine answers between steps
SILENCE_S = 10.0  # and 20 steps more: an engine that says nothing for so long is not healthy
HANG_S = 120.0  # and 20 steps more: it is killed, and its requests go on in a new one


class EngineKeeper:
    """`last_error`: why it was given up. `pause`: a new engine is told of it too."""

    def __init__(
        self,
        process: Connection,
        replace: Callable[[], Awaitable[Connection]],
        in_flight: InFlight,
        usual_step_s: Gauge,
        on_message: Callable[[FromEngine], None],
        on_log: Callable[[str], None],
    ) -> None:
        """`replace` returns the engine that takes the place of a dead one; `on_message` gets all that is no answer to `control`."""
        self.process: Connection | None = process  # None while a dead one is being replaced
        self.last_error: str | None = None
        self.pause: PauseMode | None = None
        self._replace = replace
        self._in_flight = in_flight
        self._usual_step_s = usual_step_s
        self._on_message = on_message
        self._on_log = on_log
        self._replies: dict[int, asyncio.Future[ControlReply]] = {}
        self._next_control_id = 1
        self._stopping = False
        self._heard_s = time.monotonic()
        process.listen(self._hear)
        self._watches = (asyncio.create_task(self._keep_alive()), asyncio.create_task(self._keep_moving()))

    @property
    def is_alive(self) -> bool:
        """Whether the engine's process runs and has been heard of lately."""
        return self.process is not None and self._silence_s() < SILENCE_S

    def check_going(self) -> None:
        """Raise EngineDead when there is no engine and none will come."""
        if self.last_error is not None or self._stopping:
            raise EngineDead(f"the engine is not running: {self.last_error or 'it is being stopped'}")

    def send(self, message: ToEngine) -> None:
        """Tell the engine. While there is none nothing is lost: a new one is told of all that is in flight."""
        if self.process is not None:
            self.process.send(message)

    async def control(self, kind: ControlKind, *, reset_running_requests: bool = False, mode: PauseMode = "abort") -> ControlReply:
        """Return the engine's answer to an administrative verb. Raises EngineDead."""
        if self.process is None:
            raise EngineDead("the engine is not running")
        control_id = self._next_control_id
        self._next_control_id += 1
        reply: asyncio.Future[ControlReply] = asyncio.get_running_loop().create_future()
        self._replies[control_id] = reply
        self.process.send(ControlRequest(control_id, kind, reset_running_requests, mode))
        return await reply

    async def stop(self) -> None:
        """End the engine. Idempotent."""
        self._stopping = True
        for watch in self._watches:
            watch.cancel()
        await asyncio.gather(*self._watches, return_exceptions=True)  # one that was starting an engine ends it
        if self.process is not None:
            await self.process.close()
            self.process = None
        self._fail_replies()

    def _silence_s(self) -> float:
        """Seconds since the engine was heard of, less the time of twenty usual steps."""
        return time.monotonic() - self._heard_s - 20 * self._usual_step_s.value

    def _hear(self, message: FromEngine) -> None:
        self._heard_s = time.monotonic()
        if not isinstance(message, ControlReply):
            self._on_message(message)
            return
        reply = self._replies.pop(message.control_id, None)
        if reply is not None and not reply.done():
            reply.set_result(message)

    async def _keep_alive(self) -> None:
        """Restart a dead engine and give it back its requests; after too many deaths give up and fail them."""
        deaths = Deaths()
        while (process := self.process) is not None:
            code = await process.wait_dead()
            self.process = None
            await process.close()
            self._fail_replies()
            may_try_again = deaths.count()
            self._on_log(f"engine process ended (exit code {code}) with {len(self._in_flight)} requests in flight")
            self._in_flight.count_crash()
            if not may_try_again:
                self._give_up(deaths.reason)
                return
            await asyncio.sleep(deaths.delay_s)
            try:
                await self._restart()
            except Exception as error:  # whatever it is, those who wait must hear of it
                self._give_up(error.message if isinstance(error, StartupError) else f"it cannot be started again ({type(error).__name__})")

    async def _keep_moving(self) -> None:
        """Ping the engine; kill one that hangs (`_keep_alive` then replaces it)."""
        while True:
            asleep_s = time.monotonic()
            await asyncio.sleep(HEARTBEAT_S)
            if time.monotonic() - asleep_s > 2 * HEARTBEAT_S:  # this side was held up: what the engine said is still to be read
                self._heard_s = time.monotonic()
            if self.process is None:
                continue
            if self._silence_s() > HANG_S:
                self._on_log(f"engine process has said nothing for {time.monotonic() - self._heard_s:.0f} s; killing it")
                self.process.kill()
            else:
                self.process.send(HELLO)

    async def _restart(self) -> None:
        process = await self._replace()
        try:
            await process.wait_ready()
        except BaseException:
            await process.close()
            raise
        self.process = process
        self._heard_s = time.monotonic()
        process.listen(self._hear)
        for message in self._in_flight.resumed(self.pause):
            process.send(message)
        self._on_log(f"engine process restarted; {len(self._in_flight)} requests go on")

    def _give_up(self, reason: str) -> None:
        self.last_error = reason
        self._on_log(f"engine given up: {reason}")
        self._in_flight.finish_all("error", "the engine is gone")

    def _fail_replies(self) -> None:
        for reply in self._replies.values():
            if not reply.done():
                reply.set_exception(EngineDead("the engine died before it answered"))
        self._replies.clear()
