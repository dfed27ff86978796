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
Mass = npt.NDArray[np.float64]  # of each id; 0: it cannot be drawn


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
    draws, chances = uniform(how.seed, how.position), uniform(how.seed, how.position, stream=1)
    for row in np.flatnonzero(~result.is_nan).tolist():
        scored, token = logits[row], int(how.given[row])
        if token < 0:
            token, left = _choose(logits[row], how, row, float(draws[row]), float(chances[row]))
            scored = left if how.wants_processed[row] else scored
        result.token_ids[row] = token
        if how.num_logprobs[row] >= 0:
            logprobs = _log_softmax(scored)
            top = most_likely_first(scored)[: how.num_logprobs[row]]
            top = top[np.isfinite(scored[top])]
            result.logprob[row] = logprobs[token]
            result.rank[row] = 1 + np.count_nonzero(scored > scored[token])
            result.top_ids[row, : len(top)] = top
            result.top_logprobs[row, : len(top)] = logprobs[top]
    return result


def most_likely_first(logits: FloatArray) -> npt.NDArray[np.intp]:
    """Return all ids by falling logit, lower ids first on ties."""
    return np.argsort(-logits, kind="stable")


def _choose(raw: FloatArray, how: SamplingBatch, row: int, draw: float, chance: float) -> tuple[int, FloatArray]:
    """Return the token and the logits that it was chosen from: those of ids that could not be drawn are -inf."""
    logits = _adjusted(raw, how, row)
    temperature = how.temperature[row]
    if temperature < GREEDY_TEMPERATURE or np.isneginf(logits.max()):
        return int(np.argmax(logits)), logits
    logits /= temperature
    if how.top_n_sigma[row] > 0:
        finite = logits[np.isfinite(logits)].astype(np.float64)
        logits[logits < logits.max() - how.top_n_sigma[row] * np.std(finite)] = -np.inf
    mass = np.exp(logits.astype(np.float64) - logits.max())  # the most likely id has mass 1
    mass[mass < how.min_p[row]] = 0
    order = most_likely_first(logits)
    if how.top_k[row] > 0:
        mass[order[how.top_k[row] :]] = 0
    if how.typical_p[row] < 1:
        _keep_first(mass, order[_by_typicality(mass[order])], float(how.typical_p[row]))
    if how.top_p[row] < 1:
        _keep_first(mass, order, float(how.top_p[row]))
    if chance < how.xtc_probability[row]:
        likely = order[(mass[order] > 0) & (mass[order] >= how.xtc_threshold[row] * mass.sum())]
        mass[likely[:-1]] = 0
    cumulative = np.cumsum(mass)
    chosen = np.searchsorted(cumulative, draw * cumulative[-1], side="right")
    logits[mass == 0] = -np.inf
    return int(min(chosen, np.flatnonzero(mass)[-1])), logits  # rounding may carry draw * total up to the total


def _keep_first(mass: Mass, order: npt.NDArray[np.intp], share: float) -> None:
    """Take the mass of all ids but the first ones in `order` that hold `share` of it together."""
    reached = np.cumsum(mass[order])
    num_kept = 1 + np.searchsorted(reached, share * reached[-1])
    mass[order[num_kept:]] = 0


def _by_typicality(mass: Mass) -> npt.NDArray[np.intp]:
    """Return the places of `mass` by how far their surprise is from the mean one, nearest first, those without mass last."""
    surprise = np.full(len(mass), np.inf)
    surprise[mass > 0] = np.log(mass.sum() / mass[mass > 0])
    entropy = np.sum(mass[mass > 0] * surprise[mass > 0]) / mass.sum()
    return np.argsort(np.abs(surprise - entropy), kind="stable")


def _adjusted(raw: FloatArray, how: SamplingBatch, row: int) -> FloatArray:
    """Return a copy of the row's logits with bans, biases and penalties applied."""
    logits = raw.copy()
    if how.allowed is not None and how.allowed_row is not None and how.allowed_row[row] >= 0:
        bits = np.unpackbits(how.allowed[how.allowed_row[row]].view(np.uint8), count=len(logits), bitorder="little")
        logits[bits == 0] = -np.inf
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
