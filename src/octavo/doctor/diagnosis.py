"""All rules in one table, what they say of an observation, and their page for the docs. Knows no HTTP."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from octavo.config.flags import FLAGS
from octavo.doctor.compute_rules import FRONT_END, MEMORY_BANDWIDTH, SPECULATION
from octavo.doctor.finding import Change, Finding, Sign
from octavo.doctor.memory_rules import CACHE_CHURN, KV_MEMORY, THRASH
from octavo.doctor.observation import Observation, Settings
from octavo.doctor.scheduling_rules import BATCH_WIDTH, LONG_PROMPT_STALLS, QUEUE, TOKEN_BUDGET
from octavo.doctor.service_rules import FAILURES, SLO, UNDER_USE, UNHEALTHY

RULES = (  # in the order in which to act: the first finding is the binding limit
    UNHEALTHY,
    FAILURES,
    THRASH,
    KV_MEMORY,
    BATCH_WIDTH,
    TOKEN_BUDGET,
    FRONT_END,
    LONG_PROMPT_STALLS,
    MEMORY_BANDWIDTH,
    SPECULATION,
    CACHE_CHURN,
    QUEUE,
    SLO,
    UNDER_USE,
)


@dataclass(frozen=True)
class Diagnosis:
    """`findings` in the order in which to act."""

    source: str
    seconds: float
    findings: tuple[Finding, ...]

    @property
    def is_healthy(self) -> bool:
        return all(finding.severity == "note" for finding in self.findings)


def diagnose(seen: Observation) -> Diagnosis:
    """Return what the rules find. A note is left out when something is wrong."""
    found = [
        Finding(rule.name, rule.title, rule.severity, sign.evidence, rule.knob, rule.trade, command_line(sign, seen.settings))
        for rule in RULES
        if (sign := rule.check(seen)) is not None
    ]
    wrong = [finding for finding in found if finding.severity != "note"]
    return Diagnosis(seen.source, seen.seconds, tuple(wrong or found))


def command_line(sign: Sign, settings: Settings) -> str | None:
    """Return the command to run: the server's own with the changed flags, or None where no flag helps."""
    if sign.command is not None:
        return sign.command
    known = {flag.name for flag in FLAGS}
    for changes in sign.changes:
        if settings.program == "vllm" or all(change.flag in known for change in changes):
            return " ".join((settings.program, "serve", shlex.quote(settings.model), *_words(changes)))
    return None


def rules_markdown() -> str:
    """Return the rules for docs/doctor.md."""
    lines = []
    for rule in RULES:
        lines += [
            f"### {rule.name}: {rule.title}",
            "",
            f"- **Kind**: {rule.severity}",
            f"- **Signs**: {rule.signs}",
            f"- **Knob**: {rule.knob}",
            f"- **Trade**: {rule.trade}",
            "",
        ]
    return "\n".join(lines)


def _words(changes: Sequence[Change]) -> list[str]:
    given = [word for change in changes if change.value is not None for word in (f"--{change.flag}", change.value)]
    left_out = [f"--{change.flag}" for change in changes if change.value is None]
    return [*given, *(["# without", *left_out] if left_out else [])]
