"""`octavo plan --web`: the planner as a page on loopback, which begins with what the command line said."""

from __future__ import annotations

import argparse
import webbrowser
from urllib.parse import urlencode

from octavo.cli.plan_model import PlannedModel
from octavo.errors import ConfigError
from octavo.planner.catalogue import Device
from octavo.server.plan.answer import Extra, ExtraModel
from octavo.server.plan.run import serve_page
from octavo.server.plan.schemas import PlanRequest

PORT = 8010

_NOT_OF_THE_PAGE = ("list", "fit", "bench", "arrivals", "slo", "num_speculative_tokens", "explain", "chart", "json", "csv")


def serve_plan_page(args: argparse.Namespace, model: PlannedModel | None, device: Device | None) -> int:
    """Serve until interrupted; `model` and `device` are those of the command line, None where it names none. Raises StartupError."""
    for name in _NOT_OF_THE_PAGE:
        if getattr(args, name):
            raise ConfigError(f"--{name.replace('_', '-')} and --web do not go together; the page has no such answer")
    extra = Extra(
        {model.shape.name: ExtraModel(model.shape, model.weights)} if model else {},
        {device.name: device} if device else {},
    )
    setting = urlencode(setting_of(args, model, device))

    def announce(address: str) -> None:
        url = f"{address}#{setting}" if setting else address
        print(f"octavo plan is at {url} (Ctrl-C ends it)", flush=True)
        if args.open:
            webbrowser.open(url)

    serve_page(PORT if args.port is None else args.port, extra, announce)
    return 0


def setting_of(args: argparse.Namespace, model: PlannedModel | None, device: Device | None) -> dict[str, object]:
    """Return the fields of the page that differ from what it begins with."""
    asked = {name: getattr(args, name, None) for name in PlanRequest.model_fields}
    asked["workload"] = args.workload[0] if args.workload else None
    asked["model"] = model.shape.name if model else None
    asked["device"] = device.name if device else None
    if args.model is None:  # by numbers: they are in the model already
        asked |= dict.fromkeys(("layers", "kv_heads", "head_dim", "params"))
    defaults = PlanRequest.model_validate({}).model_dump()
    return {name: value for name, value in asked.items() if value is not None and value != defaults[name]}
