"""One API process of several: `python -m octavo.server.processes.process < Start as MessagePack`.

It answers HTTP on the listener that it inherits, talks to the engine that the supervisor keeps, and ends on SIGTERM as a server
alone does. It dies with the supervisor.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys

import msgspec

from octavo.client.async_engine import AsyncEngine
from octavo.client.load import Load
from octavo.engine.lifeline import die_with_parent, forbid_core_dumps
from octavo.engine.phases import PhaseClock, process_start_s
from octavo.errors import OctavoError
from octavo.server.logs import log_to_stderr
from octavo.server.processes.link import SupervisorLink
from octavo.server.processes.messages import CannotStart, Channel, Serving, Start, ToProcess
from octavo.server.processes.shared import Lock, open_figures
from octavo.server.run import answer
from octavo.server.share import Share

EXIT_CANNOT_START = 1


def main() -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the supervisor's, who sends SIGTERM
    die_with_parent()
    forbid_core_dumps()
    clock = PhaseClock(process_start_s())
    clock.mark("imports")
    start = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Start)
    log_to_stderr(start.server.log_level, start.server.log_format)
    with asyncio.Runner() as runner:
        return runner.run(_run(start, clock))


async def _run(start: Start, clock: PhaseClock) -> int:
    channel = await Channel.over(socket.socket(fileno=start.control), ToProcess)
    link = SupervisorLink(channel, stores=start.server.response_store_bytes > 0)
    reading = asyncio.create_task(link.read())
    figures = open_figures(start.block, start.row)
    load = Load(figures)
    load.process_id.set(os.getpid())
    share = Share(figures, load, link, Lock(start.block), start.secret)

    async def find_engine() -> AsyncEngine:
        return await AsyncEngine.start(start.engine, process=await link.next_engine(), replace=link.next_engine, load=load, name=start.name)

    listener = socket.socket(fileno=start.listener)
    try:
        return await answer(start.engine, start.server, listener, share, find_engine(), lambda _: channel.send(Serving()), clock)
    except OctavoError as error:
        channel.send(CannotStart(error.message))
        return EXIT_CANNOT_START
    finally:
        channel.close()
        await channel.wait_closed()
        reading.cancel()


if __name__ == "__main__":
    raise SystemExit(main())
