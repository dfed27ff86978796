"""What can be turned, and the ways of turning it: candidates are sets of flags with values. Pure; draws from the caller's generator."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Knob:
    """A flag and its values in rising order. A switch has the values "on" and "off"."""

    flag: str
    values: tuple[str, ...]

    @property
    def is_switch(self) -> bool:
        return set(self.values) == {"on", "off"}


@dataclass(frozen=True)
class Candidate:
    """`values`: (flag, value) pairs in the order of the flags' names; a flag that is not there has the program's default."""

    values: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, values: dict[str, str]) -> Candidate:
        return cls(tuple(sorted(values.items())))

    def turned(self, flag: str, value: str) -> Candidate:
        return Candidate.of(dict(self.values) | {flag: value})

    def words(self) -> list[str]:
        """Return the words of the command line."""
        return [word for flag, value in self.values for word in _words(flag, value)]

    def __str__(self) -> str:
        return " ".join(self.words()) or "defaults"


def knobs_for(num_cpus: int, known_flags: Iterable[str], kept: Iterable[str]) -> tuple[Knob, ...]:
    """Return the knobs that `octavo serve` has on a machine with `num_cpus`, without those that are to stay as they are."""
    threads = tuple(str(count) for count in sorted({1, max(1, num_cpus // 2), num_cpus}))
    all_knobs = (
        Knob("max-num-seqs", ("4", "8", "16", "32", "64", "128")),
        Knob("max-num-batched-tokens", ("128", "256", "512", "1024", "2048")),
        Knob("mixed-step-ms", ("0", "50", "100", "200", "400")),
        Knob("kv-cache-dtype", ("f16", "bf16", "f32")),
        Knob("block-size", ("16", "32", "64")),
        Knob("threads", threads),
        Knob("async-scheduling", ("off", "on")),
    )
    known, left_out = set(known_flags), set(kept)
    return tuple(knob for knob in all_knobs if knob.flag in known and knob.flag not in left_out and len(knob.values) > 1)


def first_candidates(
    base: Candidate, knobs: Sequence[Knob], count: int, is_valid: Callable[[Candidate], bool], rng: random.Random
) -> list[Candidate]:
    """Return `count` candidates or as many as there are: the base, the defaults, and random ones in which half of the knobs are turned."""
    found = dict.fromkeys(candidate for candidate in (base, Candidate()) if is_valid(candidate))
    for _ in range(50 * count):
        if len(found) >= count:
            break
        turned = {knob.flag: rng.choice(knob.values) for knob in knobs if rng.random() < 0.5}
        candidate = Candidate.of(turned)
        if is_valid(candidate):
            found[candidate] = None
    return list(found)[:count]


def neighbours(candidate: Candidate, knobs: Sequence[Knob], is_valid: Callable[[Candidate], bool]) -> list[Candidate]:
    """Return the candidates in which one knob is turned a step up or down; one at its default can go to any value."""
    given = dict(candidate.values)
    found = []
    for knob in knobs:
        if knob.flag in given and given[knob.flag] in knob.values:
            place = knob.values.index(given[knob.flag])
            values = knob.values[max(0, place - 1) : place + 2]
        else:
            values = knob.values
        turned = (candidate.turned(knob.flag, value) for value in values)
        found += [each for each in turned if each != candidate and is_valid(each)]
    return found


def _words(flag: str, value: str) -> tuple[str, ...]:
    if value in ("on", "off"):
        return (f"--{flag}" if value == "on" else f"--no-{flag}",)
    return (f"--{flag}", value)
