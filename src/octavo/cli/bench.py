"""`octavo bench`: finds the kind of measurement; those of the engine in this process (latency, throughput) are here."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from octavo.bench.engine_bench import measure_latency, measure_throughput
from octavo.bench.workload import Workload
from octavo.cli.flag_types import integer
from octavo.config.flag_parser import FlagParser, flag_type
from octavo.config.flags import ENGINE_GROUPS
from octavo.config.resolve import resolve
from octavo.config.schema import EngineConfig
from octavo.errors import ConfigError, did_you_mean
from octavo.units import parse_int

KINDS = {
    "latency": "seconds to answer one batch",
    "throughput": "tokens a second over many requests",
    "profile": "where a step's time goes, by operation or by process",
    "kernels": "each native kernel against this machine's peaks",
    "serve": "what users of a running server see under load",
    "sweep": "bench serve once for each combination of settings",
    "startup": "launch to ready and to the first token",
    "compare": "saved results side by side",
}


def bench_main(argv: Sequence[str]) -> int:
    if not argv or argv[0] in ("-h", "--help"):
        print("usage: octavo bench KIND [FLAGS]\n\n" + "\n".join(f"  {kind:<12} {text}" for kind, text in KINDS.items()))
        return 0 if argv else 2
    if argv[0] not in KINDS:
        raise ConfigError(f"there is no bench {argv[0]!r}{did_you_mean(argv[0], KINDS)}; there are {', '.join(KINDS)}")
    if argv[0] in _HERE:
        return _HERE[argv[0]](argv[1:])
    module = import_module(_ELSEWHERE[argv[0]])
    code: int = getattr(module, f"bench_{argv[0]}_main")(argv[1:])
    return code


def _latency(argv: Sequence[str]) -> int:
    parser = _parser("latency", input_len=32, output_len=128)
    parser.add_argument("--batch-size", type=integer(1), default=8, metavar="N", help="requests at once [8]")
    parser.add_argument("--num-iters-warmup", type=flag_type(parse_int), default=10, metavar="N", help="batches before measuring [10]")
    parser.add_argument("--num-iters", type=integer(1), default=30, metavar="N", help="batches measured [30]")
    args = parser.parse(argv)
    llm = _load(parser.given(args))

    from rich.console import Console
    from rich.progress import track

    total = args.num_iters_warmup + args.num_iters
    bar = iter(track(range(total), "batches", console=Console(stderr=True), disable=not sys.stderr.isatty()))
    result = measure_latency(
        llm,
        Workload(args.batch_size, args.input_len, args.output_len),
        num_warmups=args.num_iters_warmup,
        num_iterations=args.num_iters,
        seed=args.bench_seed,
        on_iteration=lambda: next(bar, None),
    )
    print(f"Avg latency: {result['avg_latency']:.4f} seconds")
    for percent, seconds in result["percentiles"].items():
        print(f"{percent}% percentile latency: {seconds:.4f} seconds")
    _write_json(args.output_json, result)
    return 0


def _throughput(argv: Sequence[str]) -> int:
    parser = _parser("throughput", input_len=128, output_len=128)
    parser.add_argument("--num-prompts", type=integer(1), default=64, metavar="N", help="requests in all [64]")
    args = parser.parse(argv)
    result = measure_throughput(
        _load(parser.given(args)), Workload(args.num_prompts, args.input_len, args.output_len), seed=args.bench_seed
    )
    print(
        f"Throughput: {result['requests_per_second']:.2f} requests/s, {result['tokens_per_second']:.2f} total tokens/s, "
        f"{result['output_tokens_per_second']:.2f} output tokens/s"
    )
    _write_json(args.output_json, result)
    return 0


def _parser(kind: str, *, input_len: int, output_len: int) -> FlagParser:
    parser = FlagParser(f"octavo bench {kind}", f"Measure the {KINDS[kind]}.", ENGINE_GROUPS, usage=f"octavo bench {kind} [FLAGS]")
    parser.add_argument("--input-len", type=integer(1), default=input_len, metavar="N", help=f"tokens of a prompt [{input_len}]")
    parser.add_argument("--output-len", type=integer(1), default=output_len, metavar="N", help=f"tokens of an answer [{output_len}]")
    parser.add_argument(
        "--bench-seed", type=flag_type(parse_int), default=0, metavar="N", help="what the random prompts are drawn from [0]"
    )
    parser.add_argument("--output-json", metavar="FILE", help="write the figures there")
    return parser


def _load(given: dict[str, Any]) -> Any:
    from octavo.client.llm import LLM

    config = resolve(given).engine
    rooms = [getattr(config, name) for name in EngineConfig.__struct_fields__]
    return LLM(**{name: getattr(room, name) for room in rooms for name in room.__struct_fields__})


def _write_json(path: str | None, result: dict[str, Any]) -> None:
    if path is not None:
        Path(path).write_text(json.dumps(result, indent=2) + "\n")


_HERE = {"latency": _latency, "throughput": _throughput}
_ELSEWHERE = {
    "profile": "octavo.cli.bench_profile",
    "kernels": "octavo.cli.bench_kernels",
    "serve": "octavo.cli.bench_serve",
    "sweep": "octavo.cli.bench_sweep",
    "startup": "octavo.cli.bench_startup",
    "compare": "octavo.cli.bench_compare",
}
