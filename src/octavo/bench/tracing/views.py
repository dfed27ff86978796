"""A step as a picture: characters for a terminal, SVG in a page that needs no network, and the events of Chrome's trace viewer
(chrome://tracing, ui.perfetto.dev; the format is Google's "Trace Event Format")."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from octavo.bench.tracing.cycles import OUTSIDE, Step
from octavo.bench.tracing.spans import Span

GAPS = ("idle", "waits", OUTSIDE)  # a lane has nothing to do, or nothing that it could do
PROCESSES = {"server": 1, "engine": 2}  # their numbers in a trace; the compute threads are the engine's
WIDTH, LEFT, LANE, ROW = 1200, 90, 26, 34  # of the drawing, in pixels
_STYLE = """
body { font: 14px system-ui; margin: 2em; max-width: 1240px }
svg { width: 100% }
text { font: 12px system-ui; fill: currentColor }
:root { color-scheme: light dark }
"""


def kind_of(lane: str) -> str:
    """Return what a lane is one of: server, engine or thread."""
    return lane.split(" ", maxsplit=1)[0]


def names_of(steps: Iterable[Step]) -> dict[str, list[str]]:
    """Return, by lane, what it does in these steps, that which takes longest first; gaps are left out."""
    sums: dict[str, Counter[str]] = {}
    for step in steps:
        for lane, pieces in step.lanes.items():
            counter = sums.setdefault(kind_of(lane), Counter())
            for piece in pieces:
                if piece.name not in GAPS:
                    counter[piece.name] += piece.end_ns - piece.begin_ns
    return {lane: [name for name, _ in counter.most_common()] for lane, counter in sums.items()}


def text_lanes(step: Step, width: int, letters: Mapping[str, Mapping[str, str]]) -> list[tuple[str, str]]:
    """Return (lane, line) of a step, `width` characters wide: each the letter of what took most of its share of time, a space for a gap."""
    lines = []
    for lane, pieces in step.lanes.items():
        known = letters[kind_of(lane)]
        line = ""
        for column in range(width):
            begin_ns, end_ns = (step.begin_ns + (step.end_ns - step.begin_ns) * (column + side) // width for side in (0, 1))
            took: Counter[str] = Counter()
            for piece in pieces:
                took[known.get(piece.name, " ")] += max(0, min(end_ns, piece.end_ns) - max(begin_ns, piece.begin_ns))
            line += took.most_common(1)[0][0]
        lines.append((lane, line))
    return lines


def svg(step: Step, colours: Mapping[str, Mapping[str, str]]) -> str:
    """Return a step as a drawing: one bar for each lane, its parts to scale and named when pointed at."""
    scale = (WIDTH - LEFT) / (step.end_ns - step.begin_ns)
    height = ROW * len(step.lanes) + 24
    marks = []
    for index, (lane, pieces) in enumerate(step.lanes.items()):
        top = ROW * index
        known = colours[kind_of(lane)]
        marks.append(f'<text x="0" y="{top + LANE / 2 + 4}">{escape(lane)}</text>')
        marks.append(f'<rect x="{LEFT}" y="{top}" width="{WIDTH - LEFT}" height="{LANE}" fill="none" stroke="currentColor" opacity=".2"/>')
        for piece in pieces:
            if piece.name in known:
                x, width = LEFT + (piece.begin_ns - step.begin_ns) * scale, (piece.end_ns - piece.begin_ns) * scale
                title = f"{escape(piece.name)}: {(piece.end_ns - piece.begin_ns) / 1e3:.1f} us"
                marks.append(
                    f'<rect x="{x:.2f}" y="{top}" width="{max(width, 0.05):.2f}" height="{LANE}" fill="{known[piece.name]}">'
                    f"<title>{title}</title></rect>"
                )
    for tick in range(11):
        x, anchor = LEFT + (WIDTH - LEFT) * tick / 10, "end" if tick == 10 else "middle"
        marks.append(f'<text x="{x:.0f}" y="{height - 6}" text-anchor="{anchor}">{step.us * tick / 1e4:.2f}</text>')
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img">{"".join(marks)}</svg>'


def page(title: str, steps: Mapping[int, Step]) -> str:
    """Return a page of one step for each number of streams, with a legend; times in milliseconds."""
    colours = {lane: {name: _colour(index) for index, name in enumerate(names)} for lane, names in names_of(steps.values()).items()}
    parts = [f"<h2>{count} streams: {step.us / 1e3:.2f} ms</h2>{svg(step, colours)}" for count, step in steps.items()]
    legend = []
    for lane, known in colours.items():
        names = " ".join(f'<span style="color:{colour}">■</span> {escape(name)}' for name, colour in known.items())
        legend.append(f"<p>{escape(lane)}: {names}</p>")
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title><style>{_STYLE}</style>'
        f"<h1>{escape(title)}</h1>{''.join(parts)}{''.join(legend)}</html>\n"
    )


def chrome_trace(spans: Sequence[Span]) -> dict[str, Any]:
    """Return all spans of a run as Chrome's trace viewer reads them: processes server and engine, the compute threads in the latter."""
    lanes = {lane: number for number, lane in enumerate(dict.fromkeys(span.lane for span in spans), 1)}
    start_ns = min((span.begin_ns for span in spans), default=0)
    processes = [{"ph": "M", "name": "process_name", "pid": number, "args": {"name": name}} for name, number in PROCESSES.items()]
    threads = [
        {"ph": "M", "name": "thread_name", "pid": _process_of(lane), "tid": number, "args": {"name": lane}}
        for lane, number in lanes.items()
    ]
    events = [
        {
            "ph": "X",
            "name": span.name,
            "pid": _process_of(span.lane),
            "tid": lanes[span.lane],
            "ts": (span.begin_ns - start_ns) / 1e3,
            "dur": (span.end_ns - span.begin_ns) / 1e3,
            "args": {"rows": span.rows, "tokens": span.tokens} if span.rows else {},
        }
        for span in spans
    ]
    return {"displayTimeUnit": "ms", "traceEvents": [*processes, *threads, *events]}


def _process_of(lane: str) -> int:
    return PROCESSES["server" if lane.startswith("server") else "engine"]


def _colour(index: int) -> str:
    """Return a colour unlike those of the indices near by."""
    return f"hsl({index * 137 % 360} 62% {(52, 42, 62)[index % 3]}%)"
