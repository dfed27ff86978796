"""Where a step's time goes: the compiled forward region by region, then sampling and everything around them.

The step is made up: `rows` requests, each with `context` tokens behind it and `query` tokens to compute.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from octavo.config.schema import EngineConfig
from octavo.engine.startup import choose_kv_dtype
from octavo.errors import ConfigError
from octavo.loaders.store import resolve_model
from octavo.ops.interface import Batch
from octavo.params import SamplingParams
from octavo.sampling.plan import SamplingRow, build_sampling_batch
from octavo.specs.model import EncoderSpec
from octavo.units import cdiv
from octavo.worker.runner import load_model


@dataclass(frozen=True)
class StepShape:
    rows: int
    query: int  # tokens a row
    context: int  # tokens behind each row


@dataclass(frozen=True)
class Part:
    """A share of the step: how often it runs in it, and the seconds of all its runs together."""

    name: str
    count: int
    seconds: float


def profile_step(config: EngineConfig, shape: StepShape, repeats: int) -> list[Part]:
    """Return the parts of one step, in the order of the forward pass, sampling last. Raises StartupError."""
    loaded = load_model(config, resolve_model(config.model.model))
    spec = loaded.spec
    kv_spec = spec.kv_spec() if isinstance(spec, EncoderSpec) else spec.kv_spec(choose_kv_dtype(config, loaded.backend))
    blocks = cdiv(shape.context + shape.query, kv_spec.block_size)
    num_groups = len(kv_spec.spans)
    kv = loaded.backend.make_kv_cache(kv_spec, 1 + shape.rows * num_groups * blocks)
    zeros = bytes(kv_spec.bytes_per_block)
    for block in range(1, kv.num_blocks):
        kv.write_block(block, zeros)  # what was never written is one page of zeros, always in the cache
    forward: Any = loaded.backend.compile(loaded.model, kv, shape.rows * shape.query, shape.rows)
    if not hasattr(forward, "take_trace"):
        raise ConfigError(f"backend {loaded.backend.name} has no compiled program to profile; use native")
    batch = _batch(shape, blocks, kv_spec.block_size, num_groups)
    forward(batch)
    forward.set_tracing(True)
    for _ in range(repeats):
        forward(batch)
    parts = _sums(forward.take_trace(), repeats)
    forward.set_tracing(False)
    params = SamplingParams(temperature=0.0, seed=0)
    sampling = build_sampling_batch([SamplingRow(params, (), np.ones(1, np.int32), 1, loaded.spec.vocab_size) for _ in range(shape.rows)])
    logits = forward(batch)
    began = time.perf_counter()
    for _ in range(repeats):
        loaded.backend.sample(logits, sampling)
    return [*parts, Part("sample (greedy)", 1, (time.perf_counter() - began) / repeats)]


def _sums(trace: Sequence[tuple[int, str, int, int, int]], repeats: int) -> list[Part]:
    """Return the regions of one of `repeats` steps by name, each until its last piece is done: as the first thread passed them."""
    counts: Counter[str] = Counter()
    nanoseconds: Counter[str] = Counter()
    for thread, name, begin_ns, end_ns, _ in trace:
        if thread == 0:
            counts[name] += 1
            nanoseconds[name] += end_ns - begin_ns
    return [Part(name, count // repeats, nanoseconds[name] / repeats / 1e9) for name, count in counts.items()]


def _batch(shape: StepShape, blocks: int, block_size: int, num_groups: int) -> Batch:
    positions = np.arange(shape.context, shape.context + shape.query, dtype=np.int32)
    table = 1 + np.arange(shape.rows * num_groups * blocks, dtype=np.int32).reshape(shape.rows, num_groups, blocks)
    slots = table.swapaxes(0, 1)[:, :, positions // block_size].astype(np.int64) * block_size + positions % block_size
    return Batch(
        token_ids=np.arange(1000, 1000 + shape.rows * shape.query, dtype=np.int32),
        positions=np.tile(positions, shape.rows),
        query_start=np.arange(0, (shape.rows + 1) * shape.query, shape.query, dtype=np.int32),
        context_len=np.full(shape.rows, shape.context + shape.query, np.int32),
        block_table=table.reshape(shape.rows, -1),
        slot_mapping=slots.reshape(-1),
        sample_rows=np.arange(shape.query - 1, shape.rows * shape.query, shape.query, dtype=np.int32),
    )
