"""Rules about what computes: the front end's CPU, the memory's bandwidth, and drafts that are thrown away."""

from __future__ import annotations

from octavo.doctor.finding import Change, Evidence, Rule, Sign
from octavo.doctor.observation import Observation

BUSY = 0.85  # of one core; one event loop cannot use more than one
BLOCKED = 0.3  # of the window spent in waiting for /metrics, a page that needs no engine
NEAR_PEAK = 0.6  # of the bandwidth
PREFILL_BOUND = 0.5
MIN_ACCEPTED = 0.3  # accepted draft tokens for each draft: less saves no step worth its work
MIN_DRAFTS = 20


def _front_end(seen: Observation) -> Sign | None:
    cpu_s, tokens = seen.counts.cpu_s, seen.counts.generation_tokens
    if not tokens:
        return None  # a server that is gone may be seen for no time at all
    blocked = sum(sample.answer_s for sample in seen.samples) / seen.seconds
    is_busy = cpu_s is not None and cpu_s >= BUSY * seen.seconds
    if not (is_busy or blocked >= BLOCKED):
        return None
    evidence = [
        Evidence("tokens sent a second", tokens / seen.seconds),
        Evidence("time to answer /metrics, at most", seen.peak("answer_s"), "s"),
    ]
    if cpu_s is not None:
        evidence.append(Evidence("CPU of the process that answers HTTP, in cores", cpu_s / seen.seconds))
        evidence.append(Evidence("its CPU time for a thousand tokens", 1000 * cpu_s / tokens, "s"))
    return Sign(tuple(evidence), ((Change("api-server-count", "2"),), (Change("stream-interval", "8"),)))


def _memory_bandwidth(seen: Observation) -> Sign | None:
    settings, steps, prefill = seen.settings, seen.step_tokens, seen.prefill_share
    if settings.bandwidth is None or settings.weight_bytes is None or steps is None or prefill is None or prefill > PREFILL_BOUND:
        return None
    cached_tokens = seen.mean("kv_usage") * (settings.kv_tokens or 0)
    kv_bytes = cached_tokens * (settings.kv_bytes_per_token or 0.0)
    rate = steps.count / seen.seconds * (settings.weight_bytes + kv_bytes)
    if rate < NEAR_PEAK * settings.bandwidth:
        return None
    evidence = (
        Evidence("read a second, estimated", rate / 1e9, "GB"),
        Evidence("bandwidth of the memory", settings.bandwidth / 1e9, "GB/s"),
        Evidence("of a step's bytes, weights", settings.weight_bytes / (settings.weight_bytes + kv_bytes), "%"),
        Evidence("tokens in a step on average", steps.mean),
    )
    if kv_bytes > settings.weight_bytes and settings.program == "vllm":
        return Sign(evidence, ((Change("kv-cache-dtype", "fp8"),),))
    return Sign(evidence, command=f"octavo plan {settings.model}" + (f" --device {settings.device}" if settings.device else ""))


def _speculation(seen: Observation) -> Sign | None:
    counts = seen.counts
    if counts.drafts < MIN_DRAFTS or counts.accepted_tokens >= MIN_ACCEPTED * counts.drafts:
        return None
    evidence = (
        Evidence("mean acceptance length", 1 + counts.accepted_tokens / counts.drafts),
        Evidence("draft tokens accepted", counts.accepted_tokens / counts.draft_tokens if counts.draft_tokens else 0.0, "%"),
        Evidence("drafts", counts.drafts),
    )
    return Sign(evidence, ((Change("speculative-config", None),),))


FRONT_END = Rule(
    "front_end",
    "The front end's CPU is the limit, not the model",
    "limit",
    "While tokens are sent, the process that answers HTTP uses at least 85 % of a core (its `process_cpu_seconds_total`), or leaves the "
    "doctor waiting for `/metrics`, for which it needs no engine, for 30 % of the window (scrapes come one after another).",
    "More API processes (`--api-server-count`) or fewer, larger stream chunks (`--stream-interval`); else "
    "clients that do not stream, or another replica on other cores.",
    "Larger chunks make answers less smooth; more processes take cores from the engine on a CPU.",
    _front_end,
)
MEMORY_BANDWIDTH = Rule(
    "memory_bandwidth",
    "The memory's bandwidth is the limit",
    "limit",
    "Most computed tokens are answers, and steps a second times (weights + KV in use) is at least 60 % of the device's bandwidth. Judged "
    "when `--device` tells the bandwidth and `/server_info` the bytes of the weights.",
    "Fewer bytes a token: a smaller weight or KV format, or more requests in each step, which share the reading of the weights.",
    "A smaller format rounds more; a wider batch adds to the time between tokens.",
    _memory_bandwidth,
)
SPECULATION = Rule(
    "speculation",
    "Speculation costs more than it saves",
    "fault",
    "At least 20 drafts, and fewer than 0.3 accepted tokens for each: a mean acceptance length below 1.3.",
    "No `--speculative-config`, fewer draft tokens, or another drafter.",
    "Without drafts a step makes one token for each request, but does no work in vain.",
    _speculation,
)
