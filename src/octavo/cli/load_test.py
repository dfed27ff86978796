"""A load test as its flags describe it: which server, which sessions and when, and what becomes of the figures."""

from __future__ import annotations

import argparse
import asyncio
import datetime
import json
import math
import random
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from octavo.bench.datasets import (
    Lengths,
    Session,
    TextCounter,
    file_sessions,
    multi_turn_sessions,
    random_sessions,
    shared_prefix_sessions,
    trace_sessions,
)
from octavo.bench.figures import figures
from octavo.bench.http_stream import Target
from octavo.bench.serving import Api, Run, first_model, reset_prefix_cache, run_load, wait_ready
from octavo.cli.time_limits import read_goodput
from octavo.config import env
from octavo.config.schema import DEFAULT_MODEL
from octavo.errors import ConfigError, ModelError
from octavo.simulator.arrivals import Ramp, arrival_times
from octavo.units import parse_number


@cache
def open_counter(name: str) -> TextCounter:
    """Return the tokenizer of a model, which prompts are counted with. Raises ModelError."""
    from octavo.loaders.load import read_text
    from octavo.loaders.store import resolve_model
    from octavo.text.tokenizer import Tokenizer

    return Tokenizer.from_assets(read_text(resolve_model(name)))


def measure(args: argparse.Namespace) -> tuple[dict[str, Any], Run]:
    """Return the figures of one run with its settings, and the run. Raises ConfigError, EngineError and RequestError before it begins."""
    slo_ms, percentiles = read_goodput(" ".join(args.goodput or ())), _percents(args.metric_percentiles)
    metadata = dict(read_pair("--metadata", text) for text in args.metadata or ())
    api = _api(args)
    tokenizer = args.tokenizer or (api.model if _is_here(api.model) else DEFAULT_MODEL)
    counter = open_counter(tokenizer)
    sessions = _sessions(args, counter)
    run = asyncio.run(_load(args, api, sessions, _arrivals(args, sessions), counter))
    settings = {
        "date": datetime.datetime.now().strftime("%Y%m%d-%H%M%S"),
        "backend": args.backend,
        "label": args.label,
        "model_id": api.model,
        "tokenizer_id": tokenizer,
        "dataset_name": args.dataset_name,
        "num_prompts": len(sessions),
        "request_rate": args.request_rate if math.isfinite(args.request_rate) else "inf",
        "burstiness": args.burstiness,
        "max_concurrency": args.max_concurrency,
        "seed": args.seed,
        "prefix_cache": args.prefix_cache,
    }
    return settings | metadata | figures(run, slo_ms, percentiles), run


def _is_here(model: str) -> bool:
    from octavo.loaders.store import resolve_model

    try:
        resolve_model(model)
    except ModelError:
        return False
    return True


def save(args: argparse.Namespace, result: dict[str, Any]) -> None:
    """Write the figures where the flags say."""
    name = args.result_filename or f"{args.backend}-{result.get('model_id', 'sweep')}-{datetime.datetime.now():%Y%m%d-%H%M%S}.json"
    path = Path(args.result_dir) / name.replace("/", "-")
    path.parent.mkdir(parents=True, exist_ok=True)
    content: Any = result
    if args.append_result and path.exists():
        before = json.loads(path.read_text())
        content = [*(before if isinstance(before, list) else [before]), result]
    path.write_text(json.dumps(content, indent=2) + "\n")
    print(f"saved: {path}")


def read_pair(flag: str, text: str) -> tuple[str, str]:
    """Return NAME and VALUE of `NAME=VALUE`. Raises ConfigError."""
    name, found, value = text.partition("=")
    if not (name and found):
        raise ConfigError(f"{flag} got {text!r}; write NAME=VALUE")
    return name, value


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
    headers = dict(read_pair("--header", text) for text in args.header or ())
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


def _percents(text: str) -> list[float]:
    percents = [parse_number(part) for part in text.split(",")]
    if not all(0 <= percent <= 100 for percent in percents):
        raise ConfigError(f"--metric-percentiles is {text!r}; each must lie in 0..100")
    return percents
