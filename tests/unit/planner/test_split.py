"""What the fullest of several devices holds."""

from dataclasses import replace

import pytest

from octavo.errors import ConfigError
from octavo.planner.catalogue import devices, find_device, find_model_shape
from octavo.planner.formats import kv_format, weight_format
from octavo.planner.sizing import Deployment, longest_context, sequences, size
from octavo.planner.split import shard

BF16 = kv_format("bf16")
LLAMA70 = find_model_shape("llama-3.1-70b")


def test_kv_heads_are_cut_until_each_rank_has_one_and_then_copied():
    assert [shard(LLAMA70, tp, 1).bytes_per_token(BF16) for tp in (1, 2, 4, 8, 16)] == [327_680, 163_840, 81_920, 40_960, 40_960]


def test_a_latent_is_kept_by_every_rank():
    deepseek = find_model_shape("deepseek-v3")
    assert shard(deepseek, 8, 1).bytes_per_token(BF16) == deepseek.bytes_per_token(BF16) == 70_272


def test_ranks_share_the_matrices_and_each_keeps_the_norms():
    half, whole = shard(LLAMA70, 2, 1).counts, LLAMA70.counts
    assert (half.linear, half.embedding, half.other) == (whole.linear // 2, whole.embedding // 2, whole.other)


def test_stages_share_the_layers_and_one_end_of_the_model_each():
    stage = shard(LLAMA70, 1, 4)
    assert stage.bytes_per_token(BF16) == 327_680 / 4
    assert (stage.counts.embedding, stage.counts.head) == (LLAMA70.counts.embedding, 0)


def test_70b_in_16_bits_needs_four_h100_and_holds_more_with_eight():
    def on(tp):
        return Deployment(LLAMA70, find_device("H100-80G"), weight_format("bf16"), BF16, tp=tp)

    assert [size(on(tp)).num_blocks > 0 for tp in (1, 2, 4, 8)] == [False, True, True, True]
    assert not size(on(2)).fits  # the weights, and hardly anything else
    assert size(on(4)).fits
    assert size(on(8)).tokens > 2 * size(on(4)).tokens


def test_copies_add_their_pools():
    one = Deployment(find_model_shape("qwen3-8b"), find_device("L4-24G"), weight_format("fp8"), BF16)
    assert size(replace(one, dp=3)).tokens == 3 * size(one).tokens
    assert size(replace(one, dp=3)).concurrency[0].sequences == 3 * size(one).concurrency[0].sequences
    assert size(replace(one, dp=3)).longest_context == size(one).longest_context


@pytest.mark.parametrize("name", ["gemma-3-27b", "llama-4-scout", "jamba-v0.1", "qwen3-next-80b-a3b", "gpt-oss-120b", "qwen3-32b"])
def test_the_longest_context_fits_and_one_block_more_does_not(name):
    deployment = Deployment(find_model_shape(name), find_device("MI325X-256G"), weight_format("fp8"), BF16)
    available = size(deployment).available_bytes
    longest = longest_context(deployment, available)
    assert sequences(deployment, available, longest) >= 1
    assert sequences(deployment, available, longest + 16) == 0


def test_windows_bound_a_sequence_however_long():
    mistral = Deployment(find_model_shape("mistral-7b-v0.1"), find_device("H100-80G"), weight_format("bf16"), BF16)
    sizing = size(mistral)
    assert sizing.longest_context == 1 << 31
    assert sizing.max_model_len == 32_768
    assert sizing.concurrency[-1].sequences == sizing.concurrency[3].sequences  # 128k like 16k: 4,096 tokens are kept


@pytest.mark.parametrize(("tp", "pp", "words"), [(3, 1, "cannot share evenly"), (1, 81, "80 layers"), (0, 1, "at least 1")])
def test_splits_that_the_model_does_not_allow_are_refused(tp, pp, words):
    with pytest.raises(ConfigError, match=words):
        shard(LLAMA70, tp, pp)


def test_mlas_own_kv_format_is_for_mla_alone():
    with pytest.raises(ConfigError, match="latent attention"):
        Deployment(LLAMA70, find_device("h100"), weight_format("fp8"), kv_format("fp8_ds_mla"))
    Deployment(find_model_shape("deepseek-v3"), find_device("h200"), weight_format("fp8"), kv_format("fp8_ds_mla"))


def test_an_unknown_device_brings_the_nearest():
    with pytest.raises(ConfigError, match="did you mean H100-80G"):
        find_device("H100-80GB")
    assert find_device("h100") == find_device("H100-80G")


def test_every_device_names_its_source_and_day():
    assert all(device.source and len(device.date) == 10 and device.bandwidth > 0 and device.bf16_flops > 0 for device in devices())
