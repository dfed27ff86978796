"""Small charts as SVG text, for reports that open in a browser with no network: lines, steps, bars and spans over two axes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from html import escape
from math import floor, log10

WIDTH, HEIGHT = 640, 270
LEFT, RIGHT, TOP, BOTTOM = 60, 14, 46, 38
COLOURS = ("#3b82f6", "#d97706", "#059669", "#dc2626", "#8b5cf6", "#0891b2")  # 3 to 1 or more with white and with black paper
LETTER = 6.5  # mean width of one in the legend

Point = tuple[float, float]


@dataclass(frozen=True)
class Axes:
    """The ranges that the plot shows; both begin at 0."""

    x_max: float
    y_max: float

    def x(self, value: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * value / (self.x_max or 1)

    def y(self, value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / (self.y_max or 1)


def line_chart(title: str, x_label: str, y_label: str, lines: dict[str, Sequence[Point]], scattered: Collection[str] = ()) -> str:
    """Return a chart of one polyline for each name, of dots alone for those of `scattered`; several names make a legend."""
    points = [point for line in lines.values() for point in line]
    axes = Axes(max((x for x, _ in points), default=0), max((y for _, y in points), default=0))
    marks = []
    for index, (name, line) in enumerate(lines.items()):
        colour = COLOURS[index % len(COLOURS)]
        if name not in scattered:
            path = " ".join(f"{axes.x(x):.1f},{axes.y(y):.1f}" for x, y in line)
            marks.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.6"/>')
        if name in scattered or len(line) <= 24:
            marks += [f'<circle cx="{axes.x(x):.1f}" cy="{axes.y(y):.1f}" r="3" fill="{colour}"/>' for x, y in line]
    return _chart(title, x_label, y_label, axes, marks, list(lines) if len(lines) > 1 else [])


def histogram(title: str, x_label: str, values: Sequence[float], num_bins: int = 40) -> str:
    """Return a chart of how many values fall into each of `num_bins` equal bins from 0 to the largest."""
    top = max(values, default=0) or 1
    counts = [0] * num_bins
    for value in values:
        counts[min(num_bins - 1, int(value / top * num_bins))] += 1
    axes = Axes(top, max(counts))
    width = (WIDTH - LEFT - RIGHT) / num_bins
    marks = [
        f'<rect x="{axes.x(index * top / num_bins):.1f}" y="{axes.y(count):.1f}" width="{width - 1:.1f}" '
        f'height="{axes.y(0) - axes.y(count):.1f}" fill="{COLOURS[0]}"/>'
        for index, count in enumerate(counts)
    ]
    return _chart(title, x_label, "count", axes, marks)


def span_chart(title: str, x_label: str, y_label: str, rows: Sequence[Sequence[tuple[float, float]]], phases: Sequence[str] = ()) -> str:
    """Return a chart with one row of consecutive (from, to) spans for each item: a timeline of requests and their `phases`."""
    axes = Axes(max((end for row in rows for _, end in row), default=0), len(rows))
    height = max(1.0, (HEIGHT - TOP - BOTTOM) / max(1, len(rows)) - 0.6)
    marks = [
        f'<rect x="{axes.x(begin):.1f}" y="{axes.y(index + 1):.1f}" width="{max(0.3, axes.x(end) - axes.x(begin)):.1f}" '
        f'height="{height:.1f}" fill="{COLOURS[phase % len(COLOURS)]}"/>'
        for index, row in enumerate(rows)
        for phase, (begin, end) in enumerate(row)
    ]
    return _chart(title, x_label, y_label, axes, marks, phases)


def _chart(title: str, x_label: str, y_label: str, axes: Axes, marks: Sequence[str], names: Sequence[str] = ()) -> str:
    return "".join(
        (
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}" xmlns="http://www.w3.org/2000/svg" '
            'font-family="system-ui,sans-serif" font-size="11">',
            f'<text x="{LEFT}" y="18" font-size="14" font-weight="600" fill="currentColor">{escape(title)}</text>',
            *_ticks(axes.x_max, lambda value: (axes.x(value), HEIGHT - BOTTOM + 15, axes.x(value), TOP, "middle"), axes.y(0)),
            *_ticks(axes.y_max, lambda value: (LEFT - 6, axes.y(value) + 4, WIDTH - RIGHT, axes.y(value), "end"), None),
            *marks,
            *_legend(names),
            f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 6}" text-anchor="middle" fill="currentColor">{escape(x_label)}</text>',
            f'<text x="{LEFT}" y="{TOP - 7}" fill="currentColor" opacity="0.7">{escape(y_label)}</text>',
            "</svg>",
        )
    )


def _legend(names: Sequence[str]) -> list[str]:
    """Return the names in their colours, in one line above the right end of the plot."""
    marks = []
    end = float(WIDTH - RIGHT)
    for index, name in reversed(list(enumerate(names))):
        begin = end - LETTER * len(name)
        marks.append(f'<text x="{begin:.1f}" y="{TOP - 7}" fill="currentColor">{escape(name)}</text>')
        marks.append(f'<rect x="{begin - 13:.1f}" y="{TOP - 16}" width="9" height="9" rx="1.5" fill="{COLOURS[index % len(COLOURS)]}"/>')
        end = begin - 26
    return marks


def _ticks(top: float, place: Callable[[float], tuple[float, float, float, float, str]], foot: float | None) -> list[str]:
    """Return labels and faint lines at round values up to `top`; vertical ones end at `foot`."""
    step = _round_step(top)
    marks = []
    for index in range(int(top / step) + 1):
        value = index * step
        text_x, text_y, line_x, line_y, anchor = place(value)
        end_x, end_y = (line_x, foot) if foot is not None else (LEFT, line_y)
        marks.append(f'<line x1="{line_x:.1f}" y1="{line_y:.1f}" x2="{end_x:.1f}" y2="{end_y:.1f}" stroke="currentColor" opacity="0.12"/>')
        marks.append(f'<text x="{text_x:.1f}" y="{text_y:.1f}" text-anchor="{anchor}" fill="currentColor" opacity="0.7">{value:,g}</text>')
    return marks


def _round_step(top: float) -> float:
    """Return 1, 2 or 5 times a power of ten such that 4 to 10 steps reach `top`."""
    if top <= 0:
        return 1.0
    power = 10.0 ** floor(log10(top / 4))
    return next(power * digit for digit in (1, 2, 5, 10) if top / (power * digit) <= 10)
