"""The seeds' numbers, to the token."""

import pytest

from octavo.errors import OutOfMemory
from octavo.planner.memory import (
    count_blocks,
    plan_memory,
    requested_bytes,
)
from octavo.specs.kv import FULL_ATTENTION, MAX_PADDING, AttentionSpan, KVSpec, group_layers
from octavo.specs.model import ModelSpec, RopeSpec
from octavo.units import GiB

QWEN3_32B = KVSpec(num_layers=64, num_kv_heads=8, head_dim=128)
WEIGHTS = 65_600_000_000
SMOLLM2 = KVSpec(num_layers=30, num_kv_heads=3, head_dim=64)


def test_an_80_gib_device_holds_51221_tokens_of_qwen3_32b_beside_its_weights():
    available = requested_bytes(80 * GiB, 0.92) - WEIGHTS
    assert QWEN3_32B.bytes_per_token == 262_144
    assert available // QWEN3_32B.bytes_per_token == 51_221
    assert count_blocks(available, QWEN3_32B.bytes_per_block) == 3_201


def test_requested_memory_is_rounded_up():
    assert requested_bytes(80 * GiB, 0.92) == 79_027_398_247
    assert requested_bytes(10, 0.55) == 6


def test_one_block_is_the_null_block_in_the_fit_check():
    assert plan(max_model_len=51_200, num_blocks_override=3_201).reduced_from is None
    assert plan(max_model_len=51_201, num_blocks_override=3_201).max_model_len == 51_200


def test_concurrency_counts_all_blocks_and_whole_blocks_per_request():
    ledger = plan(max_model_len=15_000, num_blocks_override=3_201)
    assert ledger.max_concurrency == pytest.approx(3_201 / 938)
    assert ledger.kv_tokens == int(3_201 / 938 * 15_000) == 51_188


HYBRID = ModelSpec(
    "qwen2", 8, 64, 64, 4, 2, 16, 100, 8192, 1e-5, RopeSpec(16),
    layer_spans=(*[FULL_ATTENTION] * 6, *[AttentionSpan("sliding", 100)] * 2),
).kv_spec()  # fmt: skip


def test_a_window_forgets_and_the_ledger_counts_what_each_layer_group_holds():
    assert [group.layers for group in HYBRID.groups] == [(0, 1, 2), (3, 4, 5), (6, 7)]
    assert HYBRID.bytes_per_block == 3 * 2 * 2 * 16 * 2 * 16  # layers in a block, heads, K and V, head_dim, bytes, positions
    window = 2 + -(-(99 + 64) // 16)
    ledger = plan(kv_spec=HYBRID, max_model_len=4096, max_step_tokens=64, num_blocks_override=2000)
    assert ledger.blocks_per_request == 2 * 256 + window
    assert ledger.max_concurrency == 2000 / (2 * 256 + window)
    shorter = plan(kv_spec=HYBRID, max_model_len=4096, max_step_tokens=64, num_blocks_override=1 + 2 * 100 + window)
    assert shorter.max_model_len == 1600
    with pytest.raises(OutOfMemory):
        plan(kv_spec=HYBRID, num_blocks_override=3)


@pytest.mark.parametrize(
    ("full", "sliding", "size", "groups"),
    [(21, 7, 7, 4), (20, 8, 10, 3), (3, 15, 5, 4), (4, 22, 4, 7), (1, 1, 1, 2), (0, 5, 5, 1), (1, 30, 3, 11)],
)
def test_layers_are_grouped_so_that_few_places_stay_empty(full, sliding, size, groups):
    spans = [*[FULL_ATTENTION] * full, *[AttentionSpan("sliding", 64)] * sliding]
    made = group_layers(spans)
    assert len(made) == groups
    assert len(made[0].layers) == max(len(group.layers) for group in made) == size
    assert sorted(layer for group in made for layer in group.layers) == list(range(full + sliding))
    assert all(spans[layer] == group.span for group in made for layer in group.layers)
    assert len(made) * size <= MAX_PADDING * len(spans)


def test_no_block_left_beside_the_null_block_is_its_own_error():
    with pytest.raises(OutOfMemory, match="No available memory for the cache blocks"):
        count_blocks(QWEN3_32B.bytes_per_block, QWEN3_32B.bytes_per_block)
    assert count_blocks(2 * QWEN3_32B.bytes_per_block, QWEN3_32B.bytes_per_block) == 2


def plan(**changes):
    chosen = {
        "free_bytes": 16 * GiB,
        "weight_bytes": 100_000_000,
        "activation_bytes": 50_000_000,
        "kv_spec": SMOLLM2,
        "max_model_len": 8192,
        "may_shorten": True,
        "max_num_seqs": 128,
    } | changes
    return plan_memory(**chosen)


def test_by_default_half_of_what_is_free_is_used():
    ledger = plan()
    assert ledger.num_blocks == (8 * GiB - 150_000_000) // SMOLLM2.bytes_per_block
    assert ledger.weight_bytes + ledger.activation_bytes + ledger.kv_bytes + ledger.reserve_bytes == ledger.free_bytes
    assert ledger.reserve_bytes >= 8 * GiB
    assert ledger.max_model_len == 8192
    assert ledger.reduced_from is None


def test_the_pool_is_no_larger_than_all_requests_could_use():
    assert plan(max_model_len=1024, max_num_seqs=4).num_blocks == 4 * 64 + 1


def test_a_length_that_nobody_asked_for_is_lowered_to_what_fits():
    ledger = plan(free_bytes=500_000_000)
    assert ledger.max_model_len == (ledger.num_blocks - 1) * 16 < 8192
    assert f"Auto-fit max_model_len: reduced from 8,192 to {ledger.max_model_len:,}" in ledger.lines()


def test_a_length_that_was_asked_for_is_refused_with_need_have_and_the_largest_that_fits():
    with pytest.raises(OutOfMemory) as caught:
        plan(free_bytes=500_000_000, may_shorten=False)
    longest = plan(free_bytes=500_000_000).max_model_len
    assert "max_model_len 8,192 tokens" in str(caught.value)
    assert "180.4 MiB of KV memory are needed" in str(caught.value)
    assert f"largest length that fits is {longest:,}" in str(caught.value)
    plan(free_bytes=500_000_000, may_shorten=False, max_model_len=longest)


def test_an_exact_pool_size_overrides_the_share():
    assert plan(kv_cache_memory_bytes=GiB).num_blocks == GiB // SMOLLM2.bytes_per_block
    assert plan(num_blocks_override=1000, kv_cache_memory_bytes=GiB).num_blocks == 1000


def test_an_exact_pool_size_that_is_not_there_is_refused():
    with pytest.raises(OutOfMemory, match=r"more than the 16\.0 GiB that are free"):
        plan(kv_cache_memory_bytes=17 * GiB)


def test_the_log_line_is_the_one_that_dashboards_know():
    assert plan(num_blocks_override=1747).lines()[-1] == (
        "KV cache size: 27,952 tokens, Maximum concurrency for 8,192 tokens per request: 3.41x"
    )
