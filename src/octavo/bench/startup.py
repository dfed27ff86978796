"""How long a server takes from launch to its first /health 200, and to its first token: with the model's pages dropped from
memory (cold) and with them there (warm)."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson

from octavo.bench.datasets import Turn
from octavo.bench.http_stream import Target, fetch, stream_answer
from octavo.bench.launch import launched, until_ready
from octavo.bench.serving import Api, first_model
from octavo.errors import EngineError


@dataclass(frozen=True)
class Start:
    """Seconds from launch. `phases`: (process, phase, begin, end) of what the server tells; nothing where it wants a key."""

    is_cold: bool
    ready_s: float
    first_token_s: float
    phases: list[tuple[str, str, float, float]]


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
    launched_s = time.monotonic()
    with launched([*flags, "--enable-admin-endpoints"]) as (server, target):
        return asyncio.run(_watch(server, target, launched_s, is_cold))


async def _watch(server: subprocess.Popen[bytes], target: Target, launched_s: float, is_cold: bool) -> Start:
    await until_ready(server, target)
    ready_s = time.monotonic() - launched_s
    api = Api(target, "openai", await first_model(target), ignore_eos=True, extra={})
    answer = await stream_answer(target, api.path, api.body((), Turn("Hello", 1, 1)))
    if answer.error is not None:
        raise EngineError(f"the server's first answer failed: {answer.error}")
    first_token_s = time.monotonic() - launched_s
    return Start(is_cold, ready_s, first_token_s, await _phases(target, launched_s))


async def _phases(target: Target, launched_s: float) -> list[tuple[str, str, float, float]]:
    status, body = await fetch(target, "GET", "/server_info")
    if status != 200:
        return []
    info = orjson.loads(body)
    told = {"server": info["phases"], "engine": info["engine"]["phases"]}
    return [
        (process, phase["name"], phase["begin_s"] - launched_s, phase["end_s"] - launched_s)
        for process, phases in told.items()
        for phase in phases
    ]
