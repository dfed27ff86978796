"""`octavo serve`, traced: `python -m octavo.bench.tracing.server FOLDER [FLAGS OF SERVE]`.

When it is told to stop, FOLDER/server.spans holds what its event loop did, FOLDER/engine.spans what its engine did.
"""

from __future__ import annotations

import selectors
import socket
import sys
from collections.abc import Callable
from pathlib import Path

from octavo.bench.tracing.spans import Recorder, write_spans
from octavo.cli.serve_flags import serve_with
from octavo.client import engine_wire
from octavo.client.engine_launch import LaunchedEngine
from octavo.client.engine_process import EngineProcess
from octavo.server.sse import Framing

IDLE = "idle"  # the event loop has nothing to do


def main(argv: list[str]) -> int:
    folder = Path(argv[1])
    recorder = Recorder("server")
    for owner, attribute, name in (
        (selectors.EpollSelector, "select", IDLE),
        (engine_wire, "decode_from_engine", "frame decoded"),
        (Framing, "frame", "event to JSON"),
        (socket.socket, "send", "send"),
        (socket.socket, "recv", "receive"),
    ):
        recorder.time(owner, attribute, name)
    listen: Callable[..., None] = EngineProcess.listen
    recorder.replace(EngineProcess, "listen", lambda process, on_message: listen(process, recorder.timed("tokens to text", on_message)))
    with LaunchedEngine(("octavo.bench.tracing.engine", str(folder / "engine.spans"))) as engine:
        code = serve_with(engine, argv[2:])
    write_spans(folder / "server.spans", recorder.spans)
    return code


if __name__ == "__main__":
    raise SystemExit(main(sys.argv))
