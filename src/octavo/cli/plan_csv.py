"""One table of a plan as CSV."""

from __future__ import annotations

import csv
import dataclasses
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from octavo.planner.plan import Plan

TABLES: Mapping[str, Callable[[Plan], Sequence[Any]]] = {
    "concurrency": lambda plan: plan.sizing.concurrency,
    "formats": lambda plan: plan.formats,
    "splits": lambda plan: plan.splits,
    "decode": lambda plan: plan.decode,
    "prefill": lambda plan: plan.prefill,
    "costs": lambda plan: plan.costs,
    "sensitivity": lambda plan: plan.sensitivity,
    "groups": lambda plan: plan.model.groups,
}


def write_csv(rows: Sequence[Any]) -> None:
    """Write dataclasses as CSV, nested ones in columns of their own."""
    flat = [_flatten(dataclasses.asdict(row)) for row in rows]
    names = list(dict.fromkeys(name for row in flat for name in row))
    writer = csv.DictWriter(sys.stdout, names, restval="")
    writer.writeheader()
    writer.writerows(flat)


def table_rows(plan: Plan, table: str) -> Sequence[Any]:
    """Return the rows of one of TABLES."""
    return TABLES[table](plan)


def _flatten(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            flat |= _flatten(value, f"{prefix}{name}_")
        elif isinstance(value, list | tuple) and value and isinstance(value[0], dict):
            for item in value:
                flat |= _flatten(item, f"{prefix}{next(iter(item.values()))}_")
        else:
            flat[prefix + name] = " ".join(map(str, value)) if isinstance(value, list | tuple) else value
    return flat
