"""One streamed OpenAI request over a plain asyncio connection, timed event by event: as light as a client can be,
for it shares the machine with the server that it measures."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import orjson

from octavo.errors import ConfigError

MAX_LINE_BYTES = 1 << 20
MAX_ERROR_BYTES = 4096


@dataclass
class Answer:
    """What came back, in seconds from sending. `error` is None for a whole answer."""

    ttft_s: float = 0.0
    latency_s: float = 0.0
    itls_s: list[float] = field(default_factory=list)
    text: str = ""
    num_input_tokens: int = 0
    num_output_tokens: int = 0
    num_cached_tokens: int = 0
    error: str | None = None


class Target:
    """A server's address. `url` is its root, as in http://127.0.0.1:8000."""

    def __init__(self, url: str, headers: dict[str, str]) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"{url!r} is no http URL; write http://127.0.0.1:8000")
        self._is_tls = parts.scheme == "https"
        self.host = parts.hostname
        self.port = parts.port or (443 if self._is_tls else 80)
        self._root = parts.path.rstrip("/")
        self._headers = "".join(f"{name}: {value}\r\n" for name, value in headers.items())

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        context = ssl.create_default_context() if self._is_tls else None
        return await asyncio.open_connection(self.host, self.port, limit=MAX_LINE_BYTES, ssl=context)

    def request(self, method: str, path: str, body: bytes = b"") -> bytes:
        return (
            f"{method} {self._root}{path} HTTP/1.1\r\nHost: {self.host}:{self.port}\r\nConnection: close\r\n{self._headers}"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        ).encode() + body


async def fetch(target: Target, method: str, path: str) -> tuple[int, bytes]:
    """Return (status, body). Raises OSError when nobody answers."""
    reader, writer = await target.connect()
    try:
        writer.write(target.request(method, path))
        status, is_chunked = await _read_head(reader)
        return status, b"".join([part async for part in _chunks(reader)]) if is_chunked else await reader.read()
    finally:
        writer.close()


async def stream_answer(target: Target, path: str, body: dict[str, Any]) -> Answer:
    """Send `body`, which asks for a stream with usage, and return what came and when. Failures are told in the answer."""
    answer = Answer()
    sent_s = time.perf_counter()
    try:
        reader, writer = await target.connect()
    except OSError as error:
        answer.error = f"no connection: {error}"
        return answer
    try:
        writer.write(target.request("POST", path, orjson.dumps(body)))
        status, _ = await _read_head(reader)
        if status != 200:
            answer.error = f"{status}: {_message(await reader.read(MAX_ERROR_BYTES))}"
            return answer
        await _read_events(reader, answer, sent_s)
    except (OSError, ValueError, asyncio.IncompleteReadError) as error:
        answer.error = f"{type(error).__name__}: {error}"
    finally:
        writer.close()
    return answer


async def _read_events(reader: asyncio.StreamReader, answer: Answer, sent_s: float) -> None:
    pieces: list[str] = []
    last_s = 0.0
    is_done = False
    while line := await reader.readline():
        if not line.startswith(b"data:"):
            continue  # blank lines, chunk sizes, comments
        data = line[5:].strip()
        if data == b"[DONE]":
            is_done = True
            break
        event = orjson.loads(data)
        if "error" in event:
            answer.error = str(event["error"].get("message", "no reason given"))
            return
        if usage := event.get("usage"):
            answer.num_input_tokens = usage.get("prompt_tokens", 0)
            answer.num_output_tokens = usage.get("completion_tokens", 0)
            answer.num_cached_tokens = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
        for choice in event.get("choices", ()):
            text = choice.get("text") or (choice.get("delta") or {}).get("content")
            if not text:
                continue
            now_s = time.perf_counter()
            if last_s:
                answer.itls_s.append(now_s - last_s)
            else:
                answer.ttft_s = now_s - sent_s
            last_s = now_s
            pieces.append(text)
    answer.text = "".join(pieces)
    answer.latency_s = (last_s or time.perf_counter()) - sent_s
    if not is_done:
        answer.error = "the stream broke off before [DONE]"
    elif not pieces:
        answer.error = "the answer was empty"
    answer.num_output_tokens = answer.num_output_tokens or len(pieces)


async def _read_head(reader: asyncio.StreamReader) -> tuple[int, bool]:
    """Return (status, whether the body comes in chunks)."""
    status = int((await reader.readline()).split(b" ", 2)[1])
    is_chunked = False
    while (line := await reader.readline()) not in (b"\r\n", b""):
        name, _, value = line.partition(b":")
        is_chunked |= name.lower() == b"transfer-encoding" and b"chunked" in value.lower()
    return status, is_chunked


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while size := int((await reader.readline()).split(b";")[0], 16):
        yield await reader.readexactly(size)
        await reader.readexactly(2)


def _message(body: bytes) -> str:
    start = body.find(b"{")
    try:
        return str(orjson.loads(body[start : body.rfind(b"}") + 1])["error"]["message"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return body.decode("utf-8", "replace").strip()[:200] or "no reason given"
