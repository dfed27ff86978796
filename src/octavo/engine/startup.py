"""From settings to a running `EngineCore`: resolve, load, size, allocate, warm up. Every phase is timed and the times add up.

Whatever the operator left open (None) is decided here, once, and reported in EngineReady; settings are never written to.
"""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

import msgspec

from octavo.config.schema import KV_DTYPE_NAMES, EngineConfig, SchedulerConfig
from octavo.engine.core import EngineCore
from octavo.engine.executor import InlineExecutor, ThreadExecutor
from octavo.engine.host_memory import free_memory_bytes
from octavo.engine.kv_events import KVEventPublisher
from octavo.engine.phases import PhaseClock
from octavo.engine.prefix_cache import make_parts
from octavo.errors import ConfigError, StartupError
from octavo.kv.groups import Groups
from octavo.kv.manager import KVManager
from octavo.kv.residency import ResidencyMeter
from octavo.loaders.load import read_generation_defaults, read_text
from octavo.loaders.store import resolve_model
from octavo.messages.wire import EngineReady, GenerateRequest
from octavo.ops.interface import Backend
from octavo.ops.recording import record
from octavo.params import SamplingParams
from octavo.planner.memory import CPU_MAX_NUM_BATCHED_TOKENS, CPU_MAX_NUM_SEQS, MemoryLedger, plan_memory
from octavo.scheduler.admission import Limits, Policy
from octavo.scheduler.scheduler import Scheduler
from octavo.specs.kv import KVSpec
from octavo.specs.model import EncoderSpec, ModelSpec
from octavo.units import format_bytes
from octavo.worker.estimate import StepEstimator
from octavo.worker.runner import LoadedModel, load_model
from octavo.worker.worker import Worker

if TYPE_CHECKING:
    from octavo.engine.grammars import GrammarCompiler
    from octavo.engine.pooling_core import PoolingCore
    from octavo.grammar.vocabulary import Vocabulary

log = logging.getLogger(__name__)

MAX_LENGTH = 1 << 31  # of any context
MIXED_STEP_S = {"interactivity": 0.1, "balanced": 0.2, "throughput": None}  # where nothing is given
STEPS_UNDER_WAY = 2  # steps of one request that may be planned and not applied


def start_engine(config: EngineConfig, clock: PhaseClock | None = None) -> tuple[EngineCore | PoolingCore, EngineReady]:
    """Return a warm engine and what it resolved for itself. Raises StartupError (ConfigError, ModelError, OutOfMemory)."""
    clock = clock or PhaseClock()
    free_bytes = free_memory_bytes()
    path = resolve_model(config.model.model)
    clock.mark("resolve")

    loaded = load_model(config, path, on_phase=lambda name, seconds: clock.mark(name))

    check_runner(config.model.runner, loaded.spec)
    if isinstance(loaded.spec, EncoderSpec):
        from octavo.engine.encoder_startup import start_encoder

        return start_encoder(config, loaded, loaded.spec, free_bytes, clock)
    size = size_engine(config, loaded, free_bytes)
    ledger, kv_spec = size.ledger, size.kv_spec
    clock.mark("plan")

    worker = Worker(
        loaded,
        kv_spec=kv_spec,
        num_blocks=ledger.num_blocks,
        max_tokens=size.max_num_batched_tokens,
        max_rows=size.max_num_seqs,
        enforce_eager=config.runtime.enforce_eager,
    )
    limits = Limits(
        max_model_len=ledger.max_model_len,
        max_num_seqs=min(config.scheduler.max_num_active_seqs or size.max_num_seqs, size.max_num_seqs),
        max_num_batched_tokens=min(config.scheduler.max_num_scheduled_tokens or size.max_num_batched_tokens, size.max_num_batched_tokens),
        vocab_size=loaded.spec.vocab_size,
        long_prefill_token_threshold=config.scheduler.long_prefill_token_threshold,
        adaptive_threshold=config.scheduler.long_prefill_token_threshold_adaptive,
        chunked_prefill=config.scheduler.enable_chunked_prefill,
        watermark=config.scheduler.watermark,
        policy=cast(Policy, config.scheduler.scheduling_policy),
        max_queue_s=config.scheduler.max_queue_s,
        mixed_step_s=choose_mixed_step_s(config.scheduler),
    )
    check_limits(limits)
    parts = make_parts(config.cache, loaded, kv_spec, path, ledger, worker.read_block)
    events = config.cache.kv_events
    if events and events.is_on and not config.cache.enable_prefix_caching:
        log.warning("KV events are on, but prefix caching is off: there will be none")
    kv = KVManager(
        ledger.num_blocks,
        kv_spec.block_size,
        groups=Groups(kv_spec.block_size, kv_spec.spans, STEPS_UNDER_WAY * size.max_num_batched_tokens),
        enable_prefix_caching=config.cache.enable_prefix_caching,
        scheme=parts.scheme,
        meter=ResidencyMeter(config.cache.kv_cache_metrics_sample) if config.cache.kv_cache_metrics else None,
        tier=parts.tier,
        listener=KVEventPublisher(events) if events and events.is_on else None,
    )
    executor = ThreadExecutor(worker) if config.scheduler.async_scheduling else InlineExecutor(worker)
    estimator = StepEstimator(record(loaded.model, kv_spec), kv_spec) if config.runtime.enable_mfu_metrics else None
    core = EngineCore(Scheduler(limits, kv), executor, estimator, partial(make_compiler, path, loaded.spec.vocab_size))
    clock.mark("allocate")

    warm_up(core)
    clock.mark("warm up")
    further = [line for line in (parts.line, warn_of_defaults(config.scheduler, size)) if line]
    return core, describe(loaded, ledger, limits, kv_spec.dtype, further, clock)


