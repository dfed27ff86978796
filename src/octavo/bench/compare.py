"""Two or more saved results side by side, each figure with its ratio to the first, and which of the two is the better."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan, nan
from pathlib import Path
from typing import Any

from octavo.errors import ConfigError

HIGHER_IS_BETTER = ("throughput", "goodput", "per_second", "tokens_per_s", "completed", "hit_rate")
SETTINGS = (
    "num_prompts",
    "request_rate",
    "burstiness",
    "max_concurrency",
    "dataset_name",
    "seed",
    "model_id",
    "random_input_len",
    "random_output_len",
)
SAME = 0.03  # a change smaller than this is taken for noise


@dataclass(frozen=True)
class Row:
    """One figure in every result. `ratios` are to the first, NaN where that is 0.

    `verdicts` say better, worse or same, "" for what has no good side."""

    name: str
    values: tuple[float, ...]
    ratios: tuple[float, ...]
    verdicts: tuple[str, ...]


def read_result(path: Path) -> dict[str, Any]:
    """Return a saved result. Raises ConfigError."""
    try:
        result = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} is no saved result: {error}") from None
    if isinstance(result, list) and result:
        result = result[-1]  # a file that results were appended to
    if not isinstance(result, dict):
        raise ConfigError(f"{path} holds no result")
    return result


def compare(results: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Return a row for each number that all results have and that is not the same by definition."""
    first = results[0]
    rows = []
    for name, value in first.items():
        values = [result[name] for result in results if _is_number(result.get(name))]
        if name in SETTINGS or len(values) < len(results):
            continue
        ratios = [each / value if value else nan for each in values]
        rows.append(Row(name, tuple(map(float, values)), tuple(ratios), tuple(_verdict(name, ratio) for ratio in ratios)))
    return rows


def differing_settings(results: Sequence[Mapping[str, Any]]) -> dict[str, tuple[Any, ...]]:
    """Return the settings that are not the same in all results: figures taken under them do not compare."""
    settings = {name: tuple(result.get(name) for result in results) for name in SETTINGS}
    return {name: values for name, values in settings.items() if len(set(map(str, values))) > 1}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _verdict(name: str, ratio: float) -> str:
    higher = any(part in name for part in HIGHER_IS_BETTER)
    lower = name.endswith(("_ms", "_latency", "duration", "elapsed_time", "failed", "_seconds"))
    if isnan(ratio) or not (higher or lower):
        return ""
    if abs(ratio - 1) < SAME:
        return "same"
    return "better" if (ratio > 1) == higher else "worse"
