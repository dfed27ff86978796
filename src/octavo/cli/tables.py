"""How tables and charts of a command look: one style, and room for the widest table where nobody's terminal says otherwise."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table


def open_console() -> Console:
    """Return standard output; what is not a terminal is given room for the widest table."""
    return Console(width=None if sys.stdout.isatty() else 160)


def make_table(*columns: str, title: str = "") -> Table:
    table = Table(box=SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False)
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right")
    return table


def print_chart(console: Console, title: str, lines: Sequence[str]) -> None:
    console.print(f"\n[dim]{title}[/]")
    for line in lines:
        console.print(line, highlight=False)
    console.print()
