"""`octavo bench serve` and `octavo bench sweep`: a load test of a running OpenAI-compatible server, Octavo's or another's."""

from __future__ import annotations

import argparse
import asyncio
import datetime
import itertools
import json
import math
import random
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from octavo.bench.datasets import (
    DATASETS,
    Lengths,
    Session,
    TextCounter,
    file_sessions,
    multi_turn_sessions,
    random_sessions,
    shared_prefix_sessions,
    trace_sessions,
)
from octavo.bench.figures import TIMES, figures
from octavo.bench.http_stream import Target
from octavo.bench.report import block, page
from octavo.bench.serving import Api, Run, first_model, reset_prefix_cache, run_load, wait_ready
from octavo.config import env
from octavo.config.flags import FlagParser, flag_type
from octavo.config.schema import ModelConfig
from octavo.errors import ConfigError
from octavo.simulator.arrivals import Ramp, arrival_times
from octavo.units import parse_int, parse_number

MAX_PROMPTS = 1_000_000
COMMON_SHARE = 0.2  # of the input tokens; a chat template's opening may be as much


def bench_serve_main(argv: Sequence[str]) -> int:
    args = _parser("serve", "Load a running server and measure what its users see.").parse(argv)
    counter = _counter(args.tokenizer)
    api = _api(args)
    result, run = _measure(args, api, counter)
    shown = _names("--percentile-metrics", args.percentile_metrics, TIMES)
    print(block(result, shown, run))
    _warn_of_a_warm_cache(args, result)
    if args.save_result or args.save_detailed:
        _save(args, result | _details(run) if args.save_detailed else result)
    if args.html:
        Path(args.html).write_text(page(f"{result['model_id']}, {result['dataset_name']}", result, run))
        print(f"report: {args.html}")
    return 0 if result["completed"] else 1


def bench_sweep_main(argv: Sequence[str]) -> int:
    parser = _parser("sweep", "Run `octavo bench serve` once for each combination of settings.")
    parser.add_argument("--vary", action="append", metavar="FLAG=A,B,C", help="a flag of bench serve and its values; repeatable")
    args = parser.parse(argv)
    axes = [_axis(text) for text in args.vary or ()]
    if not axes:
        raise ConfigError("nothing to vary; give --vary max-concurrency=1,8,32")
    counter = _counter(args.tokenizer)
    results = []
    for index, values in enumerate(itertools.product(*(values for _, values in axes))):
        settings = [word for (flag, _), value in zip(axes, values, strict=True) for word in (f"--{flag}", value)]
        given = parser.parse([*argv, *settings, "--seed", str(args.seed + index)])  # prompts that no earlier run has sent
        api = _api(given)
        result, _ = _measure(given, api, counter)
        results.append({flag: value for (flag, _), value in zip(axes, values, strict=True)} | result)
        print(" ".join(settings), f"-> {result['output_throughput']:.1f} tok/s", file=sys.stderr)

    from octavo.bench.pareto import pareto_front, sweep_page, sweep_table

    names = [flag for flag, _ in axes]
    sweep_table(names, results, pareto_front(results))
    if args.html:
        Path(args.html).write_text(sweep_page(names, results))
        print(f"report: {args.html}")
    if args.save_result or args.save_detailed:
        _save(args, {"results": results})
    return 0


def _measure(args: argparse.Namespace, api: Api, counter: TextCounter) -> tuple[dict[str, Any], Run]:
    sessions = _sessions(args, counter)
    arrivals = _arrivals(args, sessions)
    run = asyncio.run(_load(args, api, sessions, arrivals, counter))
    settings = {
        "date": datetime.datetime.now().strftime("%Y%m%d-%H%M%S"),
        "backend": args.backend,
        "label": args.label,
        "model_id": api.model,
        "tokenizer_id": args.tokenizer,
        "dataset_name": args.dataset_name,
        "num_prompts": len(sessions),
        "request_rate": args.request_rate if math.isfinite(args.request_rate) else "inf",
        "burstiness": args.burstiness,
        "max_concurrency": args.max_concurrency,
        "seed": args.seed,
        "prefix_cache": args.prefix_cache,
    } | dict(_pair("--metadata", text, "=") for text in args.metadata or ())
    slo = {name: float(value) for name, value in (_pair("--goodput", text, ":") for text in args.goodput or ())}
    if unknown := set(slo) - {"ttft", "tpot", "e2el"}:
        raise ConfigError(f"--goodput names {sorted(unknown)[0]!r}; it knows ttft, tpot and e2el, in ms: --goodput ttft:200 tpot:50")
    return settings | figures(run, slo, _percents(args.metric_percentiles)), run


