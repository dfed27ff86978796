"""A whole plan as one value: the model, the ledger, what other formats and splits would buy, floors and costs.

What `octavo plan` prints and what it writes as JSON; every number in it comes from the modules below this one. The rows of a
table are values of their own, so that a page or a test can read them without parsing text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from octavo.errors import ConfigError
from octavo.planner.catalogue import ApiRate, Device, Workload
from octavo.planner.cost import Fleet, Verdict, judge, size_fleet
from octavo.planner.floors import PrefillFloor, SpeculationGain, prefill_floor, speculation_gain
from octavo.planner.formats import KV_FORMATS
from octavo.planner.notes import notes
from octavo.planner.sizing import CONTEXTS, Deployment, Sizing, sequences, size
from octavo.planner.tables import (
    CostRow,
    DecodeRow,
    FormatRow,
    SensitivityRow,
    SplitRow,
    cost_rows,
    decode_rows,
    format_rows,
    sensitivity_rows,
    split_rows,
)

CONVERSATION = 10 * 1024  # tokens, of the table of formats: 8k in and 2k out


@dataclass(frozen=True)
class GroupRow:
    """Layers that keep the same; bytes of all of them in the plan's KV format."""

    name: str
    num_layers: int
    num_kv_heads: int
    vector_dims: tuple[int, ...]
    window: int | None
    bytes_per_token: float
    state_bytes: int


@dataclass(frozen=True)
class KVRow:
    """What one more token takes in one KV format, all layers of the whole model."""

    kv: str
    bytes_per_token: float


@dataclass(frozen=True)
class ModelSummary:
    name: str
    family: str
    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    max_position: int
    parameters: int
    active_parameters: int
    weight_bytes: float
    groups: tuple[GroupRow, ...]
    kv_formats: tuple[KVRow, ...]


@dataclass(frozen=True)
class Plan:
    """`efficiency` is measured floor over measured time (1: nothing measured, floors stand alone). `utilization`: the share of the
    time that the machines are expected to work, None where nobody said; `Comparison.verdict` takes it."""

    model: ModelSummary
    device: Device
    weights: str
    kv: str
    tp: int
    pp: int
    dp: int
    conversation: int
    efficiency: float
    utilization: float | None
    sizing: Sizing
    formats: tuple[FormatRow, ...]
    splits: tuple[SplitRow, ...]
    decode: tuple[DecodeRow, ...]
    prefill: tuple[PrefillFloor, ...]
    speculation: SpeculationGain | None
    costs: tuple[CostRow, ...]
    sensitivity: tuple[SensitivityRow, ...]
    fleet: Fleet | None
    verdicts: tuple[Verdict, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Speculation:
    """Drafts a step, and how likely each is accepted."""

    drafts: int
    acceptance: float


@dataclass(frozen=True)
class Traffic:
    """Requests of one workload that arrive at random, and what they were promised (None: nothing)."""

    workload: Workload
    arrivals_per_s: float
    ttft_s: float | None = None
    itl_s: float | None = None
    quantile: float = 0.99


def make_plan(
    deployment: Deployment,
    *,
    conversation: int = CONVERSATION,
    efficiency: float = 1.0,
    utilization: float | None = None,
    usd_per_hour: float | None = None,
    workloads: Sequence[Workload] = (),
    apis: Sequence[ApiRate] = (),
    speculation: Speculation | None = None,
    traffic: Traffic | None = None,
) -> Plan:
    """Return the plan of a deployment; costs and a fleet are in it where `usd_per_hour` of a device is given. Raises ConfigError."""
    if conversation < 1:
        raise ConfigError(f"a conversation has {conversation} tokens; it must have at least 1")
    if not 0 < efficiency <= 1:
        raise ConfigError(f"the efficiency is {efficiency:g}; it must be more than 0 and at most 1")
    if utilization is not None and not 0 < utilization <= 1:
        raise ConfigError(f"the utilization is {utilization:g}; it must be more than 0 and at most 1")
    sizing = size(deployment)
    costs = cost_rows(deployment, usd_per_hour, workloads, apis, efficiency)
    fleet = _fleet(deployment, usd_per_hour, traffic, efficiency) if traffic else None
    return Plan(
        model=summarise(deployment),
        device=deployment.device,
        weights=deployment.weights.name,
        kv=deployment.kv.name,
        tp=deployment.tp,
        pp=deployment.pp,
        dp=deployment.dp,
        conversation=conversation,
        efficiency=efficiency,
        utilization=utilization,
        sizing=sizing,
        formats=format_rows(deployment, conversation),
        splits=split_rows(deployment, conversation),
        decode=decode_rows(deployment, sizing),
        prefill=tuple(prefill_floor(deployment, context, budget=sizing.max_num_batched_tokens) for context in CONTEXTS),
        speculation=_speculate(deployment, sizing, conversation, speculation) if speculation else None,
        costs=costs,
        sensitivity=sensitivity_rows(costs),
        fleet=fleet,
        verdicts=tuple(judge(fleet, traffic.workload, api) for api in apis)
        if fleet and traffic and fleet.usd_per_month is not None
        else (),
        notes=notes(deployment, sizing),
    )


def summarise(deployment: Deployment) -> ModelSummary:
    shape, kv = deployment.shape, deployment.kv
    given = deployment.weight_bytes
    return ModelSummary(
        name=shape.name,
        family=shape.family,
        num_layers=shape.num_layers,
        hidden_size=shape.hidden_size,
        num_heads=shape.num_heads,
        num_kv_heads=shape.num_kv_heads,
        max_position=shape.max_position,
        parameters=shape.counts.total,
        active_parameters=shape.active_weights,
        weight_bytes=shape.weight_bytes(deployment.weights) if given is None else given,
        groups=tuple(
            GroupRow(
                group.name,
                group.num_layers,
                group.num_kv_heads,
                group.vector_dims,
                group.window,
                group.bytes_per_token(kv),
                group.num_layers * group.state_bytes,
            )
            for group in shape.groups
        ),
        kv_formats=tuple(
            KVRow(other.name, shape.bytes_per_token(other))
            for other in KV_FORMATS.values()
            if deployment.is_latent or not other.latent_only
        ),
    )


def _speculate(deployment: Deployment, sizing: Sizing, context: int, how: Speculation) -> SpeculationGain:
    """Return the gain with as many sequences of `context` as fit."""
    batch = max(1, min(sequences(deployment, sizing.available_bytes, context) // deployment.dp, sizing.max_num_seqs))
    return speculation_gain(deployment, batch, context, drafts=how.drafts, acceptance=how.acceptance)


def _fleet(deployment: Deployment, usd_per_hour: float | None, traffic: Traffic, efficiency: float) -> Fleet:
    return size_fleet(
        deployment,
        traffic.workload,
        usd_per_hour,
        traffic.arrivals_per_s,
        ttft_s=traffic.ttft_s,
        itl_s=traffic.itl_s,
        quantile=traffic.quantile,
        efficiency=efficiency,
    )
