"""Rewrites of a recorded program: what moves, what merges, and what must stay."""

from dataclasses import dataclass

import numpy as np

from octavo.backends.native.fusion import LinearAdd, fuse
from octavo.ops.program import Add, Attention, Linear, RmsNorm, StoreKV, TakeRows, inputs_of
from octavo.ops.recording import record
from octavo.specs.kv import KVSpec
from octavo.specs.tensors import Format

KV = KVSpec(1, 1, 8)
NORM = np.ones(8, np.float32)


@dataclass(frozen=True)
class Square:
    """A weight [8, 8]; only its shape is asked."""

    shape: tuple[int, int] = (8, 8)
    format: Format = Format.F32
    num_bytes: int = 256


W = Square()


class Block:
    """One decoder layer: attention, a product, their residuals."""

    def forward(self, ops, batch, kv):
        x = ops.embed(batch.token_ids, W)
        y = ops.rms_norm(x, NORM, 1e-5)
        ops.store_kv(y, y, kv, 0, batch)
        x = ops.add(x, ops.linear(ops.attention(y, kv, 0, batch, 1.0), W))
        x = ops.add(x, ops.linear(ops.gated(x, x, "silu"), W))
        return ops.linear(ops.take_rows(x, batch.sample_rows), W)


def fused(model):
    return fuse(record(model, KV))


def test_only_what_attention_and_kv_need_is_computed_for_all_tokens():
    rows = {type(step).__name__: step.out.rows for step in fused(Block()) if not isinstance(step, StoreKV | TakeRows)}
    assert rows == {"Embed": "T", "RmsNorm": "T", "Attention": "T", "LinearAdd": "S", "Gated": "S", "Linear": "S"}


def test_rows_of_a_tensor_are_taken_once():
    taken = [step.x for step in fused(Block()) if isinstance(step, TakeRows)]
    assert len(taken) == len(set(taken)) == 2


def test_residuals_join_the_product_before_them():
    steps = fused(Block())
    assert sum(isinstance(step, LinearAdd) for step in steps) == 2
    assert not any(isinstance(step, Add) for step in steps)


def test_every_tensor_is_written_once_and_before_it_is_read():
    written = {0, 1, 2}
    for step in fused(Block()):
        read = (*inputs_of(step.linear), step.residual) if isinstance(step, LinearAdd) else inputs_of(step)
        assert {tensor.id for tensor in read} <= written
        if not isinstance(step, StoreKV):
            assert step.out.id not in written
            written.add(step.out.id)


def test_a_product_that_is_read_twice_keeps_its_own_result():
    class Twice:
        def forward(self, ops, batch, kv):
            x = ops.take_rows(ops.embed(batch.token_ids, W), batch.sample_rows)
            y = ops.linear(x, W)
            return ops.add(ops.add(x, y), y)

    assert [type(step) for step in fused(Twice())].count(Linear) == 1


def test_a_residual_that_is_computed_after_the_product_is_added_apart():
    class Late:
        def forward(self, ops, batch, kv):
            x = ops.take_rows(ops.embed(batch.token_ids, W), batch.sample_rows)
            y = ops.linear(x, W)
            return ops.add(y, ops.rms_norm(x, NORM, 1e-5))

    kinds = [type(step) for step in fused(Late())]
    assert kinds[-3:] == [Linear, RmsNorm, Add]


def test_a_norm_that_attention_reads_too_stays_whole():
    class Shared:
        def forward(self, ops, batch, kv):
            y = ops.rms_norm(ops.embed(batch.token_ids, W), NORM, 1e-5)
            ops.attention(y, kv, 0, batch, 1.0)
            return ops.take_rows(y, batch.sample_rows)

    steps = fused(Shared())
    assert next(step for step in steps if isinstance(step, RmsNorm)).out.rows == "T"
    assert isinstance(steps[-1], TakeRows | Attention)
