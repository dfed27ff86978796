"""A tiny DeepSeek-V3 with random weights, as a Hugging Face folder: latent attention with a query latent and a stretched YaRN rope, a dense
layer and one that is a mixture of experts."""

import json
from pathlib import Path

import numpy as np
from tests.fakes.tiny_llama import FEED_FORWARD, HEADS, HIDDEN, LAYERS, MAX_POSITION, VOCAB, write_weights

Q_RANK, KV_RANK, NOPE, ROTARY, VALUE = 48, 32, 16, 16, 16
EXPERTS, EXPERTS_PER_TOKEN, EXPERT_SIZE = 16, 3, 32


def write_tiny_deepseek(folder: Path, *, seed: int = 0, scale: float = 0.35, kv_rank: int = KV_RANK) -> Path:
    """Write config.json and model.safetensors (float32) into `folder` and return it."""
    shapes = {"model.embed_tokens.weight": (VOCAB, HIDDEN), "lm_head.weight": (VOCAB, HIDDEN), "model.norm.weight": (HIDDEN,)}
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        shapes |= {
            prefix + "input_layernorm.weight": (HIDDEN,),
            prefix + "post_attention_layernorm.weight": (HIDDEN,),
            prefix + "self_attn.q_a_proj.weight": (Q_RANK, HIDDEN),
            prefix + "self_attn.q_a_layernorm.weight": (Q_RANK,),
            prefix + "self_attn.q_b_proj.weight": (HEADS * (NOPE + ROTARY), Q_RANK),
            prefix + "self_attn.kv_a_proj_with_mqa.weight": (kv_rank + ROTARY, HIDDEN),
            prefix + "self_attn.kv_a_layernorm.weight": (kv_rank,),
            prefix + "self_attn.kv_b_proj.weight": (HEADS * (NOPE + VALUE), kv_rank),
            prefix + "self_attn.o_proj.weight": (HIDDEN, HEADS * VALUE),
        }
        if layer == 0:
            shapes |= mlp_shapes(prefix + "mlp.", FEED_FORWARD)
            continue
        shapes |= {prefix + "mlp.gate.weight": (EXPERTS, HIDDEN), prefix + "mlp.gate.e_score_correction_bias": (EXPERTS,)}
        shapes |= mlp_shapes(prefix + "mlp.shared_experts.", EXPERT_SIZE)
        for expert in range(EXPERTS):
            shapes |= mlp_shapes(f"{prefix}mlp.experts.{expert}.", EXPERT_SIZE)
    write_weights(folder, shapes, np.random.default_rng(seed), scale)
    config = {
        "architectures": ["DeepseekV3ForCausalLM"],
        "model_type": "deepseek_v3",
        "hidden_size": HIDDEN,
        "intermediate_size": FEED_FORWARD,
        "num_hidden_layers": LAYERS,
        "first_k_dense_replace": 1,
        "n_routed_experts": EXPERTS,
        "num_experts_per_tok": EXPERTS_PER_TOKEN,
        "moe_intermediate_size": EXPERT_SIZE,
        "n_shared_experts": 1,
        "n_group": 4,
        "topk_group": 2,
        "norm_topk_prob": True,
        "routed_scaling_factor": 1.5,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "q_lora_rank": Q_RANK,
        "kv_lora_rank": kv_rank,
        "qk_nope_head_dim": NOPE,
        "qk_rope_head_dim": ROTARY,
        "v_head_dim": VALUE,
        "vocab_size": VOCAB,
        "max_position_embeddings": MAX_POSITION,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "rope_scaling": {
            "type": "yarn",
            "factor": 4.0,
            "original_max_position_embeddings": MAX_POSITION // 4,
            "beta_fast": 32,
            "beta_slow": 1,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
        },
        "hidden_act": "silu",
        "tie_word_embeddings": False,
    }
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def mlp_shapes(prefix: str, inner: int) -> dict[str, tuple[int, ...]]:
    return {
        prefix + "gate_proj.weight": (inner, HIDDEN),
        prefix + "up_proj.weight": (inner, HIDDEN),
        prefix + "down_proj.weight": (HIDDEN, inner),
    }
