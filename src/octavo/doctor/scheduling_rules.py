"""Rules about who gets into a step: the token budget, the seats, the queue, and long prompts among short answers."""

from __future__ import annotations

from octavo.doctor.finding import Change, Evidence, Rule, Sign
from octavo.doctor.memory_rules import fitting_seats, full_at
from octavo.doctor.observation import Observation

MOST = 0.5  # of the samples, or of the steps
FULL_STEPS = 0.4  # share of steps at the budget
PREFILL_BOUND = 0.5  # share of computed tokens that are prompt tokens
PRESSURE = 0.75  # the seed's alert: waiting against running
MOST_WIDENING = 4  # times, in one go
PLATEAU = 5  # samples of the same width
GROWTH = 2.0  # requests more in the last third than in the first
TURNED_AWAY = 0.05  # of all requests
WAITING_SHARE = 0.5  # of a request's time, before its first token
STALL = 5.0  # p99 of the time between tokens against its median
STALL_S = 0.1  # a pause that people see
LEAST_STEP_MS, MOST_STEP_MS = 20, 100  # of the --mixed-step-ms that is advised: less than its default in any case
LONG_PIECE = 128.0  # tokens
LONG_STEPS = (0.002, 0.4)  # share of steps with a chunk of a prompt: some, but not the rule
MIN_GAPS = 50  # between tokens, for a p99 to mean something


def _token_budget(seen: Observation) -> Sign | None:
    budget, steps, prefill = seen.settings.max_num_batched_tokens, seen.step_tokens, seen.prefill_share
    if budget is None or steps is None or prefill is None or prefill < PREFILL_BOUND:
        return None
    if seen.mean("running") + seen.mean("waiting") < 2 and (seen.mean_prompt_tokens or 0) <= budget:
        return None  # one request at a time, and its prompt fits
    near = steps.bucket_below(budget)
    share = steps.share_above(near)
    if share < FULL_STEPS:
        return None
    evidence = (
        Evidence(f"steps of more than {near:,.0f} tokens (the budget is {budget:,})", share, "%"),
        Evidence("tokens in a step on average", steps.mean),
        Evidence("computed tokens that are prompts", prefill, "%"),
        *_first_token(seen),
    )
    return Sign(evidence, ((Change("max-num-batched-tokens", str(budget * 4)),),))


def _batch_width(seen: Observation) -> Sign | None:
    queued = [sample for sample in seen.samples if sample.waiting > 0]
    if not queued or len(queued) < MOST * len(seen.samples):
        return None
    seats = seen.settings.seats
    if seats is None:  # told by a plateau: the batch is as wide every time, and others wait
        widths = {sample.running for sample in queued}
        if len(widths) > 1 or len(queued) < PLATEAU:
            return None
        seats = int(widths.pop())
    limit = full_at(seen)
    bound = [sample for sample in queued if sample.running >= seats and sample.kv_usage < limit]
    if seats < 1 or len(bound) < MOST * len(seen.samples):
        return None
    wanted = int(seen.peak("running") + seen.peak("waiting"))
    fitting = fitting_seats(seen)
    most = min(MOST_WIDENING * seats, fitting if fitting is not None else wanted)
    wider = max(seats + 1, min(wanted, most)) // seen.settings.num_engines
    evidence = (
        Evidence("all seats taken and KV memory free, of the time", len(bound) / len(seen.samples), "%"),
        Evidence("seats (max_num_seqs)", seats),
        Evidence("requests waiting on average", seen.mean("waiting")),
        Evidence("KV pool in use, at most", seen.peak("kv_usage"), "%"),
    )
    budget = seen.settings.max_num_batched_tokens
    more = (Change("max-num-batched-tokens", str(wider)),) if budget is not None and budget < wider else ()
    return Sign(evidence, ((Change("max-num-seqs", str(wider)), *more),))


def _queue(seen: Observation) -> Sign | None:
    return _turned_away(seen) or _at_admission_cap(seen) or _growing(seen) or _waiting_share(seen)


def _turned_away(seen: Observation) -> Sign | None:
    refused, expired, finished = seen.counts.refused, seen.counts.expired, seen.counts.finished
    if not refused + expired or refused + expired < TURNED_AWAY * (finished + refused + expired):
        return None
    evidence = (
        Evidence("requests refused with 503", refused),
        Evidence("requests that missed their deadline (504)", expired),
        Evidence("requests ended", finished),
        Evidence("unfinished requests on average", seen.mean("running") + seen.mean("waiting")),
    )
    cap = seen.settings.max_num_queued_reqs
    return Sign(evidence, ((Change("max-num-queued-reqs", str(cap * 2)),),) if cap and refused else ())


def _at_admission_cap(seen: Observation) -> Sign | None:
    cap = seen.settings.max_num_queued_reqs
    if not cap or not seen.samples:
        return None
    at_cap = [sample for sample in seen.samples if sample.running + sample.waiting >= 0.95 * cap]
    if len(at_cap) < MOST * len(seen.samples):
        return None
    evidence = (
        Evidence("admission cap reached, of the time", len(at_cap) / len(seen.samples), "%"),
        Evidence("cap (max_num_queued_reqs)", cap),
        Evidence("unfinished requests on average", seen.mean("running") + seen.mean("waiting")),
    )
    return Sign(evidence, ((Change("max-num-queued-reqs", str(cap * 2)),),))


