"""A ModelShape from plain numbers, for a model that has no file here and no entry in the catalogue."""

from __future__ import annotations

from octavo.errors import ConfigError
from octavo.planner.shape import LayerGroup, ModelShape, WeightCounts


def shape_from_numbers(
    *,
    layers: int,
    kv_heads: int,
    head_dim: int,
    params: int,
    heads: int | None = None,
    hidden: int | None = None,
    vocab: int = 0,
    intermediate: int | None = None,
    max_position: int = 131_072,
    window: int | None = None,
    window_layers: int = 0,
) -> ModelShape:
    """Return the shape of a dense model: `window_layers` of its layers keep `window` tokens, the others all.

    Query heads default to the KV heads, the hidden size to heads * head_dim, the intermediate size to four of it. `vocab`
    0: embedding and head are counted with the other `params`. Raises ConfigError.
    """
    given = {"--layers": layers, "--kv-heads": kv_heads, "--head-dim": head_dim, "--params": params, "--max-position": max_position}
    for name, value in given.items():
        if not 1 <= value <= 1 << 50:
            raise ConfigError(f"{name} is {value:,}; it must be at least 1")
    heads = heads or kv_heads
    if heads % kv_heads:
        raise ConfigError(f"--heads {heads} is no multiple of --kv-heads {kv_heads}")
    if not 0 <= window_layers <= layers or (window is None) != (window_layers == 0):
        raise ConfigError(f"--window and --window-layers go together; --window-layers {window_layers} must lie in 1..{layers}")
    hidden = hidden or heads * head_dim
    embedding = vocab * hidden
    if 2 * embedding > params:
        raise ConfigError(f"--vocab {vocab:,} x hidden {hidden:,} are more weights, twice, than --params {params:,}")
    flops = heads * 4 * head_dim
    full = LayerGroup("full attention", layers - window_layers, kv_heads, (head_dim, head_dim), flops_per_position=flops)
    sliding = LayerGroup(f"sliding window {window or 0:,}", window_layers, kv_heads, (head_dim, head_dim), window, flops_per_position=flops)
    return ModelShape(
        name="numbers",
        family="numbers",
        num_layers=layers,
        hidden_size=hidden,
        num_heads=heads,
        num_kv_heads=kv_heads,
        intermediate_size=intermediate or 4 * hidden,
        vocab_size=vocab,
        max_position=max_position,
        groups=tuple(group for group in (full, sliding) if group.num_layers),
        counts=WeightCounts(embedding, embedding, params - 2 * embedding, 0, 0),
    )
