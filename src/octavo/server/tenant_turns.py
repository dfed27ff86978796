"""`TenantTurns`: slow work on a few threads, of each tenant one piece at a time, so that none can hold up the others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import msgspec

from octavo.server.errors import overloaded

T = TypeVar("T")
MAX_WAITING = 512  # pieces of one tenant


class _Turn(msgspec.Struct):
    num_waiting: int = 0  # the one that is done included
    lock: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)


class TenantTurns:
    """Belongs to one event loop. Invariant: `_turns` has those tenants of whom something waits or is done."""

    def __init__(self, num_threads: int, name: str, max_waiting: int = MAX_WAITING) -> None:
        self._threads = ThreadPoolExecutor(max_workers=num_threads, thread_name_prefix=name)
        self._max_waiting = max_waiting
        self._turns: dict[str, _Turn] = {}

    async def run(self, tenant: str, work: Callable[..., T], *args: Any) -> T:
        """Return work(*args), done on a thread when it is its turn. Raises CapacityError when too many of the tenant's wait."""
        turn = self._turns.setdefault(tenant, _Turn())
        if turn.num_waiting >= self._max_waiting:
            raise overloaded(f"{turn.num_waiting:,} requests of this key wait for their schema or grammar", f"{self._max_waiting:,}", 1.0)
        turn.num_waiting += 1
        try:
            await turn.lock.acquire()
        except BaseException:
            self._leave(tenant, turn)
            raise
        done = asyncio.get_running_loop().run_in_executor(self._threads, work, *args)
        done.add_done_callback(lambda done: self._end(tenant, turn, done))
        return await asyncio.shield(done)  # whoever asked may be gone: its turn lasts until the thread is free

    def _end(self, tenant: str, turn: _Turn, done: asyncio.Future[Any]) -> None:
        if not done.cancelled():
            done.exception()  # looked at: of one whose asker is gone, asyncio would log what was asked
        turn.lock.release()
        self._leave(tenant, turn)

    def _leave(self, tenant: str, turn: _Turn) -> None:
        turn.num_waiting -= 1
        if turn.num_waiting == 0:
            del self._turns[tenant]
