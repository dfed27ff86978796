"""Real architectures: bytes a token by hand, weights against the published numbers, windows and state."""

import pytest

from octavo.errors import ConfigError, ModelError
from octavo.planner.catalogue import find_model_entry, find_model_shape, model_names
from octavo.planner.formats import kv_format, weight_format
from octavo.planner.hf_shape import shape_from_config

BF16 = kv_format("bf16")
MLA = 512 + 64  # latent and rotary

# layers * KV heads * 2 (K and V) * head_dim * 2 bytes, worked by hand from each model's page
BYTES_PER_TOKEN = {
    "smollm2-135m": 30 * 3 * 2 * 64 * 2,
    "smollm2-1.7b": 24 * 32 * 2 * 64 * 2,
    "llama-2-7b": 524_288,
    "llama-3.2-1b": 32_768,
    "llama-3.2-3b": 28 * 8 * 2 * 128 * 2,
    "llama-3.1-8b": 131_072,
    "llama-3.1-70b": 327_680,
    "llama-3.1-405b": 516_096,
    "llama-4-scout": 48 * 8 * 2 * 128 * 2,
    "mistral-7b-v0.1": 131_072,
    "mistral-7b-v0.3": 131_072,
    "mistral-nemo-12b": 163_840,
    "mistral-small-24b": 163_840,
    "mixtral-8x7b": 131_072,
    "mixtral-8x22b": 229_376,
    "qwen2.5-0.5b": 12_288,
    "qwen2.5-1.5b": 28_672,
    "qwen2.5-7b": 57_344,
    "qwen2.5-72b": 327_680,
    "qwen3-0.6b": 114_688,
    "qwen3-8b": 147_456,
    "qwen3-32b": 262_144,
    "qwen3-30b-a3b": 98_304,
    "qwen3-235b-a22b": 192_512,
    "qwen3-next-80b-a3b": 12 * 2 * 2 * 256 * 2,
    "gemma-2-9b": 344_064,
    "gemma-2-27b": 376_832,
    "gemma-3-270m": 18_432,
    "gemma-3-27b": 507_904,
    "phi-3-mini-4k": 32 * 32 * 2 * 96 * 2,
    "phi-4": 204_800,
    "deepseek-v2-lite": 27 * MLA * 2,
    "deepseek-v3": 61 * MLA * 2,
    "deepseek-v3.2": 61 * (MLA * 2 + 128 + 4),
    "kimi-k2": 61 * MLA * 2,
    "gpt-oss-20b": 49_152,
    "gpt-oss-120b": 73_728,
    "falcon-7b": 8_192,
    "falcon-40b": 60 * 8 * 2 * 64 * 2,
    "jamba-v0.1": 4 * 8 * 2 * 128 * 2,
    "glm-4.5-air": 188_416,
    "command-r7b": 131_072,
    "olmo-2-7b": 524_288,
    "granite-3.1-8b": 163_840,
    "starcoder2-7b": 65_536,
    "qwen1.5-moe-a2.7b": 24 * 16 * 2 * 128 * 2,
    "gemma-7b": 28 * 16 * 2 * 256 * 2,
    "gemma-3-4b": 34 * 4 * 2 * 256 * 2,
    "smollm3-3b": 73_728,
    "command-r-35b": 1_310_720,
    "olmo-3-7b": 524_288,
}

