"""`octavo plan MODEL --device NAME`: the planner's arithmetic, for people, JSON and CSV. Needs no model file and no server."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from octavo.cli.plan_model import PlannedModel, find_planned_model, no_model
from octavo.config.flags import FlagParser, flag_type
from octavo.errors import ConfigError, StartupError
from octavo.planner import catalogue
from octavo.planner.efficiency import measured_efficiency
from octavo.planner.explain import derive
from octavo.planner.fit import find_fits, parse_load
from octavo.planner.formats import kv_format, weight_format
from octavo.planner.number_shape import shape_from_numbers
from octavo.planner.plan import CONVERSATION, Plan, Speculation, Traffic, make_plan
from octavo.planner.sizing import Deployment
from octavo.units import parse_int

if TYPE_CHECKING:
    from octavo.planner.catalogue import Device
    from octavo.planner.memory import MemoryLedger

_TABLES = ("concurrency", "formats", "splits", "decode", "prefill", "costs", "sensitivity", "groups")
_THIS = ("this", "cpu")
_SLO = re.compile(r"(ttft|itl)=(\d+(?:\.\d+)?)(ms|s)")


def plan_main(argv: Sequence[str]) -> int:
    args = _parser().parse(argv)
    if args.list:
        return _list()
    model = _model(args)
    if args.fit is not None:
        return _fit(args, model)
    ledger = _size_engine(args, model)
    deployment = _deployment(args, model, _device(args.device), ledger)
    plan = _plan(args, deployment)
    if args.json:
        sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(plan), indent=2) + b"\n")
        return 0

    from octavo.cli.plan_view import print_derivations, print_plan, table_rows, write_csv

    if args.csv is not None:
        write_csv(table_rows(plan, args.csv))
        return 0
    print_plan(plan, charts=args.chart)
    if args.explain:
        print_derivations(derive(deployment, plan))
    if ledger is not None:
        print("the engine here, sized by its own start-up:", *ledger.lines(), sep="\n  ")
    return 0


def _parser() -> FlagParser:
    parser = FlagParser(
        "octavo plan",
        "Size a model on paper: memory, concurrency, floors of speed, cost.",
        usage="octavo plan MODEL [--device NAME] [FLAGS]",
    )
    whole, number = flag_type(parse_int), flag_type(_number)
    parser.add_argument("model", nargs="?", metavar="MODEL", help="config.json, .gguf file, folder, or a name (--list)")
    parser.add_argument("--list", action="store_true", help="list the models, devices, formats, workloads and prices known here")

    place = parser.add_argument_group("Where and how")
    place.add_argument("--device", metavar="NAME", help="a device of --list, or this: measure this machine [this; --fit: all]")
    place.add_argument("--weights", metavar="FORMAT", help="format of the weights [that of the files]")
    place.add_argument("--kv-cache-dtype", default="auto", metavar="FORMAT", help="format of the KV memory [bf16; f16 on a CPU]")
    place.add_argument("--tensor-parallel-size", "-tp", type=whole, default=1, metavar="N", help="ranks that share each layer [1]")
    place.add_argument("--pipeline-parallel-size", "-pp", type=whole, default=1, metavar="N", help="stages of layers [1]")
    place.add_argument("--data-parallel-size", "-dp", type=whole, default=1, metavar="N", help="whole copies [1]")
    place.add_argument("--gpu-memory-utilization", type=number, metavar="0..1", help="share of the memory to use [0.92; 0.5 on a CPU]")
    place.add_argument("--kv-cache-memory-bytes", type=whole, metavar="BYTES", help="exact size of the KV pool; overrides the share")
    place.add_argument("--block-size", type=whole, default=16, metavar="N", help="tokens a KV block [16]")
    place.add_argument("--max-model-len", type=whole, metavar="N", help="longest request [the model's own]")
    place.add_argument("--max-num-seqs", type=whole, metavar="N", help="most requests in a step [the device's default]")
    place.add_argument("--max-num-batched-tokens", type=whole, metavar="N", help="most tokens in a step [the device's default]")
    place.add_argument(
        "--performance-mode", type=flag_type(_mode), default="balanced", metavar="MODE", help="throughput doubles both defaults"
    )
    place.add_argument("--weight-bytes", type=whole, metavar="BYTES", help="size of the weights, instead of counting them")
    place.add_argument("--activation-bytes", type=whole, metavar="BYTES", help="measured peak of activations, instead of the estimate")
    place.add_argument("--reserve-bytes", type=whole, metavar="BYTES", help="memory of runtime and graphs, instead of the assumption")

    speed = parser.add_argument_group("Speed")
    speed.add_argument("--conversation", type=whole, default=CONVERSATION, metavar="N", help="tokens of the tables' conversation [10240]")
    speed.add_argument("--bench", metavar="FILE", help="JSON of octavo bench throughput or serve: measured efficiency beside the floors")
    speed.add_argument("--efficiency", type=number, metavar="0..1", help="measured share of the floor, where there is no such file")
    speed.add_argument("--num-speculative-tokens", type=whole, metavar="K", help="drafts a step")
    speed.add_argument("--acceptance", type=number, default=0.7, metavar="0..1", help="how likely a draft is accepted [0.7]")

    cost = parser.add_argument_group("Cost")
    cost.add_argument("--usd-per-hour", type=number, metavar="USD", help="price of one device [rates.toml, where it has one]")
    cost.add_argument("--workload", action="append", metavar="NAME", help="interactive, agentic or batch; repeatable [all]")
    cost.add_argument("--utilization", type=number, metavar="0..1", help="share of the time that the machines will work: the verdict at it")
    cost.add_argument("--arrivals", type=number, metavar="N", help="requests a second: size a fleet for the (first) workload")
    cost.add_argument("--slo", default="", metavar="ttft=2s,itl=50ms", help="what the fleet promises: TTFT at p99, mean ITL")

    other = parser.add_argument_group("A model by numbers")
    for name, text in (
        ("layers", "layers"),
        ("kv-heads", "KV heads"),
        ("head-dim", "dimensions of a head"),
        ("params", "weights in all"),
        ("heads", "query heads [as many as KV heads]"),
        ("hidden", "hidden size [heads x head-dim]"),
        ("vocab", "vocabulary"),
        ("intermediate", "width of the MLP [4 x hidden]"),
        ("max-position", "longest position [131072]"),
        ("window", "tokens kept by layers with a sliding window"),
        ("window-layers", "how many layers have one"),
    ):
        other.add_argument(f"--{name}", type=whole, metavar="N", help=text)

    out = parser.add_argument_group("Answer")
    out.add_argument("--fit", metavar="LOAD", help="search devices, counts and formats that hold a load: '34 x 10k + 2 x 128K'")
    out.add_argument("--explain", action="store_true", help="each number with its formula and the values put in")
    out.add_argument("--chart", action="store_true", help="charts between the tables")
    out.add_argument("--json", action="store_true", help="everything as JSON")
    out.add_argument("--csv", type=flag_type(_table), metavar="TABLE", help="one table as CSV: " + ", ".join(_TABLES))
    return parser


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


def _device(name: str | None) -> Device:
    if name is None or name.lower() in _THIS:
        from octavo.bench.machine import measure_machine

        return measure_machine()
    return catalogue.find_device(name)


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
        kv=kv_format(("f16" if device.kind == "cpu" else "bf16") if kv == "auto" else kv),
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
        limits = _parse_slo(args.slo)
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
    devices = catalogue.devices() if args.device is None else (_device(args.device),)
    ways = find_fits(
        _deployment(args, model, devices[0]),
        load,
        devices,
        weights=[model.weights] if args.weights else None,
        kvs=None if args.kv_cache_dtype == "auto" else [kv_format(args.kv_cache_dtype)],
        itl_s=_parse_slo(args.slo).get("itl"),
        usd_per_hour=_prices(args, devices),
    )
    if not ways:
        raise ConfigError(
            f"no known device holds {args.fit} of {model.shape.name}, 8 of them a copy; take smaller formats or a shorter context"
        )
    if args.json:
        sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(ways), indent=2) + b"\n")
        return 0

    from octavo.cli.plan_view import print_fits, write_csv

    if args.csv is not None:
        write_csv(ways)
    else:
        print_fits(ways, args.fit, charts=args.chart)
    return 0


def _size_engine(args: argparse.Namespace, model: PlannedModel) -> MemoryLedger | None:
    """Return the ledger that the engine itself would start with here, by loading the model; None when it does not run it."""
    if args.weights or (args.device or _THIS[0]).lower() not in _THIS or model.path is None:
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


def _parse_slo(text: str) -> dict[str, float]:
    """Return seconds by name of `ttft=2s,itl=50ms`. Raises ConfigError."""
    limits = {}
    for part in filter(None, text.split(",")):
        match = _SLO.fullmatch(part.strip())
        if match is None:
            raise ConfigError(f"--slo {part.strip()[:64]!r} is no promise; write ttft=2s, itl=50ms or both with a comma")
        limits[match[1]] = float(match[2]) * (1e-3 if match[3] == "ms" else 1.0)
    return limits


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"{text!r} is not a number") from None


def _mode(text: str) -> str:
    if text not in ("balanced", "throughput"):
        raise ConfigError(f"{text!r} is no mode; there are balanced and throughput")
    return text


def _table(text: str) -> str:
    if text not in _TABLES:
        raise ConfigError(f"{text!r} is no table; there are {', '.join(_TABLES)}")
    return text
