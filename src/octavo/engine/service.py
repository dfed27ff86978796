"""What the engine's process does (`process.py`): it starts the engine that it is told, and serves until it is told to stop."""

from __future__ import annotations

import gc
import logging
import signal
import socket
import sys
from pathlib import Path
from types import FrameType

import msgspec

from octavo.config.schema import EngineConfig
from octavo.engine.endpoint import EngineSocket
from octavo.engine.lifeline import die_with_parent, forbid_core_dumps
from octavo.engine.log_stream import LogStream
from octavo.engine.loop import EngineLoop
from octavo.engine.phases import PhaseClock, process_start_s
from octavo.engine.startup import start_engine
from octavo.errors import OctavoError
from octavo.messages.wire import EngineFailed

log = logging.getLogger("octavo.engine")

FAREWELL_MS = 2000  # how long an engine that failed waits for a first client to tell


def main(argv: list[str]) -> int:
    """Start, serve and stop as the words after the module's name and standard input say; return the exit status."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_parent()
    forbid_core_dumps()
    logging.basicConfig(level=logging.INFO, stream=LogStream(sys.stderr.fileno()), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    clock = PhaseClock(process_start_s())
    clock.mark("imports")

    wake, waker = socket.socketpair()
    waker.setblocking(False)
    signal.set_wakeup_fd(waker.fileno())
    wire = EngineSocket(Path(argv[1]), wake_fd=wake.fileno())
    try:
        return serve(wire, clock)
    finally:
        wire.close()


def serve(wire: EngineSocket, clock: PhaseClock) -> int:
    """Start the engine and run it; return the exit status."""
    clients: list[bytes] = []
    try:
        settings = sys.stdin.buffer.read()
        if not settings:  # whoever launched it has thought better of it
            return 0
        config = msgspec.msgpack.decode(settings, type=EngineConfig)
        core, ready = start_engine(config, clock)
        for line in ready.startup_lines:
            log.debug("%s", line)
        gc.freeze()  # what start-up made lives as long as the process: no collection need look at it again
        gc.enable()
        loop = EngineLoop(core, wire, ready)

        def stop(signum: int, frame: FrameType | None) -> None:
            loop.stop()

        signal.signal(signal.SIGTERM, stop)
        try:
            loop.run()
        finally:
            clients = loop.clients
    except Exception as error:
        if isinstance(error, OctavoError):
            message = error.message
            log.error("%s", message)
        else:
            message = f"the engine failed ({type(error).__name__}); its log says more"
            log.exception("the engine failed")
        clients = clients or list(dict.fromkeys(client for client, _ in wire.receive(FAREWELL_MS)))
        for client in clients:
            wire.send(client, EngineFailed(message))
        return 1
    return 0
