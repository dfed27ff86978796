"""`Executor`: how plans get computed. `start` hands one over, `finish` waits for the result of the oldest one started.

How many plans an executor holds at once is its affair (`depth`), and all that the engine core knows of it: one that
computes on a thread of its own takes the next plan while a step runs. Many workers would be another executor.
"""

from __future__ import annotations

import threading
import weakref
from queue import SimpleQueue
from typing import Protocol

from octavo.errors import EngineError
from octavo.messages.step import StepPlan, StepResult


class StepWorker(Protocol):
    """What an executor drives: `worker.Worker`, or a fake one in tests."""

    def execute(self, plan: StepPlan) -> StepResult: ...


class Executor(Protocol):
    depth: int  # plans that may be started and not finished

    def start(self, plan: StepPlan) -> None:
        """Take over `plan`; it is not changed afterwards. Plans are run in the order of their start."""
        ...

    def finish(self) -> StepResult:
        """Return the result of the oldest plan started. Raises what the worker raised; plans started behind that one are
        then dropped unrun, and the next start is free to try again."""
        ...


class InlineExecutor:
    """Computes on the calling thread, when the result is asked for."""

    depth = 1

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


class ThreadExecutor:
    """Computes on a thread of its own, which ends when the executor is let go."""

    depth = 2

    def __init__(self, worker: StepWorker) -> None:
        self._jobs: SimpleQueue[_Job] = SimpleQueue()
        self._outcomes: SimpleQueue[StepResult | Exception] = SimpleQueue()
        thread = threading.Thread(target=_run, args=(worker, self._jobs, self._outcomes), name="octavo-step", daemon=True)
        thread.start()
        weakref.finalize(self, _end, thread, self._jobs)

    def start(self, plan: StepPlan) -> None:
        self._jobs.put(plan)

    def finish(self) -> StepResult:
        outcome = self._outcomes.get()
        if isinstance(outcome, Exception):
            self._jobs.put("failure seen")
            raise outcome
        return outcome


_Job = StepPlan | str  # a plan to run, or a word
END_WAIT_S = 5.0


def _end(thread: threading.Thread, jobs: SimpleQueue[_Job]) -> None:
    """Let the thread end and wait for it, so that the model's memory is free; not for ever, should a step hang."""
    jobs.put("end")
    thread.join(END_WAIT_S)


def _run(worker: StepWorker, jobs: SimpleQueue[_Job], outcomes: SimpleQueue[StepResult | Exception]) -> None:
    """Run plans until told to end. After one that raised, drop those behind it, which were made as if it had not."""
    has_failed = False
    while (job := jobs.get()) != "end":
        if job == "failure seen":
            has_failed = False
        elif isinstance(job, StepPlan) and not has_failed:
            try:
                outcomes.put(worker.execute(job))
            except Exception as error:
                has_failed = True
                outcomes.put(error)
