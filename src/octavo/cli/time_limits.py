"""What an answer may take at most, as flags write it: --slo ttft=0.5,itl=50ms and --goodput ttft:200 tpot:50.

A time with a unit (s, ms) is what it says; one without is in seconds in --slo, and in milliseconds in --goodput as vLLM has it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from octavo.errors import ConfigError
from octavo.units import parse_number

UNITS_S = {"ms": 1e-3, "s": 1.0}


def read_slo(text: str) -> dict[str, float]:
    """Return the seconds of ttft and itl, those that `text` names. Raises ConfigError."""
    return dict(_limits("--slo", text, "=", ("ttft", "itl"), 1.0, "ttft=0.5,itl=50ms"))


def read_goodput(text: str) -> dict[str, float]:
    """Return the milliseconds of ttft, tpot and e2el, those that `text` names. Raises ConfigError."""
    limits = _limits("--goodput", text, ":", ("ttft", "tpot", "e2el"), 1e-3, "ttft:200,tpot:50")
    return {name: seconds * 1e3 for name, seconds in limits}


def _limits(flag: str, text: str, sign: str, names: tuple[str, ...], unit_s: float, example: str) -> Iterator[tuple[str, float]]:
    for part in text.replace(",", " ").split():
        name, _, time = part.partition(sign)
        if name not in names:
            raise ConfigError(f"{flag} names {name[:40]!r}; it knows {', '.join(names)}: write {example}")
        unit = next((unit for unit in UNITS_S if time.endswith(unit)), "")
        try:
            limit = parse_number(time.removesuffix(unit))
        except ConfigError:
            raise ConfigError(f"{flag} {part[:64]!r}: {time[:40]!r} is no time; write {example}") from None
        if not 0 < limit < math.inf:
            raise ConfigError(f"{flag}: {name} is {time[:40]}; it must be more than 0 and finite")
        yield name, limit * UNITS_S.get(unit, unit_s)