def make_compiler(path: Path, vocab_size: int) -> GrammarCompiler:
    """Return what compiles the grammars of the model at `path`, which has so many logits."""
    from octavo.engine.grammars import GrammarCompiler  # most engines never get to one

    return GrammarCompiler(partial(open_vocabulary, path, vocab_size))


def open_vocabulary(path: Path, size: int) -> Vocabulary:
    """Return the model's vocabulary, of `size` logits, for its grammars. Raises ModelError and InvalidRequest."""
    from octavo.grammar.vocabulary import Vocabulary  # the library is an extra
    from octavo.text.tokenizer import Tokenizer  # an engine without grammars reads no text

    return Vocabulary(Tokenizer.from_assets(read_text(path)), read_generation_defaults(path).eos_token_ids, size)


class EngineSize(msgspec.Struct, frozen=True):
    """What an engine takes of this machine: its memory, the form of its KV blocks and its widest step."""

    ledger: MemoryLedger
    kv_spec: KVSpec
    max_num_seqs: int
    max_num_batched_tokens: int


def size_engine(config: EngineConfig, loaded: LoadedModel, free_bytes: int) -> EngineSize:
    """Return the sizes of an engine on a machine with `free_bytes` free. Raises ConfigError and OutOfMemory."""
    spec = loaded.spec
    if isinstance(spec, EncoderSpec):
        raise ConfigError(f"a {spec.family} encoder has no KV memory to size: it reads a text in one step and keeps nothing")
    max_model_len = choose_max_model_len(config.model.max_model_len, spec.max_position)
    seqs, tokens = choose_batch_size(config.scheduler, max_model_len)
    kv_spec = spec.kv_spec(choose_kv_dtype(config, loaded.backend), config.cache.block_size)
    ledger = plan_memory(
        free_bytes=free_bytes,
        weight_bytes=loaded.weight_bytes,
        activation_bytes=loaded.backend.activation_bytes(loaded.model, kv_spec, tokens, seqs),
        kv_spec=kv_spec,
        max_step_tokens=STEPS_UNDER_WAY * tokens,
        max_model_len=max_model_len,
        may_shorten=config.model.max_model_len is None,
        max_num_seqs=seqs,
        utilization=config.cache.gpu_memory_utilization,
        kv_cache_memory_bytes=config.cache.kv_cache_memory_bytes,
        num_blocks_override=config.cache.num_gpu_blocks_override,
    )
    return EngineSize(ledger, kv_spec, seqs, tokens)


def check_runner(runner: str, spec: ModelSpec | EncoderSpec) -> None:
    """Raise ConfigError when the model does not do what `runner` asks for."""
    if runner == "generate" and isinstance(spec, EncoderSpec):
        raise ConfigError(f"runner is generate, but a {spec.family} encoder generates no text; leave --runner out, or take a decoder")
    if runner == "pooling" and isinstance(spec, ModelSpec):
        raise ConfigError(
            f"runner is pooling, but vectors from {spec.family} decoders are not supported; "
            "leave --runner out, or choose an encoder such as all-minilm-l6-v2"
        )


def choose_max_model_len(wished: int | None, max_position: int) -> int:
    """Return the context length: the model's own, or the one asked for if the model has it."""
    if wished is None:
        return max_position
    if wished > max_position:
        raise ConfigError(f"max_model_len is {wished:,}; this model was made for {max_position:,} positions. Ask for at most that.")
    return wished


def choose_batch_size(config: SchedulerConfig, max_model_len: int) -> tuple[int, int]:
    """Return (max_num_seqs, max_num_batched_tokens). What was given stays; what was not follows so that seqs <= tokens <= seqs * length."""
    seqs, tokens = config.max_num_seqs, config.max_num_batched_tokens
    factor = 2 if config.performance_mode == "throughput" else 1
    chosen_seqs = seqs if seqs is not None else CPU_MAX_NUM_SEQS * factor
    if tokens is None:
        usual = CPU_MAX_NUM_BATCHED_TOKENS * factor
        if config.performance_mode == "interactivity":
            usual //= 2
        if not config.enable_chunked_prefill:
            usual = max(usual, max_model_len)
        tokens = max(chosen_seqs, min(usual, chosen_seqs * max_model_len))
    if seqs is None:
        chosen_seqs = min(chosen_seqs, tokens)
    return chosen_seqs, tokens


