"""Each number of a plan with its formula and the values put in, as docs/numbers.md writes them.

A derivation is text for a reader; its result is taken from the plan itself, and a test puts the values into the formula and
compares.
"""

from __future__ import annotations

from dataclasses import dataclass

from octavo.planner.floors import decode_floor
from octavo.planner.plan import Plan
from octavo.planner.sizing import Deployment, is_uniform, utilization_of, widest_layer
from octavo.units import cdiv


@dataclass(frozen=True)
class Derivation:
    """`name` = `formula` = `values` = `result` `unit`; `values` is the formula with numbers, arithmetic that anybody can check."""

    name: str
    formula: str
    values: str
    result: float
    unit: str


def derive(deployment: Deployment, plan: Plan) -> tuple[Derivation, ...]:
    """Return the derivations in the order in which the numbers depend on each other."""
    return (*_per_token(deployment), *_ledger(deployment, plan), *_capacity(deployment, plan), *_floor(deployment, plan), *_cost(plan))


def _per_token(d: Deployment) -> list[Derivation]:
    lines = []
    for group in d.rank.groups:
        if group.state_bytes:
            lines.append(
                Derivation(
                    f"state a sequence, {group.name}",
                    "layers * bytes of convolution and recurrent state",
                    f"{group.num_layers} * {group.state_bytes}",
                    group.num_layers * group.state_bytes,
                    "B",
                )
            )
        elif group.vector_dims:
            each = d.kv.bytes_of(group.vector_dims)
            dims = " + ".join(map(str, group.vector_dims))
            lines.append(
                Derivation(
                    f"bytes a token, {group.name}",
                    f"layers * KV heads * bytes of vectors of {dims} in {d.kv.name}",
                    f"{group.num_layers} * {group.num_kv_heads} * {each!r}",
                    group.bytes_per_token(d.kv),
                    "B",
                )
            )
        else:
            lines.append(
                Derivation(
                    f"bytes a token, {group.name}",
                    "layers * bytes of a key",
                    f"{group.num_layers} * {group.token_bytes}",
                    group.bytes_per_token(d.kv),
                    "B",
                )
            )
    return lines


def _ledger(d: Deployment, plan: Plan) -> list[Derivation]:
    s, rank, w = plan.sizing, d.rank, d.weights
    counts = rank.counts
    lines = [
        Derivation(
            "requested",
            "ceil(total * utilization)",
            f"ceil({s.total_bytes} * {utilization_of(d):g})",
            s.requested_bytes,
            "B",
        )
    ]
    if d.weight_bytes is None:
        terms = ((counts.linear, w.linear), (counts.experts, w.experts), (counts.embedding, w.embedding), (counts.head, w.head))
        values = " + ".join(f"{count} * {bits!r}" for count, bits in (*terms, (counts.other, w.other)) if count)
        formula = "weights of a device * bits / 8: linear, experts, embedding, head, other"
        lines.append(Derivation("weights", formula, f"ceil(({values}) / 8)", s.weight_bytes, "B"))
    else:
        lines.append(Derivation("weights", "as given / (tp * pp)", f"ceil({d.weight_bytes} / {d.tp * d.pp})", s.weight_bytes, "B"))
    if d.activation_bytes is None:
        width, logits = f"(2 * {rank.hidden_size} + {widest_layer(rank)})", f"{s.max_num_seqs} * {rank.vocab_size} * 8"
        formula = "tokens a step * 2 * (2 hidden + widest) + sequences * vocabulary * 8"
        lines.append(Derivation("activations", formula, f"{s.max_num_batched_tokens} * 2 * {width} + {logits}", s.activation_bytes, "B"))
    if d.kv_cache_memory_bytes is None:
        values = f"{s.requested_bytes} - {s.weight_bytes} - {s.activation_bytes} - {s.reserve_bytes}"
        most = s.max_num_seqs * cdiv(d.model_len, d.block_size) + 1
        if d.device.kind == "cpu" and s.available_bytes < s.requested_bytes - s.weight_bytes - s.activation_bytes - s.reserve_bytes:
            formula = "what max_num_seqs requests of full length can use, and the null block"
            lines.append(Derivation("available for KV", formula, f"{most} * {s.bytes_per_block:.0f}", s.available_bytes, "B"))
        else:
            lines.append(Derivation("available for KV", "requested - weights - activations - reserve", values, s.available_bytes, "B"))
    return lines


