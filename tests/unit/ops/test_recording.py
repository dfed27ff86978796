"""A forward pass as data: recorded once, replayed to the same bits."""

import numpy as np
import pytest

from octavo.backends.reference.backend import ReferenceBackend
from octavo.backends.reference.ops import ReferenceOps, ReferenceWeight
from octavo.models.llama import bind_llama
from octavo.ops.interface import Batch
from octavo.ops.program import FIRST_COMPUTED_ID, Attention, Linear, RmsNorm, StoreKV, TakeRows, inputs_of, last_uses, run
from octavo.ops.recording import record
from octavo.specs.kv import KVSpec
from octavo.specs.model import ModelSpec, RopeSpec
from octavo.specs.tensors import Format, RawTensor

SPEC = ModelSpec(
    "qwen3", 2, 8, 12, 2, 1, 4, 11, 32, 1e-5, RopeSpec(dim=4), tie_embeddings=True, qkv_bias=True, qk_norm=True, sliding_window=3
)
SHAPES = {
    "attn_norm": (8,),
    "q": (8, 8),
    "k": (4, 8),
    "v": (4, 8),
    "o": (8, 8),
    "q_bias": (8,),
    "k_bias": (4,),
    "v_bias": (4,),
    "q_norm": (4,),
    "k_norm": (4,),
    "mlp_norm": (8,),
    "gate": (12, 8),
    "up": (12, 8),
    "down": (8, 12),
}


@pytest.fixture
def decoder():
    random = np.random.RandomState(0)

    def raw(name, shape):
        return RawTensor(name, shape, Format.F32, memoryview(random.standard_normal(shape).astype(np.float32).tobytes()))

    shapes = {"embed": (11, 8), "norm": (8,)} | {f"layers.{i}.{name}": shape for i in range(2) for name, shape in SHAPES.items()}
    return bind_llama(SPEC, {name: raw(name, shape) for name, shape in shapes.items()}, ReferenceBackend())


def two_rows() -> Batch:
    """Row 0: positions 0..2 in block 2; row 1: positions 0..3 in block 1."""
    return Batch(
        token_ids=np.array([1, 2, 3, 4, 5, 6, 7], np.int32),
        positions=np.array([0, 1, 2, 0, 1, 2, 3], np.int32),
        query_start=np.array([0, 3, 7], np.int32),
        context_len=np.array([3, 4], np.int32),
        block_table=np.array([[2], [1]], np.int32),
        slot_mapping=np.array([32, 33, 34, 16, 17, 18, 19], np.int64),
        sample_rows=np.array([2, 6], np.int32),
    )


def test_a_replayed_program_equals_the_eager_pass_bit_for_bit(decoder):
    backend, kv_spec = ReferenceBackend(), SPEC.kv_spec()
    eager_kv, replay_kv = backend.make_kv_cache(kv_spec, 3), backend.make_kv_cache(kv_spec, 3)
    eager = backend.eager(decoder, eager_kv)(two_rows())
    replayed = run(record(decoder, kv_spec), ReferenceOps(), two_rows(), replay_kv)
    assert eager.shape == (2, 11)
    assert np.array_equal(eager, replayed)
    assert np.array_equal(eager_kv.k, replay_kv.k) and np.array_equal(eager_kv.v, replay_kv.v)


def test_a_program_is_flat_in_order_and_writes_each_tensor_once(decoder):
    program = record(decoder, SPEC.kv_spec())
    known = set(range(FIRST_COMPUTED_ID))
    for step in program.instructions:
        assert {tensor.id for tensor in inputs_of(step)} <= known
        if not isinstance(step, StoreKV):
            assert step.out.id not in known
            known.add(step.out.id)
    assert known == set(range(program.num_tensors))
    assert (program.output.rows, program.output.width) == ("S", SPEC.vocab_size)


def test_a_program_holds_what_a_lowering_needs(decoder):
    program = record(decoder, SPEC.kv_spec())
    attention = [step for step in program.instructions if isinstance(step, Attention)]
    assert [(step.layer, step.scale, step.span.size) for step in attention] == [(0, 0.5, 3), (1, 0.5, 3)]
    q = next(step for step in program.instructions if isinstance(step, Linear))
    attention = decoder.layers[0].attention
    assert q.weight is attention.q and q.bias is attention.q_bias
    assert sum(isinstance(step, RmsNorm) for step in program.instructions) == 2 * 4 + 1
    assert sum(isinstance(step, TakeRows) for step in program.instructions) == 1


def test_a_tensor_is_read_no_later_than_its_last_use(decoder):
    program = record(decoder, SPEC.kv_spec())
    last = last_uses(program)
    assert last[program.output.id] == len(program.instructions)
    for index, step in enumerate(program.instructions):
        assert all(last[tensor.id] >= index for tensor in inputs_of(step))


class Misfit:
    """A model whose weight does not take what the embedding gives."""

    weight_bytes = 0

    def forward(self, ops, batch, kv):
        embed = ReferenceWeight(np.zeros((11, 8), np.float32), Format.F32)
        x = ops.embed(batch.token_ids, embed)
        return ops.linear(x, ReferenceWeight(np.zeros((4, 6), np.float32), Format.F32))


def test_widths_that_do_not_fit_are_refused_while_recording():
    with pytest.raises(ValueError, match=r"8 values meet a weight of shape \(4, 6\)"):
        record(Misfit(), KVSpec(1, 1, 4))


def test_activation_bytes_grow_with_tokens_and_rows(decoder):
    backend, kv_spec = ReferenceBackend(), SPEC.kv_spec()
    small, more_tokens, more_rows = (backend.activation_bytes(decoder, kv_spec, t, s) for t, s in ((8, 2), (16, 2), (16, 64)))
    # At the widest point of a layer x, gate and up are alive, and the gated product is being written.
    assert small == 8 * (8 + 3 * 12) * 4
    assert more_tokens == 2 * small
    assert more_rows > more_tokens
