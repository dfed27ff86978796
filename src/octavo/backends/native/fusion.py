"""Rewrites of a recorded program that save work and change no bit of the result.

    sample early    take_rows moves up through every operation that works row by row, so only sampled rows pay for it
    residuals       linear, then add of its result alone -> one product that adds as it writes

Every rewrite returns a new list; tensors keep the rule that each is written once, before it is read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from octavo.ops.program import (
    SAMPLE_ROWS,
    Activate,
    Add,
    Experts,
    Gated,
    HeadLinear,
    Instruction,
    LayerNorm,
    Linear,
    Program,
    RmsNorm,
    Route,
    StoreKV,
    StoreLatent,
    TakeRows,
    TensorRef,
    inputs_of,
)


class LinearAdd(msgspec.Struct, frozen=True):
    """out = linear + residual, where linear.out is not kept."""

    out: TensorRef
    linear: Linear
    residual: TensorRef


Fused = Instruction | LinearAdd
RowByRow = Add | Linear | HeadLinear | RmsNorm | Gated | Route | Experts | LayerNorm | Activate


def fuse(program: Program) -> list[Fused]:
    """Return the program's instructions, rewritten. Tensors made by a rewrite have ids from program.num_tensors on."""
    return _fuse_residuals(_sample_early(program), program.output)


def _sample_early(program: Program) -> list[Instruction]:
    """Walk from the last instruction to the first: one that works row by row and is read only by what is sampled is done for
    the sampled rows, of whose inputs it then needs no more than those rows either."""
    sampled: dict[TensorRef, TensorRef] = {}  # tensor of tokens -> its sampled rows
    whole: set[TensorRef] = set()  # read by an instruction that works on all tokens
    steps: list[Instruction] = []  # last first
    next_id = program.num_tensors
    for step in reversed(program.instructions):
        if isinstance(step, TakeRows) and step.x not in sampled:
            sampled[step.x] = step.out
        elif isinstance(step, RowByRow) and step.out in sampled and step.out not in whole:
            for tensor in inputs_of(step):
                if tensor not in sampled:
                    sampled[tensor] = TensorRef(next_id, "S", tensor.width)
                    next_id += 1
            steps.append(_of_sampled_rows(step, sampled))
        else:
            if not isinstance(step, StoreKV | StoreLatent) and step.out in sampled:
                steps.append(TakeRows(sampled[step.out], step.out, SAMPLE_ROWS))
            steps.append(step)
            whole.update(inputs_of(step))
    return steps[::-1]


def _of_sampled_rows(step: RowByRow, sampled: dict[TensorRef, TensorRef]) -> Instruction:
    out = sampled[step.out]
    match step:
        case Add():
            return Add(out, sampled[step.x], sampled[step.y])
        case Gated():
            return Gated(out, sampled[step.gate], sampled[step.up], step.activation)
        case Route():
            return replace(step, out=out, logits=sampled[step.logits])
        case Experts():
            return replace(step, out=out, x=sampled[step.x], weights=sampled[step.weights])
        case Linear() | HeadLinear() | RmsNorm() | LayerNorm() | Activate():
            return replace(step, out=out, x=sampled[step.x])


def _fuse_residuals(steps: Sequence[Instruction], output: TensorRef) -> list[Fused]:
    uses = Counter(tensor for step in steps for tensor in inputs_of(step))
    uses[output] += 1
    written_at = {step.out: index for index, step in enumerate(steps) if not isinstance(step, StoreKV | StoreLatent)}
    fused: dict[int, Fused | None] = {}
    for index, step in enumerate(steps):
        if not isinstance(step, Add):
            continue
        for product, residual in ((step.y, step.x), (step.x, step.y)):
            linear = steps[written_at[product]]
            if isinstance(linear, Linear) and uses[product] == 1 and written_at[residual] < written_at[product]:
                fused[written_at[product]] = LinearAdd(step.out, linear, residual)
                fused[index] = None
                break
    kept = (fused.get(index, step) for index, step in enumerate(steps))
    return [step for step in kept if step is not None]
