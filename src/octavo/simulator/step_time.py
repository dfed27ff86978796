"""How long a step would take: a roofline over what the step does, in seconds.

    seconds = base + max(weights + reads * read, tokens * token + pairs * pair + logits * logit) + tokens * link

`reads` are positions of KV that rows read (each row what lies behind its last token), `pairs` are (query, key) pairs of attention.
From the planner's floors both sides of the max are known; measured steps give base, token, pair and logit, by least squares with
no negative time. A mixture of experts is charged for the weights that a step of MIXTURE_TOKENS touches, pipelines for nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from octavo.errors import ConfigError
from octavo.messages.step import StepPlan
from octavo.planner.floors import decode_floor
from octavo.planner.sizing import Deployment

MIXTURE_TOKENS = 64
FAR = 1024  # tokens of context over which what one position costs is read off the floors


@dataclass(frozen=True)
class StepWork:
    tokens: int
    reads: int
    pairs: int
    logits: int


@dataclass(frozen=True)
class StepTime:
    """Seconds: `base_s` of a step, `weights_s` of reading the weights, the others of one unit of StepWork."""

    base_s: float = 0.0
    weights_s: float = 0.0
    read_s: float = 0.0
    token_s: float = 0.0
    pair_s: float = 0.0
    logit_s: float = 0.0
    link_s: float = 0.0

    def seconds(self, work: StepWork) -> float:
        memory_s = self.weights_s + work.reads * self.read_s
        compute_s = work.tokens * self.token_s + work.pairs * self.pair_s + work.logits * self.logit_s
        return self.base_s + max(memory_s, compute_s) + work.tokens * self.link_s


@dataclass(frozen=True)
class MeasuredStep:
    """`seconds` of a step in which each of `rows` requests computed `query` tokens behind `context` others."""

    rows: int
    query: int
    context: int
    seconds: float

    @property
    def work(self) -> StepWork:
        reads, pairs = row_work(self.context, self.query)
        return StepWork(self.rows * self.query, self.rows * reads, self.rows * pairs, self.rows)


def row_work(start: int, num_tokens: int) -> tuple[int, int]:
    """Return (reads, pairs) of a row that computes `num_tokens` positions from `start` on."""
    return start + num_tokens, num_tokens * start + num_tokens * (num_tokens + 1) // 2


def work_of(plan: StepPlan) -> StepWork:
    reads = pairs = tokens = logits = 0
    for row in plan.rows:
        row_reads, row_pairs = row_work(row.start, row.num_tokens)
        reads += row_reads
        pairs += row_pairs
        tokens += row.num_tokens
        logits += row.num_logits
    return StepWork(tokens, reads, pairs, logits)


def step_time_from_floors(deployment: Deployment, efficiency: float = 1.0) -> StepTime:
    """Return the times of one copy of the deployment that reaches `efficiency` (0..1) of the planner's floors. Raises ConfigError."""
    if not 0 < efficiency <= 1:
        raise ConfigError(f"efficiency is {efficiency:g}; it must be more than 0 and at most 1")
    if deployment.pp != 1:
        raise ConfigError("a pipeline of several stages cannot be simulated; use tensor parallelism")
    device, rank = deployment.device, deployment.rank
    bandwidth, flops = device.bandwidth * efficiency, device.flops(deployment.weights.compute) * efficiency
    near, far = decode_floor(deployment, 1, 0), decode_floor(deployment, 1, FAR)
    head = rank.counts.head or rank.counts.embedding
    return StepTime(
        weights_s=decode_floor(deployment, MIXTURE_TOKENS, 0).weight_bytes / bandwidth,
        read_s=(far.kv_bytes - near.kv_bytes) / FAR / bandwidth,
        token_s=(near.operations - 2.0 * head) / flops,
        pair_s=(far.operations - near.operations) / FAR / flops,
        logit_s=2.0 * head / flops,
        link_s=near.link_s,
    )


def fit_step_time(steps: Sequence[MeasuredStep]) -> StepTime:
    """Return the times that come nearest to the measured ones, by their squared relative errors. Raises ConfigError below 4 steps."""
    if len(steps) < 4:
        raise ConfigError(f"{len(steps)} measured steps do not tell what a token, a context and a request cost; measure at least 4 shapes")
    if not all(step.seconds > 0 for step in steps):
        raise ConfigError("a measured step took no time; measure it again")
    columns = np.array([[1.0, step.work.tokens, step.work.pairs, step.work.logits] for step in steps])
    relative = columns / np.array([[step.seconds] for step in steps])
    best, least = np.zeros(4), np.inf
    for count in range(1, 5):
        for used in combinations(range(4), count):
            part = np.linalg.lstsq(relative[:, used], np.ones(len(steps)), rcond=None)[0]
            error = float(np.square(relative[:, used] @ part - 1).sum())
            if part.min() >= 0 and error < least:
                best, least = np.zeros(4), error
                best[list(used)] = part
    base_s, token_s, pair_s, logit_s = (float(value) for value in best)
    return StepTime(base_s=base_s, token_s=token_s, pair_s=pair_s, logit_s=logit_s)
