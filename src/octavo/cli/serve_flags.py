"""What `octavo serve` was told, and the serving."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from octavo.client.engine_launch import LaunchedEngine
from octavo.config.flag_files import read_config
from octavo.config.flag_parser import FlagParser
from octavo.config.flags import ALL_GROUPS, flags_in
from octavo.config.resolve import resolve


def serve_with(engine: LaunchedEngine, argv: Sequence[str]) -> int:
    """Serve as `argv` says with `engine`, which has begun already; return the exit code."""
    parser = FlagParser("octavo serve", "Serve a model over the OpenAI API.", ALL_GROUPS, usage="octavo serve [MODEL] [FLAGS]")
    parser.add_argument("model_tag", nargs="?", metavar="MODEL", help="model to serve (the same as --model)")
    parser.add_argument("--config", metavar="FILE", help="YAML mapping of flag names to values; flags given here override it")
    parser.add_argument("--show-config", action="store_true", help="print every setting, its value and where it comes from, and stop")
    args = parser.parse(argv)
    given = parser.given(args)
    if args.model_tag is not None:
        given["model"] = args.model_tag
    if args.config is None:
        settings = resolve(given)
    else:
        settings = resolve(given, read_config(Path(args.config), flags_in(ALL_GROUPS)), Path(args.config).name)
    if args.show_config:
        from octavo.engine.resolved import resolved_settings

        print(_table(settings.rows(resolved_settings(settings.engine))))
        return 0
    if "api-key" in given:
        print("octavo: --api-key shows in ps; --api-key-file or OCTAVO_API_KEY does not", file=sys.stderr)

    from octavo.server.run import serve

    return serve(settings.engine, settings.server, engine)


def _table(settings: list[tuple[str, str, str]]) -> str:
    rows = [("setting", "value", "source"), *settings]
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    return "\n".join(f"{name:<{widths[0]}}  {value:<{widths[1]}}  {source}" for name, value, source in rows)
