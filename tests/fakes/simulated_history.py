"""One history of an engine, drawn from a seed and simulated: requests come, go away, repeat each other, run out of memory.

The worker is HistoryWorker, so every token depends on every block behind it; the oracle is each request alone. The checks are
the invariants of the block pool and the scheduler after each plan and each step, and at the end those of the whole history.
"""

import random
from itertools import takewhile

from tests.fakes.history_worker import HistoryWorker, history_kv, make_request, solo_output
from tests.fakes.inline_executor import InlineFutures
from tests.fakes.scheduler_checks import check_plan, check_states

from octavo.kv.groups import Groups
from octavo.kv.host_blocks import HostBlocks
from octavo.kv.manager import KVManager
from octavo.kv.tier import KVTier
from octavo.scheduler.admission import Limits
from octavo.simulator.simulation import Arrival, Caps, Simulation
from octavo.simulator.step_time import StepTime
from octavo.specs.kv import FULL_ATTENTION, AttentionSpan

VOCAB = 7
BLOCK = 4
MAX_MODEL_LEN = 10 * BLOCK
SHARED = ([], [1, 2, 3, 4, 5, 6, 0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 6, 6, 6, 6], [0] * 9)
SPANS = (
    (FULL_ATTENTION,),
    (FULL_ATTENTION,),
    (FULL_ATTENTION,),
    (AttentionSpan("sliding", 6),),
    (FULL_ATTENTION, AttentionSpan("sliding", 5)),
    (AttentionSpan("chunked", 6), FULL_ATTENTION),
)
STEP_TIME = StepTime(base_s=0.01, token_s=0.001, read_s=0.0001)


def run_history(seed):
    """Simulate the history of `seed` and check it; return its trace, by which two runs are compared. Raises AssertionError."""
    rng = random.Random(seed)
    limits = draw_limits(rng)
    spans = rng.choice(SPANS)
    groups = Groups(BLOCK, spans, 2 * limits.max_num_batched_tokens)
    num_blocks = 1 + groups.blocks_for(MAX_MODEL_LEN) + rng.choice((0, 0, 2, 40))
    worker = HistoryWorker(num_blocks, BLOCK, VOCAB, spans=spans)
    tier = None
    if tier_blocks := rng.choice((0, 0, 0, 3, 100)):
        mode = rng.choice(("auto", "swap", "recompute"))
        tier = KVTier(HostBlocks(tier_blocks * 8 * BLOCK, 8 * BLOCK), worker.read_block, 8 * BLOCK, mode, InlineFutures)
    caching = rng.random() < 0.8
    kv = KVManager(num_blocks, BLOCK, groups=groups, enable_prefix_caching=caching, tier=tier)
    caps = Caps(rng.choice((None, None, 3)), rng.choice((None, None, 30)), rng.choice((None, None, 1, 2)))
    depth = rng.choice((1, 2, 2))
    arrivals = draw_arrivals(rng)
    plans = []

    def on_step(plan):
        plans.append(plan)
        check_plan(simulation.scheduler, limits, plan)
        check_states(simulation.scheduler, limits, depth)
        assert len(plans) <= bound, "no request waits for ever"

    bound = 40 + 6 * sum(len(arrival.request.prompt_token_ids) + 16 for arrival in arrivals)
    simulation = Simulation(limits, kv, worker, STEP_TIME, caps=caps, depth=depth, on_step=on_step)
    outcome = simulation.run(arrivals)
    check_stories(outcome.stories, arrivals, kv.max_tokens, caps, caching)
    check_end(simulation, worker)
    assert outcome.counters.preemptions == 0 or num_blocks < 1 + len(arrivals) * groups.count * 12, "preempted with blocks to spare"
    return [(story.request.request_id, story.ending, story.times_s, story.num_cached_tokens) for story in outcome.stories], outcome.samples


def draw_limits(rng):
    budget = rng.randint(1, 48)
    return Limits(
        max_model_len=MAX_MODEL_LEN,
        max_num_seqs=rng.randint(1, min(6, budget)),
        max_num_batched_tokens=budget,
        vocab_size=VOCAB,
        long_prefill_token_threshold=rng.choice((0, 0, 1, 3, 8)),
        adaptive_threshold=rng.random() < 0.5,
        chunked_prefill=budget < MAX_MODEL_LEN or rng.random() < 0.7,
        watermark=rng.choice((0.0, 0.0, 0.2)),
        policy=rng.choice(("fcfs", "fcfs", "priority")),
        mixed_step_s=rng.choice((None, 0.001, 0.03)),
    )


