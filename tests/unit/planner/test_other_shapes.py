"""Shapes from GGUF headers and from plain numbers, and efficiency from measured runs."""

import pytest

from octavo.errors import ConfigError, ModelError
from octavo.planner.catalogue import find_device, find_model_shape
from octavo.planner.efficiency import measured_efficiency
from octavo.planner.floors import decode_floor, prefill_floor
from octavo.planner.formats import kv_format, weight_format
from octavo.planner.gguf_shape import shape_from_gguf
from octavo.planner.number_shape import shape_from_numbers
from octavo.planner.sizing import Deployment

F16 = kv_format("f16")
SMOLLM2 = {
    "general.architecture": "llama",
    "llama.block_count": 2,
    "llama.embedding_length": 64,
    "llama.feed_forward_length": 128,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
    "llama.context_length": 512,
}
TENSORS = {
    "token_embd.weight": (100 * 64, 100 * 68),
    "blk.0.attn_q.weight": (64 * 64, 64 * 40),
    "blk.0.ffn_gate_exps.weight": (64 * 128, 64 * 72),
    "blk.0.attn_norm.weight": (64, 256),
}


def test_a_gguf_header_gives_layers_and_the_files_own_bytes():
    shape, weights = shape_from_gguf(SMOLLM2, TENSORS, "m")
    assert shape.bytes_per_token(F16) == 2 * 2 * 2 * 16 * 2
    assert (shape.vocab_size, shape.max_position, shape.counts.head) == (100, 512, 0)
    assert shape.weight_bytes(weights) == sum(size for _, size in TENSORS.values())
    assert weights.linear == 5.0
    assert weights.experts == 4.5
    assert weights.other == 32.0


@pytest.mark.parametrize(("bits", "compute"), [(4.5, "int8"), (8.5, "int8"), (16, "bf16"), (32, "bf16")])
def test_products_of_quantised_weights_run_in_int8_as_those_of_the_named_formats(bits, compute):
    tensors = TENSORS | {"blk.0.attn_q.weight": (64 * 64, int(64 * 64 * bits / 8))}
    assert shape_from_gguf(SMOLLM2, tensors, "m")[1].compute == compute


def test_gguf_windows_follow_the_family():
    gemma = {key.replace("llama.", "gemma3."): value for key, value in SMOLLM2.items()} | {
        "general.architecture": "gemma3",
        "gemma3.block_count": 12,
        "gemma3.attention.sliding_window": 128,
    }
    shape, _ = shape_from_gguf(gemma, TENSORS, "m")
    assert [(group.num_layers, group.window) for group in shape.groups] == [(2, None), (10, 128)]


def test_gguf_layers_without_kv_heads_are_recurrent():
    jamba = {key.replace("llama.", "jamba."): value for key, value in SMOLLM2.items()} | {
        "general.architecture": "jamba",
        "jamba.attention.head_count_kv": memoryview(bytes([0, 2])),
        "jamba.ssm.inner_size": 128,
        "jamba.ssm.conv_kernel": 4,
        "jamba.ssm.state_size": 16,
    }
    shape, _ = shape_from_gguf(jamba, TENSORS, "m")
    assert shape.bytes_per_token(F16) == 2 * 2 * 16 * 2
    assert shape.state_bytes() == 128 * 3 * 2 + 128 * 16 * 4


def test_gguf_latent_attention():
    mla = {key.replace("llama.", "deepseek2."): value for key, value in SMOLLM2.items()} | {
        "general.architecture": "deepseek2",
        "deepseek2.attention.kv_lora_rank": 512,
        "deepseek2.rope.dimension_count": 64,
    }
    assert shape_from_gguf(mla, TENSORS, "m")[0].bytes_per_token(F16) == 2 * 576 * 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"general.architecture": "lama"}, "did you mean llama"),
        ({"llama.block_count": 0}, "it must be an integer"),
        ({"llama.block_count": 100_000}, "at most 10,000"),
        ({"llama.attention.head_count_kv": memoryview(bytes([1]))}, "must list 2 numbers"),
        ({"llama.context_length": None}, "context_length missing"),
    ],
)
def test_a_header_that_makes_no_sense_is_refused(change, words):
    with pytest.raises(ModelError, match=words):
        shape_from_gguf(SMOLLM2 | change, TENSORS, "m")
    with pytest.raises(ModelError, match="no token_embd"):
        shape_from_gguf(SMOLLM2, {}, "m")


def test_plain_numbers_are_a_model_too():
    numbers = shape_from_numbers(layers=64, kv_heads=8, head_dim=128, params=32_762_123_264, heads=64, vocab=151_936, hidden=5120)
    real = find_model_shape("qwen3-32b")
    assert numbers.bytes_per_token(F16) == real.bytes_per_token(F16)
    assert numbers.counts.total == real.counts.total
    assert numbers.counts.head == real.counts.head
    windows = shape_from_numbers(layers=6, kv_heads=1, head_dim=64, params=10**9, window=512, window_layers=5)
    assert [(group.num_layers, group.window) for group in windows.groups] == [(1, None), (5, 512)]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"layers": 0}, "--layers is 0"),
        ({"heads": 3, "kv_heads": 2}, "no multiple"),
        ({"window": 512}, "go together"),
        ({"window": 512, "window_layers": 7}, "must lie in"),
        ({"vocab": 10**9}, "more weights"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(change, words):
    given = {"layers": 6, "kv_heads": 1, "head_dim": 64, "params": 10**9} | change
    with pytest.raises(ConfigError, match=words):
        shape_from_numbers(**given)


LLAMA = Deployment(find_model_shape("llama-3.1-8b"), find_device("H100-80G"), weight_format("bf16"), kv_format("bf16"))


def test_efficiency_is_floor_over_measured_time():
    floor = 32 * prefill_floor(LLAMA, 128).seconds + 100 * decode_floor(LLAMA, 32, 128 + 50).step_s
    throughput = {
        "num_requests": 32,
        "elapsed_time": 2 * floor,
        "total_num_tokens": 32 * 228,
        "output_tokens_per_second": 3200 / (2 * floor),
    }
    assert measured_efficiency(LLAMA, throughput) == pytest.approx(0.5)
    serve = {
        "completed": 32,
        "total_input_tokens": 32 * 128,
        "total_output_tokens": 3200,
        "duration": 4 * floor,
        "max_concurrent_requests": 32,
    }
    assert measured_efficiency(LLAMA, serve) == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("result", "words"),
    [
        ({"avg_latency": 1.0}, "no result of octavo bench"),
        ({"output_tokens_per_second": 10.0, "elapsed_time": 0, "num_requests": 1, "total_num_tokens": 1}, "must be more than 0"),
        ({"output_tokens_per_second": 1e9, "elapsed_time": 1, "num_requests": 1, "total_num_tokens": 2e9}, "was not measured with this"),
    ],
)
def test_a_result_that_says_nothing_of_this_deployment_is_refused(result, words):
    with pytest.raises(ConfigError, match=words):
        measured_efficiency(LLAMA, result)
