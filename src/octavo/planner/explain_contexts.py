"""The derivations of what stands once for every length of context or pair of formats: how many sequences fit, how fast at best."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from octavo.planner.derivation import Derivation
from octavo.planner.floors import StepFloor
from octavo.planner.formats import kv_format
from octavo.planner.plan import Plan
from octavo.planner.sizing import Deployment, is_uniform, sequences
from octavo.units import cdiv


def derive_contexts(deployment: Deployment, plan: Plan) -> Iterable[Derivation]:
    """Yield, for each context of the plan, the sequences that fit and the floors of one alone and of all that fit."""
    d, available = deployment, plan.sizing.available_bytes
    contexts = {row.context: row.sequences for row in plan.sizing.concurrency}
    contexts.setdefault(plan.conversation, sequences(d, available, plan.conversation))
    for context, held in contexts.items():
        yield _held(f"sequences of {context:,}", d, available, context, held)
    for row in plan.decode:
        yield Derivation(f"tokens/s alone at {row.context:,}", "1 / step", f"1 / ({_step(d, row.one)})", row.one.per_sequence, "tok/s")
        if row.full is not None:
            full, step = row.full, _step(d, row.full)
            yield Derivation(f"tokens/s a sequence at {row.context:,}", "1 / step", f"1 / ({step})", full.per_sequence, "tok/s")
            yield Derivation(
                f"tokens/s in all at {row.context:,}", "dp * batch / step", f"{d.dp} * {full.batch} / ({step})", full.aggregate, "tok/s"
            )


def derive_formats(deployment: Deployment, plan: Plan) -> Iterable[Derivation]:
    """Yield the conversations that each pair of formats holds, and how many times the first that holds any."""
    base = next((row.conversations for row in plan.formats if row.conversations), None)
    for row in plan.formats:
        pair = f"{row.weights} weights, {row.kv} KV"
        other = replace(deployment, kv=kv_format(row.kv))
        yield _held(f"conversations in {pair}", other, row.pool_bytes, plan.conversation, row.conversations)
        if base is not None and row.gain is not None:
            yield Derivation(
                f"gain of {pair}", "conversations / those of the first formats that hold any", f"{row.conversations} / {base}", row.gain, ""
            )


def _held(name: str, d: Deployment, available: int, context: int, held: int) -> Derivation:
    block = d.rank.bytes_per_token(d.kv) * d.block_size
    if is_uniform(d.rank):
        formula = "dp * ((available // bytes a block - 1) // ceil(context / block size))"
        values = f"{d.dp} * max(0, ({available} // {block!r} - 1) // {cdiv(context, d.block_size)})"
    else:
        formula = "dp * ((available - bytes a block) // bytes of one sequence)"
        values = f"{d.dp} * max(0, int(({available} - {block!r}) / {d.rank.sequence_bytes(d.kv, context, d.block_size)!r}))"
    return Derivation(name, formula, values, held, "")


def _step(d: Deployment, step: StepFloor) -> str:
    return f"{d.pp} * (max({step.memory_s:.6g}, {step.compute_s:.6g}) + {step.link_s:.6g})"
