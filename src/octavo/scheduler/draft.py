"""`StepDraft`: a step while it is being planned. Whole when the scheduler makes a StepPlan of it; nothing of it outlives that."""

from __future__ import annotations

from dataclasses import dataclass, field

from octavo.messages.step import NewRow, RowStep
from octavo.scheduler.request_state import RequestState


@dataclass
class StepDraft:
    """`cap`: the most tokens that one request may get. `budget` and `logits` are what is left of the step's tokens, and of the
    positions whose logits it computes. `states` are those of `rows`; `cut` are the places of prompts that did not get all they want."""

    cap: int
    budget: int
    logits: int
    rows: list[RowStep] = field(default_factory=list)
    states: list[RequestState] = field(default_factory=list)
    cut: list[int] = field(default_factory=list)
    new_rows: list[NewRow] = field(default_factory=list)
