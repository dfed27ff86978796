"""How much an answer may hold, and how its tokens are chosen: what the request says, else the model's own defaults, else OpenAI's."""

from __future__ import annotations

from typing import Literal

from octavo.constraints import StructuredOutputsParams
from octavo.errors import ContextLengthExceeded, InvalidRequest
from octavo.params import SamplingParams
from octavo.server.openai.schemas import RequestBody
from octavo.server.state import Engine
from octavo.specs.text import GenerationDefaults

PromptField = Literal["messages", "prompt"]


def check_text_length(texts: list[str], engine: Engine, param: PromptField) -> None:
    """Raise ContextLengthExceeded for text that cannot fit whatever its tokens are, before time goes into finding them."""
    least = sum(engine.tokenizer.min_tokens(text) for text in texts)
    limit = engine.ready.max_model_len
    if least > limit:
        raise ContextLengthExceeded(
            f"{param} has at least {least:,} tokens; this server takes {limit:,} of prompt and answer together. Shorten it", param=param
        )


def check_in_vocabulary(token_ids: list[int], engine: Engine, param: str) -> None:
    """Raise InvalidRequest for ids that the model does not have."""
    vocab_size = engine.ready.vocab_size
    if max(token_ids, default=0) >= vocab_size:
        raise InvalidRequest(f"{param} holds a token id outside the model's vocabulary, 0..{vocab_size - 1}", param=param)


def room_for_answer(num_prompt_tokens: int, max_model_len: int, param: PromptField) -> int:
    """Return how many tokens the answer may have. Raises ContextLengthExceeded when there is no room for one."""
    if num_prompt_tokens >= max_model_len:
        raise ContextLengthExceeded(
            f"{param} has {num_prompt_tokens:,} tokens; this server takes {max_model_len:,} of prompt and answer together. Shorten it",
            param=param,
        )
    return max_model_len - num_prompt_tokens


def check_max_tokens(max_tokens: int, num_prompt_tokens: int, max_model_len: int, param: PromptField) -> None:
    """Raise ContextLengthExceeded when prompt and answer are longer than the context together."""
    if num_prompt_tokens + max_tokens > max_model_len:
        raise ContextLengthExceeded(
            f"{param} has {num_prompt_tokens:,} tokens and max_tokens is {max_tokens:,}; this server takes {max_model_len:,} together. "
            f"Ask for at most {max(0, max_model_len - num_prompt_tokens):,}, or shorten {param}",
            param=param,
        )


def truncated(token_ids: list[int], body: RequestBody, max_model_len: int, max_tokens: int) -> list[int]:
    """Return the prompt as truncate_prompt_tokens wants it: whole (None), or its last tokens (its first ones with
    truncation_side "right"), that many of them, -1: as many as leave room for `max_tokens`. Raises InvalidRequest."""
    limit = body.truncate_prompt_tokens
    if limit is None:
        if body.truncation_side is not None:
            raise InvalidRequest("truncation_side needs truncate_prompt_tokens", param="truncation_side")
        return token_ids
    if limit == 0 or limit > max_model_len:
        raise InvalidRequest(
            f"truncate_prompt_tokens is {limit:,}; it must be -1 or lie in 1..{max_model_len:,} (max_model_len)",
            param="truncate_prompt_tokens",
        )
    if limit == -1:
        limit = max(1, max_model_len - max_tokens)
    return token_ids[:limit] if body.truncation_side == "right" else token_ids[-limit:]


_AS_ASKED = (
    *("n", "min_tokens", "include_stop_str_in_output", "ignore_eos", "skip_special_tokens", "seed", "presence_penalty"),
    *("frequency_penalty", "typical_p", "top_n_sigma", "xtc_probability", "xtc_threshold", "dry_multiplier", "dry_base"),
    *("dry_allowed_length", "dry_penalty_last_n", "dry_sequence_breakers", "allowed_token_ids", "bad_words", "stop_token_ids"),
)
_FROM_MODEL = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")


def sampling_params(
    body: RequestBody,
    defaults: GenerationDefaults,
    *,
    max_tokens: int,
    logprobs: int | None,
    prompt_logprobs: int | None,
    structured_outputs: StructuredOutputsParams | None,
) -> SamplingParams:
    """Return the parameters of a request; what it leaves out is the model's default, else SamplingParams' own.

    Raises InvalidRequest where fields do not go together.
    """
    chosen = {name: getattr(body, name) for name in _AS_ASKED}
    for name in _FROM_MODEL:
        asked = getattr(body, name)
        chosen[name] = getattr(defaults, name) if asked is None else asked
    return SamplingParams(
        **{name: value for name, value in chosen.items() if value is not None},
        max_tokens=max_tokens,
        logprobs=logprobs,
        prompt_logprobs=prompt_logprobs,
        logit_bias=body.logit_bias,
        stop=tuple(body.stop),
        structured_outputs=structured_outputs,
    )
