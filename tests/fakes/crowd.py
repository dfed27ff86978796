"""Clients that keep a server busy while something else looks at it."""

import asyncio
import json
from contextlib import suppress

from octavo.bench.http_stream import Target, stream_answer

BUSY = "503"  # how an answer that was refused for want of room begins


class Crowd:
    """Clients of one server, each asking one prompt after another, by token ids, until the crowd goes."""

    def __init__(self, url, model):
        self._target = Target(url, {})
        self._model = model
        self._tasks = []
        self.failures = []

    async def ask(self, prompt, max_tokens):
        body = {"model": self._model, "prompt": prompt, "max_tokens": max_tokens, "stream": True, "stream_options": {"include_usage": True}}
        return await stream_answer(self._target, "/v1/completions", body | {"temperature": 0.0, "ignore_eos": True})

    def add(self, num_clients, next_prompt, max_tokens, pause_s=0.0):
        """`next_prompt()` gives each prompt; `pause_s` is how long a client rests after an answer, or a refusal."""

        async def talk():
            while True:
                answer = await self.ask(next_prompt(), max_tokens)
                is_busy = (answer.error or "").startswith(BUSY)
                if answer.error is not None and not is_busy:
                    self.failures.append(answer.error)
                await asyncio.sleep(max(pause_s, 0.02 if is_busy else 0.0))

        self._tasks += [asyncio.create_task(talk()) for _ in range(num_clients)]

    def add_readers(self, num_clients, prompt, max_tokens, **fields):
        """Clients that only swallow what comes: they take far less CPU than the server that makes it."""
        body = {"model": self._model, "prompt": prompt, "max_tokens": max_tokens, "stream": True, "ignore_eos": True} | fields
        asked = self._target.request("POST", "/v1/completions", json.dumps(body).encode())

        async def swallow():
            while True:
                reader, writer = await self._target.connect()
                writer.write(asked)
                while await reader.read(1 << 16):
                    pass
                writer.close()

        self._tasks += [asyncio.create_task(swallow()) for _ in range(num_clients)]

    def add_arrivals(self, rate, next_prompt, max_tokens):
        """A new client every 1 / `rate` seconds, whatever the server does."""

        async def arrive():
            while True:
                self._tasks.append(asyncio.create_task(self.ask(next_prompt(), max_tokens)))
                await asyncio.sleep(1 / rate)

        self._tasks.append(asyncio.create_task(arrive()))

    async def leave(self):
        for task in self._tasks:
            task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*self._tasks, return_exceptions=True)
