"""A plan on the terminal: tables and charts of what planner.plan returns. Computes nothing."""

from __future__ import annotations

import csv
import dataclasses
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from octavo.cli.bars import bar_rows, columns, stack
from octavo.planner.cost import cost_by_utilization
from octavo.planner.explain import Derivation
from octavo.planner.fit import Fit
from octavo.planner.plan import Plan
from octavo.planner.tables import CostRow
from octavo.units import format_bytes


def print_plan(plan: Plan, *, charts: bool) -> None:
    console = _console()
    _head(console, plan)
    _ledger(console, plan)
    if charts:
        _ledger_chart(console, plan)
    _concurrency(console, plan)
    if charts:
        rows = [(f"{row.context // 1024}k", float(row.sequences), f"{row.sequences:,}") for row in plan.sizing.concurrency]
        _print_chart(console, "sequences at once, by context (logarithmic)", bar_rows(rows, logarithmic=True))
    _formats(console, plan)
    _splits(console, plan)
    _prefill(console, plan)
    if plan.speculation:
        gain = plan.speculation
        console.print(
            f"speculation: {gain.drafts} drafts accepted at {gain.acceptance:.0%} make {gain.tokens_per_step:.2f} tokens a step: "
            f"{gain.speedup:.2f}x the tokens/s of a sequence"
        )
    _costs(console, plan, charts=charts)
    _fleet(console, plan)
    for note in plan.notes:
        console.print(f"[yellow]note:[/] {note}")


def print_derivations(derivations: Iterable[Derivation]) -> None:
    console = _console()
    table = Table("number", "formula", "with values", "result", box=SIMPLE_HEAD, title="where each number comes from", title_justify="left")
    for line in derivations:
        result = f"{line.result:,.0f}" if float(line.result).is_integer() and abs(line.result) >= 1 else f"{line.result:,.6g}"
        table.add_row(line.name, line.formula, line.values, f"{result} {line.unit}".strip())
    console.print(table)


def print_fits(fits: Sequence[Fit], load: str, *, charts: bool) -> None:
    console = _console()
    table = _table(
        "device", "count", "tp x dp", "weights", "KV", "memory in all", "pool used", "tok/s a seq", "$/h", title=f"what holds {load}"
    )
    for way in fits:
        table.add_row(
            way.device,
            str(way.devices),
            f"{way.tp} x {way.dp}",
            way.weights,
            way.kv,
            format_bytes(way.memory_bytes),
            f"{way.used_share:.0%}",
            f"{way.per_sequence:,.1f}",
            "-" if way.usd_per_hour is None else f"{way.usd_per_hour:,.2f}",
        )
    console.print(table)
    if charts:
        rows = [(way.device, float(way.memory_bytes), f"{way.devices} x") for way in fits]
        _print_chart(console, "memory of the devices in all", bar_rows(rows))


def write_csv(rows: Sequence[Any]) -> None:
    """Write dataclasses as CSV, nested ones in columns of their own."""
    flat = [_flatten(dataclasses.asdict(row)) for row in rows]
    names = list(dict.fromkeys(name for row in flat for name in row))
    writer = csv.DictWriter(sys.stdout, names, restval="")
    writer.writeheader()
    writer.writerows(flat)


def table_rows(plan: Plan, table: str) -> Sequence[Any]:
    """Return the rows of one table."""
    return {
        "concurrency": plan.sizing.concurrency,
        "formats": plan.formats,
        "splits": plan.splits,
        "decode": plan.decode,
        "prefill": plan.prefill,
        "costs": plan.costs,
        "sensitivity": plan.sensitivity,
        "groups": plan.model.groups,
    }[table]


