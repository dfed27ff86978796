"""What config.json of a Hugging Face folder says of a model's shapes.

It is read as data: `auto_map` and everything else that names code is not looked at. An absent field takes the value that transformers
gives it for that family. What Octavo computes otherwise than the file asks is refused by name.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from octavo.errors import ModelError
from octavo.loaders.deepseek_model import DEEPSEEK_V2_DEFAULTS, DEEPSEEK_V3_DEFAULTS, is_interleaved, read_experts, read_latent
from octavo.loaders.encoder_model import BERT_DEFAULTS, read_encoder_spec
from octavo.loaders.fields import Fields
from octavo.loaders.mapped_file import read_small_file
from octavo.loaders.safetensors import parse_json
from octavo.specs.kv import FULL_ATTENTION, AttentionSpan
from octavo.specs.model import EncoderSpec, ModelSpec, RopeSpec
from octavo.units import MiB

MAX_JSON_BYTES = 16 * MiB

_ARCHITECTURES = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
    "DeepseekV2ForCausalLM": "deepseek_v2",
    "DeepseekV3ForCausalLM": "deepseek_v3",
    "BertModel": "bert",
    "BertForSequenceClassification": "bert",
}
_FAMILIES = {family: family for family in _ARCHITECTURES.values()}
_ACTIVATIONS = {"silu": "silu", "swish": "silu", "gelu_pytorch_tanh": "gelu_tanh"}
_ROPE_KINDS = {"default": "none", "linear": "linear", "llama3": "llama3", "yarn": "yarn"}
_LAYER_KINDS = {"full_attention": False, "sliding_attention": True}

_LLAMA_DEFAULTS = {
    "vocab_size": 32_000,
    "hidden_size": 4096,
    "intermediate_size": 11_008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-6,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_QWEN_DEFAULTS = {
    "vocab_size": 151_936,
    "hidden_size": 4096,
    "intermediate_size": 22_016,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "max_position_embeddings": 32_768,
    "rms_norm_eps": 1e-6,
    "sliding_window": 4096,
    "max_window_layers": 28,
}
_DEFAULTS: dict[str, dict[str, Any]] = {
    "llama": _LLAMA_DEFAULTS,
    "mistral": _LLAMA_DEFAULTS
    | {"intermediate_size": 14_336, "num_key_value_heads": 8, "max_position_embeddings": 131_072, "sliding_window": 4096},
    "qwen2": _QWEN_DEFAULTS,
    "qwen3": _QWEN_DEFAULTS | {"head_dim": 128},
    "deepseek_v2": DEEPSEEK_V2_DEFAULTS,
    "deepseek_v3": DEEPSEEK_V3_DEFAULTS,
    "bert": BERT_DEFAULTS,
}
_ROPE_KEYS = {
    "none": set[str](),
    "linear": {"factor"},
    "llama3": {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"},
    "yarn": {
        *("factor", "original_max_position_embeddings", "attention_factor", "beta_fast", "beta_slow"),
        *("mscale", "mscale_all_dim", "truncate", "finetuned"),
    },
}
_ALL_ROPE_KEYS = {"rope_type", "type", "rope_theta", "partial_rotary_factor"}


def read_hf_spec(folder: Path) -> ModelSpec | EncoderSpec:
    """Return the shapes that config.json gives. Raises ModelError."""
    config = read_config(folder)
    family = _family(config)
    if family == "bert":
        return read_encoder_spec(folder, config)
    hidden, heads = config.integer("hidden_size", 0), config.integer("num_attention_heads", 0)
    if heads < 1:
        raise ModelError(f"{config.source}: num_attention_heads is {heads}; it must be at least 1")
    latent = read_latent(config) if family in ("deepseek_v2", "deepseek_v3") else None
    if latent is None:
        head_dim = config.integer("head_dim", hidden // heads)
        rope, max_position = _rope(config, head_dim)
    else:
        head_dim = latent.qk_nope_head_dim + latent.qk_rope_head_dim
        rope, max_position = _rope(config, latent.qk_rope_head_dim)
        rope = replace(rope, interleaved=is_interleaved(config, family))
    window, sliding = _sliding_window(config, family, max_position)
    qkv_bias = family == "qwen2" or (family != "mistral" and config.boolean("attention_bias", False))
    return ModelSpec(
        family=family,
        num_layers=config.integer("num_hidden_layers", 0),
        hidden_size=hidden,
        intermediate_size=config.integer("intermediate_size", 0),
        num_heads=heads,
        num_kv_heads=1 if latent is not None else config.integer("num_key_value_heads", heads),
        head_dim=head_dim,
        vocab_size=config.integer("vocab_size", 0),
        max_position=max_position,
        norm_eps=config.number("rms_norm_eps", 0.0),
        rope=rope,
        tie_embeddings=config.boolean("tie_word_embeddings", False),
        qkv_bias=qkv_bias,
        o_bias=qkv_bias and family != "qwen2",
        mlp_bias=family == "llama" and config.boolean("mlp_bias", False),
        qk_norm=family == "qwen3",
        sliding_window=window if all(sliding) else None,
        latent=latent,
        experts=read_experts(config, family) if latent is not None else None,
        layer_spans=() if all(sliding) or not any(sliding) else tuple(_span(window, is_sliding) for is_sliding in sliding),
        activation=config.choice("hidden_act", "silu", _ACTIVATIONS),
    )


def read_config(folder: Path) -> Fields:
    """Return config.json with its family's defaults. Raises ModelError."""
    path = folder / "config.json"
    if not path.exists():
        raise ModelError(f"{folder.name}: holds no config.json; a model folder is what save_pretrained writes")
    values = parse_json(read_small_file(path, MAX_JSON_BYTES), path.name)
    family = _family(Fields(path.name, values))
    return Fields(path.name, _DEFAULTS[family] | values)


