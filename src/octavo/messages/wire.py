"""Client <-> engine: every message on the socket, and nothing else crosses it.

MessagePack by msgspec into these closed structs (codec.py caps the frame). One request in, exactly one delta with a
`finish_reason` out, whatever happens. `repr` shows lengths, never tokens.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from octavo.messages.stats import StepStats
from octavo.params import SamplingParams

FinishReason = Literal["stop", "length", "abort", "error"]
ErrorCode = Literal["server_overloaded", "invalid_grammar"]
ControlKind = Literal["ping", "reset_prefix_cache", "pause", "resume", "shutdown"]
PauseMode = Literal["abort", "wait", "keep"]
PoolTask = Literal["embed", "token_embed", "classify"]


class GenerateRequest(msgspec.Struct, frozen=True, tag="generate", kw_only=True, omit_defaults=True):
    """One sequence to generate (n > 1 is n of these, with ids `<id>-<i>` and their own seeds).

    `params.n` is 1 and `params.seed` is set by now. `eos_token_ids` end the answer unless `params.ignore_eos`.
    `resume_token_ids` are output tokens already sent to the caller (after an engine restart); they count as output.
    `num_scored_tokens` of the prompt's tokens had their log-probabilities sent by then (the first token never has one).
    `cache_salt` separates tenants in the prefix cache, `tenant` in the waiting queue; `priority` lower is sooner;
    `arrival_s` is monotonic seconds.
    """

    request_id: str
    prompt_token_ids: list[int]
    params: SamplingParams
    arrival_s: float
    eos_token_ids: tuple[int, ...] = ()
    priority: int = 0
    cache_salt: str = ""
    tenant: str = ""
    adapter: str | None = None
    resume_token_ids: list[int] = []
    num_scored_tokens: int = 0

    def __repr__(self) -> str:
        return f"GenerateRequest({self.request_id!r}, {len(self.prompt_token_ids)} prompt tokens)"


class PoolRequest(msgspec.Struct, frozen=True, tag="pool", kw_only=True, omit_defaults=True):
    """One text to read: `embed` asks for its vector, `token_embed` for one a token, `classify` for the scores of its classes.

    `second_start` is where the second of two texts read together begins; the number of tokens where there is one. `activate`:
    scale a vector to length 1 where the model does, turn scores into probabilities.
    """

    request_id: str
    prompt_token_ids: list[int]
    task: PoolTask
    second_start: int
    arrival_s: float
    activate: bool = True
    priority: int = 0

    def __repr__(self) -> str:
        return f"PoolRequest({self.request_id!r}, {self.task}, {len(self.prompt_token_ids)} prompt tokens)"


class AbortRequest(msgspec.Struct, frozen=True, tag="abort"):
    """Stop these requests. Unknown ids are ignored: they have ended already."""

    request_ids: list[str]


class ControlRequest(msgspec.Struct, frozen=True, tag="control", omit_defaults=True):
    """An administrative verb. Answered by a ControlReply with the same id.

    `reset_running_requests`: reset_prefix_cache preempts what runs, in place of refusing. `mode` is pause's: what becomes of the
    requests that are there (abort: they end; wait: they go on to their end; keep: they stand still). Later ones are held until resume."""

    control_id: int
    kind: ControlKind
    reset_running_requests: bool = False
    mode: PauseMode = "abort"


EngineRequest = GenerateRequest | PoolRequest
ToEngine = EngineRequest | AbortRequest | ControlRequest


class TokenLogprobs(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One position: its token's logprob and rank (1 = most likely), then the most likely tokens, best first."""

    logprob: float
    rank: int
    top_ids: list[int]
    top_logprobs: list[float]


class TokenDelta(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """New tokens of one request. `finish_reason` is None until the last delta, which may hold no token.

    `stop_reason`: the stop token id that ended it, else None. `error` says why when finish_reason is "error".
    `num_cached_tokens`: prompt tokens found in the prefix cache, right from the first delta on.
    `prompt_logprobs`: of the next prompt tokens, from the second on; all of them come before the first output token, in
    deltas without one.
    `begun_s`: when the request's first step was planned, in monotonic seconds; in the first delta after it (and again in a
    later one, when the request was computed anew: the first counts). `num_preemptions`: how often it lost its place, in the last.
    `num_loaded_tokens`: of num_cached_tokens, those read back from beyond the pool; right in the first delta with a token.
    `error_code`: server_overloaded when it was ended for having waited too long, invalid_grammar when what its answer must match is the
    reason; None for every other failure.
    `pooled`: the answer to a PoolRequest, float32 values (of all tokens' vectors, one after another, for token_embed).
    """

    request_id: str
    token_ids: list[int]
    finish_reason: FinishReason | None = None
    stop_reason: int | None = None
    logprobs: list[TokenLogprobs] | None = None
    num_cached_tokens: int = 0
    error: str | None = None
    prompt_logprobs: list[TokenLogprobs] | None = None
    pooled: bytes | None = None
    begun_s: float | None = None
    num_preemptions: int = 0
    error_code: ErrorCode | None = None
    num_loaded_tokens: int = 0

    def __repr__(self) -> str:
        return f"TokenDelta({self.request_id!r}, {len(self.token_ids)} tokens, {self.finish_reason})"


class Phase(msgspec.Struct, frozen=True):
    """A part of a process' start, on time.monotonic()."""

    name: str
    begin_s: float
    end_s: float

    @property
    def seconds(self) -> float:
        return self.end_s - self.begin_s


class EngineReady(msgspec.Struct, frozen=True, tag="ready", kw_only=True):
    """Sent once, when the engine can serve: what it resolved for itself."""

    max_model_len: int
    num_blocks: int
    block_size: int
    kv_cache_tokens: int
    max_concurrency: float
    vocab_size: int
    max_num_seqs: int
    max_num_batched_tokens: int
    weight_bytes: int
    kv_bytes_per_token: float
    startup_lines: list[str]  # the ledger and the timed phases, for the log
    phases: list[Phase] = []  # of the process' start, in order


class EngineFailed(msgspec.Struct, frozen=True, tag="failed"):
    """The engine cannot start or go on; `message` is for people."""

    message: str


class StepOutputs(msgspec.Struct, frozen=True, tag="outputs"):
    """All deltas of one step in one frame, and the step's figures (None when nothing ran)."""

    deltas: list[TokenDelta]
    stats: StepStats | None = None


class ControlReply(msgspec.Struct, frozen=True, tag="reply"):
    control_id: int
    ok: bool
    message: str = ""


FromEngine = EngineReady | EngineFailed | StepOutputs | ControlReply