def _capacity(d: Deployment, plan: Plan) -> list[Derivation]:
    s = plan.sizing
    lines = [
        Derivation("bytes a block", "bytes a token * block size", f"{s.bytes_per_token!r} * {d.block_size}", s.bytes_per_block, "B"),
        Derivation("blocks", "available // bytes a block", f"{s.available_bytes} // {s.bytes_per_block!r}", s.num_blocks, ""),
        Derivation(
            "tokens", "available // bytes a token, times dp", f"{s.available_bytes} // {s.bytes_per_token!r} * {d.dp}", s.tokens, ""
        ),
    ]
    if is_uniform(d.rank):
        need = cdiv(s.model_len, d.block_size)
        lines += [
            Derivation(
                "longest context", "(blocks - 1) * block size", f"({s.num_blocks} - 1) * {d.block_size}", s.longest_context, "tokens"
            ),
            Derivation("max concurrency", "blocks / ceil(length / block size)", f"{s.num_blocks} / {need}", s.max_concurrency, ""),
        ]
    else:
        one = d.rank.sequence_bytes(d.kv, s.model_len, d.block_size)
        lines.append(
            Derivation(
                "max concurrency",
                "available / bytes of one sequence of full length",
                f"{s.available_bytes} / {one:.0f}",
                s.max_concurrency,
                "",
            )
        )
    lines.append(
        Derivation(
            "tokens in the log line", "int(max concurrency * length)", f"int({s.max_concurrency:.6f} * {s.model_len})", s.logged_tokens, ""
        )
    )
    return lines


def _floor(d: Deployment, plan: Plan) -> list[Derivation]:
    held = next((row.conversations for row in plan.formats if row.is_chosen), 0)
    batch = max(1, min(held // d.dp, plan.sizing.max_num_seqs))
    step = decode_floor(d, batch, plan.conversation)
    bandwidth = d.device.bandwidth
    return [
        Derivation(
            f"decode traffic of {batch} x {plan.conversation:,}",
            "streamed weights + batch * bytes read of a sequence",
            f"{step.weight_bytes:.0f} + {step.kv_bytes:.0f}",
            step.weight_bytes + step.kv_bytes,
            "B",
        ),
        Derivation("memory time", "traffic / bandwidth", f"{step.weight_bytes + step.kv_bytes:.0f} / {bandwidth:.4g}", step.memory_s, "s"),
        Derivation(
            "compute time",
            "batch * (2 * active weights + attention) / rate",
            f"{step.operations:.4g} / {d.device.flops(d.weights.compute):.4g}",
            step.compute_s,
            "s",
        ),
        Derivation(
            "step",
            "pp * (max(memory, compute) + link)",
            f"{d.pp} * (max({step.memory_s:.4g}, {step.compute_s:.4g}) + {step.link_s:.4g})",
            step.step_s,
            "s",
        ),
        Derivation("tokens/s a sequence", "1 / step", f"1 / {step.step_s:.6g}", step.per_sequence, "tok/s"),
        Derivation("tokens/s in all", "dp * batch / step", f"{d.dp} * {batch} / {step.step_s:.6g}", step.aggregate, "tok/s"),
    ]


def _cost(plan: Plan) -> list[Derivation]:
    lines = []
    for row in plan.costs:
        c = row.cost
        lines += [
            Derivation(
                f"device seconds a request, {c.workload}",
                "prefill + output * step / batch",
                f"{c.prefill_s:.6g} + {c.device_s - c.prefill_s:.6g}",
                c.device_s,
                "s",
            ),
            Derivation(
                f"$ a million output tokens, {c.workload}",
                "$ an hour / 3600 / output tokens/s * 10^6",
                f"{c.usd_per_hour:g} / 3600 / {c.output_tokens_per_s:.6g} * 1e6",
                c.usd_per_million_output,
                "$",
            ),
            Derivation("idle month", "$ an hour * 24 * 30", f"{c.usd_per_hour:g} * 720", c.idle_usd_per_month, "$"),
        ]
        lines += [
            Derivation(
                f"break-even against {other.api}, {c.workload}",
                "own $ / API $ for a million output tokens",
                f"{other.own_usd_per_million_output:.6g} / {other.api_usd_per_million_output:.6g}",
                other.break_even,
                "",
            )
            for other in row.against
        ]
    return lines
