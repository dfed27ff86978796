"""Looks at a running server for some seconds: /metrics again and again, and once what the server says of itself.

Reads only; a server that hides /server_info or /v1/models is judged by less.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from typing import Any

import orjson

from octavo.bench.http_stream import Target, fetch
from octavo.doctor.exposition import Page, read_page
from octavo.doctor.observation import Observation, Settings
from octavo.doctor.observe import observe_server
from octavo.errors import StartupError

SAMPLES = 20
SHORTEST_S = 0.1  # between two scrapes: each costs the server some milliseconds


async def visit(url: str, headers: dict[str, str], stated: Settings, seconds: float) -> Observation:
    """Return what the server at `url` did in the next `seconds`. `stated` wins over what it says of itself.

    Raises StartupError when nobody answers or the key is refused.
    """
    target = Target(url, headers)
    settings = await _settings(target, stated)
    illness = await _illness(target)
    begun_s = time.monotonic()
    pages = [await _page(target)]
    interval_s = max(SHORTEST_S, seconds / SAMPLES)
    while (left_s := begun_s + seconds - time.monotonic()) > 0:
        await asyncio.sleep(min(interval_s, left_s))
        pages.append(await _page(target))
    return observe_server(url, pages, settings, illness)


async def _page(target: Target) -> tuple[float, Page]:
    asked_s = time.monotonic()
    status, body = await _get(target, "/metrics")
    if status in (401, 403):
        raise StartupError("the server wants a key for /metrics: put it into OCTAVO_API_KEY")
    if status != 200:
        raise StartupError(f"/metrics answers {status}; there is nothing to observe")
    now_s = time.monotonic()
    return now_s, dataclasses.replace(read_page(body.decode("utf-8", "replace")), answer_s=now_s - asked_s)


async def _illness(target: Target) -> str | None:
    status, body = await _get(target, "/health")
    return None if status == 200 else f"{status} {_reason(body)}".strip()


async def _settings(target: Target, stated: Settings) -> Settings:
    """Return the flags that /v1/models and /server_info tell, under those that the operator stated."""
    told: dict[str, Any] = {}
    status, body = await _get(target, "/v1/models")
    models = _json(body).get("data") if status == 200 else None
    if models:
        told["model"] = models[0].get("root") or models[0].get("id")
        told["program"] = "vllm" if models[0].get("owned_by") == "vllm" else "octavo"
    status, body = await _get(target, "/server_info?config_format=json")
    if status == 200:
        told |= _read_server_info(_json(body))
    defaults = Settings()
    own = {name: value for name, value in dataclasses.asdict(stated).items() if value != getattr(defaults, name)}
    return dataclasses.replace(defaults, **{name: value for name, value in (told | own).items() if value is not None})


def _read_server_info(info: dict[str, Any]) -> dict[str, Any]:
    """Return the flags in Octavo's answer, or in vLLM's (?config_format=json has its scheduler_config)."""
    engine, server = info.get("engine"), info.get("server")
    scheduler = (info.get("vllm_config") or {}).get("scheduler_config") if isinstance(info.get("vllm_config"), dict) else None
    found = [part for part in (engine, server, scheduler) if isinstance(part, dict)]
    names = ("max_num_seqs", "max_num_batched_tokens", "max_num_queued_reqs", "weight_bytes", "kv_bytes_per_token")
    return {name: part[name] for part in found for name in names if part.get(name) is not None}


async def _get(target: Target, path: str) -> tuple[int, bytes]:
    try:
        return await fetch(target, "GET", path)
    except (OSError, ValueError, IndexError) as error:
        raise StartupError(
            f"no server answers at {target.host}:{target.port} ({type(error).__name__}); start one, or give its URL"
        ) from None


def _json(body: bytes) -> dict[str, Any]:
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}


def _reason(body: bytes) -> str:
    error = _json(body).get("error")
    return str(error.get("code") or error.get("message") or "") if isinstance(error, dict) else ""
