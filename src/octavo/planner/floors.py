"""How fast a step can be at best: bytes that must be read over bandwidth, operations over their rate, whichever is longer.

    decode step   traffic = weights + batch * KV per token * context            operations = batch * (2 * active weights + attention)
    prefill       traffic = weights once a step of the token budget             operations = tokens * 2 * active weights + attention
    experts       a step of n tokens touches E * (1 - (1 - k/E)^n) of E experts
    tensor par.   each rank does its share; two all-reduces a layer send 2 (tp - 1) / tp of the activations over the link
    pipeline      pp batches in flight, each of batch / pp; a token passes pp stages
    speculation   k drafts of which each is accepted with probability a: (1 - a^(k+1)) / (1 - a) tokens a step

A floor is a bound on time from below: kernels, launches, sampling and the network come on top. `efficiency` is measured
floor over measured time and turns the floor into an expectation.

Sources: roofline (Williams 2009); "LLM inference unveiled" (Yuan 2024) for the counting; Leviathan 2023 eq. 1 for speculation.
"""

from __future__ import annotations

from dataclasses import dataclass

from octavo.errors import ConfigError
from octavo.planner.shape import ModelShape
from octavo.planner.sizing import Deployment
from octavo.units import cdiv

MAX_DRAFTS = 128


@dataclass(frozen=True)
class StepFloor:
    """One decode step of `batch` sequences of `context` tokens a copy. `bound`: memory | compute | link. Rates in tokens/s;
    `aggregate` is that of all copies. `weight_bytes` and `kv_bytes` are what one device reads."""

    batch: int
    context: int
    weight_bytes: float
    kv_bytes: float
    operations: float
    memory_s: float
    compute_s: float
    link_s: float
    step_s: float
    bound: str
    per_sequence: float
    aggregate: float


@dataclass(frozen=True)
class PrefillFloor:
    """A prompt of `tokens`, alone, of which `cached` are in the prefix cache."""

    tokens: int
    cached: int
    operations: float
    memory_s: float
    compute_s: float
    seconds: float
    bound: str
    tokens_per_s: float


@dataclass(frozen=True)
class SpeculationGain:
    """`tokens_per_step` of `drafts` + 1 at most; `speedup` of the tokens/s a sequence. Below 1 drafting costs more than it gives."""

    drafts: int
    acceptance: float
    tokens_per_step: float
    step_s: float
    speedup: float


def decode_floor(deployment: Deployment, batch: int, context: int, *, queries: int = 1, shared: int = 0) -> StepFloor:
    """Return the floor of a step that computes `queries` tokens of each of `batch` sequences (1: plain decode).

    The first `shared` tokens of the context are the same in all sequences; their KV is read once.
    """
    if batch < 1 or context < 0 or queries < 1:
        raise ConfigError(f"batch {batch} and queries {queries} must be at least 1, context {context} at least 0")
    if not 0 <= shared <= context:
        raise ConfigError(f"shared {shared} must lie in 0..{context}, the context")
    d, rank = deployment, deployment.rank
    micro = cdiv(batch, d.pp)
    tokens = micro * queries
    weight_bytes = _streamed(d, rank, tokens)
    shared_bytes = rank.read_bytes(d.kv, shared) - rank.read_bytes(d.kv, 0)  # without what does not grow with the context
    kv_bytes = micro * rank.read_bytes(d.kv, context) - (micro - 1) * shared_bytes
    operations = tokens * (2.0 * rank.active_weights + _attention(rank, context))
    memory_s = (weight_bytes + kv_bytes) / d.device.bandwidth
    compute_s = operations / d.device.flops(d.weights.compute)
    link_s = _all_reduce_s(d, rank, tokens)
    stage_s = max(memory_s, compute_s) + link_s
    step_s = d.pp * stage_s
    bound = "link" if link_s > max(memory_s, compute_s) else "memory" if memory_s >= compute_s else "compute"
    per_sequence = queries / step_s
    return StepFloor(
        batch,
        context,
        weight_bytes,
        kv_bytes,
        operations,
        memory_s,
        compute_s,
        link_s,
        step_s,
        bound,
        per_sequence,
        d.dp * batch * per_sequence,
    )


def prefill_floor(deployment: Deployment, tokens: int, cached: int = 0, *, budget: int = 8192) -> PrefillFloor:
    """Return the floor of computing `tokens` of a prompt behind `cached` ones, in steps of at most `budget` tokens."""
    if tokens < 1 or cached < 0 or budget < 1:
        raise ConfigError(f"tokens {tokens} and budget {budget} must be at least 1, cached {cached} at least 0")
    d, rank = deployment, deployment.rank
    steps = cdiv(tokens, budget)
    head = rank.counts.head or rank.counts.embedding
    operations = 2.0 * (rank.active_weights - head) * tokens + 2.0 * head + _prompt_attention(rank, tokens, cached)
    memory_s = steps * _streamed(d, rank, min(tokens, budget)) / d.device.bandwidth
    compute_s = operations / d.device.flops(d.weights.compute)
    stage_s = max(memory_s, compute_s) + _all_reduce_s(d, rank, tokens)
    seconds = d.pp * stage_s
    return PrefillFloor(
        tokens, cached, operations, memory_s, compute_s, seconds, "memory" if memory_s >= compute_s else "compute", tokens / seconds
    )


def speculation_gain(
    deployment: Deployment, batch: int, context: int, *, drafts: int, acceptance: float, draft_step_s: float = 0.0
) -> SpeculationGain:
    """Return what `drafts` tokens a step gain when each is accepted with probability `acceptance`; `draft_step_s` is the time
    of making one of them (0: n-gram lookup)."""
    if not 1 <= drafts <= MAX_DRAFTS or not 0 <= acceptance <= 1:
        raise ConfigError(f"drafts {drafts} must lie in 1..{MAX_DRAFTS}, acceptance {acceptance:g} in 0..1")
    made = drafts + 1.0 if acceptance == 1 else (1 - acceptance ** (drafts + 1)) / (1 - acceptance)
    plain_s = decode_floor(deployment, batch, context).step_s
    step_s = decode_floor(deployment, batch, context, queries=drafts + 1).step_s + drafts * draft_step_s
    return SpeculationGain(drafts, acceptance, made, step_s, made * plain_s / step_s)


def _streamed(d: Deployment, rank: ModelShape, tokens: int) -> float:
    """Weight bytes that a step of `tokens` reads on one device; a size given by the user is taken whole."""
    if d.weight_bytes is not None:
        return d.weight_bytes / (d.tp * d.pp)
    return rank.streamed_bytes(d.weights, tokens)


def _attention(rank: ModelShape, context: int) -> float:
    return float(sum(group.num_layers * group.flops_per_position * group.tokens_read(context) for group in rank.groups))


def _prompt_attention(rank: ModelShape, tokens: int, cached: int) -> float:
    """Operations of `tokens` queries at positions cached, cached + 1 ...: each reads what lies before it, or its window."""
    total = 0.0
    for group in rank.groups:
        last = cached + tokens
        most = group.tokens_read(last)
        rising = max(0, most - cached)  # queries whose window is not full yet
        positions = rising * (cached + most + 1) / 2 + (tokens - rising) * most
        total += group.num_layers * (group.prompt_flops or group.flops_per_position) * positions
    return total


def _all_reduce_s(d: Deployment, rank: ModelShape, tokens: int) -> float:
    if d.tp == 1:
        return 0.0
    sent = 2 * rank.num_layers * tokens * rank.hidden_size * 2 * 2 * (d.tp - 1) / d.tp
    return sent / d.device.link
