"""The forms in which a Python program gives a prompt: text, token ids, or a dict of either with a cache salt.

"text"    [1, 2, 3]    {"prompt": "text"}    {"prompt_token_ids": [1, 2, 3], "cache_salt": "tenant"}
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import index
from typing import Any

from octavo.errors import InvalidRequest
from octavo.text.tokenizer import Tokenizer

Prompt = str | Sequence[int] | Mapping[str, Any]

MAX_SALT_CHARS = 128
_SALT = re.compile(r"[^@/\\\x00]*")  # as over HTTP
_KNOWN = ("prompt", "prompt_token_ids", "cache_salt")


@dataclass(frozen=True)
class ReadPrompt:
    """`text` is None when token ids were given. Prompts share cached prefixes only under one `cache_salt`."""

    text: str | None
    token_ids: list[int]
    cache_salt: str = ""


def read_prompt(prompt: Prompt, tokenizer: Tokenizer) -> ReadPrompt:
    """Return a prompt in any of the forms as tokens. Raises InvalidRequest."""
    salt = ""
    if isinstance(prompt, Mapping):
        _check_keys(prompt)
        salt = _salt(prompt.get("cache_salt"))
    given = text_or_ids(prompt)
    return ReadPrompt(given, tokenizer.encode(given), salt) if isinstance(given, str) else ReadPrompt(None, given, salt)


def text_or_ids(prompt: Prompt) -> str | list[int]:
    """Return what a prompt holds: its text, or its token ids (NumPy's among them) as plain integers. Raises InvalidRequest."""
    if isinstance(prompt, Mapping):
        _check_keys(prompt)
        if ("prompt" in prompt) == ("prompt_token_ids" in prompt):
            raise InvalidRequest("a prompt as a dict holds either prompt (text) or prompt_token_ids", param="prompt")
        prompt = prompt["prompt"] if "prompt" in prompt else list(_token_ids(prompt["prompt_token_ids"]))
    return prompt if isinstance(prompt, str) else _token_ids(prompt)


def list_prompts(prompts: Prompt | Iterable[Prompt]) -> list[Prompt]:
    """Return one prompt or several as a list; what is a list of no lists, dicts and strings is one prompt. Raises InvalidRequest."""
    if isinstance(prompts, str | bytes | Mapping):
        return [prompts]
    if not isinstance(prompts, Iterable):
        raise InvalidRequest(f"prompts must be text, token ids or a list of those, not {type(prompts).__name__}", param="prompt")
    listed: list[Any] = list(prompts)
    return [listed] if listed and not isinstance(listed[0], Iterable) else listed


def _check_keys(prompt: Mapping[str, Any]) -> None:
    unknown = next((key for key in prompt if key not in _KNOWN), None)
    if unknown is not None:
        raise InvalidRequest(
            f"a prompt as a dict has no {unknown!r} here; it has {', '.join(_KNOWN)}", code="unsupported_parameter", param="prompt"
        )


def _salt(value: object) -> str:
    if value is None:
        return ""
    if not isinstance(value, str) or not 1 <= len(value) <= MAX_SALT_CHARS or not _SALT.fullmatch(value):
        raise InvalidRequest(
            f"cache_salt must be a string of 1 to {MAX_SALT_CHARS} characters without @, / and backslash", param="cache_salt"
        )
    return value


def _token_ids(prompt: Any) -> list[int]:
    try:
        if isinstance(prompt, str | bytes):
            raise TypeError
        return [index(token_id) for token_id in prompt]
    except TypeError:
        raise InvalidRequest("a prompt must be a string or a list of token ids", code="invalid_type", param="prompt") from None