def _growing(seen: Observation) -> Sign | None:
    third = len(seen.samples) // 3
    if third == 0:
        return None
    first = sum(sample.waiting for sample in seen.samples[:third]) / third
    last = sum(sample.waiting for sample in seen.samples[-third:]) / third
    if last - first < max(GROWTH, 0.25 * first) or last < PRESSURE * seen.mean("running"):
        return None
    evidence = (
        Evidence("requests waiting at first", first),
        Evidence("requests waiting at the end", last),
        Evidence("requests ended a second", seen.counts.finished / seen.seconds),
        *_first_token(seen),
    )
    cap = int(2 * seen.peak("running")) or 1
    return Sign(evidence, ((Change("max-num-queued-reqs", str(cap)),),))


def _waiting_share(seen: Observation) -> Sign | None:
    """Seen by a client, or told by the server as queue time: requests spend most of their time before anything happens."""
    waited = seen.queue or (seen.ttft if seen.most_at_once is not None and seen.most_at_once >= 2 else None)
    if waited is None or seen.e2e is None or not seen.e2e.mean or waited.count < 4 or waited.mean < WAITING_SHARE * seen.e2e.mean:
        return None
    if seen.queue is None and (seen.mean_output_tokens or 0) < 16:
        return None  # an answer of a few tokens is mostly its first
    name = "in the queue" if seen.queue is not None else "before the first token"
    evidence = (
        Evidence(f"time {name} on average", waited.mean, "s"),
        Evidence("time of a request on average", seen.e2e.mean, "s"),
        *((Evidence("requests in flight at most", seen.most_at_once),) if seen.most_at_once is not None else ()),
    )
    cap = int(2 * seen.peak("running") or (seen.most_at_once or 2) / 2)
    return Sign(evidence, ((Change("max-num-queued-reqs", str(cap)),),))


def _long_prompt_stalls(seen: Observation) -> Sign | None:
    itl, steps = seen.itl, seen.step_tokens
    if itl is None or itl.count < MIN_GAPS or itl.p99 < max(STALL_S, STALL * itl.p50):
        return None
    evidence = [Evidence("time between tokens, p99", itl.p99, "s"), Evidence("time between tokens, median", itl.p50, "s")]
    if steps is not None:
        long = max(LONG_PIECE, 4 * seen.peak("running"))
        share = steps.share_above(long)
        if not LONG_STEPS[0] <= share <= LONG_STEPS[1]:
            return None
        evidence += [
            Evidence("steps with a large piece of a prompt", share, "%"),
            Evidence("largest piece (p99 of a step)", steps.quantile(0.99)),
        ]
    elif seen.most_at_once is None or seen.most_at_once < 2:
        return None  # nobody's prompt can have been in the way
    if seen.settings.program == "vllm":
        piece = max(16, (seen.settings.max_num_batched_tokens or 512) // 8)
        return Sign(tuple(evidence), ((Change("long-prefill-token-threshold", str(piece)),),))
    step_ms = max(LEAST_STEP_MS, min(MOST_STEP_MS, int(1e3 * itl.p99 / 2)))
    return Sign(tuple(evidence), ((Change("mixed-step-ms", str(step_ms)),),))


def _first_token(seen: Observation) -> tuple[Evidence, ...]:
    return (Evidence("time to first token, p99", seen.ttft.p99, "s"),) if seen.ttft is not None and seen.ttft.count else ()


TOKEN_BUDGET = Rule(
    "token_budget",
    "The token budget binds: steps are full of prompts",
    "limit",
    "At least 40 % of the steps are at the budget (as near as the histogram's buckets tell), at least half of the computed tokens "
    "are prompt tokens, and there are several requests, or prompts longer than the budget.",
    "A larger `--max-num-batched-tokens`.",
    "Prompts go through faster, but steps get longer: the time between tokens of running requests rises, and so does activation memory.",
    _token_budget,
)
BATCH_WIDTH = Rule(
    "batch_width",
    "The batch is too narrow: seats are taken while KV memory is free",
    "limit",
    "For most of the window requests wait, as many run as `--max-num-seqs` allows, and the pool has room for more.",
    "A larger `--max-num-seqs`, as far as KV memory holds.",
    "More tokens a second in all; each step takes longer, so the time between tokens rises. Preemptions begin when the pool gets full.",
    _batch_width,
)
QUEUE = Rule(
    "queue",
    "Requests come faster than they are answered",
    "limit",
    "At least 5 % of the requests are refused (503) or miss their deadline (504), where the server counts them; or the number of "
    "unfinished requests stands at `--max-num-queued-reqs`; or the queue grows through the window and is at least three "
    "quarters of those that run; or requests spend half of their time in the queue (a bench result: before the first token).",
    "First mend what else is found. Then more replicas, or a cap (`--max-num-queued-reqs`) that refuses early with 503 so that a load "
    "balancer tries elsewhere.",
    "A cap keeps the time to first token of those who get in, and turns the rest away; a higher cap does the opposite.",
    _queue,
)
LONG_PROMPT_STALLS = Rule(
    "long_prompt_stalls",
    "Long prompts make running answers stall",
    "limit",
    "The p99 of the time between tokens is at least 5 times its median and 100 ms, and some steps, but fewer than 40 %, hold a large "
    "piece of a prompt.",
    "A smaller `--mixed-step-ms`: how long a step with prompts and answers may take. Of a vLLM server `--long-prefill-token-threshold`, "
    "the largest piece of one prompt in a step.",
    "Answers flow evenly; the long prompt's own first token comes later.",
    _long_prompt_stalls,
)
