"""One run of a candidate: a fresh server, a share of the workload, the score of what came back."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from subprocess import Popen

from octavo.bench.datasets import Session
from octavo.bench.figures import figures
from octavo.bench.http_stream import Target
from octavo.bench.launch import launched, until_ready
from octavo.bench.objective import Objective
from octavo.bench.serving import Api, Run, first_model, run_load
from octavo.errors import EngineError, RequestError
from octavo.tune.candidates import Candidate
from octavo.tune.search import Trial


@dataclass(frozen=True)
class Bench:
    """How each candidate is run. `fixed`: words of the command line that all share; `arrivals`: seconds, one for each session."""

    fixed: tuple[str, ...]
    sessions: tuple[Session, ...]
    warm_up: tuple[Session, ...]
    arrivals: tuple[float, ...]
    max_concurrency: int | None
    objective: Objective

    def measure(self, candidate: Candidate, share: float) -> Trial:
        """Return the trial on the first `share` of the workload, but at least as many sessions as run at once."""
        count = min(len(self.sessions), max(round(share * len(self.sessions)), self.max_concurrency or 1))
        try:
            with launched([*self.fixed, *candidate.words()]) as (server, target):
                run = asyncio.run(self._run(server, target, count))
        except (EngineError, RequestError) as error:
            return Trial(candidate, 0.0, failure=error.message)
        whole = [record for record in run.records if record.is_whole]
        failure = None if whole else next((record.answer.error for record in run.records), "no request was sent")
        return Trial(candidate, self.objective.score(run), figures(run, {}) if whole else {}, failure)

    async def _run(self, server: Popen[bytes], target: Target, count: int) -> Run:
        await until_ready(server, target)
        api = Api(target, "openai", await first_model(target), ignore_eos=True, extra={})
        await run_load(api, self.warm_up, [0.0] * len(self.warm_up), None, lambda record: None)
        return await run_load(api, self.sessions[:count], self.arrivals[:count], self.max_concurrency, lambda record: None)
