"""A server of our own for a measurement: started on a free port of this machine, waited for, stopped."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from octavo.bench.http_stream import Target
from octavo.bench.serving import wait_ready
from octavo.errors import EngineError

TIMEOUT_S = 600.0
STOP_S = 30.0


@contextmanager
def launched(
    flags: Sequence[str], command: Sequence[str] = ("octavo.cli.main", "serve")
) -> Iterator[tuple[subprocess.Popen[bytes], Target]]:
    """Yield `octavo serve` with `flags` as a process that has just begun, and its address; it is stopped at the end.

    `command`: the module that serves, and its first words."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [sys.executable, "-m", *command, *flags, "--host", "127.0.0.1", "--port", str(port)]
    server = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield server, Target(f"http://127.0.0.1:{port}", {})
    finally:
        server.send_signal(signal.SIGTERM)
        try:
            server.wait(STOP_S)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


async def until_ready(server: subprocess.Popen[bytes], target: Target) -> None:
    """Return at the first /health 200. Raises EngineError when the process ends before, or after TIMEOUT_S."""
    begun_s = time.monotonic()
    while True:
        try:
            return await wait_ready(target, 0)
        except EngineError:
            if server.poll() is not None:
                raise EngineError(f"octavo serve ended with status {server.returncode}; run it by hand to see why") from None
            if time.monotonic() - begun_s > TIMEOUT_S:
                raise
            await asyncio.sleep(0.005)
