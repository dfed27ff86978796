"""What start-up makes of the settings that were left open, for `octavo serve --show-config`: by the functions that start-up calls.

Where the model is here it is loaded and sized as at a start, without the engine; where it is not, only what depends on the
device alone is known.
"""

from __future__ import annotations

from typing import Any

from octavo.config.schema import EngineConfig
from octavo.engine.host_memory import free_memory_bytes
from octavo.engine.pooling_startup import choose_pooling_limits
from octavo.engine.startup import (
    MAX_LENGTH,
    choose_batch_size,
    choose_kv_dtype,
    choose_max_model_len,
    choose_mixed_step_s,
    size_engine,
)
from octavo.errors import ModelError
from octavo.loaders.store import resolve_model
from octavo.ops.interface import Backend
from octavo.planner.memory import CPU_UTILIZATION
from octavo.specs.model import EncoderSpec
from octavo.worker.runner import LoadedModel, backend_of, load_model

DEVICE, MODEL = "for this device", "for this device and model"
Resolved = dict[str, tuple[Any, str]]  # field -> value, what it was decided for


def resolved_settings(config: EngineConfig) -> Resolved:
    """Return what becomes of each setting that `config` leaves open. Raises StartupError for a model that cannot be served."""
    try:
        path = resolve_model(config.model.model)
    except ModelError:
        return _open_ones(config, of_device(config, backend_of(config)))
    loaded = load_model(config, path)
    return _open_ones(config, of_device(config, loaded.backend) | of_model(config, loaded, free_memory_bytes()))


def of_device(config: EngineConfig, backend: Backend) -> Resolved:
    """Return what needs no model to be known."""
    made: dict[str, Any] = {
        "runtime.threads": backend.threads,
        "runtime.isa": backend.isa,
        "cache.kv_cache_dtype": choose_kv_dtype(config, backend),
    }
    made["scheduler.mixed_step_ms"] = 1000 * (choose_mixed_step_s(config.scheduler) or 0)
    made["cache.gpu_memory_utilization"] = CPU_UTILIZATION
    if config.scheduler.enable_chunked_prefill or config.model.max_model_len is not None:
        made |= _batch(*choose_batch_size(config.scheduler, config.model.max_model_len or MAX_LENGTH))
    return {field: (value, DEVICE) for field, value in made.items()}


def of_model(config: EngineConfig, loaded: LoadedModel, free_bytes: int) -> Resolved:
    """Return what depends on the model too. Raises ConfigError and OutOfMemory as start-up does."""
    spec, sizes = loaded.spec, config.scheduler
    made: dict[str, Any]
    if isinstance(spec, EncoderSpec):
        max_model_len = choose_max_model_len(config.model.max_model_len, spec.max_position)
        limits = choose_pooling_limits(sizes.max_num_seqs, sizes.max_num_batched_tokens, max_model_len, spec.vocab_size)
        made = {"model.max_model_len": max_model_len, **_batch(limits.max_num_seqs, limits.max_num_batched_tokens)}
        made |= {"cache.kv_cache_memory_bytes": 0, "cache.num_gpu_blocks_override": 0}  # a text is read whole, nothing is kept
    else:
        size = size_engine(config, loaded, free_bytes)
        made = {"model.max_model_len": size.ledger.max_model_len, **_batch(size.max_num_seqs, size.max_num_batched_tokens)}
        made |= {"cache.kv_cache_memory_bytes": size.ledger.kv_bytes, "cache.num_gpu_blocks_override": size.ledger.num_blocks}
    return {field: (value, MODEL) for field, value in made.items()}


def _batch(seqs: int, tokens: int) -> dict[str, int]:
    return {
        "scheduler.max_num_seqs": seqs,
        "scheduler.max_num_batched_tokens": tokens,
        "scheduler.max_num_active_seqs": seqs,
        "scheduler.max_num_scheduled_tokens": tokens,
    }


def _open_ones(config: EngineConfig, made: Resolved) -> Resolved:
    """Return those that were not given."""

    def given(field: str) -> Any:
        room, name = field.split(".")
        return getattr(getattr(config, room), name)

    return {field: value for field, value in made.items() if given(field) in (None, "auto")}
