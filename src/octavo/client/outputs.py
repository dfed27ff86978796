"""What a caller sees of a request: text and tokens as they come, one event at a time.

Msgspec structs and no dataclasses: one is made for each token, and a frozen dataclass takes ten times as long to make.
"""

from __future__ import annotations

import msgspec

from octavo.messages.wire import FinishReason


class Logprob(msgspec.Struct, frozen=True, gc=False):
    """One candidate at one position: its id, its text, the bytes that it stands for, its log-probability (natural) and rank."""

    token_id: int
    text: str
    token_bytes: bytes
    logprob: float
    rank: int


class PositionLogprobs(msgspec.Struct, frozen=True, gc=False):
    """The token of one position, sampled or given in the prompt, and the most likely ones there, best first."""

    sampled: Logprob
    top: tuple[Logprob, ...]


class RequestOutput(msgspec.Struct, frozen=True, gc=False):
    """New text and tokens of choice `index`. The last one for a choice, and only it, has a finish_reason.

    `text` never splits a character and never shows a stop string (unless include_stop_str_in_output); it may lag behind
    `token_ids`. `stop_reason`: the stop string or stop token id that ended it. Counts are totals so far.
    `error` is set with finish_reason "error", `error_code` as in TokenDelta. `prompt_logprobs`: of the next prompt tokens, from
    the prompt's second on, when they were asked for; all of them come before the first token. `begun_s`: when its first step was
    planned, in monotonic seconds; only in the first event after it. `num_preemptions`: how often it lost its place in the batch,
    in the last event.
    """

    request_id: str
    index: int
    text: str
    token_ids: list[int]
    finish_reason: FinishReason | None
    stop_reason: str | int | None
    logprobs: list[PositionLogprobs] | None
    num_prompt_tokens: int
    num_output_tokens: int
    num_cached_tokens: int
    error: str | None = None
    prompt_logprobs: list[PositionLogprobs] | None = None
    begun_s: float | None = None
    num_preemptions: int = 0
    error_code: str | None = None
    num_loaded_tokens: int = 0

    def __repr__(self) -> str:
        return f"RequestOutput({self.request_id!r}[{self.index}], +{len(self.token_ids)} tokens, {self.finish_reason})"
