"""One model over several devices: what the fullest of them holds.

    tensor parallel    query heads, MLP columns, experts and the vocabulary are cut by tp; KV heads too, each kept at least
                       once a rank (replicated when tp > KV heads); a latent and norms are kept whole by every rank
    pipeline parallel  layers are cut by pp; the first stage has the embedding, the last the head
    data parallel      whole copies: capacity and throughput times dp

MLA's two down-projections, 0.1 % of DeepSeek-V3, are counted as cut although engines keep them whole.

Source: Megatron-LM (Shoeybi 2019) section 3; GPipe (Huang 2018).
"""

from __future__ import annotations

from dataclasses import replace

from octavo.errors import ConfigError
from octavo.planner.shape import LayerGroup, ModelShape, WeightCounts
from octavo.units import cdiv


def shard(shape: ModelShape, tp: int, pp: int) -> ModelShape:
    """Return the part of the model on the fullest rank. Raises ConfigError when the model cannot be cut that way."""
    if tp < 1 or pp < 1:
        raise ConfigError(f"tp {tp} and pp {pp} must be at least 1")
    if shape.num_heads % tp:
        raise ConfigError(f"{shape.name} has {shape.num_heads} query heads, which {tp} tensor-parallel ranks cannot share evenly")
    if pp > shape.num_layers:
        raise ConfigError(f"{shape.name} has {shape.num_layers} layers; pp {pp} is more")
    if tp == pp == 1:
        return shape
    counts = shape.counts
    head = 0 if pp > 1 else cdiv(counts.head, tp)  # each end of a pipeline holds one of the two
    return replace(
        shape,
        num_layers=cdiv(shape.num_layers, pp),
        num_heads=shape.num_heads // tp,
        num_kv_heads=cdiv(shape.num_kv_heads, tp),
        intermediate_size=cdiv(shape.intermediate_size, tp),
        vocab_size=cdiv(shape.vocab_size, tp),
        groups=tuple(_shard_group(group, tp, pp) for group in shape.groups),
        counts=WeightCounts(
            cdiv(counts.embedding, tp), head, cdiv(counts.linear, tp * pp), cdiv(counts.experts, tp * pp), cdiv(counts.other, pp)
        ),
    )


def _shard_group(group: LayerGroup, tp: int, pp: int) -> LayerGroup:
    return replace(
        group,
        num_layers=cdiv(group.num_layers, pp),
        num_kv_heads=cdiv(group.num_kv_heads, tp),
        state_bytes=cdiv(group.state_bytes, tp),
        flops_per_position=cdiv(group.flops_per_position, tp),
        prompt_flops=cdiv(group.prompt_flops, tp),
    )
