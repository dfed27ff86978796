"""What tuning leaves behind: a file of flags for `octavo serve @FILE`, which tells in comments what was measured, where and when."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from octavo.tune.search import Outcome


def flags_file(model: str, fixed: Sequence[str], outcome: Outcome, told: Sequence[str]) -> str:
    """Return the file. `fixed`: further words of the command line; `told`: lines about the machine, the time and the workload."""
    best, base = outcome.figures_of(outcome.best), outcome.figures_of(outcome.base)
    lines = [
        "written by octavo tune; start with: octavo serve @THIS_FILE",
        *told,
        f"measured: {_figures(best)}",
        f"before:   {_figures(base)} with {outcome.base}",
        f"that is {outcome.against_base} of the score before",
        outcome.why,
    ]
    words = ["--model", model, *fixed, *outcome.best.words()]
    return "".join(f"# {line}\n" for line in lines) + " ".join(shlex.quote(word) for word in words) + "\n"


def _figures(figures: dict[str, float | None]) -> str:
    if not figures:
        return "no whole run"
    ttft, itl = figures["p99_ttft_ms"], figures["p99_itl_ms"]
    return f"{figures['output_throughput']:.1f} output tok/s, TTFT p99 {ttft or 0:,.0f} ms, ITL p99 {itl or 0:,.0f} ms"
