"""From the header of a GGUF file to a ModelShape and the file's own weight format, exact to the byte.

Takes the metadata and, for each tensor, (number of values, number of bytes); it does not open files. Attention is read as in
hf_shape.py, from the same settings under GGUF's names; weights are counted from the tensors themselves.

Source: ggml's docs/gguf.md for the keys, llama.cpp's llama-arch.cpp for architectures and tensor names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from octavo.errors import ModelError, did_you_mean
from octavo.planner.formats import WeightFormat
from octavo.planner.layer_kinds import LayerKind, group_layers, kinds_of_layers
from octavo.planner.settings import Settings
from octavo.planner.shape import ModelShape, WeightCounts

_FAMILIES = {
    "llama": "llama",
    "qwen2": "qwen2",
    "qwen2moe": "qwen2_moe",
    "qwen3": "qwen3",
    "qwen3moe": "qwen3_moe",
    "gemma": "gemma",
    "gemma2": "gemma2",
    "gemma3": "gemma3_text",
    "phi3": "phi3",
    "gpt-oss": "gpt_oss",
    "deepseek2": "deepseek_v3",
    "cohere2": "cohere2",
    "command-r": "cohere",
    "falcon": "falcon",
    "granite": "granite",
    "olmo2": "olmo2",
    "glm4moe": "glm4_moe",
    "starcoder2": "starcoder2",
    "jamba": "jamba",
}
_ROUTED = ("_exps.",)
_UNQUANTISED = ("norm", ".bias", "rope_freqs", "ffn_gate_inp", "exp_probs", "ssm_a", "ssm_d", "ssm_conv1d", "attn_sinks")


def shape_from_gguf(metadata: Mapping[str, Any], tensors: Mapping[str, tuple[int, int]], name: str) -> tuple[ModelShape, WeightFormat]:
    """Return the shape and the format that gives the file's own bytes. Raises ModelError."""
    architecture = metadata.get("general.architecture")
    if architecture not in _FAMILIES:
        raise ModelError(
            f"{name}: architecture {repr(architecture)[:64]} is not known{did_you_mean(str(architecture), _FAMILIES, most=2)}; known are "
            f"{', '.join(_FAMILIES)}. Size it by numbers: --layers, --kv-heads, --head-dim, --params"
        )
    family = _FAMILIES[architecture]
    prefix = f"{architecture}."
    model = Settings(name, {key.removeprefix(prefix): value for key, value in metadata.items() if key.startswith(prefix)})
    layers, hidden = model.need("block_count"), model.need("embedding_length")
    if layers > 10_000:
        raise ModelError(f"{name}: block_count is {layers:,}; at most 10,000 are sized")
    heads = max(_by_layer(model, "attention.head_count", layers))
    kv_by_layer = _by_layer(model, "attention.head_count_kv", layers) if model.has("attention.head_count_kv") else [heads] * layers
    head_dim = model.integer("attention.key_length", 0) or hidden // max(1, heads)
    settings = _as_config(model, family, heads, hidden, layers)
    if family == "jamba":
        kinds = [LayerKind.FULL if kv else LayerKind.MAMBA for kv in kv_by_layer]
    else:
        kinds = kinds_of_layers(settings, family, layers)
    counts, weights = _count(tensors, name)
    experts = model.integer("expert_count", 0)
    return (
        ModelShape(
            name=name,
            family=family,
            num_layers=layers,
            hidden_size=hidden,
            num_heads=heads,
            num_kv_heads=max(kv_by_layer),
            intermediate_size=_intermediate(model, layers, experts),
            vocab_size=max(1, counts.embedding // hidden),
            max_position=model.need("context_length"),
            groups=group_layers(settings, kinds, heads, max(kv_by_layer), head_dim),
            counts=counts,
            num_experts=experts,
            experts_per_token=model.integer("expert_used_count", 0) if experts else 0,
            default_weights=None,
        ),
        weights,
    )


def _as_config(model: Settings, family: str, heads: int, hidden: int, layers: int) -> Settings:
    """Return the settings under the names of a config.json, as layer_kinds.py reads them."""
    rotary = model.integer("rope.dimension_count", 0)
    window = model.integer("attention.sliding_window", 0)
    values: dict[str, int | bool] = {"num_hidden_layers": layers, "hidden_size": hidden, "num_attention_heads": heads}
    if window and family not in ("qwen2", "qwen2_moe", "qwen3", "qwen3_moe"):
        values["sliding_window"] = window
    if model.has("attention.kv_lora_rank"):
        values |= {"kv_lora_rank": model.need("attention.kv_lora_rank"), "qk_rope_head_dim": rotary}
        if model.has("attention.key_length_mla"):
            values |= {
                "qk_nope_head_dim": max(0, model.need("attention.key_length_mla") - rotary),
                "v_head_dim": model.need("attention.value_length_mla"),
            }
    if model.has("ssm.inner_size"):
        values |= {
            "mamba_expand": model.need("ssm.inner_size") // hidden,
            "mamba_d_conv": model.need("ssm.conv_kernel"),
            "mamba_d_state": model.need("ssm.state_size"),
        }
    return Settings(model.source, values)


def _by_layer(model: Settings, name: str, layers: int) -> list[int]:
    """Return a number for each layer; the file gives one for all, or an array."""
    value = model.values.get(name)
    if isinstance(value, memoryview) and value.format in ("B", "b", "H", "h", "I", "i", "Q", "q"):
        numbers = value.tolist()
        if len(numbers) != layers or not all(0 <= number <= 1 << 20 for number in numbers):
            raise ModelError(f"{model.source}: {name} must list {layers} numbers in 0..2^20")
        return numbers
    return [model.need(name)] * layers


def _intermediate(model: Settings, layers: int, experts: int) -> int:
    if experts and model.has("expert_feed_forward_length"):
        return model.need("expert_used_count") * model.need("expert_feed_forward_length") + model.integer(
            "expert_shared_feed_forward_length", 0
        )
    width = max(_by_layer(model, "feed_forward_length", layers))
    return width * (model.integer("expert_used_count", 1) if experts else 1)


def _count(tensors: Mapping[str, tuple[int, int]], name: str) -> tuple[WeightCounts, WeightFormat]:
    values = dict.fromkeys(("embedding", "head", "linear", "experts", "other"), 0)
    num_bytes = dict(values)
    for tensor, (count, size) in tensors.items():
        kind = _kind_of(tensor)
        values[kind] += count
        num_bytes[kind] += size
    if not values["embedding"]:
        raise ModelError(f"{name}: holds no token_embd.weight")
    bits = {kind: 8 * num_bytes[kind] / count if count else 0.0 for kind, count in values.items()}
    compute = "int8" if bits["linear"] < 16 else "bf16"  # as the named formats of GGUF have it
    return WeightCounts(**values), WeightFormat(
        "of the file", bits["linear"], bits["experts"], bits["embedding"], bits["head"], bits["other"], compute
    )


def _kind_of(tensor: str) -> str:
    if tensor == "token_embd.weight":
        return "embedding"
    if tensor == "output.weight":
        return "head"
    if any(part in tensor for part in _UNQUANTISED):
        return "other"
    return "experts" if any(part in tensor for part in _ROUTED) else "linear"