def draw_arrivals(rng):
    gap_s = rng.choice((0.0, 0.0, 0.005, 0.05))
    arrivals, at_s, talk = [], 0.0, []
    for number in range(rng.randint(1, 9)):
        prompt = [*rng.choice(SHARED), *rng.choices(range(VOCAB), k=rng.randint(1, 8))]
        if talk and rng.random() < 0.3:  # the next turn of somebody
            prompt = [*rng.choice(talk), *rng.choices(range(VOCAB), k=2)]
        max_tokens = rng.choice((None, None, 1, 4, 20))
        chosen = {
            "eos": rng.choice(((), (), (), (3,))),
            "salt": rng.choice(("", "", "salt")),
            "tenant": rng.choice(("", "", "other")),
            "priority": rng.randint(-1, 2),
            "stop_token_ids": rng.choice(((), (), (), (5,))),
            "max_tokens": max_tokens,
            "min_tokens": rng.choice((0, 0, min(3, max_tokens or 3))),
            "prompt_logprobs": rng.choice((None, None, None, 0)),
        }
        prompt = prompt[: MAX_MODEL_LEN + rng.choice((-1, -1, 1))]
        request = make_request(f"r{number}", prompt, **chosen)
        if len(prompt) < MAX_MODEL_LEN:
            output = solo_output(request, vocab_size=VOCAB, max_model_len=MAX_MODEL_LEN)[0]
            talk.append(prompt + output)
            if rng.random() < 0.15:  # as after an engine restart
                request = make_request(f"r{number}", prompt, resume=output[: min(3, len(output) - 1)], **chosen)
        at_s += rng.random() * gap_s
        arrivals.append(Arrival(at_s, request, at_s + rng.random() * 0.3 if rng.random() < 0.15 else None))
    return arrivals


def check_stories(stories, arrivals, kv_tokens, caps, caching):
    """One ending for each request, the right one, and the tokens that it would have had alone."""
    assert [story.request for story in sorted(stories, key=lambda one: one.request.request_id)] == [one.request for one in arrivals]
    leaving = {arrival.request.request_id for arrival in arrivals if arrival.abort_s is not None}
    has_caps = caps.max_num_queued_reqs is not None or caps.max_num_queued_tokens is not None
    for story in stories:
        request = story.request
        if story.ending == "refused":
            assert has_caps or len(request.prompt_token_ids) >= MAX_MODEL_LEN, "refused though there was room"
            continue
        assert len(request.prompt_token_ids) < MAX_MODEL_LEN
        tokens, reason, _ = solo_output(request, vocab_size=VOCAB, max_model_len=MAX_MODEL_LEN)
        assert story.ending == reason or (story.ending == "abort" and request.request_id in leaving)
        assert story.token_ids == (tokens[: len(story.token_ids)] if story.ending == "abort" else tokens)
        assert story.times_s == sorted(story.times_s)
        assert not story.times_s or story.times_s[0] > story.sent_s
        assert story.num_cached_tokens % BLOCK == 0 or story.num_cached_tokens == len(request.prompt_token_ids)
        assert story.num_cached_tokens <= (longest_shared(story, stories) if caching else 0), "cached tokens that nobody computed"


def longest_shared(story, stories):
    """Return how many leading tokens some other request of the same salt had too."""
    own = story.request.prompt_token_ids + story.token_ids
    others = [one for one in stories if one is not story and one.request.cache_salt == story.request.cache_salt]
    return max((_common(own, one.request.prompt_token_ids + one.token_ids) for one in others), default=0)


def _common(one, two):
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, two, strict=False)))


def check_end(simulation, worker):
    """Nobody holds anything, and what the prefix cache names lies in memory as it should."""
    scheduler, pool = simulation.scheduler, simulation.scheduler.kv.pool
    assert scheduler.num_running == scheduler.num_waiting == 0
    assert pool.num_free == pool.num_usable
    assert simulation._num_unfinished == simulation._waiting_tokens == 0
    for block_id in range(1, pool.num_blocks):
        content = pool.content(block_id)
        if content is None:
            continue
        tokens = chain_tokens(content)
        expected = [history_kv(tokens[: len(tokens) - BLOCK + 1 + place]) for place in range(BLOCK)]
        assert worker.memory[block_id * BLOCK : (block_id + 1) * BLOCK] == expected, "a cached block holds other KV than it is said to"


def chain_tokens(content):
    tokens = []
    while content is not None:
        assert len(content.token_bytes) == 4 * BLOCK, "a block that is not full is in the index"
        tokens = [*memoryview(content.token_bytes).cast("i"), *tokens]
        content = content.parent
    return tokens
