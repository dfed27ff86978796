"""The definition of sampling: `SamplingBatch`'s stages, one row at a time, in its order.

Logits are float32 up to the temperature; probabilities and their sums are float64.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from octavo.ops.interface import Sampled, SamplingBatch
from octavo.ops.rng import uniform
from octavo.params import GREEDY_TEMPERATURE

FloatArray = npt.NDArray[np.float32]


def sample(logits: FloatArray, how: SamplingBatch) -> Sampled:
    """Return one token per row of logits [S, V], which is left as it was. See SamplingBatch and Sampled."""
    num_rows = len(logits)
    num_top = max(0, int(how.num_logprobs.max(initial=0)))
    result = Sampled(
        token_ids=np.zeros(num_rows, np.int32),
        is_nan=~np.isfinite(logits.max(axis=1)),
        logprob=np.full(num_rows, -np.inf, np.float32),
        rank=np.zeros(num_rows, np.int32),
        top_ids=np.full((num_rows, num_top), -1, np.int32),
        top_logprobs=np.full((num_rows, num_top), -np.inf, np.float32),
    )
    draws = uniform(how.seed, how.position)
    for row in np.flatnonzero(~result.is_nan).tolist():
        token = _choose(logits[row], how, row, float(draws[row]))
        result.token_ids[row] = token
        if how.num_logprobs[row] >= 0:
            logprobs = _log_softmax(logits[row])
            top = most_likely_first(logits[row])[: how.num_logprobs[row]]
            result.logprob[row] = logprobs[token]
            result.rank[row] = 1 + np.count_nonzero(logits[row] > logits[row, token])
            result.top_ids[row, : len(top)] = top
            result.top_logprobs[row, : len(top)] = logprobs[top]
    return result


def most_likely_first(logits: FloatArray) -> npt.NDArray[np.intp]:
    """Return all ids by falling logit, lower ids first on ties."""
    return np.argsort(-logits, kind="stable")


def _choose(raw: FloatArray, how: SamplingBatch, row: int, draw: float) -> int:
    logits = _adjusted(raw, how, row)
    temperature = how.temperature[row]
    if temperature < GREEDY_TEMPERATURE:
        return int(np.argmax(logits))
    logits /= temperature
    mass = np.exp(logits.astype(np.float64) - logits.max())  # the most likely id has mass 1
    mass[mass < how.min_p[row]] = 0
    order = most_likely_first(logits)
    if how.top_k[row] > 0:
        mass[order[how.top_k[row] :]] = 0
    if how.top_p[row] < 1:
        reached = np.cumsum(mass[order])
        num_kept = 1 + np.searchsorted(reached, float(how.top_p[row]) * reached[-1])
        mass[order[num_kept:]] = 0
    cumulative = np.cumsum(mass)
    chosen = np.searchsorted(cumulative, draw * cumulative[-1], side="right")
    return int(min(chosen, np.flatnonzero(mass)[-1]))  # rounding may carry draw * total up to the total


def _adjusted(raw: FloatArray, how: SamplingBatch, row: int) -> FloatArray:
    """Return a copy of the row's logits with bans, biases and penalties applied."""
    logits = raw.copy()
    logits[how.banned_ids[how.banned_start[row] : how.banned_start[row + 1]]] = -np.inf
    bias = slice(how.bias_start[row], how.bias_start[row + 1])
    logits[how.bias_ids[bias]] += how.bias_values[bias]
    seen = slice(how.seen_start[row], how.seen_start[row + 1])
    ids, counts = how.seen_ids[seen], how.seen_counts[seen]
    penalty = how.repetition_penalty[row]
    logits[ids] = np.where(logits[ids] > 0, logits[ids] / penalty, logits[ids] * penalty)
    logits[ids] -= how.frequency_penalty[row] * counts.astype(np.float32)
    logits[ids] -= how.presence_penalty[row] * (counts > 0).astype(np.float32)
    return logits


def _log_softmax(logits: FloatArray) -> FloatArray:
    shifted = logits.astype(np.float64) - logits.max()
    logprobs: FloatArray = (shifted - np.log(np.sum(np.exp(shifted)))).astype(np.float32)
    return logprobs
