"""What the engine refuses at its door, because it could never serve it. The client checks the same limits for a better
answer; these checks stand between a wrong message and the kernels."""

from __future__ import annotations

from typing import Literal

import msgspec

from octavo.errors import CapacityError, ContextLengthExceeded, InvalidRequest
from octavo.messages.wire import GenerateRequest

Policy = Literal["fcfs", "priority"]


class Limits(msgspec.Struct, frozen=True):
    """What one engine can take. Token counts are per request but for max_num_batched_tokens, the budget of a step.

    `max_num_batched_tokens` is at least `max_num_seqs`, so that each running request gets a token in each step.
    `long_prefill_token_threshold` caps one request's share of a step while others are there; 0: half of what is left.
    `adaptive_threshold`: the cap is never below an equal share. `watermark` is the share of blocks kept free when waiting
    requests are admitted beside running ones. `mixed_step_s`: how long a step with both prompts and answers in progress should
    take; its prompts are cut to that. None: however long. `max_queue_s`: how long a request may wait for its first step; None: for ever.
    """

    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    vocab_size: int
    long_prefill_token_threshold: int = 0
    adaptive_threshold: bool = False
    chunked_prefill: bool = True
    watermark: float = 0.0
    policy: Policy = "fcfs"
    max_queue_s: float | None = None
    mixed_step_s: float | None = None


def check_request(request: GenerateRequest, limits: Limits, kv_tokens: int) -> None:
    """Raise the RequestError or CapacityError that says why `request` can never run where one request can hold `kv_tokens`."""
    num_prompt = len(request.prompt_token_ids)
    known = num_prompt + len(request.resume_token_ids)
    if num_prompt == 0:
        raise InvalidRequest("the prompt has no token; it must have at least one", param="prompt")
    for name, ids in (("prompt", request.prompt_token_ids), ("resume_token_ids", request.resume_token_ids)):
        if ids and not (min(ids) >= 0 and max(ids) < limits.vocab_size):
            raise InvalidRequest(f"{name} holds a token id outside 0..{limits.vocab_size - 1:,} (the model's vocabulary)", param=name)
    if any(token_id >= limits.vocab_size for token_id in request.params.logit_bias):
        raise InvalidRequest(f"logit_bias names a token id above {limits.vocab_size - 1:,} (the model's vocabulary)", param="logit_bias")
    if num_prompt >= limits.max_model_len or known > limits.max_model_len:
        raise ContextLengthExceeded(
            f"prompt has {num_prompt:,} tokens; this server takes {limits.max_model_len:,} (max_model_len) for prompt and answer. "
            "Shorten it, or start with a larger --max-model-len.",
            param="prompt",
        )
    max_total = limits.max_model_len
    if request.params.max_tokens is not None:
        max_total = min(max_total, num_prompt + request.params.max_tokens)
    need = max_total - 1  # the last token is sampled, never computed
    if need > kv_tokens:
        raise CapacityError(
            f"request needs KV memory for {need:,} tokens; this server has {kv_tokens:,} for all requests together. "
            "Lower max_tokens or the prompt, or start with more KV memory.",
            code="request_too_large",
        )
