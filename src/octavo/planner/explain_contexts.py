"""The derivations of what stands once for every length of context: how many sequences fit, and how fast they go at best."""

from __future__ import annotations

from collections.abc import Iterable

from octavo.planner.derivation import Derivation
from octavo.planner.floors import StepFloor
from octavo.planner.plan import Plan
from octavo.planner.sizing import Deployment, is_uniform, sequences
from octavo.units import cdiv


def derive_contexts(deployment: Deployment, plan: Plan) -> Iterable[Derivation]:
    """Yield, for each context of the plan, the sequences that fit and the floors of one alone and of all that fit."""
    d, available = deployment, plan.sizing.available_bytes
    contexts = {row.context: row.sequences for row in plan.sizing.concurrency}
    contexts.setdefault(plan.conversation, sequences(d, available, plan.conversation))
    for context, held in contexts.items():
        if is_uniform(d.rank):
            formula = "dp * ((blocks - 1) // ceil(context / block size))"
            values = f"{d.dp} * max(0, ({plan.sizing.num_blocks} - 1) // {cdiv(context, d.block_size)})"
        else:
            formula = "dp * ((available - bytes a block) // bytes of one sequence)"
            one = d.rank.sequence_bytes(d.kv, context, d.block_size)
            values = f"{d.dp} * max(0, int(({available} - {plan.sizing.bytes_per_block!r}) / {one!r}))"
        yield Derivation(f"sequences of {context:,}", formula, values, held, "")
    for row in plan.decode:
        yield Derivation(f"tokens/s alone at {row.context:,}", "1 / step", f"1 / ({_step(d, row.one)})", row.one.per_sequence, "tok/s")
        if row.full is not None:
            full, step = row.full, _step(d, row.full)
            yield Derivation(f"tokens/s a sequence at {row.context:,}", "1 / step", f"1 / ({step})", full.per_sequence, "tok/s")
            yield Derivation(
                f"tokens/s in all at {row.context:,}", "dp * batch / step", f"{d.dp} * {full.batch} / ({step})", full.aggregate, "tok/s"
            )


def _step(d: Deployment, step: StepFloor) -> str:
    return f"{d.pp} * (max({step.memory_s:.6g}, {step.compute_s:.6g}) + {step.link_s:.6g})"
