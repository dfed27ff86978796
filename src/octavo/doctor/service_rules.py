"""Rules about what users get: failures, missed objectives, and a server that could do more."""

from __future__ import annotations

from octavo.doctor.finding import Evidence, Rule, Sign
from octavo.doctor.observation import Observation

IDLE_SEATS = 0.25  # of all seats; fewer in use is room


def _unhealthy(seen: Observation) -> Sign | None:
    if seen.illness is None:
        return None
    return Sign((Evidence(f"/health refuses: {seen.illness}", 1),))


def _failures(seen: Observation) -> Sign | None:
    failed, corrupted = seen.counts.failed, seen.counts.corrupted
    if not failed and not corrupted:
        return None
    evidence = (
        Evidence("requests that failed", failed),
        Evidence("requests with NaN in their logits", corrupted),
        Evidence("requests that ended", seen.counts.finished),
    )
    return Sign(evidence)


def _slo(seen: Observation) -> Sign | None:
    evidence = []
    for name, times, limit_s in (("first token", seen.ttft, seen.settings.ttft_slo_s), ("next token", seen.itl, seen.settings.itl_slo_s)):
        if times is not None and limit_s is not None and times.count and times.p99 > limit_s:
            evidence += [Evidence(f"time to the {name}, p99", times.p99, "s"), Evidence("its objective", limit_s, "s")]
    return Sign(tuple(evidence)) if evidence else None


def _under_use(seen: Observation) -> Sign | None:
    seats = seen.settings.seats
    if seats is None or not seen.samples or seen.mean("running") >= IDLE_SEATS * seats or seen.peak("waiting") > 0:
        return None
    evidence = (
        Evidence("requests running on average", seen.mean("running")),
        Evidence("seats (max_num_seqs)", seats),
        Evidence("KV pool in use, at most", seen.peak("kv_usage"), "%"),
    )
    return Sign(evidence)


UNHEALTHY = Rule(
    "unhealthy",
    "The server takes no requests",
    "fault",
    "`/health` does not answer 200.",
    "The server's log says why; a loading or draining server needs only time.",
    "None.",
    _unhealthy,
)
FAILURES = Rule(
    "failures",
    "Requests fail",
    "fault",
    "Requests ended with `error`, or their logits held NaN (vLLM counts the latter only with `VLLM_COMPUTE_NANS_IN_LOGITS=1`); in a bench "
    "result: failed requests.",
    "The server's log. NaN: another weight or KV format, or another checkpoint.",
    "None.",
    _failures,
)
SLO = Rule(
    "slo",
    "The objective is missed",
    "limit",
    "With `--slo ttft=SECONDS,itl=SECONDS`: the p99 lies above it.",
    "What the other findings say; with none, more replicas.",
    "See there.",
    _slo,
)
UNDER_USE = Rule(
    "under_use",
    "Nothing is wrong, and there is room",
    "note",
    "Nobody waits and fewer than a quarter of the seats are taken.",
    "None needed; more load fits, or fewer replicas do.",
    "None.",
    _under_use,
)
