"""From a loaded encoder to a running `PoolingCore`: what `startup.py` does where the model gives vectors or scores, and then only."""

from __future__ import annotations

from octavo.config.schema import EngineConfig
from octavo.engine.phases import PhaseClock
from octavo.engine.pooling_core import PoolingCore
from octavo.engine.pooling_startup import choose_pooling_limits, describe_pooling, start_pooling
from octavo.engine.startup import choose_max_model_len
from octavo.messages.wire import EngineReady
from octavo.specs.model import EncoderSpec
from octavo.worker.runner import LoadedModel


def start_encoder(
    config: EngineConfig, loaded: LoadedModel, spec: EncoderSpec, free_bytes: int, clock: PhaseClock
) -> tuple[PoolingCore, EngineReady]:
    """Return a warm engine of a model that gives vectors or scores."""
    sizes = config.scheduler
    max_model_len = choose_max_model_len(config.model.max_model_len, spec.max_position)
    limits = choose_pooling_limits(sizes.max_num_seqs, sizes.max_num_batched_tokens, max_model_len, spec.vocab_size)
    core, ledger = start_pooling(loaded, spec, limits, free_bytes=free_bytes, enforce_eager=config.runtime.enforce_eager, mark=clock.mark)
    lines = [f"backend: {loaded.backend.describe()}", *ledger, f"engine {clock.line()}"]
    return core, describe_pooling(limits, config.cache.block_size, loaded.weight_bytes, lines, clock.phases)
