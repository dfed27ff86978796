"""From a config.json of Hugging Face to a ModelShape: attention by layer, and the numbers of weights of each kind.

Reads the settings that decide sizes and nothing else; wiring, rotary embedding and tokenizer do not matter here, so far more
families are known than the engine runs. Of a multimodal model the language part is counted (text_config).

Source: the modelling files of transformers 5 for what each family has; a test counts the weights against them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from octavo.errors import ModelError, did_you_mean
from octavo.planner.layer_kinds import LayerKind, group_layers, kinds_of_layers
from octavo.planner.settings import Settings
from octavo.planner.shape import ModelShape, WeightCounts
from octavo.units import cdiv


@dataclass(frozen=True)
class Family:
    """What families differ in beyond their numbers. `norms`: vectors of the hidden size a layer, norms' biases included.

    `qkv_bias`, `o_bias`: fixed here, or None: as attention_bias says. `qk_norm`: None | head (one vector of head_dim for q and
    k) | full (over all heads). `gated`: three matrices an MLP, else two.
    """

    norms: int = 2
    final_norms: int = 1
    qkv_bias: bool | None = None
    o_bias: bool | None = None
    qk_norm: str | None = None
    gated: bool = True
    mlp_bias: bool = False
    tied: bool = False
    gated_attention: bool = False  # q brings a gate of its own size


_LLAMA = Family()
FAMILIES: Mapping[str, Family] = {
    "llama": _LLAMA,
    "mistral": Family(qkv_bias=False, o_bias=False),
    "ministral": Family(qkv_bias=False, o_bias=False),
    "mixtral": Family(qkv_bias=False, o_bias=False),
    "qwen2": Family(qkv_bias=True, o_bias=False),
    "qwen2_moe": Family(qkv_bias=True, o_bias=False),
    "qwen3": Family(qk_norm="head"),
    "qwen3_moe": Family(qk_norm="head"),
    "qwen3_next": Family(qk_norm="head", gated_attention=True),
    "gemma": Family(tied=True),
    "gemma2": Family(norms=4, tied=True),
    "gemma3_text": Family(norms=4, qk_norm="head", tied=True),
    "deepseek_v2": _LLAMA,
    "deepseek_v3": _LLAMA,
    "deepseek_v32": _LLAMA,
    "kimi_k2": _LLAMA,
    "gpt_oss": _LLAMA,
    "phi3": Family(qkv_bias=False, o_bias=False),
    "llama4_text": _LLAMA,
    "falcon": Family(norms=2, final_norms=2, qkv_bias=False, o_bias=False, gated=False, tied=True),
    "jamba": Family(qkv_bias=False, o_bias=False),
    "cohere": Family(norms=1, tied=True),
    "cohere2": Family(norms=1, tied=True),
    "glm4_moe": Family(o_bias=False),
    "granite": _LLAMA,
    "olmo2": Family(qk_norm="full"),
    "olmo3": Family(qk_norm="full"),
    "starcoder2": Family(norms=4, final_norms=2, qkv_bias=True, o_bias=True, gated=False, mlp_bias=True, tied=True),
    "smollm3": _LLAMA,
}
# Settings that published files leave to transformers' own defaults.
_DEFAULTS: Mapping[str, Mapping[str, int]] = {
    "gemma3_text": {
        "vocab_size": 262_208,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "max_position_embeddings": 131_072,
        "sliding_window": 4096,
    },
}
_ALIASES = {"gemma3": "gemma3_text", "llama4": "llama4_text", "mistral3": "mistral"}


def shape_from_config(values: Mapping[str, Any], name: str) -> ModelShape:
    """Return the shape of the model whose config.json holds `values`. Raises ModelError, also for families not known here."""
    inner = values.get("text_config")
    text = {**values, **inner} if isinstance(inner, Mapping) else values
    family = _family(Settings(f"{name}: config.json", text))
    config = Settings(f"{name}: config.json", {**_DEFAULTS.get(family, {}), **text})
    traits = FAMILIES[family]
    layers = config.need("num_hidden_layers")
    if layers > 10_000:
        raise ModelError(f"{config.source}: num_hidden_layers is {layers:,}; at most 10,000 are sized")
    heads = _Heads.of(config, family)
    kinds = kinds_of_layers(config, family, layers)
    tied = config.flag("tie_word_embeddings", traits.tied)
    embedding = config.need("vocab_size") * config.need("hidden_size")
    counts, intermediate = _count(config, family, traits, heads, kinds)
    return ModelShape(
        name=name,
        family=family,
        num_layers=layers,
        hidden_size=config.need("hidden_size"),
        num_heads=heads.query,
        num_kv_heads=1 if config.has("kv_lora_rank") else heads.kv,
        intermediate_size=intermediate,
        vocab_size=config.need("vocab_size"),
        max_position=_max_position(config),
        groups=group_layers(config, kinds, heads.query, heads.kv, heads.dim),
        counts=WeightCounts(embedding, 0 if tied else embedding, counts.linear, counts.experts, counts.other),
        num_experts=_num_experts(config),
        experts_per_token=config.integer("num_experts_per_tok", 0) if _num_experts(config) else 0,
        default_weights=_weights_of_files(config),
    )


def _family(config: Settings) -> str:
    given = config.values.get("model_type")
    name = _ALIASES.get(given, given) if isinstance(given, str) else None
    if name not in FAMILIES:
        raise ModelError(
            f"{config.source}: model_type {repr(given)[:64]} is not known{did_you_mean(str(given), FAMILIES, most=2)}; known are "
            f"{', '.join(FAMILIES)}. Size it by numbers: --layers, --kv-heads, --head-dim, --params"
        )
    return str(name)


def _num_experts(config: Settings) -> int:
    names = ("num_local_experts", "n_routed_experts", "num_experts")
    return max((config.integer(name, 0) for name in names), default=0)


def _max_position(config: Settings) -> int:
    """Return the longest position; yarn may give that of pre-training and a factor."""
    longest = config.integer("max_position_embeddings", 2048) or 2048
    scaling = config.section("rope_scaling") if config.has("rope_scaling") else config.section("rope_parameters")
    factor, original = scaling.values.get("factor"), scaling.integer("original_max_position_embeddings", 0)
    if isinstance(factor, int | float) and 1 <= factor <= 1024:
        longest = max(longest, round(factor * original))
    return longest


def _weights_of_files(config: Settings) -> str | None:
    """Return the format that quantization_config tells of; None when it is one that this table lacks."""
    if not config.has("quantization_config"):
        return "f32" if config.values.get("torch_dtype", config.values.get("dtype")) == "float32" else "bf16"
    how = config.section("quantization_config")
    method, bits = how.values.get("quant_method"), how.integer("bits", 0)
    if method == "fp8":
        return "fp8_block" if how.has("weight_block_size") else "fp8"
    if method == "mxfp4":
        return "mxfp4"
    if method in ("awq", "gptq"):
        return {4: "int4", 8: "int8"}.get(bits)
    if method == "bitsandbytes":
        return "int4" if how.flag("load_in_4bit", False) else "int8"
    return None


@dataclass(frozen=True)
class _Heads:
    query: int
    kv: int
    dim: int

    @classmethod
    def of(cls, config: Settings, family: str) -> _Heads:
        query = config.need("num_attention_heads")
        if family == "falcon":
            new = config.flag("new_decoder_architecture", False)
            one = config.flag("multi_query", True) and not new
            kv = 1 if one else (config.integer("num_kv_heads", query) if new else query)
        else:
            kv = config.integer("num_key_value_heads", query) or query
        dim = config.integer("head_dim", 0) or config.need("hidden_size") // query
        if query % kv and not config.has("kv_lora_rank"):
            raise ModelError(f"{config.source}: {query} query heads are no multiple of {kv} KV heads")
        return cls(query, kv, dim)


@dataclass(frozen=True)
class _Counts:
    linear: int = 0
    experts: int = 0
    other: int = 0

    def __add__(self, more: _Counts) -> _Counts:
        return _Counts(self.linear + more.linear, self.experts + more.experts, self.other + more.other)


def _count(config: Settings, family: str, traits: Family, heads: _Heads, kinds: list[LayerKind]) -> tuple[_Counts, int]:
    """Return the weights of all layers and the final norm, and the intermediate size that one token passes in its widest layer."""
    hidden = config.need("hidden_size")
    total = _Counts(other=traits.final_norms * hidden)
    widest = 0
    for index, kind in enumerate(kinds):
        mlp, width = _mlp(config, family, traits, index)
        total += _mixer(config, family, traits, heads, kind) + mlp + _Counts(other=_norms(config, family, traits) * hidden)
        widest = max(widest, width)
    return total, widest


def _norms(config: Settings, family: str, traits: Family) -> int:
    """Norm vectors a layer; Falcon's layers with attention and MLP side by side share one norm, or have one each."""
    if family == "falcon" and config.flag("new_decoder_architecture", False):
        return 2 * config.integer("num_ln_in_parallel_attn", 2)
    if family == "falcon" and not config.flag("parallel_attn", True):
        return 4
    return traits.norms


