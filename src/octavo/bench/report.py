"""Load-test figures for people: their names, and a page that opens in a browser with no network."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from octavo.bench import svg
from octavo.bench.figures import TIMES, concurrency, times_ms, tokens_per_second
from octavo.bench.serving import Record, Run
from octavo.bench.workload import percentile

LINES = (
    ("Successful requests", "completed", "{:,}"),
    ("Failed requests", "failed", "{:,}"),
    ("Maximum request concurrency", "max_concurrency", "{:,}"),
    ("Request rate configured (RPS)", "request_rate", "{}"),
    ("Benchmark duration (s)", "duration", "{:.2f}"),
    ("Total input tokens", "total_input_tokens", "{:,}"),
    ("Total generated tokens", "total_output_tokens", "{:,}"),
    ("Request throughput (req/s)", "request_throughput", "{:.2f}"),
    ("Request goodput (req/s)", "request_goodput", "{:.2f}"),
    ("Output token throughput (tok/s)", "output_throughput", "{:.2f}"),
    ("Peak output token throughput (tok/s)", "max_output_tokens_per_s", "{:,}"),
    ("Peak concurrent requests", "max_concurrent_requests", "{:,}"),
    ("Total token throughput (tok/s)", "total_token_throughput", "{:.2f}"),
    ("Input tokens found in the prefix cache", "cached_input_tokens", "{:,}"),
    ("Prefix cache hit rate", "prefix_cache_hit_rate", "{:.1%}"),
)
STYLE = (
    ":root{color-scheme:light dark}body{font:14px/1.5 system-ui,sans-serif;max-width:1360px;margin:2rem auto;padding:0 1rem}"
    "table{border-collapse:collapse}td,th{padding:.2rem .8rem .2rem 0;text-align:right;font-variant-numeric:tabular-nums}"
    "td:first-child,th:first-child{text-align:left}div{display:flex;flex-wrap:wrap;gap:1.5rem 4rem;align-items:start;overflow-x:auto}"
    "main{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(420px,100%),1fr));gap:1rem}svg{width:100%}"
)


def kinds_of(result: Mapping[str, Any]) -> list[str]:
    """Return which summaries of a time the result has: mean, median, and its percentiles."""
    kinds = [kind for kind in ("mean", "median") if f"{kind}_ttft_ms" in result]
    return kinds + [name.removesuffix("_ttft_ms") for name in result if name.startswith("p") and name.endswith("_ttft_ms")]


def page(title: str, result: Mapping[str, Any], run: Run) -> str:
    """Return an HTML page with the figures and four charts, whole in itself."""
    whole = [record for record in run.records if record.is_whole]
    times = times_ms(whole)
    charts = [
        svg.span_chart("Requests", "seconds", "request", [_phases(record) for record in whole], ("first token", "further tokens")),
        svg.line_chart("Output tokens in each second", "seconds", "tokens", {"": list(enumerate(map(float, tokens_per_second(whole))))}),
        svg.histogram("Time to first token", "ms", times["ttft"]),
        svg.line_chart("Share of requests and gaps below a time", "ms", "%", {name: _shares(times[name]) for name in ("ttft", "itl")}),
    ]
    rows = "".join(
        f"<tr><td>{escape(label)}</td><td>{form.format(result[name])}</td></tr>"
        for label, name, form in LINES
        if result.get(name) is not None
    )
    kinds = kinds_of(result)
    table = "".join(f"<th>{escape(kind)}</th>" for kind in ("ms", *kinds))
    for name, label in TIMES.items():
        cells = (result.get(f"{kind}_{name}_ms") for kind in kinds)
        table += f"<tr><td>{label}</td>{''.join(f'<td>{_ms(cell)}</td>' for cell in cells)}</tr>"
    errors = sorted({record.answer.error for record in run.records if record.answer.error})
    failures = "".join(f"<li>{escape(error)}</li>" for error in errors[:20])
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(title)}</title>"
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style>'
        f"<h1>{escape(title)}</h1><div><table>{rows}</table><table>{table}</table></div>"
        f"{f'<h2>Failures</h2><ul>{failures}</ul>' if failures else ''}"
        f"<p>At most {max(concurrency(run.records), default=0)} requests were in flight at once.</p><main>{''.join(charts)}</main></html>\n"
    )


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}"


def _phases(record: Record) -> list[tuple[float, float]]:
    first_s = record.start_s + record.answer.ttft_s
    return [(record.start_s, first_s), (first_s, record.start_s + record.answer.latency_s)]


def _shares(values: list[float]) -> list[tuple[float, float]]:
    return [(percentile(values, percent), float(percent)) for percent in (0, 5, 10, 25, 50, 75, 90, 95, 99, 100)] if values else []
