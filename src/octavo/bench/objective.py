"""What a good answer is, and how many tokens of good answers came in a second."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.bench.serving import Record, Run
from octavo.bench.workload import percentile

GAPS_WITHIN = 95  # percent of an answer's gaps that must keep the limit


@dataclass(frozen=True)
class Objective:
    """The most that the first token and the gap to the next one may take, in seconds; None: no limit."""

    ttft_s: float | None = None
    itl_s: float | None = None

    def is_met(self, record: Record) -> bool:
        answer = record.answer
        if not record.is_whole or (self.ttft_s is not None and answer.ttft_s > self.ttft_s):
            return False
        return self.itl_s is None or not answer.itls_s or percentile(answer.itls_s, GAPS_WITHIN) <= self.itl_s

    def score(self, run: Run) -> float:
        """Return output tokens a second of the answers that met the objective."""
        return sum(record.answer.num_output_tokens for record in run.records if self.is_met(record)) / (run.duration_s or 1e-9)

    def __str__(self) -> str:
        limits = [f"{name}={limit:g}" for name, limit in (("ttft", self.ttft_s), ("itl", self.itl_s)) if limit is not None]
        return ",".join(limits) or "none"
