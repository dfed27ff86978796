"""A plan on the terminal: tables and charts of what planner.plan returns. Computes nothing but widths of bars."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from octavo.cli.bars import bar_rows, stack
from octavo.cli.plan_cost_view import print_costs, print_fleet
from octavo.cli.tables import make_table, open_console, print_chart
from octavo.planner.derivation import Derivation
from octavo.planner.fit import Fit
from octavo.planner.plan import Plan
from octavo.units import format_bytes


def print_plan(plan: Plan, *, charts: bool) -> None:
    console = open_console()
    _head(console, plan)
    _ledger(console, plan)
    if charts:
        _ledger_chart(console, plan)
    _concurrency(console, plan)
    if charts:
        rows = [(f"{row.context // 1024}k", float(row.sequences), f"{row.sequences:,}") for row in plan.sizing.concurrency]
        print_chart(console, "sequences at once, by context (logarithmic)", bar_rows(rows, logarithmic=True))
    _formats(console, plan)
    _splits(console, plan)
    _prefill(console, plan)
    if plan.speculation:
        gain = plan.speculation
        console.print(
            f"speculation: {gain.drafts} drafts accepted at {gain.acceptance:.0%} make {gain.tokens_per_step:.2f} tokens a step: "
            f"{gain.speedup:.2f}x the tokens/s of a sequence"
        )
    print_costs(console, plan, charts=charts)
    print_fleet(console, plan)
    for note in plan.notes:
        console.print(f"[yellow]note:[/] {note}")


def print_derivations(derivations: Iterable[Derivation]) -> None:
    console = open_console()
    table = Table("number", "formula", "with values", "result", box=SIMPLE_HEAD, title="where each number comes from", title_justify="left")
    for line in derivations:
        result = f"{line.result:,.0f}" if float(line.result).is_integer() and abs(line.result) >= 1 else f"{line.result:,.6g}"
        table.add_row(line.name, line.formula, line.values, f"{result} {line.unit}".strip())
    console.print(table)


def print_fits(fits: Sequence[Fit], load: str, *, charts: bool) -> None:
    console = open_console()
    table = make_table(
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
        print_chart(console, "memory of the devices in all", bar_rows(rows))


def _head(console: Console, plan: Plan) -> None:
    model, device = plan.model, plan.device
    count = plan.tp * plan.pp * plan.dp
    active = f", {model.active_parameters / 1e9:,.2f} B used a token" if model.active_parameters < 0.9 * model.parameters else ""
    console.print(
        f"[bold]{escape(model.name)}[/] ({model.family}): {model.num_layers} layers of {model.hidden_size:,}, {model.num_heads} heads, "
        f"{model.num_kv_heads} KV, {model.parameters / 1e9:,.2f} B weights{active}, {model.max_position:,} positions"
    )
    split = f" (tp {plan.tp} x pp {plan.pp} x dp {plan.dp})" if count > 1 else ""
    console.print(
        f"on {count} x [bold]{device.name}[/]{split}: {format_bytes(device.memory_bytes)}, {device.bandwidth / 1e9:,.0f} GB/s, "
        f"{device.bf16_flops / 1e12:,.3g} TFLOP/s; weights {plan.weights}, KV {plan.kv}"
    )
    console.print(f"[dim]{device.source}, {device.date}[/]")
    table = make_table("layers that keep the same", "layers", "KV heads", "vectors", "window", "bytes a token", "state a sequence")
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
    table = make_table("memory of one device", "bytes", "", title="ledger")
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
    print_chart(console, "one device", stack([(name, float(value), format_bytes(value)) for name, value in parts]))


def _concurrency(console: Console, plan: Plan) -> None:
    measured = plan.efficiency < 1
    columns_ = ["context", "sequences at once", "alone tok/s", "all tok/s a seq", "all tok/s", "bound by"]
    table = make_table(
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
    table = make_table(
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
    table = make_table(
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
    table = make_table("prompt", "seconds at best", "tokens/s", "bound by", title="prefill of one prompt")
    for row in plan.prefill:
        table.add_row(f"{row.tokens:,}", f"{row.seconds:.3f}", f"{row.tokens_per_s:,.0f}", row.bound)
    console.print(table)
