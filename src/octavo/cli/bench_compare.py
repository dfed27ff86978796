"""`octavo bench compare A.json B.json ...`: saved results side by side, with ratios."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan
from pathlib import Path

from octavo.bench.compare import compare, differing_settings, read_result
from octavo.config.flag_parser import FlagParser
from octavo.errors import ConfigError

_STYLES = {"better": "green", "worse": "red", "same": "dim"}


def bench_compare_main(argv: Sequence[str]) -> int:
    parser = FlagParser("octavo bench compare", "Show saved results side by side.", usage="octavo bench compare A.json B.json ...")
    parser.add_argument("files", nargs="*", metavar="FILE", help="results; the first one is the base")
    files = [Path(name) for name in parser.parse(argv).files]
    if len(files) < 2:
        raise ConfigError("two results or more are compared; give two files")
    results = [read_result(path) for path in files]

    from rich.console import Console
    from rich.table import Table

    console = Console()
    for name, values in differing_settings(results).items():
        console.print(f"[yellow]{name} differs: {', '.join(map(str, values))}[/]")
    table = Table("figure", *(path.stem for path in files))
    for row in compare(results):
        cells = [f"{row.values[0]:,.2f}"]
        for value, ratio, verdict in zip(row.values[1:], row.ratios[1:], row.verdicts[1:], strict=True):
            shown = f"{value:,.2f}" if isnan(ratio) else f"{value:,.2f}  {ratio:.2f}x {verdict}".rstrip()
            cells.append(f"[{_STYLES[verdict]}]{shown}[/]" if verdict else shown)
        table.add_row(row.name, *cells)
    console.print(table)
    return 0
