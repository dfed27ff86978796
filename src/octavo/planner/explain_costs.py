"""The derivations of a plan's money: own time, own dollars, those of each API, and where the two meet."""

from __future__ import annotations

from collections.abc import Iterable

from octavo.planner.cost import Comparison, ServingCost
from octavo.planner.derivation import Derivation
from octavo.planner.plan import Plan


def derive_costs(plan: Plan) -> Iterable[Derivation]:
    """Yield nothing for a plan without a price."""
    if plan.costs:
        cost = plan.costs[0].cost
        yield Derivation("idle month", "$ an hour * 24 * 30", f"{cost.usd_per_hour:g} * 720", cost.idle_usd_per_month, "$")
    for row in plan.costs:
        yield from _own(row.cost, plan.utilization)
        for other in row.against:
            yield from _against(other, row.cost)


def _own(cost: ServingCost, utilization: float | None) -> Iterable[Derivation]:
    yield Derivation(
        f"device seconds a request, {cost.workload}",
        "prefill + output * step / batch",
        f"{cost.prefill_s:.6g} + {cost.device_s - cost.prefill_s:.6g}",
        cost.device_s,
        "s",
    )
    yield Derivation(
        f"$ a million output tokens, {cost.workload}",
        "$ an hour / 3600 / output tokens/s * 10^6",
        f"{cost.usd_per_hour:g} / 3600 / {cost.output_tokens_per_s:.6g} * 1e6",
        cost.usd_per_million_output,
        "$",
    )
    if utilization is not None:
        yield Derivation(
            f"$ a million output tokens at the given utilization, {cost.workload}",
            "$ at full utilization / utilization",
            f"{cost.usd_per_million_output:.6g} / {utilization!r}",
            cost.usd_per_million_output / utilization,
            "$",
        )


def _against(other: Comparison, cost: ServingCost) -> Iterable[Derivation]:
    output = round(cost.output_tokens_per_s * cost.device_s)
    yield Derivation(
        f"$ a million output tokens of {other.api}, {cost.workload}",
        "$ of a request by its price list / output tokens * 10^6",
        f"{other.api_usd_per_request:.6g} / {output} * 1e6",
        other.api_usd_per_million_output,
        "$",
    )
    yield Derivation(
        f"break-even against {other.api}, {cost.workload}",
        "own $ / API $ for a million output tokens",
        f"{other.own_usd_per_million_output:.6g} / {other.api_usd_per_million_output:.6g}",
        other.break_even,
        "",
    )
