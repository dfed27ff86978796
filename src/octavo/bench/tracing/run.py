"""A traced server under some load: launched, driven with so many streams, stopped, and what its processes wrote read back."""

from __future__ import annotations

import asyncio
import random
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from octavo.bench.datasets import Turn
from octavo.bench.http_stream import Target, stream_answer
from octavo.bench.launch import launched, until_ready
from octavo.bench.serving import Api, first_model
from octavo.bench.tracing.spans import Span, read_spans
from octavo.errors import EngineError

WORDS = ("river", "stone", "cloud", "light", "paper", "wheel", "green", "north", "sugar", "table", "voice", "winter")


def trace_server(
    flags: Sequence[str], streams: Sequence[int], input_len: int, output_len: int, on_load: Callable[[int], object]
) -> list[Span]:
    """Serve with `flags`, answer as many streams at once as each of `streams` says, one load after another; return all spans.

    Prompts are about `input_len` tokens of random words. Raises EngineError when the server does not come up or an answer fails."""
    with tempfile.TemporaryDirectory(prefix="octavo-trace-") as folder:
        with launched(flags, ("octavo.bench.tracing.server", folder)) as (server, target):
            asyncio.run(_drive(server, target, streams, input_len, output_len, on_load))
        try:
            return [span for name in ("server", "engine") for span in read_spans(Path(folder, f"{name}.spans"))]
        except OSError as error:
            raise EngineError("the traced server has left no trace; run octavo serve with the same flags to see why") from error


async def _drive(
    server: subprocess.Popen[bytes],
    target: Target,
    streams: Sequence[int],
    input_len: int,
    output_len: int,
    on_load: Callable[[int], object],
) -> None:
    await until_ready(server, target)
    api = Api(target, "openai", await first_model(target), ignore_eos=True, extra={})
    words = random.Random(0)
    for count in streams:
        on_load(count)
        turns = [Turn(" ".join(words.choices(WORDS, k=input_len)), input_len, output_len) for _ in range(count)]
        for answer in await asyncio.gather(*(stream_answer(target, api.path, api.body((), turn)) for turn in turns)):
            if answer.error is not None:
                raise EngineError(f"an answer of the traced server failed: {answer.error}")
