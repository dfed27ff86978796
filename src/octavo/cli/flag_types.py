"""Argparse types of numbers that must lie between limits; a mistake says what was given and what is allowed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from octavo.config.flag_parser import flag_type
from octavo.errors import ConfigError
from octavo.units import parse_int, parse_number


def integer(least: int, most: int | None = None) -> Callable[[str], Any]:
    """Return the type of an integer from `least` to `most`, or without an end."""
    allowed = f"be at least {least:,}" if most is None else f"lie in {least:,}..{most:,}"

    def read(text: str) -> int:
        value = parse_int(text)
        if value < least or (most is not None and value > most):
            raise ConfigError(f"{text} must {allowed}")
        return value

    return flag_type(read)


def number(*, least: float = -math.inf, above: float = -math.inf, below: float = math.inf, most: float = math.inf) -> Callable[[str], Any]:
    """Return the type of a finite number within these limits."""
    limits = (("at least", least), ("more than", above), ("less than", below), ("at most", most))
    allowed = " and ".join(f"{words} {limit:g}" for words, limit in limits if math.isfinite(limit))

    def read(text: str) -> float:
        value = parse_number(text)
        if not (math.isfinite(value) and least <= value <= most and above < value < below):
            raise ConfigError(f"{text} must be {allowed}" + ("" if math.isfinite(value) else ", and finite"))
        return value

    return flag_type(read)


def rate(text: str) -> float:
    """Return a rate: more than 0, or inf."""
    value = parse_number(text)
    if value <= 0:
        raise ConfigError(f"{text} must be more than 0 (inf: all at once)")
    return value
