"""What the front end costs beside the model: CPU seconds of the process that answers HTTP, the engine replaced by one that
has its tokens ready.

    python benchmarks/front_end_cost.py [--streams 64] [--tokens 200] [--profile]

Figures: CPU a streamed token of text and chat completions (the socket to the engine is not in it), CPU a second and memory of
1,000 open streams that say nothing, and how long /health takes while a prompt of 5 MB is read, least of three.
CPU time does not count what others do on the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import gc
import json
import os
import pstats
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.api.fake_engine import FakeEngine
from tests.fakes.vocabularies import byte_level_tokenizer

from octavo.client.choice import Choice
from octavo.client.events import Generation
from octavo.config.server_schema import ServerConfig
from octavo.messages.wire import GenerateRequest, TokenDelta
from octavo.server.app import create_app
from octavo.server.listener import open_listener
from octavo.server.protocol import ConnectionLimits, make_server

TOKENIZER = byte_level_tokenizer()
WORD = TOKENIZER.encode(" hello")


class SteppingEngine(FakeEngine):
    """Streams of ready tokens, one a step for every stream, through the real choice and detokenizer."""

    def __init__(self, num_tokens: int) -> None:
        super().__init__()
        self.tokenizer = TOKENIZER
        self.goes = asyncio.Event()
        self.goes.set()
        self._num_tokens = num_tokens
        self._streams: dict[str, tuple[Choice, Generation]] = {}

    def generate(self, prompt_token_ids, params, *, request_id, cache_salt, tenant, priority):
        request = GenerateRequest(request_id=request_id, prompt_token_ids=prompt_token_ids, params=params, arrival_s=0.0)
        stream = Generation(1, lambda: self._streams.pop(request_id, None))
        self._streams[request_id] = (Choice(request_id, 0, request, self.tokenizer), stream)
        return stream

    async def run(self) -> None:
        """Give every open stream one token a step, for ever."""
        while True:
            await self.goes.wait()
            for name, (choice, stream) in list(self._streams.items()):
                ends = len(choice.output_token_ids) + 1 == self._num_tokens
                token = WORD[len(choice.output_token_ids) % len(WORD)]
                stream.put(choice.feed(TokenDelta(name, [token], "length" if ends else None)))
                if ends:
                    self._streams.pop(name, None)
            await asyncio.sleep(0.001)


async def open_stream(port: int, max_tokens: int, *, is_chat: bool = False) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    asked = {"messages": [{"role": "user", "content": "hi"}]} if is_chat else {"prompt": "hi"}
    body = json.dumps({"model": "tiny", "max_tokens": max_tokens, "stream": True} | asked).encode()
    return await send(port, b"POST /v1/chat/completions" if is_chat else b"POST /v1/completions", body)


async def send(port: int, line: bytes, body: bytes = b"") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
    head = b"%b HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    writer.write(head % (line, len(body)) + body)
    await writer.drain()
    return reader, writer


async def read_streams(port: int, num_streams: int, num_tokens: int, is_chat: int) -> None:
    streams = await asyncio.gather(*(open_stream(port, num_tokens, is_chat=bool(is_chat)) for _ in range(num_streams)))
    answers = await asyncio.gather(*(reader.read() for reader, _ in streams))
    for _, writer in streams:
        writer.close()
    if not all(b"[DONE]" in answer for answer in answers):
        raise SystemExit("a stream did not end")


async def hold_streams(port: int, num_streams: int, seconds: float) -> None:
    """Open streams that say nothing, tell when all are open, and keep them for a while."""
    streams = [await open_stream(port, 2) for _ in range(num_streams)]
    await asyncio.sleep(1.0)  # the last ones arrive
    print("open", flush=True)
    await asyncio.sleep(seconds)
    for _, writer in streams:
        writer.close()


async def time_health(port: int, num_bytes: int) -> None:
    """Print the milliseconds of the slowest of /health's answers while a long text is tokenised."""
    body = json.dumps({"prompt": "hello world " * (num_bytes // 12)}).encode()
    reader, _ = await send(port, b"POST /tokenize", body)
    busy = asyncio.create_task(reader.read())
    slowest_s = 0.0
    while not busy.done():
        began = time.perf_counter()
        health, writer = await send(port, b"GET /health")
        await health.read()
        writer.close()
        slowest_s = max(slowest_s, time.perf_counter() - began)
    print(1e3 * slowest_s, flush=True)


CLIENTS = {"read": read_streams, "hold": hold_streams, "health": time_health}


async def call_client(kind: str, *args: object) -> asyncio.subprocess.Process:
    command = [sys.executable, __file__, "--client", kind, *map(str, args)]
    return await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)


async def measure(num_streams: int, num_tokens: int, idle_s: float, profile: cProfile.Profile | None) -> dict[str, float]:
    engine = SteppingEngine(num_tokens)
    listener = open_listener("127.0.0.1", 0)
    port = listener.getsockname()[1]
    app = create_app(engine, ServerConfig(max_body_bytes=8 << 20))
    serving = asyncio.create_task(make_server(app, 1.0, ConnectionLimits(4096, 4096)).serve(sockets=[listener]))
    stepping = asyncio.create_task(engine.run())
    gc.freeze()  # as a server does when it is ready

    async def cpu_a_token(*, is_chat: bool) -> float:
        began = time.process_time()
        await (await call_client("read", port, num_streams, num_tokens, int(is_chat))).wait()
        return (time.process_time() - began) / (num_streams * num_tokens)

    await cpu_a_token(is_chat=True)
    if profile is not None:
        profile.enable()
        await cpu_a_token(is_chat=True)
        profile.disable()
    token_s = min([await cpu_a_token(is_chat=False) for _ in range(5)])
    chat_token_s = min([await cpu_a_token(is_chat=True) for _ in range(5)])

    engine.goes.clear()
    resident = resident_bytes()
    holding = await call_client("hold", port, 1000, idle_s)
    await holding.stdout.readline()
    began = time.process_time()
    await asyncio.sleep(idle_s)
    idle_share = (time.process_time() - began) / idle_s
    stream_bytes = (resident_bytes() - resident) / 1000
    await holding.wait()
    engine.goes.set()

    health_ms = []
    for _ in range(3):
        health = await call_client("health", port, 5 << 20)
        health_ms.append(float(await health.stdout.readline()))
        await health.wait()
    stepping.cancel()
    serving.cancel()
    return {
        "us_per_streamed_token": 1e6 * token_s,
        "us_per_streamed_chat_token": 1e6 * chat_token_s,
        "idle_cpu_percent_of_1000_streams": 100 * idle_share,
        "kib_per_idle_stream": stream_bytes / 1024,
        "slowest_health_ms": min(health_ms),
    }


def resident_bytes() -> int:
    """Return the memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    if sys.argv[1:2] == ["--client"]:
        asyncio.run(CLIENTS[sys.argv[2]](*map(int, sys.argv[3:])))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--idle-s", type=int, default=5)
    parser.add_argument("--profile", action="store_true", help="also print where a streamed token's time goes")
    options = parser.parse_args()
    profile = cProfile.Profile() if options.profile else None
    figures = asyncio.run(measure(options.streams, options.tokens, options.idle_s, profile))
    if profile is not None:
        pstats.Stats(profile).sort_stats("tottime").print_stats(30)
    print(json.dumps({name: round(value, 1) for name, value in figures.items()}))


if __name__ == "__main__":
    main()
