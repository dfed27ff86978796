"""`octavo bench startup`: how long `octavo serve` takes to its first 200 and its first token."""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from octavo.bench.startup import Start, measure_starts
from octavo.bench.workload import percentile
from octavo.cli.flag_types import integer
from octavo.cli.passed import split_passed
from octavo.config.flag_parser import FlagParser
from octavo.config.schema import DEFAULT_MODEL
from octavo.loaders.store import resolve_model

BAR_WIDTH = 50
PERCENTILES = (10, 25, 50, 75, 90, 99)


def bench_startup_main(argv: Sequence[str]) -> int:
    parser = FlagParser(
        "octavo bench startup",
        "Measure launch to /health 200 and to the first token. What follows -- goes to `octavo serve`.",
        usage="octavo bench startup [MODEL] [FLAGS] [-- FLAGS OF SERVE]",
    )
    parser.add_argument("model", nargs="?", default=DEFAULT_MODEL, help=f"[{DEFAULT_MODEL}]")
    parser.add_argument(
        "--num-iters-cold", type=integer(0, 1000), default=1, metavar="N", help="starts with the model dropped from memory [1]"
    )
    parser.add_argument("--num-iters-warm", type=integer(0, 1000), default=5, metavar="N", help="starts with the model in memory [5]")
    parser.add_argument("--output-json", metavar="FILE", help="write the figures there")
    own, passed = split_passed(argv)
    args = parser.parse(own)
    path = resolve_model(args.model)
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    starts = measure_starts([args.model, *passed], files, args.num_iters_cold, args.num_iters_warm, _tell)
    result = {
        kind: _summary([start for start in starts if start.is_cold == is_cold]) for kind, is_cold in (("cold", True), ("warm", False))
    }
    for kind, summary in result.items():
        if summary:
            print(f"Avg {kind} startup time: {summary['avg_ready']:.3f} s to ready, {summary['avg_first_token']:.3f} s to the first token")
            for percent, seconds in summary["percentiles"].items():
                print(f"  {percent}% percentile: {seconds:.3f} s to ready")
    _show_phases(sorted((start for start in starts if not start.is_cold), key=lambda start: start.ready_s))
    if args.output_json:
        Path(args.output_json).write_text(json.dumps(result, indent=2) + "\n")
    return 0


def _show_phases(starts: Sequence[Start]) -> None:
    """Print the phases of the middle one of `starts`, to scale."""
    if not starts or not starts[len(starts) // 2].phases:
        return
    start = starts[len(starts) // 2]
    table = Table("process", "phase", "from, s", "took, s", f"{start.ready_s:.3f} s to ready", title="the median warm start")
    for process, name, begin_s, end_s in start.phases:
        before, width = (round(BAR_WIDTH * min(1.0, seconds / start.ready_s)) for seconds in (begin_s, end_s - begin_s))
        table.add_row(process, name, f"{begin_s:.3f}", f"{end_s - begin_s:.3f}", " " * before + "█" * min(width, BAR_WIDTH - before))
    Console(width=None if Console().is_terminal else 110).print(table)


def _tell(start: Start) -> None:
    print(f"{'cold' if start.is_cold else 'warm'}: ready after {start.ready_s:.3f} s, first token after {start.first_token_s:.3f} s")


def _summary(starts: Sequence[Start]) -> dict[str, Any]:
    if not starts:
        return {}
    ready = [start.ready_s for start in starts]
    return {
        "avg_ready": statistics.fmean(ready),
        "avg_first_token": statistics.fmean(start.first_token_s for start in starts),
        "percentiles": {str(percent): percentile(ready, percent) for percent in PERCENTILES},
        "starts": [dataclasses.asdict(start) for start in starts],
    }
