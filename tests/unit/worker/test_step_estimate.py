"""What a step has to do, for the little model of conftest.py: 2 layers, 16 wide, 4 query and 2 KV heads of 4, 24 wide inside, 50 ids."""

import math

import pytest
from msgspec.structs import replace
from tests.models.tiny import CASES

from octavo.backends.reference.backend import ReferenceBackend
from octavo.loaders.tensor_names import expected_shapes
from octavo.messages.step import RowStep, StepPlan
from octavo.models.registry import bind
from octavo.ops.recording import record
from octavo.specs.kv import FULL_ATTENTION, AttentionSpan
from octavo.specs.tensors import Format, RawTensor
from octavo.worker.estimate import StepEstimator, _pairs

LAYER = 16 * 16 + 2 * 8 * 16 + 16 * 16 + 3 * 16 * 24  # numbers in its matrices
HEAD = 50 * 16
KV = 2 * 2 * 4 * 4  # bytes of a position and layer, in f32


def estimate(loaded, *rows):
    spec = loaded.spec.kv_spec("f32")
    steps = [RowStep(f"r{number}", *row, [], wants_sample) for number, (*row, wants_sample) in enumerate(rows)]
    return StepEstimator(record(loaded.model, spec), spec).estimate(StepPlan(step_id=1, new_rows=[], rows=steps, released=[]))


def test_a_prompt_that_is_cut_short_computes_no_logits(loaded):
    found = estimate(loaded, (0, 3, False))
    assert found.operations == 3 * 2 * 2 * LAYER + (1 + 2 + 3) * 2 * 4 * 16
    assert found.read_bytes == 4 * (2 * LAYER + HEAD) + 3 * 4 * 16 + 3 * 2 * KV
    assert found.write_bytes == 3 * 2 * KV


def test_rows_share_the_weights_but_each_reads_its_own_context(loaded):
    alone, both = estimate(loaded, (9, 1, True)), estimate(loaded, (9, 1, True), (4, 1, True))
    assert alone.operations == 2 * 2 * LAYER + 2 * HEAD + 10 * 2 * 4 * 16
    assert both.operations == 2 * (2 * 2 * LAYER + 2 * HEAD) + (10 + 5) * 2 * 4 * 16
    assert both.read_bytes - alone.read_bytes == 4 * 16 + 5 * 2 * KV
    assert both.write_bytes == 2 * 2 * KV


@pytest.mark.parametrize("span", [FULL_ATTENTION, AttentionSpan("sliding", 5), AttentionSpan("chunked", 5)])
def test_pairs_are_what_each_position_sees(span):
    for count in range(17):
        assert _pairs(span, count) == sum(position - span.first_seen(position) + 1 for position in range(count))


def estimator_of(spec):
    backend = ReferenceBackend()
    tensors = {
        name: RawTensor(name, shape, Format.F32, memoryview(bytes(4 * math.prod(shape)))) for name, shape in expected_shapes(spec).items()
    }
    kv_spec = spec.kv_spec("f32")
    return StepEstimator(record(bind(spec, tensors, backend), kv_spec), kv_spec)


def test_a_latent_layer_keeps_one_vector_and_scores_its_rotary_part_too():
    estimator = estimator_of(CASES["deepseek-v2"])  # 2 layers, 4 heads, latents of 32 and rotary keys of 6
    near, far = (estimator.estimate(StepPlan(step_id=1, new_rows=[], rows=[RowStep("r", at, 1, [], True)], released=[])) for at in (8, 9))
    assert far.operations - near.operations == 2 * (4 * 4 * 32 + 2 * 4 * 6)
    assert far.read_bytes - near.read_bytes == far.write_bytes == 2 * 4 * (32 + 6)


def test_of_experts_those_count_that_a_row_picks():
    mixed = CASES["deepseek-v2-experts"]  # in the second layer 2 of 6 experts of 32 x 16, a router, and a shared MLP of 32 x 32
    plan = StepPlan(step_id=1, new_rows=[], rows=[RowStep("r", 0, 1, [], True)], released=[])
    dense, experts = (estimator_of(spec).estimate(plan) for spec in (replace(mixed, experts=None), mixed))
    more = 2 * 3 * 32 * 16 + 6 * 32 + 3 * 32 * 32 - 3 * 32 * 48  # numbers of the matrices that one token meets
    assert experts.operations - dense.operations == 2 * more
    assert experts.read_bytes - dense.read_bytes == 4 * more
