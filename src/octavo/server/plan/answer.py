"""A question of the page to a plan, by the functions that `octavo plan` calls; nothing is computed here.

`Extra` are a model and a device that the catalogue does not have: a file named on the command line, this machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from octavo import __version__
from octavo.errors import ConfigError
from octavo.planner import catalogue
from octavo.planner.catalogue import ApiRate, Device, MachineRate, Workload
from octavo.planner.cost import cost_by_utilization
from octavo.planner.derivation import Derivation
from octavo.planner.explain import derive
from octavo.planner.formats import KV_FORMATS, WEIGHT_FORMATS, WeightFormat, default_kv, kv_format, weight_format
from octavo.planner.number_shape import shape_from_numbers
from octavo.planner.plan import Plan, make_plan
from octavo.planner.shape import ModelShape
from octavo.planner.sizing import Deployment
from octavo.server.plan.schemas import BY_NUMBERS, OWN, PlanRequest
from octavo.units import GiB

CURVE_STEPS = 100
PCIE_5 = 64e9  # bytes a second: the link of a device by numbers


@dataclass(frozen=True)
class ExtraModel:
    """`weights`: the format of its files."""

    shape: ModelShape
    weights: WeightFormat


@dataclass(frozen=True)
class Extra:
    """By name; they come before the catalogue's."""

    models: Mapping[str, ExtraModel] = field(default_factory=dict)
    devices: Mapping[str, Device] = field(default_factory=dict)


@dataclass(frozen=True)
class Choices:
    """What the page can be asked for, and what it asks at first."""

    version: str
    models: tuple[str, ...]
    devices: tuple[Device, ...]
    weights: tuple[str, ...]
    kv: tuple[str, ...]
    workloads: tuple[Workload, ...]
    apis: tuple[ApiRate, ...]
    machines: tuple[MachineRate, ...]
    defaults: Mapping[str, object]


@dataclass(frozen=True)
class PlanAnswer:
    """`cost_curve`: (utilization, $ a million output tokens) of the workload; empty without a price, as `verdicts`, which say by
    API what is cheaper at the utilization asked for: self-host | API."""

    plan: Plan
    usd_per_hour: float | None
    derivations: tuple[Derivation, ...]
    cost_curve: tuple[tuple[float, float], ...]
    verdicts: Mapping[str, str]


def list_choices(extra: Extra | None = None) -> Choices:
    extra = extra or Extra()
    return Choices(
        version=__version__,
        models=tuple(dict.fromkeys((*extra.models, *catalogue.model_names(), BY_NUMBERS))),
        devices=tuple({device.name: device for device in (*extra.devices.values(), *catalogue.devices())}.values()),
        weights=tuple(WEIGHT_FORMATS),
        kv=tuple(KV_FORMATS),
        workloads=catalogue.workloads(),
        apis=catalogue.api_rates(),
        machines=catalogue.machine_rates(),
        defaults=PlanRequest.model_validate({}).model_dump(),
    )


def answer(asked: PlanRequest, extra: Extra | None = None) -> PlanAnswer:
    """Return the plan. Raises ConfigError and ModelError."""
    extra = extra or Extra()
    model = _model(asked, extra)
    device = _device(asked, extra)
    deployment = Deployment(
        shape=model.shape,
        device=device,
        weights=model.weights,
        kv=default_kv(device.kind) if asked.kv_cache_dtype == "auto" else kv_format(asked.kv_cache_dtype),
        tp=asked.tensor_parallel_size,
        pp=asked.pipeline_parallel_size,
        dp=asked.data_parallel_size,
        utilization=asked.gpu_memory_utilization,
        block_size=asked.block_size,
        max_model_len=asked.max_model_len,
        max_num_seqs=asked.max_num_seqs,
        max_num_batched_tokens=asked.max_num_batched_tokens,
        throughput=asked.performance_mode == "throughput",
        weight_bytes=asked.weight_bytes,
        activation_bytes=asked.activation_bytes,
        reserve_bytes=asked.reserve_bytes,
        kv_cache_memory_bytes=asked.kv_cache_memory_bytes,
    )
    usd_per_hour = catalogue.usd_per_hour(device.name) if asked.usd_per_hour is None else asked.usd_per_hour
    plan = make_plan(
        deployment,
        conversation=asked.conversation,
        efficiency=asked.efficiency,
        utilization=asked.utilization,
        usd_per_hour=usd_per_hour,
        workloads=(_workload(asked),),
        apis=catalogue.api_rates(),
    )
    costs = plan.costs[0] if plan.costs else None
    busy = plan.utilization
    return PlanAnswer(
        plan=plan,
        usd_per_hour=usd_per_hour,
        derivations=derive(deployment, plan),
        cost_curve=cost_by_utilization(costs.cost, CURVE_STEPS) if costs else (),
        verdicts={other.api: other.verdict(busy) for other in costs.against} if costs and busy is not None else {},
    )


def _model(asked: PlanRequest, extra: Extra) -> ExtraModel:
    own = extra.models.get(asked.model)
    shape = own.shape if own else _known_shape(asked)
    if asked.weights is not None:
        return ExtraModel(shape, weight_format(asked.weights))
    if own:
        return own
    if shape.default_weights is None:
        raise ConfigError(f"{shape.name}: its quantisation is not known here; choose the format of its weights")
    return ExtraModel(shape, weight_format(shape.default_weights))


def _known_shape(asked: PlanRequest) -> ModelShape:
    if asked.model != BY_NUMBERS:
        return catalogue.find_model_shape(asked.model)
    return shape_from_numbers(
        layers=asked.layers,
        kv_heads=asked.kv_heads,
        heads=asked.kv_heads * asked.queries_per_kv_head,
        head_dim=asked.head_dim,
        params=asked.params,
    )


def _device(asked: PlanRequest, extra: Extra) -> Device:
    if asked.device == BY_NUMBERS:
        return Device(
            name=BY_NUMBERS,
            kind="gpu",
            memory_bytes=round(asked.memory_gib * GiB),
            bandwidth=asked.bandwidth_gbs * 1e9,
            bf16_flops=asked.tflops * 1e12,
            fp8_flops=0.0,
            int8_flops=0.0,
            link=PCIE_5,
            reserve_bytes=GiB,
            source="as given",
            date="",
        )
    return extra.devices.get(asked.device) or catalogue.find_device(asked.device)


def _workload(asked: PlanRequest) -> Workload:
    if asked.workload == OWN:
        return Workload(OWN, asked.new_input, asked.cached_input, asked.output, asked.batch)
    return catalogue.find_workload(asked.workload)
