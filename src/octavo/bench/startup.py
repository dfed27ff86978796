"""How long a server takes from launch to its first /health 200, and to its first token: with the model's pages dropped from
memory (cold) and with them there (warm)."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from octavo.bench.datasets import Turn
from octavo.bench.http_stream import Target, stream_answer
from octavo.bench.serving import Api, first_model, wait_ready
from octavo.errors import EngineError

TIMEOUT_S = 600.0
STOP_S = 30.0


@dataclass(frozen=True)
class Start:
    """Seconds from launch."""

    is_cold: bool
    ready_s: float
    first_token_s: float


def measure_starts(
    flags: Sequence[str], model_files: Sequence[Path], num_cold: int, num_warm: int, on_start: Callable[[Start], object]
) -> list[Start]:
    """Launch `octavo serve` with `flags` on a free port so many times, each stopped again. Raises EngineError when one does not come up."""
    starts = []
    for is_cold in (*[True] * num_cold, *[False] * num_warm):
        if is_cold:
            for path in model_files:
                drop_from_page_cache(path)
        start = _start_once(flags, is_cold)
        starts.append(start)
        on_start(start)
    return starts


def drop_from_page_cache(path: Path) -> None:
    """Have the kernel forget the file's clean pages, so that the next reader goes to the disk."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(file)


def _start_once(flags: Sequence[str], is_cold: bool) -> Start:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "octavo.cli.main", "serve", *flags, "--host", "127.0.0.1", "--port", str(port)]
    launched_s = time.perf_counter()
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        return asyncio.run(_watch(server, port, launched_s, is_cold))
    finally:
        server.send_signal(signal.SIGTERM)
        try:
            server.wait(STOP_S)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


async def _watch(server: subprocess.Popen[bytes], port: int, launched_s: float, is_cold: bool) -> Start:
    target = Target(f"http://127.0.0.1:{port}", {})
    while True:
        try:
            await wait_ready(target, 0)
            break
        except EngineError:
            if server.poll() is not None:
                raise EngineError(f"octavo serve ended with status {server.returncode}; run it by hand to see why") from None
            if time.perf_counter() - launched_s > TIMEOUT_S:
                raise
            await asyncio.sleep(0.005)
    ready_s = time.perf_counter() - launched_s
    api = Api(target, "openai", await first_model(target), ignore_eos=True, extra={})
    answer = await stream_answer(target, api.path, api.body((), Turn("Hello", 1, 1)))
    if answer.error is not None:
        raise EngineError(f"the server's first answer failed: {answer.error}")
    return Start(is_cold, ready_s, time.perf_counter() - launched_s)