async def _load(args: argparse.Namespace, api: Api, sessions: list[Session], arrivals: list[float], counter: TextCounter) -> Run:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    warm_up = random_sessions(args.num_warmups, Lengths(32, 8), 0, counter, random.Random(f"warm-up {args.seed}"))
    await run_load(api, warm_up, [0.0] * len(warm_up), None, lambda record: None)
    if args.prefix_cache == "reset":
        await reset_prefix_cache(api.target)
    columns = (TextColumn("requests"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("", total=sum(len(session.turns) for session in sessions))
        return await run_load(api, sessions, arrivals, args.max_concurrency, lambda record: bar.advance(task))


def _sessions(args: argparse.Namespace, counter: TextCounter) -> list[Session]:
    rng = random.Random(args.seed)
    lengths = Lengths(args.random_input_len, args.random_output_len, args.random_range_ratio)
    if args.dataset_name == "random":
        return random_sessions(args.num_prompts, lengths, args.random_prefix_len, counter, rng)
    if args.dataset_name == "prefix_repetition":
        prefixes = args.prefix_repetition_num_prefixes
        return shared_prefix_sessions(args.num_prompts, lengths, args.prefix_repetition_prefix_len, prefixes, counter, rng)
    if args.dataset_name == "multi_turn":
        return multi_turn_sessions(args.num_prompts, lengths, args.num_turns, counter, rng)
    if args.dataset_path is None:
        raise ConfigError(f"--dataset-name {args.dataset_name} needs --dataset-path FILE")
    if args.dataset_name == "timed_trace":
        return trace_sessions(Path(args.dataset_path), counter, rng)
    return file_sessions(Path(args.dataset_path), args.num_prompts, args.random_output_len, counter, rng)


def _arrivals(args: argparse.Namespace, sessions: Sequence[Session]) -> list[float]:
    if args.dataset_name == "timed_trace":
        return [session.arrival_s or 0.0 for session in sessions]
    rate: float | Ramp = args.request_rate
    if args.ramp_up_strategy is not None:
        if args.ramp_up_start_rps is None or args.ramp_up_end_rps is None:
            raise ConfigError("--ramp-up-strategy needs --ramp-up-start-rps and --ramp-up-end-rps")
        rate = Ramp(args.ramp_up_strategy, args.ramp_up_start_rps, args.ramp_up_end_rps)
    return arrival_times(len(sessions), rate, args.burstiness, random.Random(args.seed + 1))


def _api(args: argparse.Namespace) -> Api:
    headers = dict(_pair("--header", text, "=") for text in args.header or ())
    if keys := env.api_keys():
        headers = {"Authorization": f"Bearer {keys[0]}"} | headers
    host = f"[{args.host}]" if ":" in args.host else args.host
    target = Target(args.base_url or f"http://{host}:{args.port}", headers)
    asyncio.run(wait_ready(target, args.ready_check_timeout_sec))
    try:
        extra = json.loads(args.extra_body) if args.extra_body else {}
    except json.JSONDecodeError as error:
        raise ConfigError(f"--extra-body is no JSON: {error}") from None
    if not isinstance(extra, dict):
        raise ConfigError("--extra-body must be a JSON object")
    return Api(target, args.backend, args.model or asyncio.run(first_model(target)), args.ignore_eos, extra)


def _counter(name: str) -> TextCounter:
    from octavo.loaders.load import read_text
    from octavo.loaders.store import resolve_model
    from octavo.text.tokenizer import Tokenizer

    return Tokenizer.from_assets(read_text(resolve_model(name)))


def _warn_of_a_warm_cache(args: argparse.Namespace, result: Mapping[str, Any]) -> None:
    cached, given = result["cached_input_tokens"], result["total_input_tokens"]
    if args.dataset_name == "random" and not args.random_prefix_len and cached > COMMON_SHARE * given:
        print(
            f"note: {cached:,} of {given:,} input tokens came from the server's prefix cache though no prefix is shared: it has "
            "seen these prompts before. Give another --seed, or --prefix-cache reset.",
            file=sys.stderr,
        )


def _details(run: Run) -> dict[str, Any]:
    answers = [record.answer for record in run.records]
    return {
        "input_lens": [record.input_len for record in run.records],
        "output_lens": [answer.num_output_tokens for answer in answers],
        "start_times": [record.start_s for record in run.records],
        "ttfts": [answer.ttft_s for answer in answers],
        "itls": [answer.itls_s for answer in answers],
        "generated_texts": [answer.text for answer in answers],
        "errors": [answer.error or "" for answer in answers],
    }


def _save(args: argparse.Namespace, result: dict[str, Any]) -> None:
    name = args.result_filename or f"{args.backend}-{result.get('model_id', 'sweep')}-{datetime.datetime.now():%Y%m%d-%H%M%S}.json"
    path = Path(args.result_dir) / name.replace("/", "-")
    path.parent.mkdir(parents=True, exist_ok=True)
    content: Any = result
    if args.append_result and path.exists():
        before = json.loads(path.read_text())
        content = [*(before if isinstance(before, list) else [before]), result]
    path.write_text(json.dumps(content, indent=2) + "\n")
    print(f"saved: {path}")


def _parser(kind: str, about: str) -> FlagParser:
    parser = FlagParser(f"octavo bench {kind}", about, usage=f"octavo bench {kind} [FLAGS]")
    server = parser.add_argument_group("Server")
    server.add_argument("--backend", choices=("openai", "openai-chat"), default="openai", help="completions or chat completions [openai]")
    server.add_argument("--base-url", metavar="URL", help="the server's root, instead of --host and --port")
    server.add_argument("--host", default="127.0.0.1", help="[127.0.0.1]")
    server.add_argument("--port", type=flag_type(parse_int), default=8000, help="[8000]")
    server.add_argument("--model", metavar="NAME", help="the model to ask for [the server's first]")
    server.add_argument(
        "--tokenizer", metavar="MODEL", default=ModelConfig.model, help=f"the model that prompts are counted with [{ModelConfig.model}]"
    )
    server.add_argument("--header", action="append", metavar="NAME=VALUE", help="a header of every request; repeatable")
    server.add_argument("--extra-body", metavar="JSON", help="fields merged into every request")
    server.add_argument(
        "--ready-check-timeout-sec", type=flag_type(_seconds), default=0.0, metavar="S", help="wait so long for the server [0]"
    )
    work = parser.add_argument_group("Workload")
    kinds = "; ".join(f"{name}: {text}" for name, text in DATASETS.items()).replace("%", "%%")
    work.add_argument("--dataset-name", choices=tuple(DATASETS), default="random", help=f"{kinds} [random]")
    work.add_argument("--dataset-path", metavar="FILE", help="the file of custom, sharegpt and timed_trace")
    work.add_argument("--num-prompts", type=flag_type(_count), default=1000, metavar="N", help="sessions in all [1000]")
    work.add_argument("--random-input-len", type=flag_type(_count), default=1024, metavar="N", help="tokens of a prompt [1024]")
    work.add_argument("--random-output-len", type=flag_type(_count), default=128, metavar="N", help="tokens of an answer [128]")
    work.add_argument("--random-range-ratio", type=flag_type(_share), default=0.0, metavar="X", help="lengths vary by this share [0]")
    work.add_argument("--random-prefix-len", type=flag_type(_whole), default=0, metavar="N", help="tokens that all prompts share [0]")
    work.add_argument("--prefix-repetition-prefix-len", type=flag_type(_count), default=256, metavar="N", help="tokens of a prefix [256]")
    work.add_argument("--prefix-repetition-num-prefixes", type=flag_type(_count), default=10, metavar="N", help="different prefixes [10]")
    work.add_argument("--num-turns", type=flag_type(_count), default=4, metavar="N", help="questions of a multi_turn user [4]")
    work.add_argument("--seed", type=flag_type(parse_int), default=0, metavar="N", help="what prompts and arrivals are drawn from [0]")
    work.add_argument("--no-ignore-eos", dest="ignore_eos", action="store_false", help="let the model end an answer early")
    work.add_argument(
        "--prefix-cache", choices=("keep", "reset"), default="keep", help="what to do with the server's before the run [keep]"
    )
    load = parser.add_argument_group("Load")
    load.add_argument(
        "--request-rate", type=flag_type(_rate), default=math.inf, metavar="RPS", help="sessions a second; inf: all at once [inf]"
    )
    load.add_argument(
        "--burstiness", type=flag_type(_positive), default=1.0, metavar="X", help="1: Poisson; less: burstier; more: steadier [1]"
    )
    load.add_argument("--max-concurrency", type=flag_type(_count), metavar="N", help="sessions at once (closed loop) [no limit]")
    load.add_argument("--ramp-up-strategy", choices=("linear", "exponential"), help="raise the rate over the run")
    load.add_argument("--ramp-up-start-rps", type=flag_type(_positive), metavar="RPS", help="rate at the start of a ramp")
    load.add_argument("--ramp-up-end-rps", type=flag_type(_positive), metavar="RPS", help="rate at the end of a ramp")
    load.add_argument("--num-warmups", type=flag_type(_whole), default=0, metavar="N", help="requests sent before, not counted [0]")
    out = parser.add_argument_group("Result")
    out.add_argument("--goodput", nargs="+", metavar="NAME:MS", help="what a good answer takes at most: ttft:200 tpot:50 e2el:5000")
    out.add_argument("--percentile-metrics", default="ttft,tpot,itl", metavar="NAMES", help="times to print [ttft,tpot,itl]; also e2el")
    out.add_argument("--metric-percentiles", default="99", metavar="P,P", help="percentiles to print and save [99]")
    out.add_argument("--save-result", action="store_true", help="save the figures as JSON")
    out.add_argument("--save-detailed", action="store_true", help="save those of every request too")
    out.add_argument("--append-result", action="store_true", help="append to the file instead of replacing it")
    out.add_argument("--result-dir", default=".", metavar="DIR", help="[.]")
    out.add_argument("--result-filename", metavar="FILE", help="[made from backend, model and date]")
    out.add_argument("--html", metavar="FILE", help="write a report with charts that opens with no network")
    out.add_argument("--label", metavar="TEXT", help="a name for this run in the result")
    out.add_argument("--metadata", action="append", metavar="KEY=VALUE", help="a field to add to the result; repeatable")
    return parser


def _axis(text: str) -> tuple[str, list[str]]:
    flag, values = _pair("--vary", text, "=")
    return flag.lstrip("-"), values.split(",")


def _pair(flag: str, text: str, separator: str) -> tuple[str, str]:
    name, found, value = text.partition(separator)
    if not (name and found):
        raise ConfigError(f"{flag} got {text!r}; write NAME{separator}VALUE")
    return name, value


def _names(flag: str, text: str, known: Mapping[str, str]) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in known:
            raise ConfigError(f"{flag} names {name!r}; it knows {', '.join(known)}")
    return names


def _percents(text: str) -> list[float]:
    percents = [parse_number(part) for part in text.split(",")]
    if not all(0 <= percent <= 100 for percent in percents):
        raise ConfigError(f"--metric-percentiles is {text!r}; each must lie in 0..100")
    return percents


def _positive(text: str) -> float:
    number = parse_number(text)
    if not 0 < number < math.inf:
        raise ConfigError(f"{text} must be more than 0 and finite")
    return number


def _rate(text: str) -> float:
    number = parse_number(text)
    if number <= 0:
        raise ConfigError(f"{text} must be more than 0 (inf: all at once)")
    return number


def _seconds(text: str) -> float:
    number = parse_number(text)
    if not 0 <= number < math.inf:
        raise ConfigError(f"{text} must be at least 0 and finite")
    return number


def _share(text: str) -> float:
    number = parse_number(text)
    if not 0 <= number < 1:
        raise ConfigError(f"{text} must be at least 0 and less than 1")
    return number


def _whole(text: str) -> int:
    number = parse_int(text)
    if not 0 <= number <= MAX_PROMPTS:
        raise ConfigError(f"{text} must lie in 0..{MAX_PROMPTS:,}")
    return number


def _count(text: str) -> int:
    if _whole(text) == 0:
        raise ConfigError(f"{text} must be at least 1")
    return _whole(text)
