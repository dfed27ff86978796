"""From a recorded program to the C++ one: numbers its tensors, and makes explicit what the verbs leave open.

Two things are computed once and shared: the operand of products (a row as int8 or bf16; right behind the row's writer, so
that both run in one region) and the cos and sin of a step's positions (one table per RopeSpec, first of all). Regions and
memory are decided in C++ (csrc/program_layout.cpp).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from octavo.backends.native import _native
from octavo.backends.native.fusion import Fused, LinearAdd, fuse
from octavo.backends.native.ops import window_and_chunk
from octavo.backends.native.tensors import experts_of, matrix_of, routing_of
from octavo.ops.interface import Weight
from octavo.ops.program import (
    POSITIONS,
    TOKEN_IDS,
    TOKEN_TYPES,
    Activate,
    Add,
    Attention,
    Embed,
    Experts,
    Gated,
    HeadLinear,
    LatentAttention,
    LayerNorm,
    Linear,
    Program,
    RmsNorm,
    Rope,
    Route,
    StoreKV,
    StoreLatent,
    TakeRows,
    TensorRef,
    WholeAttention,
)
from octavo.ops.rotary import attention_factor, rope_frequencies
from octavo.specs.kv import KVSpec
from octavo.specs.model import RopeSpec

_IDS = {TOKEN_IDS: "tokens", POSITIONS: "positions", TOKEN_TYPES: "types"}


def lower(program: Program, kv_spec: KVSpec) -> tuple[_native.ProgramBuilder, int]:
    """Return a builder that holds the whole program, and the number of its output tensor."""
    steps = fuse(program)
    lowering = _Lowering(steps, kv_spec)
    for step in steps:
        lowering.emit(step)
    return lowering.builder, lowering.tensor[program.output]


class _Lowering:
    def __init__(self, steps: Sequence[Fused], kv_spec: KVSpec) -> None:
        self._kv_spec = kv_spec
        self.builder = _native.ProgramBuilder()
        self.tensor: dict[TensorRef, int] = {}
        self._operand: dict[tuple[TensorRef, str, int], int] = {}
        # By tensor, one weight per kind of operand and number of heads.
        self._operands_of: dict[TensorRef, dict[tuple[str, int], _native.Matrix]] = {}
        for step in steps:
            linear = step.linear if isinstance(step, LinearAdd) else step
            if isinstance(linear, Linear | HeadLinear):
                matrix = matrix_of(linear.weight)
                heads = linear.heads if isinstance(linear, HeadLinear) else 1
                self._operands_of.setdefault(linear.x, {})[matrix.operand, heads] = matrix
        self._angles: dict[RopeSpec, int] = {}
        for step in steps:
            if isinstance(step, Rope) and step.rope not in self._angles:
                self._angles[step.rope] = self._emit_angles(step.rope)

    def emit(self, step: Fused) -> None:
        builder, tensor = self.builder, self.tensor
        if isinstance(step, StoreKV):
            builder.store_kv(tensor[step.k], tensor[step.v], *self._kv_spec.place(step.layer))
            return
        if isinstance(step, StoreLatent):
            builder.store_kv(tensor[step.latent], tensor[step.rotary], *self._kv_spec.place(step.layer))
            return
        out = builder.tensor(step.out.rows, 4 * step.out.width)
        match step:
            case Embed():
                builder.embed(out, _IDS[step.ids], matrix_of(step.weight))
            case RmsNorm():
                builder.rms_norm(out, tensor[step.x], step.weight, step.eps)
            case Linear():
                builder.linear(out, self._operand_for(step.x, step.weight), matrix_of(step.weight), step.bias, None, 1)
            case LinearAdd():
                linear = step.linear
                operand = self._operand_for(linear.x, linear.weight)
                builder.linear(out, operand, matrix_of(linear.weight), linear.bias, tensor[step.residual], 1)
            case Rope():
                builder.rope(out, tensor[step.x], self._angles[step.rope], step.head_dim, step.rope.interleaved)
            case Attention():
                builder.attention(out, tensor[step.q], None, *self._kv_spec.place(step.layer), step.scale, *window_and_chunk(step.span))
            case HeadLinear():
                operand = self._operand_for(step.x, step.weight, step.heads)
                builder.linear(out, operand, matrix_of(step.weight), None, None, step.heads)
            case LatentAttention():
                place = self._kv_spec.place(step.layer)
                builder.attention(out, tensor[step.q], tensor[step.q_rotary], *place, step.scale, None, None)
            case Gated():
                builder.gated(out, tensor[step.gate], tensor[step.up], step.activation)
            case Route():
                builder.route(out, tensor[step.logits], step.bias, routing_of(step.experts))
            case Experts():
                experts = experts_of(step.gate, step.up, step.down, step.experts, step.activation)
                builder.experts(out, tensor[step.x], tensor[step.weights], experts)
            case Add():
                builder.add(out, tensor[step.x], tensor[step.y])
            case TakeRows():
                builder.take_rows(out, tensor[step.x])
            case LayerNorm():
                builder.layer_norm(out, tensor[step.x], step.weight, step.bias, step.eps)
            case Activate():
                builder.activate(out, tensor[step.x], step.activation)
            case WholeAttention():
                builder.whole_attention(out, tensor[step.q], tensor[step.k], tensor[step.v], step.head_dim, step.scale)
        tensor[step.out] = out
        for (kind, heads), matrix in self._operands_of.get(step.out, {}).items():
            operand = builder.operand(step.out.rows, matrix, heads)
            builder.prepare(operand, out, matrix, heads)
            self._operand[step.out, kind, heads] = operand

    def _operand_for(self, x: TensorRef, weight: Weight, heads: int = 1) -> int:
        return self._operand[x, matrix_of(weight).operand, heads]

    def _emit_angles(self, rope: RopeSpec) -> int:
        frequencies: npt.NDArray[np.float64] = rope_frequencies(rope)
        table = self.builder.tensor("T", 8 * len(frequencies))
        self.builder.angles(table, frequencies, attention_factor(rope))
        return table
