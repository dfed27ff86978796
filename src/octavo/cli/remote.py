"""A model behind the OpenAI API of any server, by the standard library's HTTP client."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import orjson

from octavo.cli.answering import Answered, Message, Options, Write
from octavo.config import env
from octavo.errors import EngineError, RequestError

TIMEOUT_S = 600.0


class RemoteAnswerer:
    """`url` is the API's root, as in http://127.0.0.1:8000/v1, which may be left out."""

    def __init__(self, url: str, model_name: str | None) -> None:
        self._url = url.rstrip("/")
        if not self._url.startswith(("http://", "https://")):
            raise RequestError(f"{url!r} is no http URL; write http://127.0.0.1:8000/v1")
        if not urlsplit(self._url).path:
            self._url += "/v1"
        self.model_name = model_name or self._first_model()

    def chat(self, messages: list[Message], options: Options, write: Write) -> Answered:
        return self._answer("/chat/completions", {"messages": messages} | options.fields(), write)

    def complete(self, prompt: str, options: Options, write: Write) -> Answered:
        return self._answer("/completions", {"prompt": prompt} | options.fields(), write)

    def close(self) -> None:
        return

    def _answer(self, path: str, body: dict[str, Any], write: Write) -> Answered:
        started_s = time.monotonic()
        first_s = 0.0
        pieces: list[str] = []
        usage: dict[str, int] = {}
        asked = body | {"model": self.model_name, "stream": True, "stream_options": {"include_usage": True}}
        for chunk in self._events(path, asked):
            if "error" in chunk:
                raise EngineError(f"the server broke off: {chunk['error'].get('message', 'no reason given')}")
            usage = chunk.get("usage") or usage
            for choice in chunk["choices"]:
                text = choice.get("text") or choice.get("delta", {}).get("content") or ""
                if text:
                    first_s = first_s or time.monotonic() - started_s
                    pieces.append(text)
                    write(text)
        tokens = usage.get("prompt_tokens", 0), usage.get("completion_tokens", 0)
        return Answered("".join(pieces), *tokens, first_s, time.monotonic() - started_s)

    def _events(self, path: str, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        with self._open(path, body) as response:
            for line in response:
                if line.startswith(b"data: ") and line.strip() != b"data: [DONE]":
                    yield orjson.loads(line[6:])

    def _first_model(self) -> str:
        with self._open("/models", None) as response:
            models = orjson.loads(response.read())["data"]
        if not models:
            raise RequestError("the server has no model")
        return str(models[0]["id"])

    def _open(self, path: str, body: dict[str, Any] | None) -> Any:
        headers = {"content-type": "application/json"}
        if keys := env.api_keys():
            headers["authorization"] = f"Bearer {keys[0]}"
        request = urllib.request.Request(self._url + path, orjson.dumps(body) if body is not None else None, headers)
        try:
            return urllib.request.urlopen(request, timeout=TIMEOUT_S)
        except urllib.error.HTTPError as error:
            raise RequestError(f"the server answered {error.code}: {_message(error.read())}") from None
        except (urllib.error.URLError, OSError) as error:
            reason = getattr(error, "reason", error)
            raise RequestError(f"no server answers at {self._url}: {reason}") from None


def _message(body: bytes) -> str:
    try:
        return str(orjson.loads(body)["error"]["message"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return "no reason given"
