"""POST /invocations (SageMaker's one path for everything): a body with messages is a chat, one with a prompt a text completion."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from octavo.errors import InvalidRequest
from octavo.server.body import read_json_object
from octavo.server.openai.chat import answer_chat
from octavo.server.openai.completions import answer_completion
from octavo.server.state import ServerState


async def invoke(request: Request) -> Response:
    state: ServerState = request.app.state.server
    body = await read_json_object(request, state.config.max_body_bytes)
    if "messages" in body:
        return await answer_chat(request, body)
    if "prompt" in body:
        return await answer_completion(request, body)
    raise InvalidRequest("missing required parameter: messages or prompt", code="missing_required_parameter", param="messages")
