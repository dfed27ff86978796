"""Our readers against the libraries that define the formats: gguf, safetensors, transformers."""

import json

import pytest

from octavo.loaders.gguf import read_gguf
from octavo.loaders.load import open_weights, read_generation_defaults, read_spec

pytestmark = pytest.mark.reference

SMALL = {
    "vocab_size": 48,
    "hidden_size": 32,
    "intermediate_size": 40,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}


def make_model(family: str, **changes):
    transformers = pytest.importorskip("transformers")
    config_class = {"llama": "LlamaConfig", "mistral": "MistralConfig", "qwen2": "Qwen2Config", "qwen3": "Qwen3Config"}[family]
    config = getattr(transformers, config_class)(**SMALL | changes)
    return transformers.AutoModelForCausalLM.from_config(config)


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("llama", {}),
        ("llama", {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}),
        ("llama", {"head_dim": 16}),
        ("mistral", {}),
        ("qwen2", {"tie_word_embeddings": True}),
        ("qwen3", {"head_dim": 16}),
        ("qwen3", {"attention_bias": True}),
    ],
)
def test_a_folder_that_transformers_wrote_opens_with_its_tensors(tmp_path, family, changes):
    import numpy as np

    model = make_model(family, **changes)
    model.save_pretrained(tmp_path, max_shard_size="20KB" if family == "llama" else "5GB")
    checkpoint = open_weights(tmp_path)
    config = model.config
    spec = checkpoint.spec
    assert (spec.num_layers, spec.num_heads, spec.num_kv_heads, spec.head_dim) == (
        3,
        4,
        2,
        changes.get("head_dim", getattr(config, "head_dim", 8)),
    )
    assert spec.norm_eps == config.rms_norm_eps and spec.rope.theta == config.rope_parameters["rope_theta"]
    wanted = dict(model.named_parameters())
    found = {tensor.name: tensor for tensor in checkpoint.tensors.values()}
    assert found.keys() == wanted.keys()
    for name, parameter in wanted.items():
        ours = np.frombuffer(found[name].data, np.float32).reshape(found[name].shape)
        assert np.array_equal(ours, parameter.detach().numpy()), name


@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "qwen3"])
def test_absent_fields_mean_what_they_mean_to_transformers(tmp_path, family):
    transformers = pytest.importorskip("transformers")
    name = {"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3"}[family] + "ForCausalLM"
    (tmp_path / "config.json").write_text(json.dumps({"architectures": [name], "model_type": family}))
    config = transformers.AutoConfig.from_pretrained(tmp_path)
    spec = read_spec(tmp_path)
    assert (spec.num_layers, spec.hidden_size, spec.intermediate_size) == (
        config.num_hidden_layers,
        config.hidden_size,
        config.intermediate_size,
    )
    assert (spec.num_heads, spec.num_kv_heads) == (config.num_attention_heads, config.num_key_value_heads)
    assert spec.head_dim == (getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)
    assert (spec.vocab_size, spec.max_position, spec.norm_eps) == (config.vocab_size, config.max_position_embeddings, config.rms_norm_eps)
    assert spec.tie_embeddings == config.tie_word_embeddings
    assert spec.rope.theta == config.rope_parameters["rope_theta"]
    window = getattr(config, "sliding_window", None)
    assert spec.sliding_window == window
    defaults = read_generation_defaults(tmp_path)
    eos = config.eos_token_id
    assert (defaults.bos_token_id, defaults.eos_token_ids) == (config.bos_token_id, () if eos is None else (eos,))


def test_a_file_that_the_gguf_library_wrote_is_read(tmp_path):
    gguf = pytest.importorskip("gguf")
    import numpy as np

    path = tmp_path / "m.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint32("u", 7)
    writer.add_array("ids", [1, -2, 3])
    writer.add_array("words", ["a", "", "日本"])
    writer.add_float64("f", 0.1)
    values = np.arange(2 * 64, dtype=np.float32).reshape(2, 64)
    writer.add_tensor("dense", values)
    writer.add_tensor("packed", gguf.quantize(values, gguf.GGMLQuantizationType.Q8_0), raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    file = read_gguf(path)
    assert (file.metadata["u"], list(file.metadata["ids"]), file.metadata["words"].decode()) == (7, [1, -2, 3], ("a", "", "日本"))
    assert file.metadata["f"] == 0.1
    assert np.array_equal(np.frombuffer(file.tensors["dense"].data, np.float32).reshape(2, 64), values)
    theirs = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    assert {name: bytes(tensor.data) for name, tensor in file.tensors.items()} == {
        name: tensor.data.tobytes() for name, tensor in theirs.items()
    }
    assert file.tensors["packed"].shape == (2, 64)
