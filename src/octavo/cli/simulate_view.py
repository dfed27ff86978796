"""What a simulation looks like: a table and two charts over time in the terminal, the same and more on a page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from octavo.bench import svg
from octavo.bench.figures import TIMES
from octavo.cli.bars import columns
from octavo.cli.tables import make_table, open_console, print_chart
from octavo.simulator.simulation import Outcome, Sample

KINDS = ("mean", "median", "p90", "p95", "p99")
ROWS = (
    ("requests answered", "completed", "{:,}"),
    ("requests refused", "refused", "{:,}"),
    ("seconds", "duration", "{:,.2f}"),
    ("requests a second", "request_throughput", "{:,.2f}"),
    ("good requests a second", "request_goodput", "{:,.2f}"),
    ("output tokens a second", "output_throughput", "{:,.1f}"),
    ("preemptions", "preemptions", "{:,}"),
    ("prefix cache hit rate", "prefix_cache_hit_rate", "{:.1%}"),
    ("KV memory in use, at most", "max_kv_usage", "{:.1%}"),
    ("requests waiting, at most", "max_num_waiting", "{:,}"),
    ("steps", "num_steps", "{:,}"),
)
NUM_COLUMNS = 40
NUM_POINTS = 400

Points = Sequence[tuple[float, float]]


def print_simulation(result: Mapping[str, Any], outcomes: Sequence[Outcome]) -> None:
    console = open_console()
    copies = f", {result['data_parallel_size']} copies" if result["data_parallel_size"] > 1 else ""
    table = make_table("", "", title=f"{result['model_id']} on {result['device']}{copies}, simulated")
    for label, text in _rows(result):
        table.add_row(label, text)
    console.print(table)
    times = make_table("ms", *KINDS)
    for name, title in TIMES.items():
        times.add_row(title, *(_ms(result[f"{kind}_{name}_ms"]) for kind in KINDS))
    console.print(times)
    usage, waiting = over_time(outcomes, NUM_COLUMNS, _usage), over_time(outcomes, NUM_COLUMNS, _waiting)
    print_chart(console, f"KV memory in use over {result['duration']:,.1f} s (full height: all of it)", columns(usage, top=1.0))
    if top := result["max_num_waiting"]:
        print_chart(console, f"requests waiting (at most {top:,} at a copy)", columns(waiting))


def write_page(path: Path, result: Mapping[str, Any], outcomes: Sequence[Outcome]) -> None:
    title = f"{result['model_id']} on {result['device']}, simulated"
    stories = [story for outcome in outcomes for story in outcome.stories if story.times_s]
    counts: dict[str, Points] = {"waiting": over_time(outcomes, NUM_POINTS, _waiting), "running": over_time(outcomes, NUM_POINTS, _running)}
    charts = (
        svg.line_chart("KV memory in use", "seconds", "%", {"": [(x, 100 * y) for x, y in over_time(outcomes, NUM_POINTS, _usage)]}),
        svg.line_chart("Requests", "seconds", "requests", counts),
        svg.histogram("Time to first token", "ms", [(story.times_s[0] - story.sent_s) * 1e3 for story in stories]),
        svg.line_chart(
            "Time to first token by arrival",
            "seconds",
            "ms",
            {"": [(story.sent_s, (story.times_s[0] - story.sent_s) * 1e3) for story in stories]},
        ),
    )
    rows = "".join(f"<tr><td>{escape(label)}</td><td>{escape(text)}</td></tr>" for label, text in _rows(result))
    heads = "".join(f"<td>{kind}</td>" for kind in KINDS)
    times = "".join(
        f"<tr><td>{escape(text)}, ms</td>" + "".join(f"<td>{_ms(result[f'{kind}_{name}_ms'])}</td>" for kind in KINDS) + "</tr>"
        for name, text in TIMES.items()
    )
    path.write_text(
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(title)}</title>"
        "<style>:root{color-scheme:light dark}body{font:14px system-ui,sans-serif;max-width:1360px;margin:2rem auto;padding:0 1rem}"
        "table{border-collapse:collapse}td{padding:.2rem .8rem .2rem 0}td+td{text-align:right;font-variant-numeric:tabular-nums}"
        "main{display:grid;grid-template-columns:repeat(auto-fit,minmax(420px,1fr));gap:1rem}svg{width:100%}</style>"
        f"<h1>{escape(title)}</h1><table>{rows}</table><table><tr><td></td>{heads}</tr>{times}</table><main>{''.join(charts)}</main></html>\n"
    )


def over_time(outcomes: Sequence[Outcome], num_bins: int, value: Callable[[Sample], float]) -> Points:
    """Return `num_bins` (seconds, value) points: each the largest value of its time in each copy, summed over the copies."""
    end_s = max(outcome.seconds for outcome in outcomes) or 1.0
    totals = [0.0] * num_bins
    for outcome in outcomes:
        tops = [0.0] * num_bins
        for sample in outcome.samples:
            place = min(num_bins - 1, int(sample.time_s / end_s * num_bins))
            tops[place] = max(tops[place], value(sample))
        totals = [total + top for total, top in zip(totals, tops, strict=True)]
    share = len(outcomes) if value is _usage else 1  # of KV memory the mean is meant
    return [((place + 0.5) * end_s / num_bins, total / share) for place, total in enumerate(totals)]


def _usage(sample: Sample) -> float:
    return sample.kv_usage


def _waiting(sample: Sample) -> float:
    return sample.num_waiting


def _running(sample: Sample) -> float:
    return sample.num_running


def _rows(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(label, form.format(result[name])) for label, name, form in ROWS if result[name] is not None]


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}"