# Bytes of one sequence of 131,072 tokens for models that do not keep all of it: full layers whole, windows of so many blocks of 16
LONG_SEQUENCES = {
    "gemma-3-27b": 81_920 * 131_072 + 425_984 * 16 * (1024 // 16 + 1),
    "gemma-2-9b": 172_032 * 131_072 + 172_032 * 16 * (4096 // 16 + 1),
    "gpt-oss-120b": 36_864 * 131_072 + 36_864 * 16 * (128 // 16 + 1),
    "mistral-7b-v0.1": 131_072 * 16 * (4096 // 16 + 1),
    "phi-3-mini-4k": 393_216 * 16 * (128 + 1),  # 2,047 tokens fill 128 blocks
    "command-r7b": 32_768 * 131_072 + 98_304 * 16 * 257,
    "llama-4-scout": 49_152 * 131_072 + 147_456 * 8192,  # a chunk begins on a block, so none more
    "jamba-v0.1": 16_384 * 131_072 + 28 * (8192 * 3 * 2 + 8192 * 16 * 4),
    "qwen3-next-80b-a3b": 24_576 * 131_072 + 36 * ((2 * 2048 + 4096) * 3 * 2 + 32 * 128 * 128 * 4),
}


def test_every_architecture_of_the_catalogue_has_its_hand_derived_value():
    assert set(BYTES_PER_TOKEN) == set(model_names())
    assert len(BYTES_PER_TOKEN) >= 25


@pytest.mark.parametrize("name", BYTES_PER_TOKEN)
def test_bytes_per_token_are_those_worked_by_hand(name):
    assert find_model_shape(name).bytes_per_token(BF16) == BYTES_PER_TOKEN[name]


@pytest.mark.parametrize("name", model_names())
def test_weights_are_as_many_as_were_published(name):
    assert find_model_shape(name).counts.total == find_model_entry(name).parameters


@pytest.mark.parametrize("name", LONG_SEQUENCES)
def test_windows_chunks_and_state_bound_what_a_long_sequence_takes(name):
    assert find_model_shape(name).sequence_bytes(BF16, 131_072) == LONG_SEQUENCES[name]


def test_a_sequence_shorter_than_its_window_takes_all_its_blocks_and_no_more():
    mistral = find_model_shape("mistral-7b-v0.1")
    assert mistral.sequence_bytes(BF16, 4096) == 131_072 * 4096
    assert mistral.sequence_bytes(BF16, 17) == 131_072 * 32
    assert mistral.read_bytes(BF16, 100_000) == 131_072 * 4096


@pytest.mark.parametrize(
    ("kv", "factor"),
    [
        ("f32", 2),
        ("f16", 1),
        ("fp8", 1 / 2),
        ("nvfp4", 4.5 / 16),
        ("int8_per_token_head", (128 + 4) / 256),
        ("int4_per_token_head", (64 + 4) / 256),
    ],
)
def test_every_kv_format_scales_a_token_by_its_bits_and_scales(kv, factor):
    llama = find_model_shape("llama-3.1-8b")
    assert llama.bytes_per_token(kv_format(kv)) == 131_072 * factor


@pytest.mark.parametrize(
    ("name", "billions"),
    [("mixtral-8x7b", 12.75), ("qwen3-30b-a3b", 3.04), ("deepseek-v3", 36.63), ("gpt-oss-120b", 5.13), ("llama-4-scout", 16.13)],
)
def test_active_weights_leave_out_idle_experts_and_the_embedding(name, billions):
    assert find_model_shape(name).active_weights / 1e9 == pytest.approx(billions, abs=0.01)


def test_a_step_touches_the_experts_that_its_tokens_chose():
    mixtral, bf16 = find_model_shape("mixtral-8x7b"), weight_format("bf16")
    one, many = mixtral.streamed_bytes(bf16, 1), mixtral.streamed_bytes(bf16, 1000)
    assert one == pytest.approx(2 * mixtral.active_weights)
    assert many == pytest.approx(2 * (mixtral.counts.total - mixtral.counts.embedding))
    two = 1 - (1 - 2 / 8) ** 2
    assert mixtral.streamed_bytes(bf16, 2) == pytest.approx(many - 2 * (1 - two) * mixtral.counts.experts)


@pytest.mark.parametrize(
    ("name", "weights", "file_bytes"),
    [
        ("llama-3.1-8b", "q4_k_m", 4_920_739_232),
        ("llama-3.1-8b", "q8_0", 8_540_775_840),
        ("llama-3.1-8b", "bf16", 16_060_556_376),
        ("gpt-oss-120b", "mxfp4", 65_248_815_744),
        ("gpt-oss-20b", "mxfp4", 13_761_264_768),
    ],
)
def test_weights_take_what_their_published_files_take(name, weights, file_bytes):
    assert find_model_shape(name).weight_bytes(weight_format(weights)) == pytest.approx(file_bytes, rel=0.005)


def test_the_files_own_format_is_the_default():
    assert find_model_shape("deepseek-v3").default_weights == "fp8_block"
    assert find_model_shape("gpt-oss-20b").default_weights == "mxfp4"
    assert find_model_shape("phi-4").default_weights == "bf16"
    config = find_model_entry("phi-4").config
    assert shape_from_config(config | {"quantization_config": {"quant_method": "awq", "bits": 4}}, "x").default_weights == "int4"
    assert shape_from_config(config | {"quantization_config": {"quant_method": "new"}}, "x").default_weights is None


def test_layers_named_as_dense_have_no_experts():
    config = find_model_entry("qwen3-30b-a3b").config
    dense = shape_from_config(config | {"mlp_only_layers": [0, 47]}, "m").counts
    expert = 3 * 2048 * 768
    assert find_model_shape("qwen3-30b-a3b").counts.experts - dense.experts == 2 * 128 * expert
    assert dense.linear - find_model_shape("qwen3-30b-a3b").counts.linear == 2 * 3 * 2048 * 6144


def test_a_name_is_found_with_its_owner_and_without_its_ending():
    assert find_model_shape("Qwen/Qwen3-32B").name == "qwen3-32b"
    assert find_model_shape("mistralai/Mistral-7B-v0.3").name == "mistral-7b-v0.3"
    assert find_model_shape("google/gemma-3-27b-it").name == "gemma-3-27b"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model_type": "qwen33"}, "did you mean qwen3"),
        ({"model_type": None}, "model_type None is not known"),
        ({"num_hidden_layers": None}, "num_hidden_layers missing"),
        ({"num_hidden_layers": 1 << 40}, "it must be an integer in"),
        ({"num_hidden_layers": 20_000}, "at most 10,000"),
        ({"hidden_size": "big"}, "it must be an integer"),
        ({"num_key_value_heads": 7}, "no multiple of 7 KV heads"),
        ({"layer_types": ["full_attention"]}, "layer_types must list 64"),
        ({"layer_types": ["strange"] * 64}, "not 'strange'"),
        ({"use_sliding_window": "yes"}, "must be true or false"),
    ],
)
def test_a_config_that_makes_no_sense_is_refused_by_name(change, words):
    config = find_model_entry("qwen3-32b").config | {"sliding_window": 4096} | change
    with pytest.raises(ModelError, match=words):
        shape_from_config(config, "m")


def test_unknown_names_bring_the_nearest_known():
    with pytest.raises(ModelError, match="did you mean qwen3-32b"):
        find_model_shape("qwen3-33b")
    with pytest.raises(ConfigError, match="did you mean fp8"):
        kv_format("fp9")
    with pytest.raises(ConfigError, match="did you mean q4_k"):
        weight_format("q4_k_l")