def _flatten(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            flat |= _flatten(value, f"{prefix}{name}_")
        elif isinstance(value, list | tuple) and value and isinstance(value[0], dict):
            for item in value:
                flat |= _flatten(item, f"{prefix}{next(iter(item.values()))}_")
        else:
            flat[prefix + name] = " ".join(map(str, value)) if isinstance(value, list | tuple) else value
    return flat


def _console() -> Console:
    """Return standard output; what is not a terminal is given room for the widest table."""
    return Console(width=None if sys.stdout.isatty() else 160)


def _table(*columns: str, title: str = "") -> Table:
    table = Table(box=SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False)
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right")
    return table


def _head(console: Console, plan: Plan) -> None:
    model, device = plan.model, plan.device
    count = plan.tp * plan.pp * plan.dp
    active = f", {model.active_parameters / 1e9:,.2f} B used a token" if model.active_parameters < 0.9 * model.parameters else ""
    console.print(
        f"[bold]{model.name}[/] ({model.family}): {model.num_layers} layers of {model.hidden_size:,}, {model.num_heads} heads, "
        f"{model.num_kv_heads} KV, {model.parameters / 1e9:,.2f} B weights{active}, {model.max_position:,} positions"
    )
    split = f" (tp {plan.tp} x pp {plan.pp} x dp {plan.dp})" if count > 1 else ""
    console.print(
        f"on {count} x [bold]{device.name}[/]{split}: {format_bytes(device.memory_bytes)}, {device.bandwidth / 1e9:,.0f} GB/s, "
        f"{device.bf16_flops / 1e12:,.3g} TFLOP/s; weights {plan.weights}, KV {plan.kv}"
    )
    console.print(f"[dim]{device.source}, {device.date}[/]")
    table = _table("layers that keep the same", "layers", "KV heads", "vectors", "window", "bytes a token", "state a sequence")
    for group in model.groups:
        table.add_row(
            group.name,
            str(group.num_layers),
            str(group.num_kv_heads or "-"),
            " + ".join(map(str, group.vector_dims)) or "-",
            f"{group.window:,}" if group.window else "-",
            f"{group.bytes_per_token:,.0f}" if group.bytes_per_token else "-",
            format_bytes(group.state_bytes) if group.state_bytes else "-",
        )
    console.print(table)
    kinds = ", ".join(f"{row.kv} {format_bytes(row.bytes_per_token)}" for row in model.kv_formats)
    console.print(f"a token in every KV format: {kinds}")


def _ledger(console: Console, plan: Plan) -> None:
    s = plan.sizing
    table = _table("memory of one device", "bytes", "", title="ledger")
    for name, value in (
        ("total", s.total_bytes),
        ("requested", s.requested_bytes),
        ("- weights", s.weight_bytes),
        ("- activations", s.activation_bytes),
        ("- reserve", s.reserve_bytes),
        ("= KV pool", s.available_bytes),
    ):
        table.add_row(name, f"{value:,}", format_bytes(value))
    console.print(table)
    bounded = any(group.window or group.state_bytes for group in plan.model.groups)
    console.print(
        f"{s.num_blocks:,} blocks of {format_bytes(s.bytes_per_block)} (one is the null block), [bold]{s.tokens:,} tokens[/]"
        f"{' kept by every layer' if bounded else ''}; "
        f"longest context {s.longest_context:,}, largest --max-model-len {s.max_model_len:,}"
    )
    console.print(
        f"KV cache size: {s.logged_tokens:,} tokens, Maximum concurrency for {s.model_len:,} tokens per request: {s.max_concurrency:.2f}x"
    )
    console.print(f"a step: at most {s.max_num_batched_tokens:,} tokens of {s.max_num_seqs:,} requests")


def _ledger_chart(console: Console, plan: Plan) -> None:
    s = plan.sizing
    parts = [("weights", s.weight_bytes), ("activations", s.activation_bytes), ("reserve", s.reserve_bytes)]
    parts += [("KV pool", max(0, s.available_bytes)), ("left alone", s.total_bytes - s.requested_bytes)]
    _print_chart(console, "one device", stack([(name, float(value), format_bytes(value)) for name, value in parts]))


def _concurrency(console: Console, plan: Plan) -> None:
    measured = plan.efficiency < 1
    columns_ = ["context", "sequences at once", "alone tok/s", "all tok/s a seq", "all tok/s", "bound by"]
    table = _table(
        *columns_, title="how many, and how fast at best" + (f" (in brackets at the measured {plan.efficiency:.0%})" if measured else "")
    )
    held = {row.context: row.sequences for row in plan.sizing.concurrency}
    for row in plan.decode:
        full = row.full

        def rate(value: float) -> str:
            return f"{value:,.1f}" + (f" ({value * plan.efficiency:,.1f})" if measured else "")

        table.add_row(
            f"{row.context:,}",
            f"{held[row.context]:,}",
            rate(row.one.per_sequence),
            rate(full.per_sequence) if full else "-",
            rate(full.aggregate) if full else "-",
            f"{full.bound} x {full.batch}" if full else "-",
        )
    console.print(table)


def _formats(console: Console, plan: Plan) -> None:
    table = _table(
        "weights", "KV", "weights a device", "KV pool", "tokens", f"x {plan.conversation:,}", "longest", "gain", title="what formats buy"
    )
    for row in plan.formats:
        table.add_row(
            row.weights,
            row.kv,
            format_bytes(row.weight_bytes),
            format_bytes(row.pool_bytes),
            f"{row.tokens:,}",
            f"{row.conversations:,}",
            f"{row.longest_context:,}",
            "-" if row.gain is None else f"{row.gain:.1f}x",
            style="bold" if row.is_chosen else "",
        )
    console.print(table)


def _splits(console: Console, plan: Plan) -> None:
    if not plan.splits:
        return
    table = _table(
        "devices",
        "tp x pp x dp",
        "weights a device",
        "KV a token",
        "tokens",
        f"x {plan.conversation:,}",
        "tok/s a seq",
        "tok/s",
        title="more devices",
    )
    for row in plan.splits:
        chosen = (row.tp, row.pp, row.dp) == (plan.tp, plan.pp, plan.dp)
        table.add_row(
            str(row.tp * row.pp * row.dp),
            f"{row.tp} x {row.pp} x {row.dp}",
            format_bytes(row.weight_bytes),
            format_bytes(row.bytes_per_token),
            f"{row.tokens:,}",
            f"{row.conversations:,}",
            "-" if row.per_sequence is None else f"{row.per_sequence:,.1f}",
            "-" if row.aggregate is None else f"{row.aggregate:,.0f}",
            style="bold" if chosen else "",
        )
    console.print(table)


def _prefill(console: Console, plan: Plan) -> None:
    table = _table("prompt", "seconds at best", "tokens/s", "bound by", title="prefill of one prompt")
    for row in plan.prefill:
        table.add_row(f"{row.tokens:,}", f"{row.seconds:.3f}", f"{row.tokens_per_s:,.0f}", row.bound)
    console.print(table)


def _costs(console: Console, plan: Plan, *, charts: bool) -> None:
    if not plan.costs:
        return
    table = _table(
        "workload",
        "batch",
        "tok/s",
        "$ a million out",
        "idle $ a month",
        "against",
        "API $ a million out",
        "break-even",
        "premium",
        title="cost",
    )
    for row in plan.costs:
        c = row.cost
        batch = f"{c.batch}" if c.batch == row.wished_batch else f"[yellow]{c.batch}[/], {row.wished_batch} do not fit"
        cells = [c.workload, batch, f"{c.output_tokens_per_s:,.0f}", f"{c.usd_per_million_output:,.3f}", f"{c.idle_usd_per_month:,.2f}"]
        for index, other in enumerate(row.against):
            verdict = "API at any" if other.break_even > 1 else f"{other.break_even:.1%}"
            if plan.utilization is not None and other.break_even <= 1:
                verdict += f": {other.verdict(plan.utilization)} at {plan.utilization:.0%}"
            own = cells if index == 0 else [""] * len(cells)
            table.add_row(*own, other.api, f"{other.api_usd_per_million_output:,.3f}", verdict, f"{other.premium:.1f}x")
    console.print(table)
    console.print(
        "[dim]self-host above the break-even utilization, take the API below it; prices are of rates.toml, look again before deciding[/]"
    )
    if charts:
        for row in plan.costs:
            _cost_charts(console, plan, row)


def _cost_charts(console: Console, plan: Plan, row: CostRow) -> None:
    """Print what a token costs by utilization, and where each API's break-even moves when the floor's speed is not reached."""
    curve = cost_by_utilization(row.cost)
    dearest = max(other.api_usd_per_million_output for other in row.against)
    lines = columns(curve, top=2 * dearest)
    lines.append("".join(f"{round(100 * utilization):<3}" for utilization, _ in curve) + f"% utilization; half height ${dearest:,.2f}")
    _print_chart(console, f"$ for a million output tokens, {row.cost.workload}", lines)
    moved = [line for line in plan.sensitivity if line.workload == row.cost.workload]
    bars = [
        (f"{line.api} at {line.efficiency:.0%} of the floor's speed", min(1.0, line.break_even), f"{line.break_even:.0%}") for line in moved
    ]
    _print_chart(
        console, f"break-even utilization, {row.cost.workload}: self-host to the right of the bar", bar_rows([*bars, ("", 1.0, "100%")])
    )


def _fleet(console: Console, plan: Plan) -> None:
    fleet = plan.fleet
    if fleet is None:
        return
    console.print(
        f"fleet for {fleet.arrivals_per_s:g} requests/s: [bold]{fleet.copies} copies[/] on {fleet.devices} devices, "
        f"batches of {fleet.batch}, {fleet.utilization:.0%} busy; {fleet.waiting_share:.1%} of requests wait, "
        f"p{fleet.quantile * 100:g} TTFT {fleet.ttft_s:.3f} s, ITL {fleet.itl_s * 1e3:.1f} ms"
    )
    for verdict in plan.verdicts:
        console.print(
            f"  against {verdict.api}: [bold]{verdict.choice}[/], ${verdict.own_usd_per_month:,.0f} a month of machines, "
            f"${verdict.api_usd_per_month:,.0f} of tokens"
        )


def _print_chart(console: Console, title: str, lines: Sequence[str]) -> None:
    console.print(f"\n[dim]{title}[/]")
    for line in lines:
        console.print(line, highlight=False)
    console.print()
