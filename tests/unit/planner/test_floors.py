"""Floors of a step against sums worked by hand."""

from dataclasses import replace

import pytest

from octavo.errors import ConfigError
from octavo.planner.catalogue import find_device, find_model_shape
from octavo.planner.floors import decode_floor, prefill_floor, speculation_gain
from octavo.planner.formats import kv_format, weight_format
from octavo.planner.sizing import Deployment

LLAMA = find_model_shape("llama-3.1-8b")
H100 = find_device("H100-80G")
ONE = Deployment(LLAMA, H100, weight_format("bf16"), kv_format("bf16"))
EMBEDDING = 128_256 * 4096


def test_one_sequence_reads_every_weight_but_the_embedding_and_its_own_kv():
    step = decode_floor(ONE, batch=1, context=1000)
    assert step.weight_bytes == 2 * (8_030_261_248 - EMBEDDING)
    assert step.kv_bytes == 1000 * 131_072
    assert step.operations == 2 * (8_030_261_248 - EMBEDDING) + 32 * 1000 * 4 * 32 * 128
    assert step.step_s == (step.weight_bytes + step.kv_bytes) / 3350e9
    assert step.bound == "memory"
    assert step.aggregate == step.per_sequence == 1 / step.step_s


def test_what_all_sequences_share_is_read_once_but_their_states_are_not():
    assert decode_floor(ONE, 8, 1000, shared=900).kv_bytes == (900 + 8 * 100) * 131_072
    jamba = replace(ONE, shape=find_model_shape("jamba-v0.1"))
    state_bytes = decode_floor(jamba, 1, 0).kv_bytes
    assert decode_floor(jamba, 8, 1000, shared=1000).kv_bytes == decode_floor(jamba, 1, 1000).kv_bytes + 7 * state_bytes
    for outside in (-1, 1001):
        with pytest.raises(ConfigError, match=f"shared {outside} must lie in 0..1000"):
            decode_floor(ONE, 8, 1000, shared=outside)


def test_a_wide_batch_of_short_contexts_is_bound_by_compute():
    assert decode_floor(ONE, batch=16, context=100).bound == "memory"
    assert decode_floor(ONE, batch=1024, context=100).bound == "compute"


def test_a_long_prompt_is_bound_by_compute_and_a_short_one_by_memory():
    long = prefill_floor(ONE, 8192)
    body = 8_030_261_248 - 2 * EMBEDDING
    assert long.operations == 2 * body * 8192 + 2 * EMBEDDING + 32 * 4 * 32 * 128 * (8192 * 8193 / 2)
    assert long.bound == "compute"
    assert long.seconds == long.operations / 989e12
    assert prefill_floor(ONE, 16).bound == "memory"


def test_cached_tokens_are_read_by_attention_alone():
    whole, rest = prefill_floor(ONE, 8192), prefill_floor(ONE, 4096, cached=4096)
    first = prefill_floor(ONE, 4096)
    assert whole.operations == pytest.approx(first.operations + rest.operations, rel=1e-3)  # one head more


def test_a_window_bounds_what_attention_reads():
    mistral = replace(ONE, shape=find_model_shape("mistral-7b-v0.1"))
    assert decode_floor(mistral, 1, 30_000).kv_bytes == 131_072 * 4096
    per_position = 32 * 4 * 32 * 128
    shape = mistral.shape
    expected = 4096 * 4097 / 2 + 4096 * 4096  # rising, then full windows
    attention = prefill_floor(mistral, 8192).operations - 2 * (shape.active_weights - shape.counts.head) * 8192 - 2 * shape.counts.head
    assert attention == pytest.approx(per_position * expected)


def test_sparse_attention_reads_the_chosen_tokens_and_all_indexer_keys():
    deployment = Deployment(find_model_shape("deepseek-v3.2"), H100, weight_format("fp8"), kv_format("fp8_ds_mla"))
    assert decode_floor(deployment, 1, 100_000).kv_bytes == 61 * (2048 * 656 + 100_000 * 132)


