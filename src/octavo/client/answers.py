"""A prompt and its answer, as `LLM` and `AsyncLLM` hand them out; names and meanings are those of vLLM's outputs.

`AnswerBuilder` gathers the events of one prompt's choices; it can be asked for the answer at any time.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from octavo.client.outputs import Logprob, PositionLogprobs, RequestOutput
from octavo.errors import InvalidRequest, RequestFailed
from octavo.messages.wire import FinishReason


@dataclass(frozen=True)
class TokenLogprob:
    """A candidate for one position: its natural log-probability, its rank (1 = most likely), its text."""

    logprob: float
    rank: int
    decoded_token: str


Candidates = dict[int, TokenLogprob]  # by token id: the one that stands there first, then the most likely ones


@dataclass(frozen=True)
class CompletionOutput:
    """One choice. `logprobs` has one entry per output token; `cumulative_logprob` is the sum of those tokens'."""

    index: int
    text: str
    token_ids: list[int]
    cumulative_logprob: float | None = None
    logprobs: list[Candidates] | None = None
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None

    @property
    def finished(self) -> bool:
        return self.finish_reason is not None


@dataclass(frozen=True)
class RequestMetrics:
    """When things happened, in monotonic seconds; 0.0 before they did. `first_token_latency` is in seconds."""

    arrival_time: float
    scheduled_ts: float = 0.0
    first_token_ts: float = 0.0
    last_token_ts: float = 0.0
    first_token_latency: float = 0.0
    num_generation_tokens: int = 0


@dataclass(frozen=True)
class Answer:
    """One prompt and its choices. `prompt` is None when token ids were given, or a conversation. `prompt_logprobs`, when asked
    for, has one entry a prompt token, the first None."""

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    finished: bool
    num_cached_tokens: int
    metrics: RequestMetrics
    prompt_logprobs: list[Candidates | None] | None = None


class AnswerBuilder:
    """The answer to one prompt of `num_choices` choices, as far as it has come."""

    def __init__(self, request_id: str, prompt: str | None, token_ids: list[int], num_choices: int, *, scores_prompt: bool) -> None:
        self.request_id = request_id
        self._prompt = prompt
        self._token_ids = token_ids
        self._events: list[list[RequestOutput]] = [[] for _ in range(num_choices)]
        self._num_taken = [0] * num_choices  # events that `take` has given
        self._unfinished = num_choices
        self._scores_prompt = scores_prompt
        self._metrics = RequestMetrics(arrival_time=time.monotonic())

    @property
    def is_finished(self) -> bool:
        return self._unfinished == 0

    def add(self, event: RequestOutput) -> None:
        """Take in the next event of a choice."""
        self._events[event.index].append(event)
        self._unfinished -= event.finish_reason is not None
        if event.begun_s is not None and not self._metrics.scheduled_ts:
            self._metrics = replace(self._metrics, scheduled_ts=event.begun_s)
        if event.token_ids:
            self._metrics = self._timed(len(event.token_ids))

    def answer(self) -> Answer:
        """Return all that has come. Raises RequestFailed when the engine failed a choice."""
        return self._answer(self._events)

    def take(self) -> Answer:
        """Return what has come since the last call: new text, new tokens. Raises as answer() does."""
        news = [events[taken:] for events, taken in zip(self._events, self._num_taken, strict=True)]
        self._num_taken = [len(events) for events in self._events]
        return self._answer(news)

    def _answer(self, choices: list[list[RequestOutput]]) -> Answer:
        return Answer(
            request_id=self.request_id,
            prompt=self._prompt,
            prompt_token_ids=self._token_ids,
            outputs=[_choice(index, events) for index, events in enumerate(choices)],
            finished=self.is_finished,
            num_cached_tokens=self._events[0][-1].num_cached_tokens if self._events[0] else 0,
            metrics=self._metrics,
            prompt_logprobs=self._prompt_logprobs() if self._scores_prompt else None,
        )

    def _prompt_logprobs(self) -> list[Candidates | None]:
        return [None, *(_candidates(position) for event in self._events[0] for position in event.prompt_logprobs or ())]

    def _timed(self, num_new: int) -> RequestMetrics:
        now, before = time.monotonic(), self._metrics
        first = before.first_token_ts or now
        return replace(
            before,
            first_token_ts=first,
            last_token_ts=now,
            first_token_latency=first - before.arrival_time,
            num_generation_tokens=before.num_generation_tokens + num_new,
        )


def _choice(index: int, events: list[RequestOutput]) -> CompletionOutput:
    if events and events[-1].error_code == "invalid_grammar":
        raise InvalidRequest(events[-1].error or "the answer cannot match its grammar", param="structured_outputs")
    if events and events[-1].finish_reason == "error":
        raise RequestFailed(events[-1].error or "the request ended without an answer")
    positions = [position for event in events for position in event.logprobs or ()]
    asked = any(event.logprobs is not None for event in events)
    last = events[-1] if events else None
    return CompletionOutput(
        index=index,
        text="".join(event.text for event in events),
        token_ids=[token_id for event in events for token_id in event.token_ids],
        cumulative_logprob=sum(position.sampled.logprob for position in positions) if asked else None,
        logprobs=[_candidates(position) for position in positions] if asked else None,
        finish_reason=last.finish_reason if last else None,
        stop_reason=last.stop_reason if last else None,
    )


def _candidates(position: PositionLogprobs) -> Candidates:
    return {one.token_id: _named(one) for one in (position.sampled, *position.top)}


def _named(one: Logprob) -> TokenLogprob:
    return TokenLogprob(one.logprob, one.rank, one.text)
