"""`octavo plan MODEL --device NAME`: the planner's arithmetic, for people, JSON and CSV. Needs no model file and no server."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from octavo.cli.plan_csv import table_rows, write_csv
from octavo.cli.plan_device import find_planned_device, is_this_machine
from octavo.cli.plan_flags import plan_parser
from octavo.cli.plan_model import PlannedModel, find_planned_model, no_model
from octavo.cli.time_limits import read_slo
from octavo.errors import ConfigError, StartupError
from octavo.planner import catalogue
from octavo.planner.efficiency import measured_efficiency
from octavo.planner.explain import derive
from octavo.planner.fit import find_fits, parse_load
from octavo.planner.formats import default_kv, kv_format, weight_format
from octavo.planner.number_shape import shape_from_numbers
from octavo.planner.plan import Plan, Speculation, Traffic, make_plan
from octavo.planner.sizing import Deployment

if TYPE_CHECKING:
    from octavo.planner.catalogue import Device
    from octavo.planner.memory import MemoryLedger


def plan_main(argv: Sequence[str]) -> int:
    args = plan_parser().parse(argv)
    if args.web:
        return _serve_page(args)
    if args.port is not None or args.open:
        raise ConfigError("--port and --open are of the page: give --web too")
    if args.list:
        return _list()
    model = _model(args)
    if args.fit is not None:
        return _fit(args, model)
    ledger = _size_engine(args, model)
    deployment = _deployment(args, model, find_planned_device(args.device), ledger)
    plan = _plan(args, deployment)
    if args.json:
        sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(plan), indent=2) + b"\n")
        return 0

    if args.csv is not None:
        write_csv(table_rows(plan, args.csv))
        return 0

    from octavo.cli.plan_view import print_derivations, print_plan

    print_plan(plan, charts=args.chart)
    if args.explain:
        print_derivations(derive(deployment, plan))
    if ledger is not None:
        print("the engine here, sized by its own start-up:", *ledger.lines(), sep="\n  ")
    return 0


def _model(args: argparse.Namespace) -> PlannedModel:
    if args.model is not None:
        return find_planned_model(args.model, args.weights)
    needed = {name: getattr(args, name) for name in ("layers", "kv_heads", "head_dim", "params")}
    if None in needed.values():
        raise no_model()
    optional = {
        name: getattr(args, name) for name in ("heads", "hidden", "vocab", "intermediate", "max_position", "window", "window_layers")
    }
    shape = shape_from_numbers(**needed, **{name: value for name, value in optional.items() if value is not None})
    return PlannedModel(shape, weight_format(args.weights or "bf16"), None)


def _serve_page(args: argparse.Namespace) -> int:
    from octavo.cli.plan_web import serve_plan_page

    model = _model(args) if args.model is not None or args.layers is not None else None
    return serve_plan_page(args, model, None if args.device is None else find_planned_device(args.device))


def _deployment(args: argparse.Namespace, model: PlannedModel, device: Device, ledger: MemoryLedger | None = None) -> Deployment:
    """Return the deployment; what the engine measured (`ledger`) takes the place of estimates."""
    kv, weight_bytes, activation_bytes = args.kv_cache_dtype, args.weight_bytes, args.activation_bytes
    if ledger is not None:
        weight_bytes = ledger.weight_bytes if weight_bytes is None else weight_bytes
        device = msgspec.structs.replace(device, memory_bytes=ledger.free_bytes)
        activation_bytes = ledger.activation_bytes if activation_bytes is None else activation_bytes
    return Deployment(
        shape=model.shape,
        device=device,
        weights=model.weights,
        kv=default_kv(device.kind) if kv == "auto" else kv_format(kv),
        tp=args.tensor_parallel_size,
        pp=args.pipeline_parallel_size,
        dp=args.data_parallel_size,
        utilization=args.gpu_memory_utilization,
        block_size=args.block_size,
        max_model_len=args.max_model_len,
        max_num_seqs=args.max_num_seqs,
        max_num_batched_tokens=args.max_num_batched_tokens,
        throughput=args.performance_mode == "throughput",
        weight_bytes=weight_bytes,
        activation_bytes=activation_bytes,
        reserve_bytes=args.reserve_bytes,
        kv_cache_memory_bytes=args.kv_cache_memory_bytes,
    )


def _plan(args: argparse.Namespace, deployment: Deployment) -> Plan:
    mixes = tuple(catalogue.find_workload(name) for name in args.workload) if args.workload else catalogue.workloads()
    traffic = None
    if args.arrivals is not None:
        limits = read_slo(args.slo)
        traffic = Traffic(mixes[0], args.arrivals, limits.get("ttft"), limits.get("itl"))
    return make_plan(
        deployment,
        conversation=args.conversation,
        efficiency=_efficiency(args, deployment),
        utilization=args.utilization,
        usd_per_hour=_prices(args, [deployment.device]).get(deployment.device.name),
        workloads=mixes,
        apis=catalogue.api_rates(),
        speculation=Speculation(args.num_speculative_tokens, args.acceptance) if args.num_speculative_tokens else None,
        traffic=traffic,
    )


def _prices(args: argparse.Namespace, devices: Sequence[Device]) -> dict[str, float]:
    """Return dollars an hour by device: what was given for all of them, else what rates.toml has."""
    if args.usd_per_hour is not None:
        return {device.name: args.usd_per_hour for device in devices}
    return {rate.device: rate.usd_per_hour for rate in catalogue.machine_rates()}


def _efficiency(args: argparse.Namespace, deployment: Deployment) -> float:
    if args.bench is None:
        return 1.0 if args.efficiency is None else float(args.efficiency)
    try:
        result = msgspec.json.decode(Path(args.bench).read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.MsgspecError) as error:
        raise ConfigError(f"--bench {args.bench}: cannot be read as JSON ({type(error).__name__})") from error
    return measured_efficiency(deployment, result)


def _fit(args: argparse.Namespace, model: PlannedModel) -> int:
    load = parse_load(args.fit)
    devices = catalogue.devices() if args.device is None else (find_planned_device(args.device),)
    ways = find_fits(
        _deployment(args, model, devices[0]),
        load,
        devices,
        weights=[model.weights] if args.weights else None,
        kvs=None if args.kv_cache_dtype == "auto" else [kv_format(args.kv_cache_dtype)],
        itl_s=read_slo(args.slo).get("itl"),
        usd_per_hour=_prices(args, devices),
    )
    if not ways:
        raise ConfigError(
            f"no known device holds {args.fit} of {model.shape.name}, 8 of them a copy; take smaller formats or a shorter context"
        )
    if args.json:
        sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(ways), indent=2) + b"\n")
        return 0

    if args.csv is not None:
        write_csv(ways)
        return 0

    from octavo.cli.plan_view import print_fits

    print_fits(ways, args.fit, charts=args.chart)
    return 0


def _size_engine(args: argparse.Namespace, model: PlannedModel) -> MemoryLedger | None:
    """Return the ledger that the engine itself would start with here, by loading the model; None when it does not run it."""
    if args.weights or not is_this_machine(args.device) or model.path is None:
        return None
    from octavo.config.resolve import resolve
    from octavo.engine.host_memory import free_memory_bytes
    from octavo.engine.startup import size_engine
    from octavo.worker.runner import load_model

    names = ("gpu_memory_utilization", "kv_cache_memory_bytes", "block_size", "max_model_len", "max_num_seqs", "max_num_batched_tokens")
    given = {name.replace("_", "-"): getattr(args, name) for name in names if getattr(args, name) is not None}
    if args.kv_cache_dtype != "auto":
        given["kv-cache-dtype"] = args.kv_cache_dtype
    free_bytes = free_memory_bytes()
    try:
        config = resolve({"model": str(model.path), **given}).engine
        return size_engine(config, load_model(config, model.path), free_bytes).ledger
    except StartupError as error:
        print(f"octavo: the engine would not start here: {error.message}", file=sys.stderr)
        return None


def _list() -> int:
    print("models:    " + ", ".join(catalogue.model_names()))
    print("devices:   " + ", ".join(device.name for device in catalogue.devices()) + ", this")
    from octavo.planner.formats import KV_FORMATS, WEIGHT_FORMATS

    print("weights:   " + ", ".join(WEIGHT_FORMATS))
    print("KV:        " + ", ".join(KV_FORMATS))
    for mix in catalogue.workloads():
        tokens = f"{mix.new_input:,} new + {mix.cached_input:,} cached in, {mix.output:,} out"
        print(f"workload:  {mix.name}: {tokens}, batch {mix.batch}; {mix.about}")
    for machine in catalogue.machine_rates():
        print(f"price:     {machine.device} ${machine.usd_per_hour:.2f}/h ({machine.source}, {machine.date})")
    for api in catalogue.api_rates():
        print(f"price:     {api.name} ${api.input:g} in, ${api.cached_input:g} cached, ${api.output:g} out ({api.source}, {api.date})")
    return 0