def _family(config: Fields) -> str:
    architectures = config.values.get("architectures")
    if architectures is None:
        config.require("model_type")
        return config.choice("model_type", "", _FAMILIES)
    if not isinstance(architectures, list) or len(architectures) != 1:
        raise ModelError(f"{config.source}: architectures must list one name")
    family = Fields(config.source, {"architecture": architectures[0]}).choice("architecture", "", _ARCHITECTURES)
    if (kind := config.text("model_type", family)) != family:
        raise ModelError(f"{config.source}: model_type {kind[:64]!r} and architecture {architectures[0]} do not belong together")
    if quantization := config.section("quantization_config"):
        method = quantization.text("quant_method", "unnamed")
        raise ModelError(f"{config.source}: weights quantised by {method[:64]!r} are not read; use the F32, F16, BF16 or a GGUF version")
    return family


def _rope(config: Fields, head_dim: int) -> tuple[RopeSpec, int]:
    """Return the rotary embedding and the longest position it is meant for."""
    scaling = config.section("rope_scaling") or config.section("rope_parameters") or Fields(config.source, {})
    kind = _rope_kind(config, scaling)
    theta = scaling.number("rope_theta", config.number("rope_theta", 10_000.0))
    if theta <= 1:
        raise ModelError(f"{scaling.source}: rope_theta is {theta:g}; it must be more than 1")
    max_position = config.integer("max_position_embeddings", 0)
    if kind == "none":
        return RopeSpec(dim=head_dim, theta=theta), max_position
    original = config.integer("original_max_position_embeddings", scaling.integer("original_max_position_embeddings", max_position))
    if original < 1:
        raise ModelError(f"{scaling.source}: original_max_position_embeddings is {original}; it must be at least 1")
    factor = scaling.number("factor", max_position / original if kind == "yarn" else None)
    if factor is None or factor < 1:
        raise ModelError(f"{scaling.source}: factor is {factor}; a {kind} rope needs one of at least 1")
    rope = RopeSpec(
        dim=head_dim,
        theta=theta,
        kind=kind,
        factor=factor,
        original_max_position=original,
        low_freq_factor=scaling.number("low_freq_factor", 1.0),
        high_freq_factor=scaling.number("high_freq_factor", 4.0),
        beta_fast=scaling.number("beta_fast", 32.0),
        beta_slow=scaling.number("beta_slow", 1.0),
        attention_factor=_attention_factor(scaling, factor) if kind == "yarn" else None,
    )
    if kind == "llama3" and not 0 < rope.low_freq_factor < rope.high_freq_factor:
        raise ModelError(
            f"{scaling.source}: low_freq_factor {rope.low_freq_factor:g} must be less than high_freq_factor {rope.high_freq_factor:g}"
        )
    # Linear and yarn configs give the length of pre-training; llama3 ones already the stretched length.
    stretched = {"linear": round(max_position * factor), "yarn": max(max_position, round(original * factor)), "llama3": max_position}
    return rope, stretched[kind]


