"""Rules about KV memory: the pool is full, the scheduler throws work away, the prefix cache forgets what comes again."""

from __future__ import annotations

from octavo.doctor.finding import Change, Evidence, Rule, Sign
from octavo.doctor.observation import Observation, Settings

FULL = 0.95  # of the pool
MOST = 0.5  # of the samples
STORM = 0.5  # preemptions for each request that ends
FEW = 3  # preemptions that are no storm yet
WARM_HITS = 0.3  # the seed's alert: a hit rate worth having
KEPT = 0.5  # of the hit rate; below, it has collapsed


def full_at(seen: Observation) -> float:
    """Return the usage from which a further request of mean size does not fit: FULL, or less in a pool of few requests."""
    tokens, pool = seen.request_tokens, seen.settings.kv_tokens
    if tokens is None or not pool:
        return FULL
    return max(0.3, min(FULL, 1 - tokens / pool))


def fitting_seats(seen: Observation) -> int | None:
    """Return how many requests of mean size the pool holds, None when that is not known."""
    tokens, pool = seen.request_tokens, seen.settings.kv_tokens
    return max(1, int(pool / tokens)) if tokens and pool else None


def grow_pool(settings: Settings) -> tuple[Change, ...]:
    """Return the change that makes the pool larger, by whichever flag has set its size."""
    if settings.num_blocks_override is not None:
        return (Change("num-gpu-blocks-override", str(settings.num_blocks_override * 2)),)
    if settings.kv_cache_memory_bytes is not None:
        return (Change("kv-cache-memory-bytes", str(settings.kv_cache_memory_bytes * 2)),)
    share = settings.gpu_memory_utilization or 0.5
    return (Change("gpu-memory-utilization", f"{min(0.95, share + 0.2):.2f}"),)


def _kv_memory(seen: Observation) -> Sign | None:
    limit, seats = full_at(seen), seen.settings.seats
    pressed = [
        sample
        for sample in seen.samples
        if sample.kv_usage >= limit and sample.waiting > 0 and (seats is None or sample.running < seats or sample.kv_usage >= FULL)
    ]
    share = len(pressed) / len(seen.samples) if seen.samples else 0.0
    if share < MOST and not seen.counts.preemptions:
        return None
    evidence = [
        Evidence("KV pool full with requests waiting, of the time", share, "%"),
        Evidence("KV pool in use, at most", seen.peak("kv_usage"), "%"),
        Evidence("requests waiting on average", seen.mean("waiting")),
        Evidence("preemptions", seen.counts.preemptions),
    ]
    fitting = fitting_seats(seen)
    if fitting is not None:
        evidence.append(Evidence("requests of mean size that the pool holds", fitting))
    return Sign(tuple(evidence), (grow_pool(seen.settings),))


def _thrash(seen: Observation) -> Sign | None:
    preemptions, finished = seen.counts.preemptions, seen.counts.finished
    if preemptions <= FEW or preemptions < STORM * finished:
        return None
    evidence = (
        Evidence("preemptions", preemptions),
        Evidence("preemptions a minute", 60 * preemptions / seen.seconds),
        Evidence("requests ended", finished),
        Evidence("requests running on average", seen.mean("running")),
    )
    fitting, seats = fitting_seats(seen), seen.settings.max_num_seqs
    ways = [(Change("watermark", "0.1"),)]
    if fitting is not None and (seats is None or fitting < seats):
        ways.insert(0, (Change("max-num-seqs", str(fitting)),))
    return Sign(evidence, tuple(ways))


def _cache_churn(seen: Observation) -> Sign | None:
    before, now, pool = seen.before, seen.counts.hit_rate, seen.settings.kv_tokens
    if before is None or now is None or not pool or before.hit_rate is None or before.hit_rate < WARM_HITS:
        return None
    if seen.counts.prefix_queries < pool * 0.1 or now > KEPT * before.hit_rate:
        return None
    written = sum(each.prefix_queries - each.prefix_hits + each.generation_tokens for each in (before, seen.counts))
    if written < pool:
        return None
    evidence = (
        Evidence("prefix-cache hit rate now", now, "%"),
        Evidence("hit rate before", before.hit_rate, "%"),
        Evidence("tokens looked up", seen.counts.prefix_queries),
        Evidence("new tokens since the start, in pools", written / pool),
    )
    return Sign(evidence, ((Change("kv-offload-gib", "4"),), grow_pool(seen.settings)))


KV_MEMORY = Rule(
    "kv_memory",
    "KV memory is full",
    "limit",
    "For most of the window the pool has no room for a further request of mean size while requests wait, or any request was preempted.",
    "A larger pool (`--gpu-memory-utilization`, `--kv-cache-memory-bytes`), a smaller KV type (`--kv-cache-dtype`), shorter requests "
    "(`--max-model-len`), or another replica.",
    "The memory comes from the machine's free memory; a smaller KV type rounds what attention reads.",
    _kv_memory,
)
THRASH = Rule(
    "thrash",
    "Preemption storm: work is thrown away and done again",
    "fault",
    "More than three preemptions, and at least one for every two requests that end.",
    "Fewer seats (`--max-num-seqs` as many as the pool holds), headroom at admission (`--watermark`), or a larger pool.",
    "Requests wait for their first token instead of in the middle of an answer; with spare memory a larger pool is better.",
    _thrash,
)
CACHE_CHURN = Rule(
    "cache_churn",
    "The prefix cache forgets what comes again",
    "limit",
    "The hit rate was at least 30 % before the window and is less than half of that now, and new tokens have filled the whole pool at "
    "least once since the start, so that blocks were evicted. (If prompts have changed for good, this is no fault.)",
    "A tier beyond the pool (`--kv-offload-gib`), a larger pool, or routing that sends the same prefixes to the same replica.",
    "Host memory or disk for blocks, and the time to copy them back, against computing the prefix again.",
    _cache_churn,
)
