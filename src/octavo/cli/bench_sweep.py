"""`octavo bench sweep`: `octavo bench serve` once for each combination of settings, and which of them nothing else beats."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence
from pathlib import Path

from octavo.bench.pareto import pareto_front, sweep_page, sweep_table
from octavo.cli.load_test import measure, read_pair, save
from octavo.cli.load_test_flags import load_test_parser
from octavo.errors import ConfigError


def bench_sweep_main(argv: Sequence[str]) -> int:
    parser = load_test_parser("sweep", "Run `octavo bench serve` once for each combination of settings.")
    parser.add_argument("--vary", action="append", metavar="FLAG=A,B,C", help="a flag of bench serve and its values; repeatable")
    args = parser.parse(argv)
    axes = [_axis(text) for text in args.vary or ()]
    if not axes:
        raise ConfigError("nothing to vary; give --vary max-concurrency=1,8,32")
    results = []
    for index, values in enumerate(itertools.product(*(values for _, values in axes))):
        settings = [word for (flag, _), value in zip(axes, values, strict=True) for word in (f"--{flag}", value)]
        given = parser.parse([*argv, *settings, "--seed", str(args.seed + index)])  # prompts that no earlier run has sent
        result, _ = measure(given)
        results.append({flag: value for (flag, _), value in zip(axes, values, strict=True)} | result)
        print(" ".join(settings), f"-> {result['output_throughput']:.1f} tok/s", file=sys.stderr)
    names = [flag for flag, _ in axes]
    sweep_table(names, results, pareto_front(results))
    if args.html:
        Path(args.html).write_text(sweep_page(names, results))
        print(f"report: {args.html}")
    if args.save_result or args.save_detailed:
        save(args, {"results": results})
    return 0


def _axis(text: str) -> tuple[str, list[str]]:
    flag, values = read_pair("--vary", text)
    return flag.lstrip("-"), values.split(",")
