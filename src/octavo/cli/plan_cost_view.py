"""The money of a plan on the terminal: costs against APIs, how the break-even moves, the fleet. Computes nothing."""

from __future__ import annotations

from rich.console import Console

from octavo.cli.bars import bar_rows, columns
from octavo.cli.tables import make_table, print_chart
from octavo.planner.cost import cost_by_utilization
from octavo.planner.plan import Plan
from octavo.planner.tables import CostRow


def print_costs(console: Console, plan: Plan, *, charts: bool) -> None:
    if not plan.costs:
        return
    table = make_table(
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
            table.add_row(
                *own,
                other.api,
                f"{other.api_usd_per_million_output:,.3f}",
                verdict,
                "-" if other.premium is None else f"{other.premium:.1f}x",
            )
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
    print_chart(console, f"$ for a million output tokens, {row.cost.workload}", lines)
    moved = [line for line in plan.sensitivity if line.workload == row.cost.workload]
    bars = [
        (f"{line.api} at {line.efficiency:.0%} of the floor's speed", min(1.0, line.break_even), f"{line.break_even:.0%}") for line in moved
    ]
    print_chart(
        console, f"break-even utilization, {row.cost.workload}: self-host to the right of the bar", bar_rows([*bars, ("", 1.0, "100%")])
    )


def print_fleet(console: Console, plan: Plan) -> None:
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
