"""`ChatTemplate`: a conversation to prompt token ids, by the model's own template.

The promise: no content of a message, no name and no tool can make a control token, and yet harmless content is
tokenised exactly as if the whole rendered prompt had been tokenised at once. The template hands over runs of plain text
with the control tokens of its own literals between them (`marks.py` says how they are told apart); each run, literal
and content together, is encoded as one plain text.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import jinja2

from octavo.errors import ConfigError, ContextLengthExceeded, InvalidRequest, ModelError, StartupError
from octavo.specs.text import TextAssets
from octavo.text.conversation import Message, validate_messages
from octavo.text.template import Template
from octavo.text.template_budget import LimitExceeded
from octavo.text.template_functions import TemplateRaised
from octavo.text.tokenizer import Tokenizer

__all__ = ["ChatTemplate", "validate_messages"]

MAX_TEMPLATE_KWARGS = 16
MAX_REASON_CHARS = 200


class ChatTemplate:
    """Immutable after building; any number of threads may render at once."""

    def __init__(self, template: Template | None, tokenizer: Tokenizer) -> None:
        self._template = template
        self._tokenizer = tokenizer

    @classmethod
    def from_assets(cls, assets: TextAssets, tokenizer: Tokenizer, override: str | None = None) -> ChatTemplate:
        """Return the model's template, or the one that the operator gave as `override` (its text).

        Raises ModelError (ConfigError for `override`) when it is no template that can run. A model without a template
        gets a `ChatTemplate` that refuses to render and says what to do.
        """
        source = assets.chat_template if override is None else override
        if source is None:
            return cls(None, tokenizer)
        special_ids = {"bos_token": tokenizer.bos_token_id, "eos_token": next(iter(tokenizer.eos_token_ids), None)}
        special_tokens = {name: tokenizer.token_text(token_id) for name, token_id in special_ids.items() if token_id is not None}
        try:
            return cls(Template(source, tokenizer.control_tokens, special_tokens), tokenizer)
        except (jinja2.TemplateError, LimitExceeded, RecursionError, ValueError) as error:
            failure: type[StartupError] = ModelError if override is None else ConfigError
            raise failure(f"the chat template cannot be used: {_printable(str(error))}; give another with --chat-template") from error

    @property
    def exists(self) -> bool:
        return self._template is not None

    @property
    def source(self) -> str:
        """The template's text; empty when there is none."""
        return "" if self._template is None else self._template.source

    @property
    def variables(self) -> frozenset[str]:
        """What a request may set by chat_template_kwargs."""
        return frozenset() if self._template is None else self._template.variables

    @property
    def supports_tools(self) -> bool:
        return self._template is not None and self._template.supports_tools

    def render(
        self,
        messages: object,
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        tools: list[dict[str, Any]] | None = None,
        documents: list[dict[str, str]] | None = None,
        template_kwargs: dict[str, Any] | None = None,
        max_prompt_tokens: int | None = None,
    ) -> list[int]:
        """Return the prompt's token ids. The template brings its own begin token: none is added, and never two are kept.

        `messages` are plain JSON values, checked by `validate_messages`. With `continue_final_message` (and without
        generation prompt) the prompt ends exactly with the final assistant message's content. Raises InvalidRequest naming
        the field, and ContextLengthExceeded before any tokenising when the text surely takes more than `max_prompt_tokens`.
        """
        segments = self._segments(
            messages,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            tools=tools,
            documents=documents,
            template_kwargs=template_kwargs,
            max_prompt_tokens=max_prompt_tokens,
        )
        bos = self._tokenizer.bos_token_id
        while bos is not None and segments[:2] == [bos, bos]:
            del segments[0]
        return self._tokenizer.encode_segments(segments)

    def render_text(
        self,
        messages: object,
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        tools: list[dict[str, Any]] | None = None,
        template_kwargs: dict[str, Any] | None = None,
    ) -> str:
        """Return the prompt as text, for people to read: a control token and content that spells it look the same."""
        segments = self._segments(
            messages,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            tools=tools,
            documents=None,
            template_kwargs=template_kwargs,
            max_prompt_tokens=None,
        )
        return "".join(self._tokenizer.token_text(part) if isinstance(part, int) else part for part in segments)

    def _segments(
        self,
        messages: object,
        *,
        add_generation_prompt: bool,
        continue_final_message: bool,
        tools: list[dict[str, Any]] | None,
        documents: list[dict[str, str]] | None,
        template_kwargs: dict[str, Any] | None,
        max_prompt_tokens: int | None,
    ) -> list[str | int]:
        if self._template is None:
            raise InvalidRequest(
                "this model has no chat template; use /v1/completions, or start the server with --chat-template",
                code="chat_template_missing",
                param="messages",
            )
        conversation = validate_messages(messages)
        if continue_final_message:
            _check_continuation(conversation, add_generation_prompt)
        if tools and not self._template.supports_tools:
            raise InvalidRequest("this model's chat template takes no tools; leave tools out", code="unsupported_parameter", param="tools")
        if documents and not self._template.supports_documents:
            raise InvalidRequest(
                "this model's chat template takes no documents; put them into a message", code="unsupported_parameter", param="documents"
            )
        kwargs = template_kwargs or {}
        _check_template_kwargs(kwargs, self._template.variables)
        self._check_length((message["content"] or "" for message in conversation), max_prompt_tokens)
        self._check_length((text for document in documents or () for text in document.values()), max_prompt_tokens)
        variables = {**kwargs, "tools": tools or None, "documents": documents or None, "add_generation_prompt": add_generation_prompt}
        try:
            segments = self._template.render(conversation, variables, continues=continue_final_message)
        except TemplateRaised as error:
            raise _invalid_prompt(f"the model's chat template refuses the messages: {_printable(str(error))}") from error
        except LimitExceeded as error:
            raise _invalid_prompt(f"the model's chat template takes too long on these messages: {error}") from error
        except Exception as error:  # a template may stumble over anything; only the kind is told, for the text may hold content
            raise _invalid_prompt(f"the model's chat template cannot render these messages ({type(error).__name__})") from error
        self._check_length((part for part in segments if isinstance(part, str)), max_prompt_tokens)
        return segments

    def _check_length(self, texts: Iterable[str], max_prompt_tokens: int | None) -> None:
        if max_prompt_tokens is None:
            return
        least = sum(map(self._tokenizer.min_tokens, texts))
        if least > max_prompt_tokens:
            raise ContextLengthExceeded(
                f"the messages take at least {least:,} tokens; this model takes {max_prompt_tokens:,}. Shorten them.", param="messages"
            )


