"""The suite's result as a Markdown table and as a chart of ratios."""

from __future__ import annotations

import statistics
from typing import Any

LOWER_IS_BETTER = ("start", "TTFT", "memory")
ROW, LEFT, WIDTH = 26, 190, 760
COLOURS = {"octavo": "#2563eb", "llama.cpp": "#d97706", "openvino": "#059669", "vllm": "#7c3aed"}


def as_markdown(result: dict[str, Any]) -> str:
    """Return a row for each figure: every engine's median (and range), and Octavo's ratio to the best peer."""
    names = list(result["engines"])
    peers = [name for name in names if name != "octavo"]
    head = ["figure", *(f"{name} ({result['engines'][name]})" for name in names), *(["ratio to the best peer"] if peers else [])]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for figure, values in result["figures"].items():
        cells = [_cell(values.get(name)) for name in names]
        if peers:
            cells.append(_ratio(figure, values))
        lines.append(f"| {figure} | {' | '.join(cells)} |")
    facts = ", ".join(f"{name} {value}" for name, value in result["machine"].items())
    quiet = "" if result["busy"] <= 0.08 else f" **Other programs used up to {result['busy']:.0%} of the CPUs.**"
    lines += ["", f"{result['date']}; medians of {result['rounds']} rounds in turn (range in brackets); {facts}.{quiet}"]
    return "\n".join(lines) + "\n"


def best_peer(figure: str, values: dict[str, list[float]]) -> float | None:
    """Return the best peer's median, None where no peer has the figure."""
    medians = [statistics.median(each) for name, each in values.items() if name != "octavo"]
    return (min(medians) if _lower(figure) else max(medians)) if medians else None


def as_chart(result: dict[str, Any]) -> str:
    """Return an SVG with one bar for each engine and figure, as long as its speed beside the best engine's."""
    bars, y = [], 10
    for figure, values in result["figures"].items():
        medians = {name: statistics.median(each) for name, each in values.items()}
        best = min(medians.values()) if _lower(figure) else max(medians.values())
        bars.append(f'<text x="{LEFT - 8}" y="{y + 12}" text-anchor="end">{figure}</text>')
        for name, value in medians.items():
            share = (best / value if _lower(figure) else value / best) if value else 0.0
            width = (WIDTH - LEFT - 110) * share
            bars.append(f'<rect x="{LEFT}" y="{y}" width="{width:.1f}" height="13" fill="{COLOURS.get(name, "#888")}"/>')
            bars.append(f'<text x="{LEFT + width + 4:.1f}" y="{y + 11}" font-size="11">{name} {value:,.4g}</text>')
            y += 15
        y += ROW - 15
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" font-family="system-ui,sans-serif" font-size="12">'
        f'<rect width="{WIDTH}" height="{y}" fill="#fff"/>{"".join(bars)}</svg>\n'
    )


def _lower(figure: str) -> bool:
    return any(word in figure for word in LOWER_IS_BETTER)


def _cell(values: list[float] | None) -> str:
    if not values:
        return "-"
    spread = f" ({min(values):,.4g}-{max(values):,.4g})" if len(values) > 1 else ""
    return f"{statistics.median(values):,.4g}{spread}"


def _ratio(figure: str, values: dict[str, list[float]]) -> str:
    peer = best_peer(figure, values)
    if peer is None or "octavo" not in values:
        return "-"
    ours = statistics.median(values["octavo"])
    return f"{peer / ours if _lower(figure) else ours / peer:.2f}x"
