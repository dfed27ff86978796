"""Successive halving over candidates, then rounds of finalists until the best is sure. Knows no server: `measure` does the work.

    1. `width` candidates on a quarter of the workload; the better third goes on.
    2. These, and neighbours of the best (one knob turned), on half of it; the best two go on.
    3. The two and the base on all of it, in turn, round after round, until the verdict is sure, or rounds or time are used up.

A candidate that cannot start or fails answers scores 0. Source of halving: Jamieson and Talwalkar, 2016 (arXiv 1502.07943).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from octavo.tune.candidates import Candidate, Knob, first_candidates, neighbours
from octavo.tune.verdict import Ratio, compare

MAX_ROUNDS = 8
NUM_FINALISTS = 2


@dataclass(frozen=True)
class Trial:
    """One measured run. `score` is output tokens a second of answers within the objective; `figures` are bench serve's."""

    candidate: Candidate
    score: float
    figures: dict[str, Any] = field(default_factory=dict)
    failure: str | None = None


@dataclass(frozen=True)
class Outcome:
    """`against_base`: best over base; `against_second`: over the runner-up, None when there was none. `why`: why it ended."""

    best: Candidate
    base: Candidate
    trials: tuple[Trial, ...]
    finals: dict[Candidate, tuple[float, ...]]
    against_base: Ratio
    against_second: Ratio | None
    is_sure: bool
    why: str

    def figures_of(self, candidate: Candidate) -> dict[str, Any]:
        """Return the figures of the candidate's last whole run."""
        return next((trial.figures for trial in reversed(self.trials) if trial.candidate == candidate and trial.figures), {})


Measure = Callable[[Candidate, float], Trial]


def search(
    base: Candidate,
    knobs: Sequence[Knob],
    is_valid: Callable[[Candidate], bool],
    measure: Measure,
    *,
    width: int,
    rng: random.Random,
    has_time: Callable[[], bool],
) -> Outcome:
    """Return the best candidate found. `measure(candidate, share)` runs it on that share of the workload; `has_time` is asked
    between runs, but three rounds of the final are always measured."""
    trials: list[Trial] = []

    def ranked(candidates: Sequence[Candidate], share: float) -> list[Candidate]:
        measured: list[Trial] = []
        for candidate in candidates:
            if measured and not has_time():
                break
            measured.append(measure(candidate, share))
        trials.extend(measured)
        return [trial.candidate for trial in sorted(measured, key=lambda trial: -trial.score)]

    first = ranked(first_candidates(base, knobs, width, is_valid, rng), 0.25)
    kept = first[: max(2, width // 3)]
    near = [each for each in neighbours(kept[0], knobs, is_valid) if each not in first]
    second = ranked([*kept, *rng.sample(near, min(len(near), width // 2))], 0.5) if has_time() else kept
    finalists = second[:NUM_FINALISTS]
    return _final(base, finalists, measure, trials, has_time)


def _final(base: Candidate, finalists: list[Candidate], measure: Measure, trials: list[Trial], has_time: Callable[[], bool]) -> Outcome:
    scores: dict[Candidate, list[float]] = {candidate: [] for candidate in dict.fromkeys([*finalists, base])}
    for number in range(1, MAX_ROUNDS + 1):
        for candidate, series in scores.items():
            trial = measure(candidate, 1.0)
            trials.append(trial)
            series.append(trial.score)
        outcome = _judge(base, scores, trials)
        if outcome.is_sure or (number >= 3 and not has_time()):
            break
    return outcome


def _judge(base: Candidate, scores: dict[Candidate, list[float]], trials: list[Trial]) -> Outcome:
    """Return who leads. Among those that are as good as each other the one with the fewest flags does."""
    order = sorted(scores, key=lambda candidate: -sum(scores[candidate]))
    best, second = order[0], order[1] if len(order) > 1 else None
    against_second = compare(scores[best], scores[second]) if second is not None else None
    if second is not None and against_second is not None and against_second.is_same and len(second.values) < len(best.values):
        best, second = second, best
        against_second = compare(scores[best], scores[second])
    against_base = compare(scores[best], scores[base])
    rounds = len(scores[best])
    if against_second is None:
        is_sure, why = True, "there is one candidate only"
    elif against_second.is_same:
        is_sure, why = True, f"the first two are as good as each other: {against_second}"
    elif against_second.is_sure:
        is_sure, why = True, f"the best is surely better than the second: {against_second}"
    else:
        is_sure, why = False, f"not sure after {rounds} rounds: the spread is larger than the difference, {against_second}"
    finals = {candidate: tuple(values) for candidate, values in scores.items()}
    return Outcome(best, base, tuple(trials), finals, against_base, against_second, is_sure, why)
