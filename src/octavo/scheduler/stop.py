"""Where an answer ends, token by token.

Stop strings are not found here: they need text, so the client finds them and sends an abort.
"""

from __future__ import annotations

from typing import NamedTuple

from octavo.messages.wire import FinishReason, GenerateRequest


class Ending(NamedTuple):
    """`stop_reason` is the id of stop_token_ids that ended the answer, else None."""

    finish_reason: FinishReason
    stop_reason: int | None = None


class StopRule:
    """One request's ends, checked in this order: before min_tokens nothing ends it but the context; an end-of-sequence id
    (unless ignore_eos); an id of stop_token_ids; max_tokens or the end of the context."""

    __slots__ = ("ending_ids", "eos_ids", "max_total", "min_total", "stop_ids")

    def __init__(self, request: GenerateRequest, max_model_len: int) -> None:
        params = request.params
        num_prompt = len(request.prompt_token_ids)
        self.max_total = max_model_len if params.max_tokens is None else min(num_prompt + params.max_tokens, max_model_len)
        self.min_total = min(num_prompt + params.min_tokens, self.max_total)
        self.eos_ids = frozenset() if params.ignore_eos else frozenset(request.eos_token_ids)
        self.stop_ids = frozenset(params.stop_token_ids)
        self.ending_ids = self.eos_ids | self.stop_ids

    def check(self, token_id: int, num_tokens: int) -> Ending | None:
        """Return how `token_id`, the request's `num_tokens`-th token (prompt included), ends the answer, or None."""
        if num_tokens >= self.min_total:
            if token_id in self.eos_ids:
                return Ending("stop")
            if token_id in self.stop_ids:
                return Ending("stop", token_id)
            if num_tokens >= self.max_total:
                return Ending("length")
        return None
