"""Each number of a plan with its formula and the values put in, as docs/numbers.md writes them.

A derivation is text for a reader; its result is taken from the plan itself, and a test puts the values into the formula and
compares.
"""

from __future__ import annotations

from octavo.planner.derivation import Derivation
from octavo.planner.explain_contexts import derive_contexts, derive_formats
from octavo.planner.explain_costs import derive_costs
from octavo.planner.floors import decode_floor
from octavo.planner.plan import Plan
from octavo.planner.sizing import Deployment, batch_defaults, is_uniform, utilization_of, widest_layer
from octavo.units import cdiv


def derive(deployment: Deployment, plan: Plan) -> tuple[Derivation, ...]:
    """Return the derivations in the order in which the numbers depend on each other; no two have the same name."""
    return (
        *_per_token(deployment),
        *_step_limits(deployment, plan),
        *_ledger(deployment, plan),
        *_capacity(deployment, plan),
        *derive_contexts(deployment, plan),
        *derive_formats(deployment, plan),
        *_floor(deployment, plan),
        *derive_costs(plan),
    )


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
    values = " + ".join(repr(group.bytes_per_token(d.kv)) for group in d.rank.groups)
    return [*lines, Derivation("bytes a token", "sum over the layers that keep it", values, d.rank.bytes_per_token(d.kv), "B")]


def _step_limits(d: Deployment, plan: Plan) -> list[Derivation]:
    s = plan.sizing
    default_tokens, default_seqs = batch_defaults(d.device)
    factor = 2 if d.throughput else 1
    seqs = d.max_num_seqs or default_seqs * factor
    return [
        Derivation("tokens a step", "as given", str(s.max_num_batched_tokens), s.max_num_batched_tokens, "")
        if d.max_num_batched_tokens is not None
        else Derivation(
            "tokens a step",
            "min(default of the device, requests a step * length)",
            f"min({default_tokens} * {factor}, {seqs} * {d.model_len})",
            s.max_num_batched_tokens,
            "",
        ),
        Derivation("requests a step", "as given", str(s.max_num_seqs), s.max_num_seqs, "")
        if d.max_num_seqs is not None
        else Derivation(
            "requests a step",
            "min(default of the device, tokens a step)",
            f"min({default_seqs} * {factor}, {s.max_num_batched_tokens})",
            s.max_num_seqs,
            "",
        ),
    ]


def _ledger(d: Deployment, plan: Plan) -> list[Derivation]:
    s, rank, w = plan.sizing, d.rank, d.weights
    counts = rank.counts
    lines = [
        Derivation("total", "memory of the device", str(s.total_bytes), s.total_bytes, "B"),
        Derivation(
            "requested",
            "ceil(total * utilization)",
            f"ceil({s.total_bytes} * {utilization_of(d):g})",
            s.requested_bytes,
            "B",
        ),
        Derivation("left alone", "total - requested", f"{s.total_bytes} - {s.requested_bytes}", s.total_bytes - s.requested_bytes, "B"),
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
    else:
        lines.append(Derivation("activations", "as given", str(s.activation_bytes), s.activation_bytes, "B"))
    source = "as assumed for the device" if d.reserve_bytes is None else "as given"
    lines.append(Derivation("reserve", source, str(s.reserve_bytes), s.reserve_bytes, "B"))
    if d.kv_cache_memory_bytes:
        lines.append(Derivation("available for KV", "as given", str(s.available_bytes), s.available_bytes, "B"))
    else:
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
        Derivation("blocks", "available // bytes a block", f"max(0, {s.available_bytes} // {s.bytes_per_block!r})", s.num_blocks, ""),
        Derivation(
            "tokens", "available // bytes a token, times dp", f"max(0, {s.available_bytes} // {s.bytes_per_token!r}) * {d.dp}", s.tokens, ""
        ),
    ]
    if is_uniform(d.rank):
        need = cdiv(s.model_len, d.block_size)
        lines += [
            Derivation(
                "longest context", "(blocks - 1) * block size", f"max(0, {s.num_blocks} - 1) * {d.block_size}", s.longest_context, "tokens"
            ),
            Derivation("max concurrency", "blocks / ceil(length / block size)", f"{s.num_blocks} / {need}", s.max_concurrency, ""),
        ]
    else:
        one = d.rank.sequence_bytes(d.kv, s.model_len, d.block_size)
        lines.append(
            Derivation(
                "max concurrency",
                "available / bytes of one sequence of full length",
                f"max(0, {s.available_bytes} / {one:.0f})",
                s.max_concurrency,
                "",
            )
        )
        lines.append(
            Derivation(
                "bytes of the longest context",
                "state + bytes a token * block size * blocks of each kind of layer; the most within available - bytes a block",
                " + ".join(_kept(d, s.longest_context)),
                d.rank.sequence_bytes(d.kv, s.longest_context, d.block_size),
                "B",
            )
        )
    lines.append(
        Derivation(
            "largest length",
            "min(longest context, positions of the model)",
            f"min({s.longest_context}, {d.shape.max_position})",
            s.max_model_len,
            "tokens",
        )
    )
    lines.append(
        Derivation(
            "fit check",
            "bytes of one request of full length <= available - bytes a block, the null block",
            f"{d.rank.sequence_bytes(d.kv, d.model_len, d.block_size)!r} <= {s.available_bytes} - {s.bytes_per_block!r}",
            s.fits,
            "",
        )
    )
    lines.append(
        Derivation(
            "tokens in the log line", "int(max concurrency * length)", f"int({s.max_concurrency:.6f} * {s.model_len})", s.logged_tokens, ""
        )
    )
    return lines


def _kept(d: Deployment, tokens: int) -> list[str]:
    return [
        f"{group.num_layers * group.state_bytes} + {group.bytes_per_token(d.kv)!r} * {d.block_size} * {group.blocks(tokens, d.block_size)}"
        for group in d.rank.groups
    ]


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
