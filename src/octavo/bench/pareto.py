"""Results of a sweep: which of them no other beats in both throughput and latency, as a table and as a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from octavo.bench import svg
from octavo.bench.report import STYLE

CAPTION = "● no other has more tok/s without more ms a token"
THROUGHPUT, LATENCY = "output_throughput", "median_tpot_ms"
COLUMNS = {
    "output_throughput": "tok/s",
    "request_throughput": "req/s",
    "median_ttft_ms": "TTFT p50",
    "p99_ttft_ms": "p99 ms",
    "median_tpot_ms": "TPOT ms",
    "failed": "failed",
}


def pareto_front(results: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return the indices of the results that no other beats in throughput without being slower a token, by rising throughput."""
    measured = [index for index, result in enumerate(results) if result.get(LATENCY) is not None]
    best = [index for index in measured if not any(_dominates(results[other], results[index]) for other in measured if other != index)]
    return sorted(best, key=lambda index: float(results[index][THROUGHPUT]))


def _dominates(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    no_worse = one[THROUGHPUT] >= other[THROUGHPUT] and one[LATENCY] <= other[LATENCY]
    return bool(no_worse and (one[THROUGHPUT] > other[THROUGHPUT] or one[LATENCY] < other[LATENCY]))


def sweep_table(names: Sequence[str], results: Sequence[Mapping[str, Any]], front: Sequence[int]) -> None:
    """Print a row for each result; those of the front are marked."""
    from rich.console import Console
    from rich.table import Table

    table = Table(*names, *COLUMNS.values(), "●", caption=CAPTION)
    for index, result in enumerate(results):
        figures = [_cell(result.get(name)) for name in COLUMNS]
        table.add_row(*(str(result[name]) for name in names), *figures, "●" if index in front else "")
    Console().print(table)


def sweep_page(names: Sequence[str], results: Sequence[Mapping[str, Any]]) -> str:
    """Return an HTML page with the Pareto chart and the table, whole in itself."""
    front = pareto_front(results)
    others = sorted(
        (float(result[LATENCY]), float(result[THROUGHPUT]))
        for index, result in enumerate(results)
        if result.get(LATENCY) is not None and index not in front
    )
    best = [(float(results[index][LATENCY]), float(results[index][THROUGHPUT])) for index in front]
    chart = svg.line_chart(
        "Throughput against time per token", "ms per token (median)", "output tok/s", {"beaten": others, "not beaten": best}, ("beaten",)
    )
    head = "".join(f"<th>{escape(text)}</th>" for text in (*names, *COLUMNS.values()))
    rows = "".join(
        "<tr>"
        + "".join(f"<td>{escape(_cell(result.get(name)))}</td>" for name in (*names, *COLUMNS))
        + f"<td>{'●' if index in front else ''}</td></tr>"
        for index, result in enumerate(results)
    )
    return (
        "<!doctype html><html lang=en><meta charset=utf-8><title>Sweep</title>"
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}body{{max-width:900px}}</style>'
        f"<h1>Sweep over {escape(', '.join(names))}</h1>{chart}"
        f"<div><table><tr>{head}<th>●</th></tr>{rows}</table></div><p>{CAPTION}</p></html>\n"
    )


def _cell(value: Any) -> str:
    return "-" if value is None else f"{value:,.1f}" if isinstance(value, float) else str(value)
