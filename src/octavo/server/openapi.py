"""GET /openapi.json and GET /docs: the endpoints of this very server, from the table of routes and the schemas that check bodies.

What a schema refuses is not in it, so a client made from the description sends nothing that is refused for its name. The
page for people is plain HTML without a script: it needs no network and no other file.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from pydantic.json_schema import models_json_schema
from starlette.requests import Request
from starlette.responses import Response

from octavo import __version__
from octavo.server.endpoint import Endpoint
from octavo.server.errors import JSONResponse
from octavo.server.fields import bound_of

_ERROR = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
            "required": ["message", "type", "param", "code"],
        }
    },
    "required": ["error"],
}
_STYLE = (
    "body{font:16px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em}"
    "table{border-collapse:collapse}td{padding:.1em 1em .1em 0;vertical-align:top}code{white-space:nowrap}"
)


async def describe_schema(request: Request) -> Response:
    return JSONResponse(openapi(request.app.state.endpoints))


async def describe_page(request: Request) -> Response:
    headers = {"content-security-policy": "default-src 'none'; style-src 'unsafe-inline'"}
    return Response(page(request.app.state.endpoints), media_type="text/html", headers=headers)


def openapi(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """Return the OpenAPI 3.1 description of `endpoints`."""
    bodies = list(dict.fromkeys(body for endpoint in endpoints for body in endpoint.bodies))
    _, schemas = models_json_schema([(body, "validation") for body in bodies], ref_template="#/components/schemas/{model}")
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        path = endpoint.path.replace("{model:path}", "{model}")
        paths.setdefault(path, {})[endpoint.method.lower()] = _operation(endpoint)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Octavo", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": schemas["$defs"] | {"Error": _ERROR},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    error = {"description": "refused or failed", "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}}
    operation: dict[str, Any] = {
        "summary": endpoint.summary,
        "security": [{"key": []}] if endpoint.access == "key" else [],
        "responses": {"200": {"description": "done"}, "4XX": error, "5XX": error},
    }
    if endpoint.bodies:
        refs = [{"$ref": f"#/components/schemas/{body.__name__}"} for body in endpoint.bodies]
        schema = refs[0] if len(refs) == 1 else {"anyOf": refs}
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    if "{model:path}" in endpoint.path:
        operation["parameters"] = [{"name": "model", "in": "path", "required": True, "schema": {"type": "string", "maxLength": 8192}}]
    return operation


def page(endpoints: Sequence[Endpoint]) -> str:
    """Return the endpoints and the fields of their bodies as an HTML page."""
    described = openapi(endpoints)
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
