"""Every tiny model as a Hugging Face folder on disk, loaded the way the engine loads one: the logits are transformers' own."""

import json
import struct

import numpy as np
import pytest
import tiny

from octavo.config.schema import EngineConfig, RuntimeConfig
from octavo.loaders.tensor_names import SAFETENSORS_NAMES, file_name
from octavo.worker.runner import load_model
from octavo.worker.scoring import Scorer

GOLDEN = np.load(tiny.GOLDEN)
ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "deepseek_v2": "DeepseekV2ForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM",
}


def write_safetensors(path, tensors) -> None:
    header, data = {}, b""
    for name, raw in tensors.items():
        begin = len(data)
        data += raw.data
        header[file_name(name, SAFETENSORS_NAMES)] = {"dtype": "F32", "shape": raw.shape, "data_offsets": [begin, len(data)]}
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def config_of(spec, rope_field: str) -> dict:
    """Return config.json as today's transformers writes it (rope_parameters), or as older ones did (rope_scaling)."""
    rope = spec.rope
    scaling = {} if rope.kind == "none" else {"rope_type": rope.kind, "factor": rope.factor}
    if rope.kind == "llama3":
        scaling |= {"low_freq_factor": rope.low_freq_factor, "high_freq_factor": rope.high_freq_factor}
    if rope.kind == "yarn":
        scaling |= {"beta_fast": rope.beta_fast, "beta_slow": rope.beta_slow}
        if spec.latent is not None:
            scaling |= tiny.MSCALES
        elif rope.attention_factor is not None:
            scaling["attention_factor"] = rope.attention_factor
    if rope.original_max_position:
        scaling["original_max_position_embeddings"] = rope.original_max_position
    if rope_field == "rope_parameters":
        rope_entries = {"rope_parameters": {"rope_theta": rope.theta, "rope_type": "default", **scaling}}
    else:
        rope_entries = {"rope_theta": rope.theta, "rope_scaling": scaling or None}
    biases = {"attention_bias": spec.qkv_bias, "mlp_bias": spec.mlp_bias} if spec.family == "llama" else {}
    return {
        "architectures": [ARCHITECTURES[spec.family]],
        "model_type": spec.family,
        "vocab_size": spec.vocab_size,
        "hidden_size": spec.hidden_size,
        "intermediate_size": spec.intermediate_size,
        "num_hidden_layers": spec.num_layers,
        "num_attention_heads": spec.num_heads,
        "num_key_value_heads": spec.num_kv_heads,
        "head_dim": spec.head_dim,
        "max_position_embeddings": spec.max_position,
        "rms_norm_eps": spec.norm_eps,
        "tie_word_embeddings": spec.tie_embeddings,
        "hidden_act": spec.activation,
        "sliding_window": spec.sliding_window,
        **windows_of(spec),
        **rope_entries,
        **biases,
        **(tiny.latent_settings(spec) if spec.latent is not None else {}),
    }


def windows_of(spec) -> dict:
    """Return how a config says that only some layers have a window: by their number, or layer by layer."""
    sizes = [span.size for span in spec.layer_spans]
    if not sizes:
        return {}
    window = {"use_sliding_window": True, "sliding_window": max(filter(None, sizes))}
    num_full = sizes.count(None)
    if sizes[:num_full] == [None] * num_full:
        return {**window, "max_window_layers": num_full}
    return {**window, "layer_types": ["sliding_attention" if size else "full_attention" for size in sizes]}


@pytest.mark.parametrize("rope_field", ["rope_parameters", "rope_scaling"])
@pytest.mark.parametrize("name", tiny.CASES)
def test_a_folder_gives_the_logits_of_transformers(tmp_path, name, rope_field):
    spec = tiny.CASES[name]
    (tmp_path / "config.json").write_text(json.dumps(config_of(spec, rope_field)))
    write_safetensors(tmp_path / "model.safetensors", tiny.tensors(spec))
    loaded = load_model(EngineConfig(runtime=RuntimeConfig(backend="reference")), tmp_path)
    logits = Scorer(loaded, loaded.spec.kv_spec("f32"), tiny.NUM_TOKENS).logits(tiny.token_ids())
    assert np.abs(logits - GOLDEN[name]).max() <= tiny.RELATIVE_BOUND * np.abs(GOLDEN[name]).max()
