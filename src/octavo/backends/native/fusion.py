"""Rewrites of a recorded program that save work and change no bit of the result.

    sample early    take_rows moves up through every operation that works row by row, so only sampled rows pay for it
    residuals       linear, then add of its result alone -> one product that adds as it writes

Every rewrite returns a new list; tensors keep the rule that each is written once, before it is read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from octavo.ops.recording import SAMPLE_ROWS, Add, Gated, Instruction, Linear, Program, RmsNorm, StoreKV, TakeRows, TensorRef, inputs_of


@dataclass(frozen=True)
class LinearAdd:
    """out = linear + residual, where linear.out is not kept."""

    out: TensorRef
    linear: Linear
    residual: TensorRef


Fused = Instruction | LinearAdd


def fuse(program: Program) -> list[Fused]:
    """Return the program's instructions, rewritten. Tensors made by a rewrite have ids from program.num_tensors on."""
    return _fuse_residuals(_sample_early(program), program.output)


def _sample_early(program: Program) -> list[Instruction]:
    steps = list(program.instructions)
    next_id = program.num_tensors
    index = _movable(steps)
    while index is not None:
        step = steps[index]
        readers = [at for at, other in enumerate(steps) if step.out in inputs_of(other)]
        taken: dict[TensorRef, TensorRef] = {}
        for tensor in inputs_of(step):
            if tensor not in taken:
                taken[tensor] = TensorRef(next_id, "S", tensor.width)
                next_id += 1
        take = steps[readers[0]]
        moved = [TakeRows(out, x, SAMPLE_ROWS) for x, out in taken.items()]
        steps[index : index + 1] = [*moved, _with_inputs(step, taken, take.out)]
        steps.remove(take)
        steps = _share_takes(steps)
        index = _movable(steps)
    return steps


def _movable(steps: Sequence[Instruction]) -> int | None:
    """Return the index of an instruction that works row by row and whose only reader is a TakeRows."""
    uses = Counter(tensor for step in steps for tensor in inputs_of(step))
    taken = {step.x for step in steps if isinstance(step, TakeRows)}
    for index, step in enumerate(steps):
        if isinstance(step, Add | Linear | RmsNorm | Gated) and step.out in taken and uses[step.out] == 1:
            return index
    return None


def _with_inputs(step: Instruction, renamed: dict[TensorRef, TensorRef], out: TensorRef) -> Instruction:
    match step:
        case Add():
            return Add(out, renamed[step.x], renamed[step.y])
        case Gated():
            return Gated(out, renamed[step.gate], renamed[step.up], step.activation)
        case Linear() | RmsNorm():
            return replace(step, out=out, x=renamed[step.x])
    raise TypeError(f"{type(step).__name__} does not work row by row")


def _share_takes(steps: Sequence[Instruction]) -> list[Instruction]:
    """Return the steps with one TakeRows a tensor: the first one serves all."""
    first: dict[TensorRef, TensorRef] = {}
    same: dict[TensorRef, TensorRef] = {}
    kept: list[Instruction] = []
    for step in steps:
        if isinstance(step, TakeRows) and step.x in first:
            same[step.out] = first[step.x]
            continue
        if isinstance(step, TakeRows):
            first[step.x] = step.out
        if any(tensor in same for tensor in inputs_of(step)):
            step = _with_inputs(step, {tensor: same.get(tensor, tensor) for tensor in inputs_of(step)}, step.out)  # noqa: PLW2901
        kept.append(step)
    return kept


def _fuse_residuals(steps: Sequence[Instruction], output: TensorRef) -> list[Fused]:
    uses = Counter(tensor for step in steps for tensor in inputs_of(step))
    uses[output] += 1
    written_at = {step.out: index for index, step in enumerate(steps) if not isinstance(step, StoreKV)}
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
