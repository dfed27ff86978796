"""Tiny models with random weights: one case per family and per feature that changes the numbers.

Weights come from NumPy's RandomState, whose stream is frozen for good, so the test and the script that wrote the golden
logits hold the same ones without a file between them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from octavo.loaders.tensor_names import expected_shapes
from octavo.specs.kv import FULL_ATTENTION, AttentionSpan
from octavo.specs.model import ExpertsSpec, LatentSpec, ModelSpec, RopeSpec
from octavo.specs.tensors import Format, RawTensor

GOLDEN = Path(__file__).parent.parent / "golden" / "tiny_logits.npz"
RELATIVE_BOUND = 1e-4  # of the largest logit: both sides are float32
NUM_TOKENS = 40
VOCAB_SIZE = 61


def spec(family: str = "llama", rope: RopeSpec | None = None, **fields: object) -> ModelSpec:
    defaults = {
        "num_layers": 2,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_heads": 4,
        "num_kv_heads": 2,
        "head_dim": 8,
        "vocab_size": VOCAB_SIZE,
        "max_position": 64,
        "norm_eps": 1e-5,
    }
    return ModelSpec(family=family, rope=rope or RopeSpec(dim=8), **{**defaults, **fields})


def latent(family: str, rope: RopeSpec, q_lora_rank: int | None = None, score_factor: float = 1.0, **fields: object) -> ModelSpec:
    shapes = LatentSpec(32, 10, 6, 16, q_lora_rank, score_factor)
    return spec(family, rope, latent=shapes, num_kv_heads=1, head_dim=16, **fields)


MSCALES = {"mscale": 1.0, "mscale_all_dim": 0.7}
_MSCALE_ALL_DIM = 0.1 * 0.7 * np.log(4.0) + 1  # YaRN's at a factor of 4

CASES: dict[str, ModelSpec] = {
    "llama": spec(),
    "llama-tied": spec(tie_embeddings=True, num_kv_heads=4),
    "llama-biases": spec(qkv_bias=True, o_bias=True, mlp_bias=True, num_kv_heads=1),
    "llama-linear": spec(rope=RopeSpec(dim=8, kind="linear", factor=4.0)),
    "llama-llama3": spec(rope=RopeSpec(dim=8, theta=500.0, kind="llama3", factor=8.0, original_max_position=32)),
    "llama-yarn": spec(rope=RopeSpec(dim=8, theta=100.0, kind="yarn", factor=4.0, original_max_position=16, beta_fast=4.0)),
    "llama-yarn-factor": spec(
        rope=RopeSpec(dim=8, theta=100.0, kind="yarn", factor=4.0, original_max_position=16, beta_fast=4.0, attention_factor=0.8)
    ),
    "mistral-window": spec("mistral", sliding_window=7),
    "qwen2": spec("qwen2", qkv_bias=True, tie_embeddings=True),
    "qwen2-windows": spec("qwen2", qkv_bias=True, num_layers=4, layer_spans=(*[FULL_ATTENTION] * 2, *[AttentionSpan("sliding", 7)] * 2)),
    "qwen3-windows": spec(
        "qwen3", qk_norm=True, num_layers=3, layer_spans=(AttentionSpan("sliding", 5), FULL_ATTENTION, AttentionSpan("sliding", 5))
    ),
    "qwen3": spec("qwen3", qk_norm=True, head_dim=16, rope=RopeSpec(dim=16, theta=1e6)),
    "deepseek-v2": latent("deepseek_v2", RopeSpec(dim=6, interleaved=True)),
    "deepseek-v2-lora": latent("deepseek_v2", RopeSpec(dim=6, interleaved=True), 24, qkv_bias=True, o_bias=True, tie_embeddings=True),
    "deepseek-v3": latent("deepseek_v3", RopeSpec(dim=6, theta=100.0, interleaved=True), 24),
    "deepseek-v3-halves": latent("deepseek_v3", RopeSpec(dim=6), 24, qkv_bias=True, o_bias=True),
    "deepseek-v3-yarn": latent(
        "deepseek_v3",
        RopeSpec(
            dim=6,
            theta=100.0,
            interleaved=True,
            kind="yarn",
            factor=4.0,
            original_max_position=16,
            beta_fast=4.0,
            attention_factor=(0.1 * np.log(4.0) + 1) / _MSCALE_ALL_DIM,
        ),
        24,
        _MSCALE_ALL_DIM**2,
    ),
    "deepseek-v2-experts": latent("deepseek_v2", RopeSpec(dim=6, interleaved=True), experts=ExpertsSpec(1, 6, 2, 16, 32, scaling=1.5)),
    "deepseek-v2-groups": latent(
        "deepseek_v2", RopeSpec(dim=6, interleaved=True), 24, experts=ExpertsSpec(0, 8, 3, 32, 32, num_groups=4, groups_kept=2)
    ),
    "deepseek-v3-experts": latent(
        "deepseek_v3",
        RopeSpec(dim=6, interleaved=True),
        24,
        experts=ExpertsSpec(1, 8, 3, 16, 16, "sigmoid", 4, 2, "two_best", True, 2.5, has_bias=True),
    ),
}


def latent_settings(spec: ModelSpec) -> dict[str, object]:
    """Return what config.json says of latent attention."""
    names = ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    interleave = {"rope_interleave": spec.rope.interleaved} if spec.family == "deepseek_v3" else {}
    return {
        **{name: getattr(spec.latent, name) for name in names},
        **interleave,
        "attention_bias": spec.qkv_bias,
        "num_key_value_heads": spec.num_heads,
        **(experts_settings(spec.experts) if spec.experts is not None else {"first_k_dense_replace": spec.num_layers}),
    }


def experts_settings(experts: ExpertsSpec) -> dict[str, object]:
    return {
        "first_k_dense_replace": experts.first_layer,
        "n_routed_experts": experts.count,
        "num_experts_per_tok": experts.per_token,
        "moe_intermediate_size": experts.intermediate_size,
        "n_shared_experts": experts.shared_size // experts.intermediate_size,
        "n_group": experts.num_groups,
        "topk_group": experts.groups_kept,
        "routed_scaling_factor": experts.scaling,
        **({"norm_topk_prob": True} if experts.normalize else {}),
        **({"topk_method": "group_limited_greedy"} if experts.group_worth == "best" and experts.num_groups > 1 else {}),
    }


def token_ids() -> list[int]:
    return np.random.RandomState(7).randint(0, VOCAB_SIZE, NUM_TOKENS).tolist()


def tensors(spec: ModelSpec, seed: int = 1) -> dict[str, RawTensor]:
    """Return float32 weights of a sensible size, by Octavo's names."""
    random = np.random.RandomState(seed)
    return {name: raw(name, values(random, name, shape)) for name, shape in expected_shapes(spec).items()}


def values(random: np.random.RandomState, name: str, shape: tuple[int, ...]) -> np.ndarray:
    noise = random.standard_normal(shape).astype(np.float32)
    if name.endswith("norm"):
        return 1 + np.float32(0.2) * noise
    return noise * np.float32(0.2 if name.endswith("bias") else 1.5 * shape[-1] ** -0.5)


def raw(name: str, array: np.ndarray) -> RawTensor:
    return RawTensor(name, array.shape, Format.F32, memoryview(array.tobytes()))
