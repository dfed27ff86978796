"""The one path of the endpoints for vectors and scores: texts read off the event loop, all of them asked of the engine at once,
answers back in their order. Every text is counted and timed; when one fails or nobody listens any more, the rest are aborted."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import orjson
from starlette.requests import Request

from octavo.client.pooling import PoolFront, PoolPrompt
from octavo.errors import DeadlineExceeded
from octavo.messages.wire import PoolTask
from octavo.server.body import read_json_object
from octavo.server.deadline import deadline_of, in_time
from octavo.server.disconnect import until_disconnect
from octavo.server.errors import JSONResponse
from octavo.server.openai.models import check_model
from octavo.server.openai.validation import ignored_fields_header, parse_body
from octavo.server.pooling.schemas import PoolingBody
from octavo.server.state import Engine, ServerState

if TYPE_CHECKING:
    from octavo.client.vectors import FloatArray

Asked = TypeVar("Asked", bound=PoolingBody)


class ArrayResponse(JSONResponse):
    """A value with NumPy arrays in it as JSON: float32 by the shortest digits that give it back."""

    def render(self, content: Any) -> bytes:
        return orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)


async def read_body(request: Request, schema: type[Asked]) -> tuple[Asked, Engine, dict[str, str]]:
    """Return the body, checked, the engine that is to answer it, and headers that tell which fields were ignored.

    Raises RequestError and CapacityError."""
    state: ServerState = request.app.state.server
    engine = state.admit()
    raw = await read_json_object(request, state.config.max_body_bytes)
    body, ignored = parse_body(schema, raw, ignore_unknown=state.config.ignore_unknown_fields)
    check_model(engine, body.model)
    return body, engine, ignored_fields_header(ignored)


async def read_prompts(request: Request, engine: Engine, read: Callable[[PoolFront], list[PoolPrompt]]) -> list[PoolPrompt]:
    """Return what `read` makes of the texts, done off the event loop. Raises RequestError."""
    state: ServerState = request.app.state.server
    return await state.in_text_pool(read, engine.pool_front)


async def answer_all(
    request: Request, prompts: Sequence[PoolPrompt], task: PoolTask, *, activate: bool = True, priority: int | None = None
) -> list[FloatArray]:
    """Return the engine's answer to each prompt, in order. Raises RequestError, CapacityError, EngineError and DeadlineExceeded."""
    state: ServerState = request.app.state.server
    deadline = deadline_of(request)
    work = _answer_all(state, prompts, task, activate, priority or 0, request.state.arrival_s)
    try:
        return await until_disconnect(request.receive, work if deadline is None else in_time(deadline, work))
    except DeadlineExceeded:
        state.metrics.count("requests_expired", 1)
        raise


async def _answer_all(
    state: ServerState, prompts: Sequence[PoolPrompt], task: PoolTask, activate: bool, priority: int, arrival_s: float
) -> list[FloatArray]:
    engine = state.admit()  # asked again: others came while this one was read and tokenised

    async def answer(prompt: PoolPrompt) -> FloatArray:
        clock = state.metrics.start_text(arrival_s)
        try:
            values = await engine.pool(prompt, task, activate=activate, priority=priority)
            clock.answer(len(prompt.token_ids))
            return values
        except Exception:
            clock.end("error")
            raise
        finally:
            state.drained_answers.count(1)
            clock.end("abort")

    tasks = [asyncio.ensure_future(answer(prompt)) for prompt in prompts]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for waiting in tasks:
            waiting.cancel()


def header(request: Request, prefix: str, model: str) -> dict[str, Any]:
    """Return what every answer begins with."""
    return {"id": f"{prefix}-{request.state.request_id}", "object": "list", "created": int(time.time()), "model": model}


def usage(prompts: Sequence[PoolPrompt]) -> dict[str, int]:
    num_tokens = sum(len(prompt.token_ids) for prompt in prompts)
    return {"prompt_tokens": num_tokens, "total_tokens": num_tokens, "completion_tokens": 0}


def as_format(values: FloatArray, encoding_format: str | None) -> FloatArray | str:
    """Return an array as the client wants it: numbers, or its float32 bytes (little-endian, row by row) in base64."""
    return base64.b64encode(values.tobytes()).decode() if encoding_format == "base64" else values
