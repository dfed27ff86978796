"""Where the CPU of a streamed token goes in the process that answers HTTP: each part of its way timed alone, in microseconds a token.

    python benchmarks/front_end_parts.py

Least of 15 runs of CPU time. What is left of front_end_cost.py's figure is the ASGI chain, uvicorn and the write to the socket.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.fakes.vocabularies import byte_level_tokenizer

from octavo.client.choice import Choice
from octavo.client.engine_wire import decode_from_engine
from octavo.client.events import Generation
from octavo.messages.codec import encode
from octavo.messages.wire import GenerateRequest, StepOutputs, TokenDelta, TokenLogprobs
from octavo.params import SamplingParams
from octavo.server.openai.generation import Header
from octavo.server.openai.logprobs import TokenNames
from octavo.server.sse import CHUNKS

TOKENIZER = byte_level_tokenizer()
WORD = TOKENIZER.encode(" hello")
REPEATS = 500
RUNS = 15


def least_us(work: Callable[[], object], num_tokens: int = 1) -> float:
    """Return the CPU microseconds a token of `work`, which handles `num_tokens`."""
    best = float("inf")
    for _ in range(RUNS):
        began = time.process_time()
        for _ in range(REPEATS):
            work()
        best = min(best, time.process_time() - began)
    return 1e6 * best / (REPEATS * num_tokens)


def new_choice() -> Choice:
    return Choice("1", 0, GenerateRequest(request_id="1", prompt_token_ids=[1], params=SamplingParams(), arrival_s=0.0), TOKENIZER)


async def wake_reader() -> float:
    """Return the CPU seconds a token of an event that is put for a waiting reader, each in a turn of the loop of its own."""
    stream, event = Generation(2, lambda: None), new_choice().feed(TokenDelta("1", [WORD[0]]))

    async def read() -> None:
        for _ in range(REPEATS):
            await anext(stream)

    reading = asyncio.create_task(read())
    await asyncio.sleep(0)
    began = time.process_time()
    for _ in range(REPEATS):
        stream.put(event)
        await asyncio.sleep(0)
    await reading
    return (time.process_time() - began) / REPEATS


def main() -> None:
    frame = encode(StepOutputs([TokenDelta(str(number), [5]) for number in range(64)]))
    delta = TokenDelta("1", [WORD[0]])
    candidates = TokenLogprobs(-1.0, 1, list(range(30, 50)), [-1.0 - rank for rank in range(20)])
    with_logprobs = TokenDelta("1", [WORD[0]], logprobs=[candidates])
    choice, names = new_choice(), TokenNames(as_ids=False)
    named = choice.feed(with_logprobs).logprobs[0]
    header = Header("cmpl-0123456789abcdef01234567", "text_completion", "tiny", "fp_0123456789ab", with_usage=False)
    text = {"index": 0, "text": " hello", "logprobs": None, "finish_reason": None, "stop_reason": None}
    chunk = header.chunk([text])
    figures = {
        "the engine's frame of 64 deltas, a delta": least_us(lambda: decode_from_engine(frame), 64),
        "delta to event": least_us(lambda: choice.feed(delta)),
        "waking the stream, in a turn of the loop": 1e6 * min(asyncio.run(wake_reader()) for _ in range(RUNS)),
        "event to chunk": least_us(lambda: header.chunk([text])),
        "chunk to JSON in an SSE frame": least_us(lambda: CHUNKS.frame(chunk)),
        "delta with 20 logprobs to event": least_us(lambda: choice.feed(with_logprobs)),
        "20 logprobs to a chat chunk's": least_us(lambda: names.chat(named)),
    }
    for part, us in figures.items():
        print(f"{part:<44} {us:6.2f} us")


if __name__ == "__main__":
    main()
