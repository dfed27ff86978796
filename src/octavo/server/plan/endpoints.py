"""GET /ui/plan and its files, GET and POST /ui/plan/api: the planner as a page.

The page and its files are the program's own and the same everywhere, so they are open, as a browser that opens a page has no
key to send; what they ask for, and all that is computed, needs one. The page asks for it and keeps it until it is closed.

The planner is imported when it is first asked: a server that starts has no use for it.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from octavo.errors import InvalidRequest, StartupError
from octavo.server.body import read_json_object
from octavo.server.endpoint import Endpoint, Handler
from octavo.server.openai.validation import parse_body
from octavo.server.plan.schemas import PlanRequest
from octavo.server.state import ServerState

if TYPE_CHECKING:
    from octavo.server.plan.answer import Extra

PAGE = "/ui/plan"
MAX_BODY_BYTES = 64 << 10
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_UI = Path(__file__).parents[2] / "ui"
_FILES = {
    "plan.css": "text/css",
    "plan.js": "text/javascript",
    "form.js": "text/javascript",
    "charts.js": "text/javascript",
    "icon.svg": "image/svg+xml",
}


async def choices(request: Request) -> Response:
    """Models, devices, formats, workloads and prices to choose from, and what the page begins with."""
    state: ServerState = request.app.state.server
    return Response(await state.in_text_pool(_choices, _extra(request)), media_type="application/json")


async def plan(request: Request) -> Response:
    """The plan of a PlanRequest, and the formula of each of its numbers."""
    state: ServerState = request.app.state.server
    raw = await read_json_object(request, MAX_BODY_BYTES)
    asked, _ = parse_body(PlanRequest, raw)
    return Response(await state.in_text_pool(_answer, asked, _extra(request)), media_type="application/json")


def _choices(extra: Extra | None) -> bytes:
    from octavo.server.plan.answer import list_choices

    return msgspec.json.encode(list_choices(extra))


def _answer(asked: PlanRequest, extra: Extra | None) -> bytes:
    from octavo.server.plan.answer import answer

    try:
        return msgspec.json.encode(answer(asked, extra))
    except StartupError as error:  # a name or a combination that the planner refuses
        raise InvalidRequest(error.message) from None


def _extra(request: Request) -> Extra | None:
    return getattr(request.app.state, "plan_extra", None)


def _file(name: str, media_type: str) -> Handler:
    async def send(request: Request) -> Response:
        return Response(_read(name), media_type=media_type, headers={"content-security-policy": POLICY, "referrer-policy": "no-referrer"})

    return send


@cache
def _read(name: str) -> bytes:
    return (_UI / name).read_bytes()


PLAN_ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(PAGE, "GET", "open", _file("plan.html", "text/html"), "The planner as a page", "text/html", switch="enable_admin_endpoints"),
    *(
        Endpoint(f"{PAGE}/{name}", "GET", "open", _file(name, kind), "A file of that page", kind, switch="enable_admin_endpoints")
        for name, kind in _FILES.items()
    ),
    Endpoint(f"{PAGE}/api", "GET", "key", choices, "What the planner can be asked for", "PlanChoices", switch="enable_admin_endpoints"),
    Endpoint(f"{PAGE}/api", "POST", "key", plan, "A plan and its formulas", "Plan", (PlanRequest,), switch="enable_admin_endpoints"),
)
