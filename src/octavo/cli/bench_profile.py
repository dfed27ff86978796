"""`octavo bench profile`: one step operation by operation, or with --streams the steps of a server as a timeline by process."""

from __future__ import annotations

import dataclasses
import json
import string
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import to_builtins
from rich.box import HEAVY_HEAD, MARKDOWN
from rich.console import Console
from rich.table import Table

from octavo.bench.profile import StepShape, profile_step
from octavo.bench.tracing.cycles import Lanes, Share, Step, shares
from octavo.bench.tracing.run import trace_server
from octavo.bench.tracing.views import chrome_trace, names_of, page, text_lanes
from octavo.cli.bars import COLOURS
from octavo.cli.flag_types import integer
from octavo.cli.passed import split_passed
from octavo.config.flag_parser import FlagParser, flag_type
from octavo.config.flags import ENGINE_GROUPS
from octavo.config.resolve import resolve
from octavo.errors import ConfigError
from octavo.units import parse_int

CHART_WIDTH = 120
LETTERS = string.ascii_uppercase + string.ascii_lowercase + string.digits


def bench_profile_main(argv: Sequence[str]) -> int:
    parser = FlagParser(
        "octavo bench profile",
        "Measure the time of one step, operation by operation; with --streams, of a server's steps, process by process.",
        ENGINE_GROUPS,
        usage="octavo bench profile [FLAGS] [-- FLAGS OF SERVE]",
    )
    parser.add_argument("--rows", type=integer(1), default=1, metavar="N", help="requests in the step [1]")
    parser.add_argument("--query-len", type=integer(1), default=1, metavar="N", help="tokens of each (1: decode) [1]")
    parser.add_argument("--context-len", type=flag_type(parse_int), default=256, metavar="N", help="tokens behind each [256]")
    parser.add_argument("--num-iters", type=integer(1), default=50, metavar="N", help="steps measured [50]")
    parser.add_argument(
        "--streams", type=flag_type(_numbers), metavar="N,N", help="start a server, answer so many streams at once, and show its steps"
    )
    parser.add_argument("--input-len", type=integer(1), default=128, metavar="N", help="words of a stream's prompt [128]")
    parser.add_argument("--output-len", type=integer(1), default=128, metavar="N", help="tokens of its answer [128]")
    parser.add_argument("--html", metavar="FILE", help="draw the steps of --streams there")
    parser.add_argument("--trace", metavar="FILE", help="write all that --streams saw there, for chrome://tracing or ui.perfetto.dev")
    parser.add_argument("--output-json", metavar="FILE", help="write the figures there")
    own, passed = split_passed(argv)
    args = parser.parse(own)
    given = parser.given(args)
    if args.streams is None:
        if args.html or args.trace or passed:
            raise ConfigError("--html, --trace and flags behind -- concern a server's steps; say with how many streams: --streams 1,8")
        return _profile_step(given, args)
    if given:
        raise ConfigError(
            f"--{next(iter(given))} is a flag of the server that --streams starts; give it behind --, as in --streams 1,8 -- --threads 1"
        )
    return _profile_server(args, passed)


def _profile_step(given: dict[str, Any], args: Namespace) -> int:
    shape = StepShape(args.rows, args.query_len, args.context_len)
    parts = profile_step(resolve(given).engine, shape, args.num_iters)
    total = sum(part.seconds for part in parts)
    table = Table("part of the step", "times", "ms", "share", "", title=f"{shape.rows} x {shape.query} tokens, {shape.context} behind each")
    for part in parts:
        share = part.seconds / total
        table.add_row(part.name, str(part.count), f"{part.seconds * 1e3:.3f}", f"{share:.1%}", "█" * round(40 * share))
    table.add_row("all", "", f"{total * 1e3:.3f}", f"{shape.rows * shape.query / total:,.0f} tok/s", "")
    Console().print(table)
    _write_json(args.output_json, dataclasses.asdict(shape) | {"parts": [dataclasses.asdict(part) for part in parts], "seconds": total})
    return 0


def _profile_server(args: Namespace, flags: list[str]) -> int:
    told = Console(stderr=True)
    spans = trace_server(flags, args.streams, args.input_len, args.output_len, lambda count: told.print(f"{count} streams"))
    lanes = Lanes(spans)
    steps = {count: lanes.steps(count) for count in args.streams}
    middle = {count: found[len(found) // 2] for count, found in steps.items()}
    means = {count: shares(found) for count, found in steps.items()}
    console = Console(width=None if Console().is_terminal else CHART_WIDTH + 12)
    names = names_of(middle.values())
    for count, step in middle.items():
        _show_step(console, count, step, names)
    _legend(console, names)
    console.print(_table(means))
    if args.html:
        Path(args.html).write_text(page("Steps of a server", middle))
    if args.trace:
        Path(args.trace).write_text(json.dumps(chrome_trace(spans)) + "\n")
    _write_json(args.output_json, {str(count): to_builtins(found) for count, found in means.items()})
    return 0


def _show_step(console: Console, count: int, step: Step, names: dict[str, list[str]]) -> None:
    """Print a step to scale: a line for each lane, letters for what it does, nothing where it waits."""
    letters = {lane: dict(zip(known, LETTERS, strict=False)) for lane, known in names.items()}
    console.print(f"[bold]{count} streams: a step of {step.us / 1e3:.2f} ms[/]", highlight=False)
    for lane, line in text_lanes(step, CHART_WIDTH, letters):
        console.print(f"{lane:>8} │{''.join(map(_coloured, line))}│", highlight=False)


def _legend(console: Console, names: dict[str, list[str]]) -> None:
    for lane, known in names.items():
        console.print(f"[bold]{lane}[/]  " + "  ".join(f"{_coloured(letter)} {name}" for letter, name in zip(LETTERS, known, strict=False)))


def _coloured(letter: str) -> str:
    return letter if letter == " " else f"[{COLOURS[LETTERS.index(letter) % len(COLOURS)]}]{letter}[/]"


def _table(means: dict[int, list[Share]]) -> Table:
    """Return the mean steps side by side, in microseconds, CPU time in brackets; in Markdown where no terminal shows it."""
    found = {count: {(share.lane, share.name): share for share in shares} for count, shares in means.items()}
    keys = dict.fromkeys(key for shares in found.values() for key in shares)
    largest = found[max(found)]
    table = Table("", "a step, us", *(f"{count} streams" for count in means), box=HEAVY_HEAD if sys.stdout.isatty() else MARKDOWN)
    for lane in dict.fromkeys(lane for lane, _ in keys):
        rows = sorted((key for key in keys if key[0] == lane), key=lambda key: -largest[key].us if key in largest else 0.0)
        for key in rows:
            table.add_row(
                lane if key == rows[0] else "", key[1], *(_us([shares[key]] if key in shares else []) for shares in found.values())
            )
        totals = [[shares[key] for key in rows if key in shares] for shares in found.values()]
        table.add_row("", "the step", *map(_us, totals), end_section=True)
    return table


def _us(shares: Sequence[Share]) -> str:
    if not shares:
        return ""
    cpu_us = [share.cpu_us for share in shares if share.cpu_us is not None]
    return f"{sum(share.us for share in shares):,.0f}" + (f" ({sum(cpu_us):,.0f})" if cpu_us else "")


def _numbers(text: str) -> list[int]:
    numbers = [parse_int(part) for part in text.split(",")]
    if min(numbers) < 1:
        raise ConfigError(f"{text} must hold numbers of at least 1")
    return numbers


def _write_json(path: str | None, result: dict[str, Any]) -> None:
    if path is not None:
        Path(path).write_text(json.dumps(result, indent=2) + "\n")
