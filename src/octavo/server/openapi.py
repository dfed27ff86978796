"""GET /openapi.json and GET /docs: the endpoints of this very server, from the table of routes and the schemas that check bodies.

What a schema refuses is not in it, so a client made from the description sends nothing that is refused for its name. The
page for people is plain HTML without a script: it needs no network and no other file.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from typing import Any

from pydantic.json_schema import models_json_schema
from starlette.requests import Request
from starlette.responses import Response

from octavo import __version__
from octavo.config.server_schema import ServerConfig
from octavo.server.answer_schemas import ANSWERS
from octavo.server.endpoint import Endpoint
from octavo.server.errors import ANTHROPIC_PATHS, JSONResponse
from octavo.server.fields import bound_of
from octavo.server.openai.schemas import MAX_NAME_CHARS
from octavo.server.state import ServerState

_PLACES = re.compile(r"\{(\w+)")  # in a path
_A_TEXT = {"schema": {"type": "string"}}
_NAME = {"type": "string", "minLength": 1, "maxLength": MAX_NAME_CHARS}
_STYLE = (
    "body{font:16px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em}"
    "table{border-collapse:collapse}td{padding:.1em 1em .1em 0;vertical-align:top}code{white-space:nowrap}"
)


async def describe_schema(request: Request) -> Response:
    state: ServerState = request.app.state.server
    return JSONResponse(openapi(_served(request), state.config, state.model_names))


async def describe_page(request: Request) -> Response:
    headers = {"content-security-policy": "default-src 'none'; style-src 'unsafe-inline'"}
    text = page(_served(request), request.app.state.server.config)
    return Response(text, media_type="text/html", headers=headers)


def _served(request: Request) -> list[Endpoint]:
    """Return the endpoints that this server's model answers; all that there are while it loads."""
    tasks = request.app.state.server.tasks
    return [endpoint for endpoint in request.app.state.endpoints if tasks is None or endpoint.task is None or endpoint.task in tasks]


def openapi(endpoints: Sequence[Endpoint], config: ServerConfig, model_names: Sequence[str] = ()) -> dict[str, Any]:
    """Return the OpenAPI 3.1 description of `endpoints` under these settings: no key where none is asked for, no text or array
    that a body cannot hold, and no other model than `model_names`, when they are known."""
    bodies = list(dict.fromkeys(body for endpoint in endpoints for body in endpoint.bodies))
    _, schemas = models_json_schema([(body, "validation") for body in bodies], ref_template="#/components/schemas/{model}")
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        path = endpoint.path.replace("{model:path}", "{model}")
        paths.setdefault(path, {})[endpoint.method.lower()] = _operation(endpoint, needs_key=bool(config.api_key))
    described = _capped(schemas["$defs"], config.max_body_bytes)
    for body in bodies:
        if model_names and body.names_served_model and "model" in body.model_fields:
            others = [] if body.model_fields["model"].is_required() else [None]
            described[body.__name__]["properties"]["model"] = {"enum": [*model_names, *others]}
    components: dict[str, Any] = {"schemas": described | ANSWERS}
    if config.api_key:
        components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    return {"openapi": "3.1.0", "info": {"title": "Octavo", "version": __version__}, "paths": paths, "components": components}


def _capped(schema: Any, max_body_bytes: int) -> Any:
    """Return `schema` with every bound of a text's or array's length cut to what a body of so many bytes has room for."""
    if isinstance(schema, list):
        return [_capped(item, max_body_bytes) for item in schema]
    if not isinstance(schema, dict):
        return schema
    capped = {name: _capped(value, max_body_bytes) for name, value in schema.items()}
    for name, item_bytes in (("maxLength", 1), ("maxItems", 2)):
        if isinstance(capped.get(name), int):
            capped[name] = min(capped[name], max_body_bytes // item_bytes)
    return capped


def _operation(endpoint: Endpoint, *, needs_key: bool) -> dict[str, Any]:
    error = _json("AnthropicError" if endpoint.path.startswith(ANTHROPIC_PATHS) else "Error", "refused or failed")
    operation: dict[str, Any] = {"summary": endpoint.summary, "responses": {"200": _success(endpoint), "4XX": error, "5XX": error}}
    if needs_key and endpoint.access == "key":
        operation["security"] = [{"key": []}]
    if endpoint.bodies:
        refs = [{"$ref": f"#/components/schemas/{body.__name__}"} for body in endpoint.bodies]
        schema = refs[0] if len(refs) == 1 else {"anyOf": refs}
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    if names := _PLACES.findall(endpoint.path):
        operation["parameters"] = [{"name": name, "in": "path", "required": True, "schema": _NAME} for name in names]
    return operation


def _success(endpoint: Endpoint) -> dict[str, Any]:
    if not endpoint.answer:
        return {"description": "done"}
    if "/" in endpoint.answer:
        return {"description": "done", "content": {endpoint.answer: _A_TEXT}}
    success = _json(endpoint.answer, "done")
    if any("stream" in body.model_fields for body in endpoint.bodies):
        success["content"]["text/event-stream"] = {}
    return success


def _json(schema: str, description: str) -> dict[str, Any]:
    content: dict[str, Any] = {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}}
    return {"description": description, "content": content}


def page(endpoints: Sequence[Endpoint], config: ServerConfig) -> str:
    """Return the endpoints and the fields of their bodies as an HTML page."""
    described = openapi(endpoints, config)
    rows = "".join(
        f"<tr><td><code>{endpoint.method} {escape(endpoint.path)}</code></td><td>{escape(endpoint.summary)}</td>"
        f"<td>{'key' if endpoint.access == 'key' else 'open'}</td></tr>"
        for endpoint in endpoints
    )
    bodies = dict.fromkeys(body for endpoint in endpoints for body in endpoint.bodies)
    fields = "".join(
        f"<h2>{body.__name__}</h2><p>{escape(body.__doc__ or '')}</p><table>"
        + "".join(
            f"<tr><td><code>{escape(name)}</code></td><td>{escape(bound_of(schema, described['components']['schemas']))}</td></tr>"
            for name, schema in described["components"]["schemas"][body.__name__]["properties"].items()
        )
        + "</table>"
        for body in bodies
    )
    plan = '<p><a href="ui/plan">The planner</a>: size a model on paper.</p>' if any(e.path == "/ui/plan" for e in endpoints) else ""
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Octavo {__version__}</title><style>{_STYLE}</style>'
        f"<h1>Octavo {__version__}</h1>{plan}<table>{rows}</table>{fields}</html>"
    )