def _mixer(config: Settings, family: str, traits: Family, heads: _Heads, kind: LayerKind) -> _Counts:
    if kind is LayerKind.MAMBA:
        return _mamba(config)
    if kind is LayerKind.DELTA:
        return _delta_net(config)
    if config.has("kv_lora_rank"):
        return _latent(config, heads)
    hidden, q, kv = config.need("hidden_size"), heads.query * heads.dim, heads.kv * heads.dim
    linear = hidden * (q * (2 if traits.gated_attention else 1) + 2 * kv) + q * hidden
    says = config.flag("attention_bias", family == "gpt_oss")
    other = (q + 2 * kv) * (says if traits.qkv_bias is None else traits.qkv_bias)
    other += hidden * (says if traits.o_bias is None else traits.o_bias)
    if traits.qk_norm == "full":
        other += q + kv
    elif traits.qk_norm == "head" or (config.flag("use_qk_norm", False) and family == "glm4_moe"):
        other += 2 * heads.dim
    return _Counts(linear, 0, other + (heads.query if family == "gpt_oss" else 0))  # one attention sink a head


def _latent(config: Settings, heads: _Heads) -> _Counts:
    hidden, latent = config.need("hidden_size"), config.need("kv_lora_rank")
    rotary, plain, value = config.need("qk_rope_head_dim"), config.need("qk_nope_head_dim"), config.need("v_head_dim")
    q_rank = config.integer("q_lora_rank", 0)
    q_out = heads.query * (plain + rotary)
    linear = hidden * q_rank + q_rank * q_out if q_rank else hidden * q_out
    linear += hidden * (latent + rotary) + latent * heads.query * (plain + value) + heads.query * value * hidden
    other = q_rank + latent
    if config.has("index_topk"):  # the lightning indexer of V3.2: queries, one key with a LayerNorm, weights of its heads
        index_heads, index_dim = config.need("index_n_heads"), config.need("index_head_dim")
        linear += q_rank * index_heads * index_dim + hidden * index_dim + hidden * index_heads
        other += 2 * index_dim
    return _Counts(linear, 0, other)


