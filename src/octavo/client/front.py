"""What the caller's side needs of a model: its tokenizer, its chat template, its numbers; none of its weights."""

from __future__ import annotations

import random
import secrets
from collections.abc import Iterator
from pathlib import Path

import msgspec

from octavo.config.schema import ModelConfig
from octavo.errors import ConfigError, ContextLengthExceeded, InvalidRequest
from octavo.grammar.library import require
from octavo.loaders.load import read_generation_defaults, read_spec, read_text
from octavo.messages.wire import GenerateRequest
from octavo.params import LogprobsMode, SamplingParams
from octavo.specs.model import EncoderSpec, ModelSpec
from octavo.specs.text import GenerationDefaults
from octavo.text.chat import ChatTemplate
from octavo.text.tokenizer import Tokenizer


class TextFront(msgspec.Struct, frozen=True):
    """`generation` holds no sampling defaults when the config says generation_config octavo."""

    model_names: tuple[str, ...]
    spec: ModelSpec | EncoderSpec
    generation: GenerationDefaults
    tokenizer: Tokenizer
    chat: ChatTemplate | None


def open_text_front(config: ModelConfig, path: Path) -> TextFront:
    """Return the text side of the model at `path`. Raises ModelError, ConfigError."""
    assets = read_text(path)
    tokenizer = Tokenizer.from_assets(assets)
    override = None
    if config.chat_template is not None:
        try:
            override = Path(config.chat_template).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"chat template {config.chat_template}: cannot be read as UTF-8 text") from error
    has_template = override is not None or assets.chat_template is not None
    generation = read_generation_defaults(path)
    if config.generation_config == "octavo":
        generation = GenerationDefaults(bos_token_id=generation.bos_token_id, eos_token_ids=generation.eos_token_ids)
    return TextFront(
        model_names=config.served_model_name or (model_name(config.model),),
        spec=read_spec(path),
        generation=generation,
        tokenizer=tokenizer,
        chat=ChatTemplate.from_assets(assets, tokenizer, override=override) if has_template else None,
    )


def check_generates(front: TextFront) -> None:
    """Raise InvalidRequest for a model that gives vectors or scores and no text."""
    if isinstance(front.spec, EncoderSpec):
        raise InvalidRequest(
            "this model gives vectors or scores and generates no text; ask it at /v1/embeddings, /pooling, /classify, /score or /rerank",
            code="unsupported_task",
        )


def default_sampling_params(generation: GenerationDefaults) -> SamplingParams:
    """Return the sampling defaults that the model's own files state."""
    stated = {name: getattr(generation, name) for name in ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")}
    return SamplingParams(**{name: value for name, value in stated.items() if value is not None})


def model_name(model: str) -> str:
    """Return what a model is called by those who may not know where it lies: `hf:org/repo` and catalogue names as they are,
    a path by its last part."""
    return model if model.startswith("hf:") else Path(model).stem if model.endswith(".gguf") else Path(model).name


class RequestMaker:
    """Turns one caller's request into the engine's: n of them, each with a seed, its words as tokens, checked against
    context and vocabulary.

    A seeded request's choice i gets seed + i; an unseeded one draws from the operating system, or from the engine's seed
    if it was given one.
    """

    def __init__(self, front: TextFront, max_model_len: int, vocab_size: int, config: ModelConfig, name: str = "") -> None:
        """`name`: what ids begin with, and what tells the seeds of several processes with one engine seed apart."""
        self._eos = front.generation.eos_token_ids
        self._max_model_len = max_model_len
        self._vocab_size = vocab_size
        self._tokenizer = front.tokenizer
        self._logprobs_mode: LogprobsMode = "processed" if config.logprobs_mode == "processed_logprobs" else "raw"
        seed: int | str | None = f"{config.seed} {name}" if name and config.seed is not None else config.seed
        self._draw_seed = random.Random(seed).getrandbits if seed is not None else secrets.randbits
        self._name = name
        self._next_id = 0

    def make(
        self,
        prompt_token_ids: list[int],
        params: SamplingParams,
        *,
        arrival_s: float,
        cache_salt: str = "",
        tenant: str = "",
        priority: int = 0,
    ) -> Iterator[GenerateRequest]:
        """Yield params.n requests. Raises ContextLengthExceeded and InvalidRequest, before the first."""
        self._check(prompt_token_ids, params)
        params = _in_tokens(params, self._tokenizer)
        if params.structured_outputs is not None:
            require("structured_outputs")
        mode = params.logprobs_mode or self._logprobs_mode
        base = params.seed if params.seed is not None else self._draw_seed(63)
        for index in range(params.n):
            self._next_id += 1
            yield GenerateRequest(
                request_id=f"{self._name}{self._next_id}",
                prompt_token_ids=prompt_token_ids,
                params=msgspec.structs.replace(params, n=1, seed=_wrap_int64(base + index), logprobs_mode=mode),
                arrival_s=arrival_s,
                eos_token_ids=self._eos,
                priority=priority,
                cache_salt=cache_salt,
                tenant=tenant,
            )

    def _check(self, prompt_token_ids: list[int], params: SamplingParams) -> None:
        length, limit = len(prompt_token_ids), self._max_model_len
        if length == 0:
            raise InvalidRequest("the prompt has no tokens; send at least one", param="prompt")
        if length >= limit:
            raise ContextLengthExceeded(
                f"the prompt has {length:,} tokens; this server takes {limit:,} tokens of prompt and answer together (max_model_len). "
                "Shorten it, or start with a larger --max-model-len",
                param="prompt",
            )
        if params.max_tokens is not None and length + params.max_tokens > limit:
            raise ContextLengthExceeded(
                f"the prompt has {length:,} tokens and max_tokens is {params.max_tokens:,}; "
                f"this server takes {limit:,} together (max_model_len). "
                f"Ask for at most {limit - length:,}, or shorten the prompt",
                param="max_tokens",
            )
        low, high = min(prompt_token_ids), max(prompt_token_ids)
        if low < 0 or high >= self._vocab_size:
            bad = low if low < 0 else high
            raise InvalidRequest(f"the prompt holds token id {bad}; ids lie in 0..{self._vocab_size - 1}", param="prompt")
        for name in ("logit_bias", "stop_token_ids", "allowed_token_ids"):
            for token_id in getattr(params, name):
                if token_id >= self._vocab_size:
                    raise InvalidRequest(f"{name} names token id {token_id}; ids lie in 0..{self._vocab_size - 1}", param=name)
        ending = {*params.stop_token_ids, *(() if params.ignore_eos else self._eos)} if params.min_tokens else set()
        if params.allowed_token_ids and ending.issuperset(params.allowed_token_ids):
            raise InvalidRequest("allowed_token_ids holds only tokens that min_tokens forbids", param="allowed_token_ids")


def _in_tokens(params: SamplingParams, tokenizer: Tokenizer) -> SamplingParams:
    """Return `params` with bad_words and DRY's sequence breakers as the engine reads them.

    A bad word is meant at the start of a text and after a space. A breaker is the last token of its text behind a letter,
    as its author has it.
    """
    if not params.bad_words and params.dry_multiplier == 0:
        return params
    spelled = [(word, f" {word.lstrip()}") for word in params.bad_words]
    words = {tuple(tokenizer.encode(form, add_special_tokens=False)) for forms in spelled for form in forms}
    breakers = {tokenizer.encode(f"a{text}", add_special_tokens=False)[-1] for text in params.dry_sequence_breakers}
    return msgspec.structs.replace(params, bad_word_ids=tuple(sorted(words)), dry_breaker_ids=tuple(sorted(breakers)))


def _wrap_int64(value: int) -> int:
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)
