"""The suite's result for people: a Markdown table for each model, and a page with charts that opens with no network."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

from contexts import Line, Point

from octavo.bench.report import STYLE
from octavo.bench.svg import line_chart

LOWER_IS_BETTER = ("start", "TTFT", "memory")
BUSY = 0.08  # more than this share of the CPUs in others' hands spoils figures
MEMORY = "peak memory"
ROW, LEFT, WIDTH = 26, 230, 800
COLOURS = {"octavo": "#2563eb", "llama.cpp": "#d97706", "openvino": "#059669", "vllm": "#7c3aed"}

Result = dict[str, Any]
Rows = list[list[str]]


def as_markdown(result: Result) -> str:
    """Return the tables of all models, and what they were measured on."""
    parts = []
    for name, model in result["models"].items():
        parts.append(f"## {name}\n")
        parts += [_markdown_table(rows) for rows in (_figures(model), _contexts(model)) if len(rows) > 1]
        parts += [f"{note}\n" for note in _notes_of_lines(model)]
    return "\n".join([*parts, *(f"- {note}" for note in _notes(result))]) + "\n"


def as_page(result: Result) -> str:
    """Return an HTML page: tables, a bar chart of ratios and the lines of long contexts."""
    parts = []
    for name, model in result["models"].items():
        parts.append(f"<h2>{escape(name)}</h2>")
        parts += [_html_table(rows) for rows in (_figures(model), _contexts(model)) if len(rows) > 1]
        parts += [f"<p>{escape(note)}</p>" for note in _notes_of_lines(model)]
        parts.append(f"<main>{''.join([_bars(model), *_lines(model)])}</main>")
    notes = "".join(f"<li>{escape(note)}</li>" for note in _notes(result))
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Octavo and its peers</title><style>{STYLE}</style>'
        f"<h1>Octavo and its peers, {result['date']}</h1>{''.join(parts)}<ul>{notes}</ul></html>\n"
    )


def best_peer(figure: str, values: dict[str, list[float]]) -> float | None:
    """Return the best peer's median, None where no peer has the figure."""
    medians = [statistics.median(each) for name, each in values.items() if name != "octavo"]
    return (min(medians) if is_lower_better(figure) else max(medians)) if medians else None


def is_lower_better(figure: str) -> bool:
    return any(word in figure for word in LOWER_IS_BETTER)


def _figures(model: Result) -> Rows:
    """Return a row for each figure: every engine's median and range, Octavo's ratio to the best peer, and its share of the limit."""
    names = list(model["engines"])
    has_peers = len(names) > 1
    head = ["figure", *(f"{name} ({about})" for name, about in model["engines"].items())]
    rows = [[*head, *(["ratio to the best peer"] if has_peers else []), "limit here", "Octavo's share"]]
    for figure, values in model["figures"].items():
        ours, limit, peer = values.get("octavo"), model["limits"].get(figure), best_peer(figure, values)
        row = [figure, *(_cell(values.get(name)) for name in names)]
        if has_peers:
            row.append(_ratio(figure, peer, statistics.median(ours)) if peer is not None and ours else "-")
        row += [f"{limit:,.4g}", f"{statistics.median(ours) / limit:.0%}"] if limit and ours else ["-", "-"]
        rows.append(row)
    return rows


def _cell(values: list[float] | None) -> str:
    if not values:
        return "-"
    spread = f" ({min(values):,.4g}-{max(values):,.4g})" if len(values) > 1 else ""
    return f"{statistics.median(values):,.4g}{spread}"


def _ratio(figure: str, peer: float, ours: float) -> str:
    return f"{peer / ours if is_lower_better(figure) else ours / peer:.2f}x"


def _points(model: Result) -> list[Point]:
    return [Point(**point) for point in model["contexts"]]


def _contexts(model: Result) -> Rows:
    rows = [["prompt, tokens", "TTFT, s", "ms a prompt token", "limit", "ms an output token", "limit", "peak RSS, MiB"]]
    for point in _points(model):
        prompt_ms, prompt_limit_ms = (1e3 * seconds / point.context for seconds in (point.ttft_s, point.ttft_limit_s))
        times = (prompt_ms, prompt_limit_ms, 1e3 * point.token_s, 1e3 * point.token_limit_s)
        rows.append([f"{point.context:,}", f"{point.ttft_s:,.2f}", *(f"{ms:.3g}" for ms in times), f"{point.peak_rss_mib:,.0f}"])
    return rows


