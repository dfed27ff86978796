"""`octavo simulate --model NAME --device NAME --rate R ...`: what a fleet would do under this traffic, without running a model.

The figures are those of `octavo bench serve`, by the same names, so that `octavo bench compare` puts both side by side.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec

from octavo.bench.figures import figures
from octavo.bench.http_stream import Answer
from octavo.bench.serving import Record, Run
from octavo.cli.plan_device import find_planned_device, is_this_machine
from octavo.cli.plan_model import PlannedModel, find_planned_model
from octavo.cli.simulate_flags import CLOSED_FLAGS, simulate_parser
from octavo.cli.time_limits import read_goodput
from octavo.config.resolve import resolve
from octavo.config.schema import EngineConfig
from octavo.engine.startup import check_limits, choose_batch_size, choose_mixed_step_s
from octavo.errors import ConfigError, OutOfMemory
from octavo.kv.manager import KVManager
from octavo.planner.formats import kv_format
from octavo.planner.sizing import Deployment, Sizing, size
from octavo.scheduler.admission import Limits, Policy
from octavo.simulator.fake_model import FakeModel
from octavo.simulator.simulation import Arrival, Caps, Outcome, Simulation
from octavo.simulator.step_time import MeasuredStep, StepTime, fit_step_time, step_time_from_floors
from octavo.simulator.traffic import VOCAB_SIZE, Traffic, draw_traffic, read_trace, trace_traffic

if TYPE_CHECKING:
    from octavo.planner.catalogue import Device

MEASURED_SHAPES = ((1, 1, 32), (1, 1, 1024), (8, 1, 256), (32, 1, 256), (1, 128, 0), (1, 512, 0), (1, 256, 1024))


def simulate_main(argv: Sequence[str]) -> int:
    parser = simulate_parser()
    args = parser.parse(argv)
    given = parser.given(args)
    if refused := sorted(set(given) & CLOSED_FLAGS):
        raise ConfigError(f"--{refused[0]} cannot be simulated: there are no bytes to hash, keep or tell of. Leave it out")
    config = resolve(given).engine
    model = find_planned_model(args.model, args.weights)
    deployment = _deployment(args, config, model, find_planned_device(args.device))
    sizing = size(deployment)
    num_blocks = config.cache.num_gpu_blocks_override or sizing.num_blocks
    if num_blocks < 2:
        raise OutOfMemory(f"{model.shape.name} does not fit on {deployment.device.name}: octavo plan says by how much")
    step_time = _step_time(args, deployment, model)
    limits = _limits(config, sizing)
    check_limits(limits)
    arrivals = _arrivals(args)
    caps = Caps(args.max_num_queued_reqs, args.max_num_queued_tokens, args.max_concurrency)
    outcomes = [
        _simulate(config, limits, num_blocks, step_time, caps, arrivals[copy :: deployment.dp])
        for copy in range(deployment.dp)  # requests go round the copies
    ]
    result = {
        "model_id": model.shape.name,
        "device": deployment.device.name,
        "data_parallel_size": deployment.dp,
        "num_gpu_blocks": num_blocks,
        "max_num_seqs": limits.max_num_seqs,
        "max_num_batched_tokens": limits.max_num_batched_tokens,
        "request_rate": "trace" if args.trace else args.rate if math.isfinite(args.rate) else "inf",
        "max_concurrency": args.max_concurrency,
        "step_time": msgspec.to_builtins(step_time),
    } | simulated_figures(outcomes, read_goodput(args.goodput))
    if args.json:
        sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n")
        return 0

    from octavo.cli.simulate_view import print_simulation, write_page

    print_simulation(result, outcomes)
    if args.html:
        write_page(Path(args.html), result, outcomes)
        print(f"report: {args.html}")
    return 0


def simulated_figures(outcomes: Sequence[Outcome], slo_ms: dict[str, float]) -> dict[str, Any]:
    """Return the figures of `octavo bench serve`, and what only the engine knows, over all copies."""
    run = Run(duration_s=max(outcome.seconds for outcome in outcomes))
    stories = [story for outcome in outcomes for story in outcome.stories]
    for story in stories:
        if story.ending != "refused":
            gaps = [after - before for before, after in zip(story.times_s, story.times_s[1:], strict=False)]
            answer = Answer(
                ttft_s=story.times_s[0] - story.sent_s,
                latency_s=story.end_s - story.sent_s,
                itls_s=gaps,
                num_output_tokens=len(story.token_ids),
                num_cached_tokens=story.num_cached_tokens,
            )
            run.records.append(Record(story.sent_s, len(story.request.prompt_token_ids), answer))
    hits = sum(outcome.counters.prefix_cache_hits for outcome in outcomes)
    run.prefix_cache = hits, sum(outcome.counters.prefix_cache_queries for outcome in outcomes)
    samples = [sample for outcome in outcomes for sample in outcome.samples]
    return figures(run, slo_ms) | {
        "refused": sum(story.ending == "refused" for story in stories),
        "preemptions": sum(outcome.counters.preemptions for outcome in outcomes),
        "num_steps": len(samples),
        "max_kv_usage": max((sample.kv_usage for sample in samples), default=0.0),
        "max_num_waiting": max((sample.num_waiting for sample in samples), default=0),
    }


def _simulate(
    config: EngineConfig, limits: Limits, num_blocks: int, step_time: StepTime, caps: Caps, arrivals: Sequence[Arrival]
) -> Outcome:
    cache = config.cache
    kv = KVManager(num_blocks, cache.block_size, enable_prefix_caching=cache.enable_prefix_caching)
    depth = 2 if config.scheduler.async_scheduling else 1
    return Simulation(limits, kv, FakeModel(VOCAB_SIZE), step_time, caps=caps, depth=depth).run(arrivals)


def _deployment(args: argparse.Namespace, config: EngineConfig, model: PlannedModel, device: Device) -> Deployment:
    cache, scheduler = config.cache, config.scheduler
    is_cpu = device.kind == "cpu"
    deployment = Deployment(
        shape=model.shape,
        device=device,
        weights=model.weights,
        kv=kv_format(("f16" if is_cpu else "bf16") if cache.kv_cache_dtype == "auto" else cache.kv_cache_dtype),
        tp=args.tensor_parallel_size,
        dp=args.data_parallel_size,
        utilization=cache.gpu_memory_utilization,
        block_size=cache.block_size,
        max_model_len=args.max_model_len,
        max_num_seqs=scheduler.max_num_seqs,
        max_num_batched_tokens=scheduler.max_num_batched_tokens,
        throughput=scheduler.performance_mode == "throughput",
        kv_cache_memory_bytes=cache.kv_cache_memory_bytes,
    )
    if not is_cpu:
        return deployment
    seqs, tokens = choose_batch_size(scheduler, args.max_model_len or model.shape.max_position)
    return replace(deployment, max_num_seqs=seqs, max_num_batched_tokens=tokens)


def _limits(config: EngineConfig, sizing: Sizing) -> Limits:
    scheduler = config.scheduler
    return Limits(
        max_model_len=sizing.model_len,
        max_num_seqs=min(scheduler.max_num_active_seqs or sizing.max_num_seqs, sizing.max_num_seqs),
        max_num_batched_tokens=min(scheduler.max_num_scheduled_tokens or sizing.max_num_batched_tokens, sizing.max_num_batched_tokens),
        vocab_size=VOCAB_SIZE,
        long_prefill_token_threshold=scheduler.long_prefill_token_threshold,
        adaptive_threshold=scheduler.long_prefill_token_threshold_adaptive,
        chunked_prefill=scheduler.enable_chunked_prefill,
        watermark=scheduler.watermark,
        policy=cast(Policy, scheduler.scheduling_policy),
        mixed_step_s=choose_mixed_step_s(scheduler),
    )


def _step_time(args: argparse.Namespace, deployment: Deployment, model: PlannedModel) -> StepTime:
    if args.profile:
        return fit_step_time([_read_profile(Path(path)) for path in args.profile])
    if args.measure:
        return fit_step_time(_measure(args, model))
    return step_time_from_floors(deployment, args.efficiency)


def _read_profile(path: Path) -> MeasuredStep:
    try:
        return msgspec.json.decode(path.read_bytes(), type=MeasuredStep)
    except (OSError, msgspec.MsgspecError) as error:
        raise ConfigError(f"--profile {path}: is no JSON of octavo bench profile that can be read ({type(error).__name__})") from error


def _measure(args: argparse.Namespace, model: PlannedModel) -> list[MeasuredStep]:
    """Return steps of the model, run here."""
    if not is_this_machine(args.device) or model.path is None:
        raise ConfigError("--measure runs the model here: it needs --device this and a model that is on this disk (octavo pull)")
    from octavo.bench.profile import StepShape, profile_step

    config = resolve({"model": str(model.path)}).engine
    steps = []
    for rows, query, context in MEASURED_SHAPES:
        parts = profile_step(config, StepShape(rows, query, context), args.measure)
        steps.append(MeasuredStep(rows, query, context, sum(part.seconds for part in parts)))
    return steps


def _arrivals(args: argparse.Namespace) -> list[Arrival]:
    if args.trace:
        try:
            lines = Path(args.trace).read_bytes().splitlines()
        except OSError as error:
            raise ConfigError(f"--trace {args.trace} cannot be read ({type(error).__name__})") from error
        return trace_traffic(read_trace(lines), args.seed)
    return draw_traffic(
        Traffic(
            args.num_prompts,
            args.rate,
            args.input_len,
            args.output_len,
            burstiness=args.burstiness,
            range_ratio=args.range_ratio,
            prefix_len=args.prefix_len,
            num_prefixes=args.num_prefixes,
        ),
        args.seed,
    )