def _mamba(config: Settings) -> _Counts:
    hidden, state, width = config.need("hidden_size"), config.integer("mamba_d_state", 16), config.integer("mamba_d_conv", 4)
    inner = config.integer("mamba_expand", 2) * hidden
    rank = config.integer("mamba_dt_rank", 0) or cdiv(hidden, 16)
    linear = hidden * 2 * inner + inner * (rank + 2 * state) + rank * inner + inner * hidden
    other = inner * width + inner + inner + inner * state + inner + rank + 2 * state  # convolution, its bias, dt's bias, A, D, norms
    return _Counts(linear, 0, other)


def _delta_net(config: Settings) -> _Counts:
    hidden, v_heads, v_dim = config.need("hidden_size"), config.need("linear_num_value_heads"), config.need("linear_value_head_dim")
    keys, values = config.need("linear_num_key_heads") * config.need("linear_key_head_dim"), v_heads * v_dim
    linear = hidden * (2 * keys + 2 * values + 2 * v_heads) + values * hidden
    return _Counts(linear, 0, (2 * keys + values) * config.integer("linear_conv_kernel_dim", 4) + 2 * v_heads + v_dim)


def _mlp(config: Settings, family: str, traits: Family, index: int) -> tuple[_Counts, int]:
    """Return the weights of layer `index` after attention, and the intermediate size that one token passes there."""
    hidden, experts = config.need("hidden_size"), _num_experts(config)
    if not (experts and _is_sparse(config, family, index)):
        width = config.integer("intermediate_size_mlp" if family == "llama4_text" else "intermediate_size", 0)
        width = width or config.integer("ffn_hidden_size", 0) or 4 * hidden
        biases = width + hidden if traits.mlp_bias else 0
        if family == "llama" and config.flag("mlp_bias", False):
            biases = 2 * width + hidden
        return _Counts((3 if traits.gated else 2) * hidden * width, 0, biases), width
    width = config.integer("moe_intermediate_size", 0) or config.need("intermediate_size")
    expert, router = 3 * hidden * width, hidden * experts
    shared = _shared_width(config, family, width)
    if family == "gpt_oss":
        expert += 2 * width + hidden
        router += experts
    if family in ("deepseek_v3", "deepseek_v32", "kimi_k2", "glm4_moe"):
        router += experts  # the correction bias that balances load
    if family in ("qwen2_moe", "qwen3_next"):
        router += hidden  # the gate of the shared expert
    active = config.need("num_experts_per_tok") * width + shared
    return _Counts(3 * hidden * shared, experts * expert, router), active


def _shared_width(config: Settings, family: str, width: int) -> int:
    if family == "llama4_text":
        return width
    return config.integer("shared_expert_intermediate_size", 0) or config.integer("n_shared_experts", 0) * width


def _is_sparse(config: Settings, family: str, index: int) -> bool:
    dense = config.values.get("mlp_only_layers")
    if isinstance(dense, list) and index in dense:
        return False
    if family in ("deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "glm4_moe"):
        return index >= config.integer("first_k_dense_replace", 0)
    if family == "jamba":
        return index % (config.integer("expert_layer_period", 2) or 2) == config.integer("expert_layer_offset", 1)
    if family == "llama4_text":
        step = config.integer("interleave_moe_layer_step", 1) or 1
        return index % step == step - 1
    return (index + 1) % (config.integer("decoder_sparse_step", 1) or 1) == 0
