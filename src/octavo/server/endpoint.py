"""One endpoint as a value: what the router, the check of keys and the description in /openapi.json read."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from octavo.server.auth import Access
from octavo.server.openai.schemas import Body

Task = Literal["generate", "embed", "classify", "pool", "score"]
Handler = Callable[[Request], Awaitable[Response]]

BETWEEN_CHECKS_S = 0.02  # building one takes 3 ms


class Endpoint(msgspec.Struct, frozen=True):
    """`bodies`: the schemas of which a request's body must fit one; none: it takes no body. `answer`: what a success brings: a
    schema's name in answer_schemas, a media type, or "" for no body. `switch`: the field of ServerConfig
    without which there is no such route. `task`: what the model must do, or this refuses every request; None: any model will do."""

    path: str
    method: str
    access: Access
    handler: Handler
    summary: str
    answer: str
    bodies: tuple[type[Body], ...] = ()
    switch: str | None = None
    task: Task | None = None


async def build_checks(endpoints: Iterable[Endpoint]) -> None:
    """Build the checks of the bodies, now and then one: start-up and requests go first. Pydantic leaves that to the first use, which a
    request would wait for."""
    for body in dict.fromkeys(body for endpoint in endpoints for body in endpoint.bodies):
        await asyncio.sleep(BETWEEN_CHECKS_S)
        body.model_rebuild()
