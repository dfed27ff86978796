"""One number with the formula that it comes from: text for a reader that anybody can check with a pocket calculator."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Derivation:
    """`name` = `formula` = `values` = `result` `unit`; `values` is the formula with numbers put in. A comparison results in 1 or 0."""

    name: str
    formula: str
    values: str
    result: float
    unit: str
