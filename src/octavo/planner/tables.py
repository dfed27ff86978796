"""The tables of a plan: what other formats and splits of a deployment hold, floors by context, costs by workload."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from octavo.planner.catalogue import ApiRate, Workload
from octavo.planner.cost import Comparison, ServingCost, compare, fitting, serving_cost
from octavo.planner.floors import StepFloor, decode_floor
from octavo.planner.formats import kv_choices, weight_choices
from octavo.planner.sizing import Deployment, Sizing, sequences, size

EFFICIENCIES = (1.0, 0.75, 0.5, 0.25)


@dataclass(frozen=True)
class FormatRow:
    """What a choice of formats buys: conversations at once, and how many times those of the first row that holds any."""

    weights: str
    kv: str
    weight_bytes: int
    pool_bytes: int
    tokens: int
    conversations: int
    longest_context: int
    gain: float | None
    is_chosen: bool


@dataclass(frozen=True)
class SplitRow:
    """The same formats on more devices. Rates are floors with every conversation that fits (max_num_seqs at most) decoding."""

    tp: int
    pp: int
    dp: int
    weight_bytes: int
    bytes_per_token: float
    tokens: int
    conversations: int
    per_sequence: float | None
    aggregate: float | None


@dataclass(frozen=True)
class DecodeRow:
    """Floors at one context: a sequence alone, and as many as fit (None where not one does)."""

    context: int
    one: StepFloor
    full: StepFloor | None


@dataclass(frozen=True)
class CostRow:
    """`wished_batch` is the workload's own; the cost is of as much of it as fits."""

    wished_batch: int
    cost: ServingCost
    against: tuple[Comparison, ...]


@dataclass(frozen=True)
class SensitivityRow:
    """The break-even utilization at a share of the floor's speed."""

    workload: str
    api: str
    efficiency: float
    break_even: float


def format_rows(deployment: Deployment, conversation: int) -> tuple[FormatRow, ...]:
    """Return what each pair of formats holds, the largest first; the deployment's own pair is among them."""
    kind = deployment.device.kind
    weights = dict.fromkeys([*weight_choices(kind), deployment.weights])
    kvs = dict.fromkeys([*kv_choices(kind), deployment.kv])
    rows: list[FormatRow] = []
    base: int | None = None
    for weight in weights:
        for kv in kvs:
            own = weight == deployment.weights
            other = replace(deployment, weights=weight, kv=kv, weight_bytes=deployment.weight_bytes if own else None)
            sizing = size(other)
            held = sequences(other, sizing.available_bytes, conversation)
            base = base or held or None
            rows.append(
                FormatRow(
                    weights=weight.name,
                    kv=kv.name,
                    weight_bytes=sizing.weight_bytes,
                    pool_bytes=max(0, sizing.available_bytes),
                    tokens=sizing.tokens,
                    conversations=held,
                    longest_context=sizing.longest_context,
                    gain=held / base if base else None,
                    is_chosen=own and kv == deployment.kv,
                )
            )
    return tuple(rows)


def split_rows(deployment: Deployment, conversation: int) -> tuple[SplitRow, ...]:
    """Return the model whole, cut and copied over 1, 2, 4 and 8 devices, and the deployment's own split; none for a CPU."""
    d = deployment
    if d.device.kind == "cpu":
        return ()
    splits = [(1, 1, 1)] + [split for n in (2, 4, 8) for split in ((n, 1, 1), (1, n, 1), (1, 1, n))] + [(d.tp, d.pp, d.dp)]
    rows = []
    for tp, pp, dp in dict.fromkeys(splits):
        if d.shape.num_heads % tp or pp > d.shape.num_layers:
            continue
        other = replace(d, tp=tp, pp=pp, dp=dp)
        sizing = size(other)
        held = sequences(other, sizing.available_bytes, conversation)
        batch = min(held // dp, sizing.max_num_seqs)
        step = decode_floor(other, batch, conversation) if batch else None
        rows.append(
            SplitRow(
                tp=tp,
                pp=pp,
                dp=dp,
                weight_bytes=sizing.weight_bytes,
                bytes_per_token=sizing.bytes_per_token,
                tokens=sizing.tokens,
                conversations=held,
                per_sequence=step.per_sequence if step else None,
                aggregate=step.aggregate if step else None,
            )
        )
    return tuple(rows)


def decode_rows(deployment: Deployment, sizing: Sizing) -> tuple[DecodeRow, ...]:
    rows = []
    for held in sizing.concurrency:
        batch = min(held.sequences // deployment.dp, sizing.max_num_seqs)
        full = decode_floor(deployment, batch, held.context) if batch else None
        rows.append(DecodeRow(held.context, decode_floor(deployment, 1, held.context), full))
    return tuple(rows)


def cost_rows(
    deployment: Deployment, usd_per_hour: float | None, workloads: Sequence[Workload], apis: Sequence[ApiRate], efficiency: float
) -> tuple[CostRow, ...]:
    """Return the costs of each workload, its batch lowered to what fits; none for one of which nothing fits."""
    if usd_per_hour is None:
        return ()
    rows = []
    for wished in workloads:
        workload = fitting(deployment, wished)
        if workload is None:
            continue
        cost = serving_cost(deployment, workload, usd_per_hour, efficiency=efficiency)
        rows.append(CostRow(wished.batch, cost, tuple(compare(cost, workload, api) for api in apis)))
    return tuple(rows)


def sensitivity_rows(costs: Sequence[CostRow]) -> tuple[SensitivityRow, ...]:
    """Return how the break-even moves with the speed that is really reached: half the floor's speed, twice the utilization."""
    return tuple(
        SensitivityRow(row.cost.workload, other.api, share, other.break_even * row.cost.efficiency / share)
        for row in costs
        for other in row.against
        for share in EFFICIENCIES
    )
