"""What `octavo bench serve` prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from octavo.bench.figures import TIMES, tokens_per_second
from octavo.bench.report import LINES, kinds_of
from octavo.bench.serving import Run
from octavo.cli.bars import sparkline

WIDTH = 56
SHOWN_REASONS = 3


def block(result: Mapping[str, Any], shown: Sequence[str], run: Run) -> str:
    """Return the printed result; `shown` are names of TIMES."""
    lines = [f"{' Serving Benchmark Result ':=^{WIDTH}}"]
    lines += [f"{label + ':':<42}{form.format(result[name]):>14}" for label, name, form in LINES if result.get(name) is not None]
    lines += _reasons(run)
    kinds = kinds_of(result)
    for name in shown:
        lines.append(f"{TIMES[name]:-^{WIDTH}}")
        for kind in kinds:
            value = result[f"{kind}_{name}_ms"]
            label = f"{kind.capitalize()} {name.upper()} (ms):"
            lines.append(f"{label:<42}{'-' if value is None else f'{value:.2f}':>14}")
    whole = [record for record in run.records if record.is_whole]
    if rates := tokens_per_second(whole):
        lines.append(f"{'Output tokens in each second':-^{WIDTH}}")
        lines.append(sparkline(rates, WIDTH))
    return "\n".join([*lines, "=" * WIDTH])


def _reasons(run: Run) -> list[str]:
    """Return the commonest reasons of failures."""
    counts = Counter(record.answer.error for record in run.records if record.answer.error is not None)
    if not counts:
        return []
    return [f"{'Reasons of failures':-^{WIDTH}}", *(f"{count:,} x {reason}" for reason, count in counts.most_common(SHOWN_REASONS))]
