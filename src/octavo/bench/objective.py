"""What a good answer is, and how many tokens of good answers came in a second."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.bench.serving import Record, Run
from octavo.bench.workload import percentile
from octavo.errors import ConfigError

NAMES = ("ttft", "itl")
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


def parse_slo(text: str) -> Objective:
    """Return the objective that `ttft=0.5,itl=50ms` writes. Raises ConfigError."""
    limits: dict[str, float] = {}
    for part in text.split(","):
        name, _, value = part.strip().partition("=")
        if name not in NAMES:
            raise ConfigError(f"--slo names {name!r}; write ttft=SECONDS,itl=SECONDS, as in ttft=0.5,itl=50ms")
        number, scale = (value[:-2], 1e-3) if value.endswith("ms") else (value.removesuffix("s"), 1.0)
        try:
            limits[name] = float(number) * scale
        except ValueError:
            raise ConfigError(f"--slo: {value!r} is no time; write 0.5 or 500ms") from None
        if not 0 < limits[name] < float("inf"):
            raise ConfigError(f"--slo: {name} is {value}; it must be more than 0")
    return Objective(limits.get("ttft"), limits.get("itl"))