def _rope_kind(config: Fields, scaling: Fields) -> str:
    """Return RopeSpec's name of the variant, whose every setting is one that Octavo computes with."""
    if nested := [name for name, value in scaling.values.items() if isinstance(value, dict)]:
        raise ModelError(f"{scaling.source}: one rotary embedding per kind of layer ({', '.join(nested)}) is not supported")
    kind = scaling.choice("rope_type" if "rope_type" in scaling.values else "type", "default", _ROPE_KINDS)
    if kind != "none" and (unknown := scaling.values.keys() - _ROPE_KEYS[kind] - _ALL_ROPE_KEYS):
        raise ModelError(f"{scaling.source}: {', '.join(sorted(unknown))} of a {kind} rope is not supported")
    if (partial := scaling.number("partial_rotary_factor", config.number("partial_rotary_factor", 1.0))) != 1.0:
        raise ModelError(f"{scaling.source}: partial_rotary_factor is {partial:g}; only 1 is supported")
    if not scaling.boolean("truncate", True):
        raise ModelError(f"{scaling.source}: truncate is false; only yarn with whole-dimension bounds is supported")
    return kind


def _attention_factor(scaling: Fields, factor: float) -> float | None:
    """Return the factor on yarn's cosines and sines; None for the usual 0.1 ln(factor) + 1."""
    given = scaling.number("attention_factor", None)
    mscale, mscale_all = scaling.number("mscale", 0.0), scaling.number("mscale_all_dim", 0.0)
    if given is None and mscale and mscale_all and factor > 1:
        return (0.1 * mscale * math.log(factor) + 1) / (0.1 * mscale_all * math.log(factor) + 1)
    return given


def _sliding_window(config: Fields, family: str, max_position: int) -> tuple[int | None, list[bool]]:
    """Return the window and which layers have it; (None, none of them) for full attention, also where the window is never filled."""
    num_layers = config.integer("num_hidden_layers", 0)
    nowhere: tuple[None, list[bool]] = (None, [False] * num_layers)
    window = config.integer("sliding_window", None) if family in ("mistral", "qwen2", "qwen3") else None
    if family in ("qwen2", "qwen3"):
        window = window if config.boolean("use_sliding_window", False) else None
        sliding = _sliding_layers(config, window, num_layers)
    else:
        sliding = [True] * num_layers
    if window is not None and window < 1:
        raise ModelError(f"{config.source}: sliding_window is {window}; it must be at least 1, or null")
    return (window, sliding) if window is not None and window < max_position and any(sliding) else nowhere


def _sliding_layers(config: Fields, window: int | None, num_layers: int) -> list[bool]:
    kinds = config.values.get("layer_types")
    if kinds is None:
        full = config.integer("max_window_layers", 0) if window is not None else num_layers
        return [layer >= full for layer in range(num_layers)]
    if not isinstance(kinds, list) or len(kinds) != num_layers:
        raise ModelError(f"{config.source}: layer_types must list {num_layers} kinds of attention")
    sliding = [Fields(config.source, {"layer_types": kind}).choice("layer_types", "", _LAYER_KINDS) for kind in kinds]
    if any(sliding) and window is None:
        raise ModelError(f"{config.source}: layer_types names sliding_attention, but no sliding window is in use")
    return sliding


def _span(window: int | None, is_sliding: bool) -> AttentionSpan:
    return AttentionSpan("sliding", window) if is_sliding else FULL_ATTENTION
