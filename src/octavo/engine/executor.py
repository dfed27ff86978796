"""`Executor`: how a plan gets computed. `start` hands one over, `finish` waits for its result; what runs in between is its affair.

Overlapping the next plan with a step in flight, or many workers, are other executors, not branches in the engine core.
"""

from __future__ import annotations

from typing import Protocol

from octavo.errors import EngineError
from octavo.messages.step import StepPlan, StepResult


class StepWorker(Protocol):
    """What an executor drives: `worker.Worker`, or a fake one in tests."""

    def execute(self, plan: StepPlan) -> StepResult: ...


class Executor(Protocol):
    def start(self, plan: StepPlan) -> None:
        """Take over `plan`; it is not changed afterwards."""
        ...

    def finish(self) -> StepResult:
        """Return the result of the plan started last. Raises what the worker raised; the next start is then free to try again."""
        ...


class InlineExecutor:
    """Computes on the calling thread, when the result is asked for."""

    def __init__(self, worker: StepWorker) -> None:
        self._worker = worker
        self._plan: StepPlan | None = None

    def start(self, plan: StepPlan) -> None:
        self._plan = plan

    def finish(self) -> StepResult:
        plan, self._plan = self._plan, None
        if plan is None:
            raise EngineError("no step was started")
        return self._worker.execute(plan)
