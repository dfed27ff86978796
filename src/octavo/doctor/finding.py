"""A rule, what it saw, and what the operator is told. Values only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from octavo.doctor.observation import Observation

Severity = Literal["fault", "limit", "note"]


@dataclass(frozen=True)
class Evidence:
    """One figure. `unit` is "" for a plain number, "%" for a share 0..1."""

    what: str
    value: float
    unit: str = ""

    def __str__(self) -> str:
        if self.unit == "%":
            return f"{self.what}: {self.value:.0%}"
        if self.unit == "s" and self.value < 1:
            return f"{self.what}: {self.value * 1000:,.0f} ms"
        digits = 0 if float(self.value).is_integer() else 1 if abs(self.value) >= 10 else 2
        return f"{self.what}: {self.value:,.{digits}f} {self.unit}".rstrip()


@dataclass(frozen=True)
class Change:
    """A flag to start the server with; `value` None: to start it without."""

    flag: str
    value: str | None


@dataclass(frozen=True)
class Sign:
    """What a rule saw. `changes` are tried in order: the first group whose flags the program has is advised.

    `command` replaces the command line where the way out is no flag of the server.
    """

    evidence: tuple[Evidence, ...]
    changes: tuple[tuple[Change, ...], ...] = ()
    command: str | None = None


@dataclass(frozen=True)
class Rule:
    """`signs`, `knob` and `trade` are the texts of docs/doctor.md and of the report. `check` is pure; None: nothing seen.

    A fault is damage, a limit is what keeps the server from doing more, a note leaves it healthy.
    """

    name: str
    title: str
    severity: Severity
    signs: str
    knob: str
    trade: str
    check: Callable[[Observation], Sign | None]


@dataclass(frozen=True)
class Finding:
    rule: str
    title: str
    severity: Severity
    evidence: tuple[Evidence, ...]
    knob: str
    trade: str
    command: str | None