def _check_continuation(conversation: list[Message], add_generation_prompt: bool) -> None:
    if add_generation_prompt:
        raise InvalidRequest(
            "continue_final_message excludes add_generation_prompt; set add_generation_prompt to false", param="continue_final_message"
        )
    if conversation[-1]["role"] != "assistant" or conversation[-1]["content"] is None:
        raise InvalidRequest("continue_final_message needs a final assistant message with content", param="messages")


def _check_template_kwargs(kwargs: dict[str, Any], allowed: frozenset[str]) -> None:
    param = "chat_template_kwargs"
    if len(kwargs) > MAX_TEMPLATE_KWARGS:
        raise InvalidRequest(f"{param} has {len(kwargs):,} entries; the limit is {MAX_TEMPLATE_KWARGS}", param=param)
    for name, value in kwargs.items():
        if name not in allowed:
            known = ", ".join(sorted(allowed)) or "none"
            raise InvalidRequest(
                f"{param} has {_printable(str(name))!r}; this model's template takes: {known}", code="unknown_parameter", param=param
            )
        if value is not None and not isinstance(value, bool | int | float | str):
            raise InvalidRequest(f"{param}.{name} must be a string, a number, a boolean or null", code="invalid_type", param=param)


def _invalid_prompt(message: str) -> InvalidRequest:
    return InvalidRequest(message, code="invalid_prompt", param="messages")


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else " " for character in text[:MAX_REASON_CHARS])