def test_latent_attention_scores_over_the_latent_when_decoding_and_expands_it_for_a_prompt():
    deepseek = Deployment(find_model_shape("deepseek-v3"), H100, weight_format("fp8"), kv_format("bf16"))
    shape = deepseek.shape
    decode = decode_floor(deepseek, 1, 1000).operations - 2 * shape.active_weights
    assert decode == 61 * 1000 * 128 * (2 * 576 + 2 * 512)
    prompt = prefill_floor(deepseek, 1000).operations - 2 * (shape.active_weights - shape.counts.head) * 1000 - 2 * shape.counts.head
    assert prompt == pytest.approx(61 * 128 * (2 * 192 + 2 * 128) * 1000 * 1001 / 2)


def test_recurrent_state_is_read_and_written_each_step():
    jamba = Deployment(find_model_shape("jamba-v0.1"), H100, weight_format("bf16"), kv_format("bf16"))
    assert decode_floor(jamba, 1, 0).kv_bytes == 2 * 28 * (8192 * 3 * 2 + 8192 * 16 * 4)


def test_fp8_products_run_at_the_devices_fp8_rate_and_weight_only_formats_at_bf16():
    step = {name: decode_floor(replace(ONE, weights=weight_format(name)), 512, 10) for name in ("bf16", "fp8", "int4")}
    assert step["fp8"].compute_s == pytest.approx(step["bf16"].compute_s * 989 / 1979)
    assert step["int4"].compute_s == step["bf16"].compute_s


def test_two_ranks_halve_the_traffic_and_add_an_all_reduce():
    one, two = decode_floor(ONE, 8, 4096), decode_floor(replace(ONE, tp=2), 8, 4096)
    assert two.memory_s == pytest.approx(one.memory_s / 2, rel=1e-4)  # norms are kept by both
    assert two.link_s == 2 * 32 * 8 * 4096 * 2 * 2 * (1 / 2) / 450e9
    assert two.step_s == two.memory_s + two.link_s


def test_copies_multiply_the_aggregate_and_leave_the_sequence_alone():
    one, four = decode_floor(ONE, 8, 4096), decode_floor(replace(ONE, dp=4), 8, 4096)
    assert (four.per_sequence, four.aggregate) == (one.per_sequence, 4 * one.aggregate)


def test_a_pipeline_keeps_its_stages_busy_with_parts_of_the_batch():
    one, two = decode_floor(ONE, 8, 4096), decode_floor(replace(ONE, pp=2), 8, 4096)
    assert two.kv_bytes == one.kv_bytes / 4  # half the layers of half the batch
    assert two.step_s == pytest.approx(2 * two.memory_s)  # a token passes both stages
    assert two.step_s < one.step_s
    assert two.aggregate == 8 / two.step_s


def test_speculation_makes_a_geometric_number_of_tokens():
    gain = speculation_gain(ONE, batch=1, context=1000, drafts=3, acceptance=0.7)
    assert gain.tokens_per_step == pytest.approx(1 + 0.7 + 0.49 + 0.343)
    assert gain.speedup == pytest.approx(gain.tokens_per_step, rel=0.01)  # memory-bound: four tokens cost what one does
    assert speculation_gain(ONE, 1, 1000, drafts=3, acceptance=1).tokens_per_step == 4


def test_drafts_that_are_never_taken_cost_when_compute_binds():
    wide = speculation_gain(ONE, batch=1024, context=100, drafts=3, acceptance=0.0)
    assert wide.tokens_per_step == 1
    assert wide.speedup < 0.5


@pytest.mark.parametrize(
    "call",
    [
        lambda: decode_floor(ONE, 0, 10),
        lambda: prefill_floor(ONE, 0),
        lambda: speculation_gain(ONE, 1, 10, drafts=0, acceptance=0.5),
        lambda: speculation_gain(ONE, 1, 10, drafts=3, acceptance=1.5),
    ],
)
def test_sizes_that_make_no_sense_are_refused(call):
    with pytest.raises(ConfigError):
        call()
