"""Which attention each layer of a Hugging Face model has, and the layers of one kind as a group with its KV memory.

A config lists the kinds (layer_types) or leaves them to a rule of its family, which stands here.

Source: the configuration files of transformers 5.
"""

from __future__ import annotations

import enum

from octavo.errors import ModelError
from octavo.planner.settings import Settings
from octavo.planner.shape import LayerGroup

CONVOLUTION_BYTES = 2  # of a value of the convolution's state: the model's own 16 bits
RECURRENT_BYTES = 4  # of a value of the recurrent state, which is kept in float32


class LayerKind(enum.Enum):
    FULL = "full attention"
    SLIDING = "sliding window"
    CHUNKED = "chunked attention"
    MAMBA = "state (Mamba)"
    DELTA = "state (gated delta net)"


_LISTED = {
    "full_attention": LayerKind.FULL,
    "sliding_attention": LayerKind.SLIDING,
    "chunked_attention": LayerKind.CHUNKED,
    "indexed_attention": LayerKind.FULL,
    "linear_attention": LayerKind.DELTA,
    "attention": LayerKind.FULL,
    "mamba": LayerKind.MAMBA,
}


def kinds_of_layers(config: Settings, family: str, layers: int) -> list[LayerKind]:
    """Return the kind of each layer. Raises ModelError."""
    listed = config.texts("layer_types")
    if listed is not None:
        unknown = sorted({kind for kind in listed if kind not in _LISTED})
        if unknown or len(listed) != layers:
            raise ModelError(
                f"{config.source}: layer_types must list {layers} of {', '.join(_LISTED)}"
                + (f", not {unknown[0][:64]!r}" if unknown else "")
            )
        recurrent = LayerKind.MAMBA if family == "jamba" else LayerKind.DELTA
        return [recurrent if kind == "linear_attention" else _LISTED[kind] for kind in listed]
    return [_kind_by_rule(config, family, index) for index in range(layers)]


def _kind_by_rule(config: Settings, family: str, index: int) -> LayerKind:
    windowed = config.has("sliding_window")
    if family in ("qwen2", "qwen2_moe", "qwen3", "qwen3_moe"):
        windowed = windowed and config.flag("use_sliding_window", False) and index >= config.integer("max_window_layers", 28)
    elif family == "jamba":
        is_attention = index % (config.integer("attn_layer_period", 8) or 8) == config.integer("attn_layer_offset", 4)
        return LayerKind.FULL if is_attention else LayerKind.MAMBA
    elif family == "qwen3_next":
        return LayerKind.FULL if _is_nth(index, config.integer("full_attention_interval", 4)) else LayerKind.DELTA
    elif family == "llama4_text":
        return LayerKind.FULL if _is_nth(index, config.integer("no_rope_layer_interval", 4)) else LayerKind.CHUNKED
    elif family in ("gemma2", "gpt_oss"):
        windowed = windowed and index % 2 == 0
    elif family in ("gemma3_text", "cohere2", "olmo3"):
        windowed = windowed and not _is_nth(index, config.integer("sliding_window_pattern", 6 if family == "gemma3_text" else 4))
    return LayerKind.SLIDING if windowed else LayerKind.FULL


def _is_nth(index: int, period: int) -> bool:
    return period > 0 and (index + 1) % period == 0


def group_layers(config: Settings, kinds: list[LayerKind], heads: int, kv_heads: int, head_dim: int) -> tuple[LayerGroup, ...]:
    """Return one group for each kind that occurs, in the order of LayerKind."""
    counted = [(kind, kinds.count(kind)) for kind in LayerKind]
    return tuple(group for kind, count in counted if count for group in _groups(config, kind, count, heads, kv_heads, head_dim))


def _groups(config: Settings, kind: LayerKind, count: int, heads: int, kv_heads: int, head_dim: int) -> list[LayerGroup]:
    if kind is LayerKind.MAMBA:
        inner = config.integer("mamba_expand", 2) * config.need("hidden_size")
        convolution = inner * (config.integer("mamba_d_conv", 4) - 1) * CONVOLUTION_BYTES
        return [LayerGroup(kind.value, count, state_bytes=convolution + inner * config.integer("mamba_d_state", 16) * RECURRENT_BYTES)]
    if kind is LayerKind.DELTA:
        k_dim, v_heads, v_dim = (config.need(name) for name in ("linear_key_head_dim", "linear_num_value_heads", "linear_value_head_dim"))
        channels = 2 * config.need("linear_num_key_heads") * k_dim + v_heads * v_dim
        convolution = channels * (config.integer("linear_conv_kernel_dim", 4) - 1) * CONVOLUTION_BYTES
        return [LayerGroup(kind.value, count, state_bytes=convolution + v_heads * k_dim * v_dim * RECURRENT_BYTES)]
    if config.has("kv_lora_rank"):
        return _latent_groups(config, count, heads)
    window = _window(config, kind)
    name = kind.value if window is None else f"{kind.value} {window:,}"
    flops = heads * 4 * head_dim
    return [LayerGroup(name, count, kv_heads, (head_dim, head_dim), window, kind is LayerKind.CHUNKED, flops_per_position=flops)]


def _window(config: Settings, kind: LayerKind) -> int | None:
    if kind is LayerKind.FULL:
        return None
    return config.need("sliding_window" if kind is LayerKind.SLIDING else "attention_chunk_size")


def _latent_groups(config: Settings, count: int, heads: int) -> list[LayerGroup]:
    """MLA keeps one latent and one rotary key a layer. A decode step scores and sums over the latent itself (absorbed form); a
    prompt expands it into K and V of each head, whose matrices are counted with the weights."""
    latent, rotary = config.need("kv_lora_rank"), config.need("qk_rope_head_dim")
    flops = heads * (2 * (latent + rotary) + 2 * latent)
    expanded = heads * (2 * (config.integer("qk_nope_head_dim", latent) + rotary) + 2 * config.integer("v_head_dim", latent))
    sparse = config.integer("index_topk", 0) or None
    groups = [LayerGroup("latent (MLA)", count, 1, (latent, rotary), most_read=sparse, flops_per_position=flops, prompt_flops=expanded)]
    if sparse:  # the indexer's key, always fp8 with a float32 scale for 128 values
        dim = config.need("index_head_dim")
        index_flops = config.need("index_n_heads") * 2 * dim
        groups.append(LayerGroup("indexer keys", count, token_bytes=dim + 4 * dim // 128, flops_per_position=index_flops))
    return groups
