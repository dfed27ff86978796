"""A tiny Llama with random weights, as a Hugging Face folder: real files for tests of everything above the loaders."""

import json
from pathlib import Path

import numpy as np

VOCAB = 128
MAX_POSITION = 256
HIDDEN, LAYERS, HEADS, KV_HEADS, FEED_FORWARD = 64, 2, 4, 2, 96


def write_tiny_llama(folder: Path, *, seed: int = 0, scale: float = 0.35, window: int | None = None, vocab: int = VOCAB) -> Path:
    """Write config.json and model.safetensors (float32) into `folder` and return it. `scale` is large enough for varied answers.

    `window`: a Qwen2 whose second layer sees only so many positions, in place of a Llama."""
    random = np.random.default_rng(seed)
    kv_width = HIDDEN // HEADS * KV_HEADS
    shapes = {"model.embed_tokens.weight": (vocab, HIDDEN), "lm_head.weight": (vocab, HIDDEN), "model.norm.weight": (HIDDEN,)}
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        shapes |= {
            prefix + "input_layernorm.weight": (HIDDEN,),
            prefix + "post_attention_layernorm.weight": (HIDDEN,),
            prefix + "self_attn.q_proj.weight": (HIDDEN, HIDDEN),
            prefix + "self_attn.k_proj.weight": (kv_width, HIDDEN),
            prefix + "self_attn.v_proj.weight": (kv_width, HIDDEN),
            prefix + "self_attn.o_proj.weight": (HIDDEN, HIDDEN),
            prefix + "mlp.gate_proj.weight": (FEED_FORWARD, HIDDEN),
            prefix + "mlp.up_proj.weight": (FEED_FORWARD, HIDDEN),
            prefix + "mlp.down_proj.weight": (HIDDEN, FEED_FORWARD),
        }
        if window is not None:
            shapes |= {f"{prefix}self_attn.{name}_proj.bias": (width,) for name, width in (("q", HIDDEN), ("k", kv_width), ("v", kv_width))}
    write_weights(folder, shapes, random, scale)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": FEED_FORWARD,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "vocab_size": vocab,
        "max_position_embeddings": MAX_POSITION,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
    }
    if window is not None:
        config |= {
            "architectures": ["Qwen2ForCausalLM"],
            "model_type": "qwen2",
            "use_sliding_window": True,
            "sliding_window": window,
            "max_window_layers": LAYERS - 1,
        }
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def write_weights(folder: Path, shapes: dict[str, tuple[int, ...]], random: np.random.Generator, scale: float) -> None:
    """Write model.safetensors (float32): vectors of ones, normal matrices."""
    header, blobs, offset = {}, [], 0
    for name, shape in shapes.items():
        values = np.ones(shape, np.float32) if len(shape) == 1 else random.normal(0, scale, shape).astype(np.float32)
        blobs.append(values.tobytes())
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [offset, offset + len(blobs[-1])]}
        offset += len(blobs[-1])
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + b"".join(blobs))