def choose_mixed_step_s(config: SchedulerConfig) -> float | None:
    """Return how long a step with prompts and answers in progress should take, in seconds; None: however long."""
    if config.mixed_step_ms is None:
        return MIXED_STEP_S[config.performance_mode]
    return config.mixed_step_ms / 1000 or None


def check_limits(limits: Limits) -> None:
    """Raise ConfigError for limits that do not go together."""
    if limits.max_num_batched_tokens < limits.max_num_seqs:
        raise ConfigError(
            f"a step hands out {limits.max_num_batched_tokens:,} tokens to {limits.max_num_seqs:,} running requests, less than one each; "
            "raise max_num_batched_tokens or max_num_scheduled_tokens, or lower max_num_seqs or max_num_active_seqs"
        )
    if not limits.chunked_prefill and limits.max_num_batched_tokens < limits.max_model_len:
        raise ConfigError(
            f"chunked prefill is off, a step takes {limits.max_num_batched_tokens:,} tokens and max_model_len is {limits.max_model_len:,}: "
            "a long prompt would never fit; raise max_num_batched_tokens or lower max_model_len"
        )
    if limits.long_prefill_token_threshold > limits.max_model_len:
        raise ConfigError(
            f"long_prefill_token_threshold is {limits.long_prefill_token_threshold:,}; "
            f"it must be at most max_model_len, {limits.max_model_len:,}"
        )
    if limits.max_num_batched_tokens > limits.max_num_seqs * limits.max_model_len:
        log.warning(
            "a step takes %d tokens, more than %d requests of %d tokens have",
            limits.max_num_batched_tokens,
            limits.max_num_seqs,
            limits.max_model_len,
        )


def choose_kv_dtype(config: EngineConfig, backend: Backend) -> str:
    asked = config.cache.kv_cache_dtype
    return backend.kv_dtype if asked == "auto" else KV_DTYPE_NAMES[asked]


def warm_up(core: EngineCore) -> None:
    """Send a request of two tokens through the whole engine, so that the first real one finds everything awake.

    It fills no block, so the prefix cache learns nothing. Raises StartupError when the engine cannot answer it.
    """
    core.add(
        GenerateRequest(
            request_id="warm-up",
            prompt_token_ids=[0, 0],
            params=SamplingParams(max_tokens=2, temperature=0.0, seed=0, ignore_eos=True),
            arrival_s=0.0,
        )
    )
    while core.has_work:
        outputs = core.step()
        for delta in outputs.deltas if outputs else ():
            if delta.finish_reason == "error":
                raise StartupError(f"the engine cannot compute its first step: {delta.error}")


def warn_of_defaults(given: SchedulerConfig, size: EngineSize) -> str:
    """Return a line that names the sizes which another device would not have chosen; nothing when both were given."""
    chosen = {"max_num_seqs": size.max_num_seqs, "max_num_batched_tokens": size.max_num_batched_tokens}
    named = [f"{name} {value:,}" for name, value in chosen.items() if getattr(given, name) is None]
    return f"warning: {' and '.join(named)}: defaults of a CPU, other devices have others; set them where that matters" if named else ""


def describe(
    loaded: LoadedModel, ledger: MemoryLedger, limits: Limits, kv_dtype: str, further: list[str], clock: PhaseClock
) -> EngineReady:
    """Return what the engine tells its clients: its limits, the ledger, `further` lines and the timed phases."""
    lines = [
        f"backend: {loaded.backend.describe()}",
        *ledger.lines(),
        f"KV blocks: {ledger.num_blocks:,} of {ledger.block_size} tokens in {kv_dtype}, "
        f"{format_bytes(ledger.kv_bytes / ledger.num_blocks)} each (block 0 is the null block)",
        *further,
        f"a step: at most {limits.max_num_batched_tokens:,} tokens of {limits.max_num_seqs:,} requests",
        f"engine {clock.line()}",
    ]
    return EngineReady(
        max_model_len=limits.max_model_len,
        num_blocks=ledger.num_blocks,
        block_size=ledger.block_size,
        kv_cache_tokens=ledger.kv_tokens,
        max_concurrency=ledger.max_concurrency,
        vocab_size=limits.vocab_size,
        max_num_seqs=limits.max_num_seqs,
        max_num_batched_tokens=limits.max_num_batched_tokens,
        weight_bytes=ledger.weight_bytes,
        kv_bytes_per_token=ledger.kv_bytes / ledger.num_blocks / ledger.block_size,
        startup_lines=lines,
        phases=clock.phases,
    )
