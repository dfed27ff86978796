"""Texts into requests for vectors and scores, and the engine's answers into arrays: the caller's side of pooling models.

The same for the server, for `AsyncEngine` and for the offline `LLM`. A text that is too long is refused, or cut where the
caller says at how many tokens; nothing is cut in silence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from octavo.client.front import TextFront
from octavo.errors import ContextLengthExceeded, InvalidRequest, RequestFailed
from octavo.messages.wire import FinishReason, PoolRequest, PoolTask, TokenDelta
from octavo.specs.model import EncoderSpec

if TYPE_CHECKING:
    from octavo.client.vectors import FloatArray


class PoolPrompt(msgspec.Struct, frozen=True):
    """One text, or two read together, as ids; `second_start` is where the second one's segment begins."""

    token_ids: list[int]
    second_start: int


class PooledEvent(msgspec.Struct, frozen=True):
    """The answer to one PoolRequest, its only event. `values`: [D], [tokens, D] or [labels]; None unless finish_reason is stop."""

    finish_reason: FinishReason
    values: FloatArray | None
    error: str | None


class PoolChoice:
    """What a request for a vector is on the caller's side, in the place of `choice.Choice`."""

    ended_by_stop_string = False

    def __init__(self, request: PoolRequest) -> None:
        self.request = request

    def feed(self, delta: TokenDelta) -> PooledEvent:
        """Return the event of the request's one delta."""
        values = None
        if delta.pooled is not None:
            from octavo.client.vectors import read_values

            values = read_values(delta.pooled, len(self.request.prompt_token_ids) if self.request.task == "token_embed" else None)
        return PooledEvent(delta.finish_reason or "error", values, delta.error)

    def resumed(self) -> PoolRequest:
        """Return the request to give to a new engine: the same, since nothing of it was answered."""
        return self.request


def values_of(event: PooledEvent) -> FloatArray:
    """Return the answer. Raises RequestFailed when there is none."""
    if event.values is None:
        raise RequestFailed(event.error or "the request ended without an answer")
    return event.values


class PoolFront:
    """Reads texts for one encoder. Raises InvalidRequest for a model that generates.

    `truncate` of the readers: the most tokens to keep of a text, -1 as many as the model takes, None to refuse longer ones.
    They raise ContextLengthExceeded and InvalidRequest, with `param` as the field that is wrong."""

    def __init__(self, front: TextFront, max_model_len: int) -> None:
        if not isinstance(front.spec, EncoderSpec):
            raise InvalidRequest(
                "this model generates text; vectors and scores are given by encoders such as all-minilm-l6-v2", code="unsupported_task"
            )
        self.spec = front.spec
        self.max_model_len = max_model_len
        self._tokenizer = front.tokenizer

    @property
    def tasks(self) -> tuple[PoolTask, ...]:
        return ("classify",) if self.spec.labels else ("embed", "token_embed")

    @property
    def reads_pairs(self) -> bool:
        """Whether the model reads two texts together and gives them one score (a cross-encoder)."""
        return len(self.spec.labels) == 1

    @property
    def scores_pairs(self) -> bool:
        """Whether two texts get a score: that of a cross-encoder, or how alike their vectors are."""
        return not self.spec.labels or self.reads_pairs

    def check_task(self, task: PoolTask) -> None:
        """Raise InvalidRequest when the model does not do `task`."""
        if task not in self.tasks:
            raise InvalidRequest(f"this model does not do {task}; it does {', '.join(self.tasks)}", code="unsupported_task")

    def read(self, text: str | Sequence[int], *, truncate: int | None = None, param: str = "input") -> PoolPrompt:
        """Return a text, or its ids, as ids that the model takes."""
        ids = self._tokenizer.encode(text) if isinstance(text, str) else list(text)
        return self._checked(ids, len(ids), truncate, param)

    def read_pair(self, first: str, second: str, *, truncate: int | None = None, param: str = "input") -> PoolPrompt:
        """Return two texts that are read together as ids that the model takes."""
        return self._checked(*self._tokenizer.encode_pair(first, second), truncate, param)

    def _checked(self, ids: list[int], second_start: int, truncate: int | None, param: str) -> PoolPrompt:
        limit = self.max_model_len
        if truncate is not None:
            if truncate > limit:
                raise InvalidRequest(
                    f"truncate_prompt_tokens is {truncate:,}; this model takes {limit:,} tokens (max_model_len)",
                    param="truncate_prompt_tokens",
                )
            ids = self._tokenizer.truncate(ids, limit if truncate == -1 else truncate)
        if not ids:
            raise InvalidRequest("a text has no tokens; send at least one", param=param)
        if len(ids) > limit:
            raise ContextLengthExceeded(
                f"a text has {len(ids):,} tokens; this model takes {limit:,} (max_model_len). "
                "Shorten it, or say with truncate_prompt_tokens where to cut",
                param=param,
            )
        low, high = min(ids), max(ids)
        if low < 0 or high >= self.spec.vocab_size:
            raise InvalidRequest(f"a text holds token id {low if low < 0 else high}; ids lie in 0..{self.spec.vocab_size - 1}", param=param)
        return PoolPrompt(ids, second_start)
