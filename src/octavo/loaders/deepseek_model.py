"""What config.json says of DeepSeek's own parts: latent attention and mixtures of experts.

The rest of such a config reads like any other's (hf_model.py). Source: the configurations of transformers 5, whose defaults these
are.
"""

from __future__ import annotations

import math
from typing import Any, Literal

from octavo.errors import ModelError
from octavo.loaders.fields import Fields
from octavo.specs.model import ExpertsSpec, LatentSpec

_SHARED_DEFAULTS = {
    "rms_norm_eps": 1e-6,
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
}
DEEPSEEK_V2_DEFAULTS: dict[str, Any] = _SHARED_DEFAULTS | {
    "vocab_size": 102_400,
    "hidden_size": 4096,
    "intermediate_size": 11_008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "max_position_embeddings": 2048,
    "first_k_dense_replace": 0,
    "moe_intermediate_size": 1407,
    "n_routed_experts": 64,
    "n_shared_experts": 2,
    "topk_method": "greedy",
    "routed_scaling_factor": 1.0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
DEEPSEEK_V3_DEFAULTS: dict[str, Any] = _SHARED_DEFAULTS | {
    "vocab_size": 129_280,
    "hidden_size": 7168,
    "intermediate_size": 18_432,
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "max_position_embeddings": 4096,
    "first_k_dense_replace": 3,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "n_group": 8,
    "topk_group": 4,
    "routed_scaling_factor": 2.5,
    "bos_token_id": 0,
    "eos_token_id": 1,
}


def read_latent(config: Fields) -> LatentSpec:
    """Return the shapes of latent attention. `config` holds the family's defaults, in which a q_lora_rank of null stays null."""
    _check(config)
    return LatentSpec(
        kv_lora_rank=config.integer("kv_lora_rank", 0),
        qk_nope_head_dim=config.integer("qk_nope_head_dim", 0),
        qk_rope_head_dim=config.integer("qk_rope_head_dim", 0),
        v_head_dim=config.integer("v_head_dim", 0),
        q_lora_rank=config.integer("q_lora_rank", None),
        score_factor=_score_factor(config),
    )


def is_interleaved(config: Fields, family: str) -> bool:
    """Return whether rotary pairs are neighbours: V2 always, V3 as rope_interleave says."""
    return family == "deepseek_v2" or config.boolean("rope_interleave", True)


def _score_factor(config: Fields) -> float:
    """Return the square of YaRN's mscale at mscale_all_dim: scores are products of a query and a key, both stretched."""
    scaling = config.section("rope_scaling") or config.section("rope_parameters") or Fields(config.source, {})
    mscale_all, factor = scaling.number("mscale_all_dim", 0.0), scaling.number("factor", 1.0)
    return (0.1 * mscale_all * math.log(factor) + 1) ** 2 if mscale_all and factor > 1 else 1.0


def read_experts(config: Fields, family: str) -> ExpertsSpec | None:
    """Return the mixtures of experts; None where all layers are dense."""
    first_layer = config.integer("first_k_dense_replace", 0)
    if first_layer >= config.integer("num_hidden_layers", 0):
        return None
    inner = config.integer("moe_intermediate_size", 0)
    groups, kept = config.integer("n_group", 1), config.integer("topk_group", 1)
    is_v3 = family == "deepseek_v3"
    scoring: Literal["softmax", "sigmoid"] = "sigmoid" if is_v3 else "softmax"
    if config.text("scoring_func", scoring) != scoring:
        raise ModelError(
            f"{config.source}: scoring_func is {config.values['scoring_func'][:64]!r}; for {family} only {scoring} is supported"
        )
    if (every := config.integer("moe_layer_freq", 1)) != 1:
        raise ModelError(f"{config.source}: moe_layer_freq is {every}; only 1 is supported, experts in every layer after the dense ones")
    if not is_v3 and config.choice("topk_method", "greedy", {"greedy": True, "group_limited_greedy": False}):
        groups = kept = 1
    if not is_v3 and config.boolean("norm_topk_prob", False):
        raise ModelError(f"{config.source}: norm_topk_prob is true; for {family} only weights that are not normalised are supported")
    return ExpertsSpec(
        first_layer=first_layer,
        count=config.integer("n_routed_experts", 0),
        per_token=config.integer("num_experts_per_tok", 0),
        intermediate_size=inner,
        shared_size=inner * config.integer("n_shared_experts", 0),
        scoring=scoring,
        num_groups=groups,
        groups_kept=kept,
        group_worth="two_best" if is_v3 else "best",
        normalize=is_v3 and config.boolean("norm_topk_prob", True),
        scaling=config.number("routed_scaling_factor", 1.0),
        has_bias=is_v3,
    )


def _check(config: Fields) -> None:
    """Raise ModelError for what Octavo computes otherwise than the file asks."""
    if config.boolean("mlp_bias", False):
        raise ModelError(f"{config.source}: mlp_bias is true; only MLPs without biases are supported for this family")
    if config.values.get("index_topk") is not None:
        raise ModelError(f"{config.source}: index_topk: sparse attention (DeepSeek-V3.2) is not supported")
