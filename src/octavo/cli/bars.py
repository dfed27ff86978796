"""Charts in text: horizontal bars, one stacked bar, a curve of columns, a line of them. Unicode blocks; colours are rich's markup."""

from __future__ import annotations

import math
from collections.abc import Sequence

_EIGHTHS = " ▏▎▍▌▋▊▉"
_COLUMN = " ▁▂▃▄▅▆▇█"
COLOURS = ("cyan", "magenta", "yellow", "green", "blue", "red")


def bar(share: float, width: int) -> str:
    """Return a bar that fills `share` of `width` characters, exact to an eighth of one."""
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def bar_rows(rows: Sequence[tuple[str, float, str]], width: int = 50, *, logarithmic: bool = False) -> list[str]:
    """Return a line for each (label, value, text): the bar of its value against the largest, and the text behind it."""
    scale = (lambda value: math.log2(value + 1)) if logarithmic else (lambda value: value)
    top = max((scale(value) for _, value, _ in rows), default=0) or 1
    labels = max((len(label) for label, _, _ in rows), default=0)
    return [f"{label:>{labels}} [cyan]{bar(scale(value) / top, width)}[/] {text}" for label, value, text in rows]


def stack(parts: Sequence[tuple[str, float, str]], width: int = 72) -> list[str]:
    """Return one bar of all parts in their colours and a legend; parts are (name, value, text)."""
    total = sum(max(0.0, value) for _, value, _ in parts) or 1
    edges, line = 0.0, ""
    for index, (_, value, _) in enumerate(parts):
        start, edges = round(edges / total * width), edges + max(0.0, value)
        line += f"[{COLOURS[index % len(COLOURS)]}]{'█' * (round(edges / total * width) - start)}[/]"
    legend = "  ".join(f"[{COLOURS[index % len(COLOURS)]}]■[/] {name} {text}" for index, (name, _, text) in enumerate(parts))
    return [line, legend]


def columns(points: Sequence[tuple[float, float]], height: int = 8, top: float | None = None) -> list[str]:
    """Return a chart of one column for each (x, y), `top` (default: the largest y) at full height, higher ones cut."""
    highest = top or max((y for _, y in points), default=0) or 1
    levels = [round(min(1.0, y / highest) * height * 8) for _, y in points]
    rows = []
    for row in range(height - 1, -1, -1):
        rows.append("".join(_COLUMN[max(0, min(8, level - 8 * row))] * 2 + " " for level in levels))
    return rows


def sparkline(values: Sequence[float], width: int) -> str:
    """Return one block character for each value, or for each group of values where there are more than `width`."""
    size = -(-len(values) // width)
    means = [sum(group) / len(group) for group in (values[start : start + size] for start in range(0, len(values), size))]
    top = max(means) or 1
    return "".join(_COLUMN[1 + round(value / top * 7)] for value in means)
