"""`Load`: what API processes have taken on and not ended, in figures that all of them see. Alone, a process sees its own."""

from __future__ import annotations

from octavo.metrics.figures import Figures, Gauge


class Load:
    """`unfinished`: choices without their final event. `queued_tokens`: prompt tokens of those without a token. Each process counts
    its own; `value` is the sum. `usual_step_s` is written by the one process that the engine tells its steps."""

    def __init__(self, figures: Figures) -> None:
        self.unfinished = Gauge(figures)
        self.queued_tokens = Gauge(figures)
        self.connections = Gauge(figures)
        self.usual_step_s = Gauge(figures)
        self.process_id = Gauge(figures)  # of those that answer HTTP; 0: this row has none

    @property
    def process_ids(self) -> list[int]:
        return [int(process_id) for process_id in self.process_id.parts if process_id]

    def clear(self, row: int) -> None:
        """Forget what the process of this row had taken on: it has ended."""
        for gauge in (self.unfinished, self.queued_tokens, self.connections, self.process_id):
            gauge.clear(row)
