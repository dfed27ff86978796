"""`octavo serve [MODEL]`: the engine's process first, for what it imports takes longest; then, beside it, flags and server."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from importlib import import_module

from octavo.client.engine_launch import LaunchedEngine


def serve_main(argv: Sequence[str]) -> int:
    gc.disable()  # nothing of what imports make is garbage; server/run.py, when they are done, turns it on
    with LaunchedEngine() as engine:
        code: int = import_module("octavo.cli.serve_flags").serve_with(engine, argv)
        return code
