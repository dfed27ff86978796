"""The tiny models in Hugging Face transformers: the oracle of tests/models. Needs torch."""

from __future__ import annotations

import numpy as np
import tiny
import torch
from transformers import (
    DeepseekV2Config,
    DeepseekV2ForCausalLM,
    DeepseekV3Config,
    DeepseekV3ForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from octavo.loaders.tensor_names import SAFETENSORS_NAMES, file_name
from octavo.specs.model import ModelSpec
from octavo.specs.tensors import RawTensor

CLASSES = {
    "llama": (LlamaConfig, LlamaForCausalLM),
    "mistral": (MistralConfig, MistralForCausalLM),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM),
    "deepseek_v2": (DeepseekV2Config, DeepseekV2ForCausalLM),
    "deepseek_v3": (DeepseekV3Config, DeepseekV3ForCausalLM),
}


def rope_parameters(spec: ModelSpec) -> dict[str, object]:
    rope = spec.rope
    match rope.kind:
        case "none":
            return {"rope_theta": rope.theta, "rope_type": "default"}
        case "linear":
            extra: dict[str, object] = {}
        case "llama3":
            extra = {"low_freq_factor": rope.low_freq_factor, "high_freq_factor": rope.high_freq_factor}
        case "yarn":
            extra = {"beta_fast": rope.beta_fast, "beta_slow": rope.beta_slow}
            if spec.latent is not None:
                extra |= tiny.MSCALES
            elif rope.attention_factor is not None:
                extra["attention_factor"] = rope.attention_factor
    if rope.original_max_position:
        extra["original_max_position_embeddings"] = rope.original_max_position
    return {"rope_theta": rope.theta, "rope_type": rope.kind, "factor": rope.factor, **extra}


def stack_experts(spec: ModelSpec, state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the tensors of a checkpoint as transformers holds them: a layer's experts in two."""
    stacked = {name: tensor for name, tensor in state.items() if ".mlp.experts." not in name}
    for layer in range(spec.experts.first_layer, spec.num_layers):
        prefix = f"model.layers.{layer}.mlp.experts."
        gate, up, down = (
            torch.stack([state[f"{prefix}{expert}.{part}_proj.weight"] for expert in range(spec.experts.count)])
            for part in ("gate", "up", "down")
        )
        stacked |= {prefix + "gate_up_proj": torch.cat([gate, up], dim=1), prefix + "down_proj": down}
    return stacked


@torch.no_grad()
def logits(spec: ModelSpec, tensors: dict[str, RawTensor], token_ids: list[int]) -> np.ndarray:
    """Return transformers' float32 logits at every position: [T, V]."""
    config_class, model_class = CLASSES[spec.family]
    if spec.latent is None:
        special = {"num_key_value_heads": spec.num_kv_heads, "head_dim": spec.head_dim}
    else:
        special = tiny.latent_settings(spec)
    special |= {"attention_bias": spec.qkv_bias, "mlp_bias": spec.mlp_bias} if spec.family == "llama" else {}
    if spec.family in ("mistral", "qwen2"):
        special["sliding_window"] = spec.sliding_window
    if spec.layer_spans:
        special |= {
            "use_sliding_window": True,
            "sliding_window": next(span.size for span in spec.layer_spans if span.size),
            "layer_types": ["sliding_attention" if span.size else "full_attention" for span in spec.layer_spans],
        }
    config = config_class(
        vocab_size=spec.vocab_size,
        hidden_size=spec.hidden_size,
        intermediate_size=spec.intermediate_size,
        num_hidden_layers=spec.num_layers,
        num_attention_heads=spec.num_heads,
        max_position_embeddings=spec.max_position,
        rms_norm_eps=spec.norm_eps,
        tie_word_embeddings=spec.tie_embeddings,
        rope_parameters=rope_parameters(spec),
        attn_implementation="eager",
        **special,
    )
    model = model_class(config).eval()
    state = {
        file_name(name, SAFETENSORS_NAMES): torch.from_numpy(np.frombuffer(raw.data, np.float32).reshape(raw.shape).copy())
        for name, raw in tensors.items()
    }
    if spec.experts is not None:
        state = stack_experts(spec, state)
    missing, unexpected = model.load_state_dict(state, strict=False)
    if unexpected or [name for name in missing if name != "lm_head.weight"]:
        raise ValueError(f"weights do not fit: missing {missing}, unexpected {unexpected}")
    model.tie_weights()
    return model(torch.tensor([token_ids])).logits[0].numpy()
