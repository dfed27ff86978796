"""A whole plan as one value: the model, the ledger, what other formats and splits would buy, floors and costs.

What `octavo plan` prints and what it writes as JSON; every number in it comes from the modules below this one. The rows of a
table are values of their own, so that a page or a test can read them without parsing text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from octavo.errors import ConfigError
from octavo.planner.catalogue import ApiRate, Device, Workload
from octavo.planner.cost import Comparison, Fleet, ServingCost, Verdict, compare, fitting, judge, serving_cost, size_fleet
from octavo.planner.floors import PrefillFloor, SpeculationGain, StepFloor, decode_floor, prefill_floor, speculation_gain
from octavo.planner.formats import KV_FORMATS, kv_format, weight_format
from octavo.planner.sizing import CONTEXTS, Deployment, Sizing, sequences, size
from octavo.units import format_bytes

CONVERSATION = 10 * 1024  # tokens, of the table of formats: 8k in and 2k out
_WEIGHT_CHOICES = {"gpu": ("bf16", "fp8", "int4"), "cpu": ("bf16", "q8_0", "q4_k_m")}
_KV_CHOICES = {"gpu": ("bf16", "fp8"), "cpu": ("f16", "int8_per_token_head")}


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
class Plan:
    """`efficiency` is measured floor over measured time (1: nothing measured, floors stand alone)."""

    model: ModelSummary
    device: Device
    weights: str
    kv: str
    tp: int
    pp: int
    dp: int
    conversation: int
    efficiency: float
    sizing: Sizing
    formats: tuple[FormatRow, ...]
    splits: tuple[SplitRow, ...]
    decode: tuple[DecodeRow, ...]
    prefill: tuple[PrefillFloor, ...]
    speculation: SpeculationGain | None
    costs: tuple[CostRow, ...]
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
    usd_per_hour: float | None = None,
    workloads: Sequence[Workload] = (),
    apis: Sequence[ApiRate] = (),
    speculation: Speculation | None = None,
    traffic: Traffic | None = None,
) -> Plan:
    """Return the plan of a deployment; costs and a fleet are in it where `usd_per_hour` of a device is given. Raises ConfigError."""
    if conversation < 1:
        raise ConfigError(f"a conversation has {conversation} tokens; it must have at least 1")
    sizing = size(deployment)
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
        sizing=sizing,
        formats=format_rows(deployment, conversation),
        splits=split_rows(deployment, conversation),
        decode=decode_rows(deployment, sizing),
        prefill=tuple(prefill_floor(deployment, context, budget=sizing.max_num_batched_tokens) for context in CONTEXTS),
        speculation=_speculate(deployment, sizing, conversation, speculation) if speculation else None,
        costs=cost_rows(deployment, usd_per_hour, workloads, apis, efficiency),
        fleet=fleet,
        verdicts=tuple(judge(fleet, traffic.workload, api) for api in apis) if fleet and traffic and usd_per_hour is not None else (),
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


def format_rows(deployment: Deployment, conversation: int) -> tuple[FormatRow, ...]:
    """Return what each pair of formats holds, the largest first; the deployment's own pair is among them."""
    kind = deployment.device.kind
    weights = list(dict.fromkeys([weight_format(name) for name in _WEIGHT_CHOICES[kind]] + [deployment.weights]))
    kvs = list(dict.fromkeys([kv_format(name) for name in _KV_CHOICES[kind]] + [deployment.kv]))
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


def _speculate(deployment: Deployment, sizing: Sizing, context: int, how: Speculation) -> SpeculationGain:
    """Return the gain with as many sequences of `context` as fit."""
    batch = max(1, min(sequences(deployment, sizing.available_bytes, context) // deployment.dp, sizing.max_num_seqs))
    return speculation_gain(deployment, batch, context, drafts=how.drafts, acceptance=how.acceptance)


def _fleet(deployment: Deployment, usd_per_hour: float | None, traffic: Traffic, efficiency: float) -> Fleet:
    return size_fleet(
        deployment,
        traffic.workload,
        usd_per_hour or 0.0,
        traffic.arrivals_per_s,
        ttft_s=traffic.ttft_s,
        itl_s=traffic.itl_s,
        quantile=traffic.quantile,
        efficiency=efficiency,
    )


def notes(deployment: Deployment, sizing: Sizing) -> tuple[str, ...]:
    """Return what a reader must know before trusting the numbers, each with its way out."""
    d, shape = deployment, deployment.shape
    found = []
    if sizing.num_blocks <= 1:
        missing = format_bytes(-min(0, sizing.available_bytes - round(2 * sizing.bytes_per_block)))
        found.append(f"It does not fit: {missing} are missing on each device. {_way_out(d)}")
    elif not sizing.fits:
        found.append(
            f"One request of {sizing.model_len:,} tokens does not fit: start-up takes --max-model-len {sizing.max_model_len:,} at most."
        )
    if shape.max_position < CONTEXTS[-1]:
        found.append(
            f"The model was made for {shape.max_position:,} positions; longer contexts are sized too, but need a rope that stretches it."
        )
    if d.tp > shape.num_kv_heads and any(group.num_kv_heads > 1 for group in shape.groups):
        found.append(f"tp {d.tp} is more than the {shape.num_kv_heads} KV heads: each is kept {d.tp // shape.num_kv_heads} times.")
    if d.is_latent and d.tp > 1:
        found.append(f"A latent cache is not cut by tensor parallelism: each of the {d.tp} ranks keeps all of it. dp shares it out.")
    if d.device.kind == "gpu" and d.activation_bytes is None:
        found.append(
            "Activations and the reserve for runtime and graphs are estimates; what a server measures replaces them "
            "(--activation-bytes, --reserve-bytes)."
        )
    return tuple(found)


def _way_out(deployment: Deployment) -> str:
    """Name the first change that makes the model fit: a smaller format, else more devices."""
    d = deployment
    for name in _WEIGHT_CHOICES[d.device.kind][1:]:
        smaller = weight_format(name)
        if smaller.linear < d.weights.linear and size(replace(d, weights=smaller, weight_bytes=None)).fits:
            return f"--weights {name} fits."
    for tp in (2, 4, 8, 16):
        if d.device.kind == "gpu" and tp > d.tp and d.shape.num_heads % tp == 0 and size(replace(d, tp=tp)).fits:
            return f"--tensor-parallel-size {tp} fits."
    return "A larger device, a smaller model or several machines are needed."
