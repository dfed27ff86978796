"""How much an answer may hold, and how its tokens are chosen: what the request says, else the model's own defaults, else OpenAI's."""

from __future__ import annotations

from typing import Literal, TypeVar

from octavo.errors import ContextLengthExceeded
from octavo.params import SamplingParams
from octavo.server.openai.schemas import RequestBody
from octavo.server.state import Engine
from octavo.specs import GenerationDefaults

PromptField = Literal["messages", "prompt"]

T = TypeVar("T")


def check_text_length(texts: list[str], engine: Engine, param: PromptField) -> None:
    """Raise ContextLengthExceeded for text that cannot fit whatever its tokens are, before time goes into finding them."""
    least = sum(engine.tokenizer.min_tokens(text) for text in texts)
    limit = engine.ready.max_model_len
    if least > limit:
        raise ContextLengthExceeded(
            f"{param} has at least {least:,} tokens; this server takes {limit:,} of prompt and answer together. Shorten it", param=param
        )


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


def sampling_params(body: RequestBody, defaults: GenerationDefaults, *, max_tokens: int, logprobs: int | None) -> SamplingParams:
    """Return the parameters of a request. Raises InvalidRequest where fields do not go together."""
    return SamplingParams(
        n=_first(body.n, 1),
        max_tokens=max_tokens,
        min_tokens=_first(body.min_tokens, 0),
        temperature=_first(body.temperature, defaults.temperature, 1.0),
        top_p=_first(body.top_p, defaults.top_p, 1.0),
        top_k=_first(body.top_k, defaults.top_k, 0),
        min_p=_first(body.min_p, defaults.min_p, 0.0),
        repetition_penalty=_first(body.repetition_penalty, defaults.repetition_penalty, 1.0),
        presence_penalty=_first(body.presence_penalty, 0.0),
        frequency_penalty=_first(body.frequency_penalty, 0.0),
        logit_bias=body.logit_bias,
        seed=body.seed,
        stop=tuple(body.stop),
        stop_token_ids=tuple(body.stop_token_ids or ()),
        include_stop_str_in_output=_first(body.include_stop_str_in_output, False),
        ignore_eos=_first(body.ignore_eos, False),
        logprobs=logprobs,
        skip_special_tokens=_first(body.skip_special_tokens, True),
    )


def _first(value: T | None, *others: T | None) -> T:
    """Return the first value that is not None; the last one never is."""
    return next(candidate for candidate in (value, *others) if candidate is not None)
