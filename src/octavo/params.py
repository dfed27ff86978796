"""`SamplingParams`: how one request's tokens are chosen and where its answer ends.

Whole and valid when made: `__post_init__` also runs when the codec decodes one, so the engine never meets a bad one.
Names and defaults are vLLM's. Bounds are ours: every field has one.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import msgspec

from octavo.constraints import StructuredOutputsParams
from octavo.errors import InvalidRequest

MAX_N = 16
MAX_STOP_STRINGS = 16
MAX_STOP_STRING_CHARS = 128
MAX_STOP_TOKEN_IDS = 128
MAX_LOGIT_BIAS = 300
MAX_LOGPROBS = 20
MAX_BAD_WORDS = 64
MAX_BAD_WORD_CHARS = 128
MAX_BAD_WORD_TOKENS = 64
MAX_ALLOWED_TOKEN_IDS = 16_384
MAX_DRY_BREAKERS = 32
MAX_DRY_BREAKER_CHARS = 32
MIN_REPETITION_PENALTY = 0.01  # logits are divided by it: they must stay finite
DRY_BREAKERS = ("\n", ":", '"', "*")  # of the sampler's author
GREEDY_TEMPERATURE = 1e-5  # below it the most likely token is taken

LogprobsMode = Literal["raw", "processed"]


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Raises InvalidRequest naming the field, the value and the bound.

    `max_tokens` None means: up to the end of the context. `seed` None means: a random one, given at admission.
    `logprobs` None means none; k means the k most likely tokens beside the sampled one.
    `prompt_logprobs` asks the same of every prompt token but the first. `logprobs_mode`: raw is of the model's own logits,
    processed of what the token was drawn from, None is the engine's own way; a prompt's are always raw.
    `logit_bias` maps token id to a value added to its logit, in [-100, 100]. `stop` may be given as one string, the fields
    that are tuples as lists; None stands for nothing.

    `allowed_token_ids`, when not empty, are the only ids that may be drawn. `bad_words` may not be written: the token that
    would complete one, in the output, is not drawn. DRY (the `dry_` fields) lowers the logit of a token that would continue
    a repetition; XTC (`xtc_`), top-n-sigma and typical_p are filters. Their order and formulas: ops.interface.SamplingBatch.

    `structured_outputs`: what the answer must match; needs octavo[grammar].

    `bad_word_ids` and `dry_breaker_ids` are what the words and breakers are in tokens; RequestMaker fills them in.
    """

    n: int = 1
    max_tokens: int | None = 16
    min_tokens: int = 0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: dict[int, float] = {}
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    logprobs_mode: LogprobsMode | None = None
    skip_special_tokens: bool = True
    allowed_token_ids: tuple[int, ...] = ()
    bad_words: tuple[str, ...] = ()
    typical_p: float = 1.0
    top_n_sigma: float = 0.0
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int = -1
    dry_sequence_breakers: tuple[str, ...] = DRY_BREAKERS
    structured_outputs: StructuredOutputsParams | None = None
    bad_word_ids: tuple[tuple[int, ...], ...] = ()
    dry_breaker_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "stop", _as_tuple("stop", [self.stop] if isinstance(self.stop, str) else self.stop))
        for name in ("stop_token_ids", "allowed_token_ids", "bad_words", "dry_sequence_breakers", "bad_word_ids", "dry_breaker_ids"):
            msgspec.structs.force_setattr(self, name, _as_tuple(name, getattr(self, name)))
        msgspec.structs.force_setattr(self, "logit_bias", {} if self.logit_bias is None else self.logit_bias)
        for name in ("include_stop_str_in_output", "ignore_eos", "skip_special_tokens"):
            if not isinstance(getattr(self, name), bool):
                raise InvalidRequest(f"{name} must be true or false", code="invalid_type", param=name)
        _bounded_int("n", self.n, 1, MAX_N)
        if self.max_tokens is not None:
            _bounded_int("max_tokens", self.max_tokens, 1, 1 << 31)
        _bounded_int("min_tokens", self.min_tokens, 0, 1 << 31)
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise InvalidRequest(
                f"min_tokens is {self.min_tokens:,}; it must be at most max_tokens, {self.max_tokens:,}", param="min_tokens"
            )
        _bounded_float("temperature", self.temperature, 0.0, 2.0)
        _bounded_float("top_p", self.top_p, 0.0, 1.0, low_open=True)
        _bounded_int("top_k", self.top_k, -1, (1 << 31) - 1)
        _bounded_float("min_p", self.min_p, 0.0, 1.0)
        _bounded_float("repetition_penalty", self.repetition_penalty, MIN_REPETITION_PENALTY, 100.0)
        _bounded_float("presence_penalty", self.presence_penalty, -2.0, 2.0)
        _bounded_float("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        if not isinstance(self.logit_bias, dict):
            raise InvalidRequest("logit_bias must map token ids to numbers", code="invalid_type", param="logit_bias")
        _bounded_length("logit_bias", len(self.logit_bias), MAX_LOGIT_BIAS)
        for token_id, bias in self.logit_bias.items():
            _bounded_int("a token id of logit_bias", token_id, 0, (1 << 31) - 1, param="logit_bias")
            _bounded_float(f"logit_bias for token {token_id}", bias, -100.0, 100.0, param="logit_bias")
        if self.seed is not None:
            _bounded_int("seed", self.seed, -(1 << 63), (1 << 63) - 1)
        _bounded_texts("stop", self.stop, MAX_STOP_STRINGS, MAX_STOP_STRING_CHARS, "which would end every answer at once; leave it out")
        _bounded_ids("stop_token_ids", self.stop_token_ids, MAX_STOP_TOKEN_IDS)
        _bounded_ids("allowed_token_ids", self.allowed_token_ids, MAX_ALLOWED_TOKEN_IDS)
        _bounded_texts("bad_words", self.bad_words, MAX_BAD_WORDS, MAX_BAD_WORD_CHARS, "which every answer holds; leave it out")
        _bounded_length("bad_word_ids", len(self.bad_word_ids), 2 * MAX_BAD_WORDS)
        for ids in self.bad_word_ids:
            _bounded_ids("bad_word_ids", ids, MAX_BAD_WORD_TOKENS)
            if not ids:
                raise InvalidRequest("bad_word_ids holds an empty sequence; leave it out", param="bad_word_ids")
        _bounded_float("typical_p", self.typical_p, 0.0, 1.0, low_open=True)
        _bounded_float("top_n_sigma", self.top_n_sigma, 0.0, 100.0)
        _bounded_float("xtc_probability", self.xtc_probability, 0.0, 1.0)
        _bounded_float("xtc_threshold", self.xtc_threshold, 0.0, 1.0)
        _bounded_float("dry_multiplier", self.dry_multiplier, 0.0, 100.0)
        _bounded_float("dry_base", self.dry_base, 1.0, 100.0)
        _bounded_int("dry_allowed_length", self.dry_allowed_length, 1, 1 << 20)
        _bounded_int("dry_penalty_last_n", self.dry_penalty_last_n, -1, (1 << 31) - 1)
        _bounded_texts("dry_sequence_breakers", self.dry_sequence_breakers, MAX_DRY_BREAKERS, MAX_DRY_BREAKER_CHARS, "leave it out")
        _bounded_ids("dry_breaker_ids", self.dry_breaker_ids, MAX_DRY_BREAKERS)
        if self.logprobs is not None:
            _bounded_int("logprobs", self.logprobs, 0, MAX_LOGPROBS)
        if self.prompt_logprobs is not None:
            _bounded_int("prompt_logprobs", self.prompt_logprobs, 0, MAX_LOGPROBS)
        if self.structured_outputs is not None and not isinstance(self.structured_outputs, StructuredOutputsParams):
            raise InvalidRequest("structured_outputs must be a StructuredOutputsParams", code="invalid_type", param="structured_outputs")
        if self.logprobs_mode not in (None, "raw", "processed"):
            raise InvalidRequest("logprobs_mode must be raw or processed", param="logprobs_mode")


def _as_tuple(name: str, values: Any) -> tuple[Any, ...]:
    if not isinstance(values, list | tuple | None):
        raise InvalidRequest(f"{name} must be a list, not {type(values).__name__}", code="invalid_type", param=name)
    return tuple(values or ())


def _bounded_int(name: str, value: int, low: int, high: int, param: str | None = None) -> None:
    param = param or name
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidRequest(f"{name} must be an integer, not {type(value).__name__}", code="invalid_type", param=param)
    if value < low:
        raise InvalidRequest(f"{name} is {value}; it must be at least {low:,}", code="integer_below_min_value", param=param)
    if value > high:
        raise InvalidRequest(f"{name} is {value}; it must be at most {high:,}", code="integer_above_max_value", param=param)


def _bounded_float(name: str, value: float, low: float, high: float, *, low_open: bool = False, param: str | None = None) -> None:
    param = param or name
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidRequest(f"{name} must be a number, not {type(value).__name__}", code="invalid_type", param=param)
    if not math.isfinite(value):
        raise InvalidRequest(f"{name} must be a finite number", param=param)
    if value < low or (low_open and value == low):
        raise InvalidRequest(
            f"{name} is {value}; it must be {'more than' if low_open else 'at least'} {low:g}", code="decimal_below_min_value", param=param
        )
    if value > high:
        raise InvalidRequest(f"{name} is {value}; it must be at most {high:g}", code="decimal_above_max_value", param=param)


def _bounded_ids(name: str, ids: tuple[int, ...], limit: int) -> None:
    _bounded_length(name, len(ids), limit)
    for token_id in ids:
        _bounded_int(name, token_id, 0, (1 << 31) - 1)


def _bounded_texts(name: str, texts: tuple[str, ...], limit: int, max_chars: int, empty: str) -> None:
    """`empty`: what to say of an empty text."""
    _bounded_length(name, len(texts), limit)
    for text in texts:
        if not isinstance(text, str):
            raise InvalidRequest(f"{name} must hold strings, not {type(text).__name__}", code="invalid_type", param=name)
        if not text:
            raise InvalidRequest(f"{name} holds an empty string, {empty}", param=name)
        if len(text) > max_chars:
            raise InvalidRequest(
                f"{name} holds a string of {len(text):,} characters; the limit is {max_chars}", param=name, code="string_above_max_length"
            )


def _bounded_length(name: str, length: int, limit: int) -> None:
    if length > limit:
        raise InvalidRequest(f"{name} has {length:,} entries; the limit is {limit}", code="array_above_max_length", param=name)
