"""From a loaded encoder to a warm `PoolingCore`: sizes, memory, one text through all of it. The ledger has no KV pool."""

from __future__ import annotations

from collections.abc import Callable

from octavo.engine.pooling_core import PoolingCore, PoolingLimits
from octavo.errors import ConfigError, OutOfMemory, StartupError
from octavo.messages.wire import EngineReady, Phase, PoolRequest, PoolTask
from octavo.specs.model import EncoderSpec
from octavo.units import format_bytes
from octavo.worker.pooling import PoolingWorker
from octavo.worker.runner import LoadedModel

CPU_MAX_NUM_SEQS = 128
CPU_MAX_NUM_BATCHED_TOKENS = 512


def choose_pooling_limits(seqs: int | None, tokens: int | None, max_model_len: int, vocab_size: int) -> PoolingLimits:
    """Return the sizes of a step. What was given stays; what was not follows so that a whole text fits. Raises ConfigError."""
    if tokens is not None and tokens < max_model_len:
        raise ConfigError(
            f"max_num_batched_tokens is {tokens:,} and max_model_len {max_model_len:,}: this model reads a text in one step; "
            "raise the first or lower the second"
        )
    tokens = tokens if tokens is not None else max(CPU_MAX_NUM_BATCHED_TOKENS, max_model_len)
    return PoolingLimits(max_model_len, min(tokens, CPU_MAX_NUM_SEQS if seqs is None else seqs), tokens, vocab_size)


def start_pooling(
    loaded: LoadedModel, spec: EncoderSpec, limits: PoolingLimits, *, free_bytes: int, enforce_eager: bool, mark: Callable[[str], None]
) -> tuple[PoolingCore, list[str]]:
    """Return a warm core and the lines of its ledger. `mark` is told when a phase ends. Raises StartupError."""
    activation_bytes = loaded.backend.activation_bytes(
        loaded.model, spec.kv_spec(), limits.max_num_batched_tokens, limits.max_num_batched_tokens
    )
    reserve = free_bytes - loaded.weight_bytes - activation_bytes
    if reserve < 0:
        raise OutOfMemory(
            f"weights {format_bytes(loaded.weight_bytes)} and activations {format_bytes(activation_bytes)} need "
            f"{format_bytes(-reserve)} more than the {format_bytes(free_bytes)} that are free. "
            "Lower --max-num-batched-tokens or free memory."
        )
    mark("plan")
    core = PoolingCore(PoolingWorker(loaded, spec, limits.max_num_batched_tokens, enforce_eager), limits)
    mark("allocate")
    _warm_up(core, spec)
    mark("warm up")
    lines = [
        f"memory: {format_bytes(free_bytes)} free = weights {format_bytes(loaded.weight_bytes)} + activations "
        f"{format_bytes(activation_bytes)} + reserve {format_bytes(reserve)}; no KV pool: a text is read whole",
        f"a step: at most {limits.max_num_batched_tokens:,} tokens of {limits.max_num_seqs:,} texts",
    ]
    return core, lines


def describe_pooling(limits: PoolingLimits, block_size: int, weight_bytes: int, lines: list[str], phases: list[Phase]) -> EngineReady:
    """Return what the engine tells its clients; it has no KV blocks."""
    return EngineReady(
        max_model_len=limits.max_model_len,
        num_blocks=0,
        block_size=block_size,
        kv_cache_tokens=0,
        max_concurrency=limits.max_num_batched_tokens / limits.max_model_len,
        vocab_size=limits.vocab_size,
        max_num_seqs=limits.max_num_seqs,
        max_num_batched_tokens=limits.max_num_batched_tokens,
        weight_bytes=weight_bytes,
        kv_bytes_per_token=0.0,
        startup_lines=lines,
        phases=phases,
    )


def _warm_up(core: PoolingCore, spec: EncoderSpec) -> None:
    """Read one text of two tokens. Raises StartupError when the engine cannot."""
    task: PoolTask = "classify" if spec.labels else "embed"
    core.add(PoolRequest(request_id="warm-up", prompt_token_ids=[0, 0], task=task, second_start=2, arrival_s=0.0))
    outputs = core.step()
    for delta in outputs.deltas if outputs else ():
        if delta.finish_reason == "error":
            raise StartupError(f"the engine cannot compute its first step: {delta.error}")