def _measured(model: Result) -> Iterator[tuple[str, str, list[float], list[float]]]:
    """Yield (name, unit, contexts, values) of what should grow along a straight line."""
    points = _points(model)
    contexts = [float(point.context) for point in points]
    yield "a prompt token", "ms", contexts, [1e3 * point.ttft_s / point.context for point in points]
    yield "an output token", "ms", contexts, [1e3 * point.token_s for point in points]
    yield MEMORY, "MiB", contexts, [point.peak_rss_mib for point in points]


def _notes_of_lines(model: Result) -> Iterator[str]:
    for name, unit, contexts, values in _measured(model):
        if len(contexts) > 2:
            line = Line.through(contexts, values)
            grows = f"{line.base:.3g} {unit} and {1024 * line.slope:.3g} {unit} for each 1,024 tokens of context"
            kv = f", of which K and V are {model['kv_mib_for_1024']:.3g} {unit}" if name == MEMORY else ""
            yield f"{name}: {grows}{kv}; at most {line.worst(contexts, values):.0%} off that line."


def _lines(model: Result) -> Iterator[str]:
    for name, unit, contexts, values in _measured(model):
        if len(contexts) > 2:
            line = Line.through(contexts, values)
            drawn: dict[str, Sequence[tuple[float, float]]] = {
                "measured": list(zip(contexts, values, strict=True)),
                "straight line": [(x, line.at(x)) for x in (0.0, contexts[-1])],
            }
            yield line_chart(f"{name}, by context", "tokens of context", unit, drawn, scattered=("measured",))


def _bars(model: Result) -> str:
    """Return an SVG with one bar for each engine and figure, as long as its speed beside the best engine's."""
    bars, y = [], 10
    for figure, values in model["figures"].items():
        medians = {name: statistics.median(each) for name, each in values.items()}
        best = min(medians.values()) if is_lower_better(figure) else max(medians.values())
        bars.append(f'<text x="{LEFT - 8}" y="{y + 12}" text-anchor="end" fill="currentColor">{escape(figure)}</text>')
        for name, value in medians.items():
            share = (best / value if is_lower_better(figure) else value / best) if value > 0 else 0.0
            width = (WIDTH - LEFT - 130) * min(1.0, max(0.0, share))
            bars.append(f'<rect x="{LEFT}" y="{y}" width="{width:.1f}" height="13" fill="{COLOURS.get(name, "#888")}"/>')
            bars.append(
                f'<text x="{LEFT + width + 4:.1f}" y="{y + 11}" font-size="11" fill="currentColor">{escape(name)} {value:,.4g}</text>'
            )
            y += 15
        y += ROW - 15
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" font-family="system-ui,sans-serif" font-size="12" '
        f'role="img" aria-label="speed beside the best engine">{"".join(bars)}</svg>'
    )


def _notes(result: Result) -> list[str]:
    peaks = result["peaks"]
    facts = ", ".join(f"{name} {value}" for name, value in result["machine"].items())
    notes = [
        f"{result['date']}: {result['command']}, {result['seconds'] / 60:.0f} minutes",
        f"medians (ranges in brackets), rounds: {result['rounds']}, engines in turn",
        facts,
        f"limits: memory {peaks['read'] * 1e-9:.1f} GB/s, f32 {peaks['f32'] * 1e-9:,.0f}, bf16 {peaks['bf16'] * 1e-9:,.0f}, int8 "
        f"{peaks['int8'] * 1e-9:,.0f} GOP/s, the highest of this run; products at the best of them, weights as in Octavo's file, 16-bit KV",
    ]
    if result["busy"] > BUSY:
        notes.append(f"Warning: other programs used up to {result['busy']:.0%} of the CPUs; these are no good figures")
    if result["left_out"]:
        notes.append(f"left out for want of time, or failed: {', '.join(result['left_out'])}")
    return notes


def _markdown_table(rows: Rows) -> str:
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]]) + "\n"


def _html_table(rows: Rows) -> str:
    def line(cells: Sequence[str], tag: str) -> str:
        return f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in cells)}</tr>"

    return f"<div><table>{line(rows[0], 'th')}{''.join(line(row, 'td') for row in rows[1:])}</table></div>"
