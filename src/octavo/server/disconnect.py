"""Work that stops when the client goes away."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.types import Receive

T = TypeVar("T")


class ClientDisconnected(Exception):
    """The client closed the connection before its answer was whole: there is nobody to answer."""


async def until_disconnect(receive: Receive, work: Coroutine[Any, Any, T], watch: Coroutine[Any, Any, None] | None = None) -> T:
    """Return what `work` returns. If the client closes first, or `watch` returns first, which gives the client up, cancel it, wait
    for its end and raise ClientDisconnected.

    Call it after the whole body has been read: from then on `receive` only tells of the disconnect.
    """
    task = asyncio.create_task(work)
    gone = [asyncio.create_task(_wait_disconnect(receive)), *([] if watch is None else [asyncio.create_task(watch)])]
    try:
        await asyncio.wait((task, *gone), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientDisconnected
    finally:
        for end in gone:
            end.cancel()
        await asyncio.gather(*gone, return_exceptions=True)
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def _wait_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
