"""Values of flags that are more than a number: what their text means."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from octavo.config.schema import KVEventsConfig
from octavo.config.server_schema import StructuredOutputsConfig
from octavo.errors import ConfigError, did_you_mean
from octavo.units import parse_int

Settings = TypeVar("Settings", KVEventsConfig, StructuredOutputsConfig)


def read_length(text: str) -> int | None:
    """Return a number of tokens, None for auto and -1. Raises ConfigError."""
    length = None if text == "auto" else parse_int(text)
    return None if length == -1 else length


def one_of(*choices: str) -> Callable[[str], str]:
    """Return what reads one of these words, and raises ConfigError for another."""

    def parse(text: str) -> str:
        if text in choices:
            return text
        raise ConfigError(f"{text!r} is none of {', '.join(choices)}{did_you_mean(text, choices)}")

    return parse


def read_kv_events(text: str) -> KVEventsConfig:
    """Return the JSON object `text` as settings of KV events. Raises ConfigError."""
    return _read_object(text, KVEventsConfig)


def read_structured_outputs(text: str) -> StructuredOutputsConfig:
    """Return the JSON object `text` as settings of structured output. Raises ConfigError."""
    return _read_object(text, StructuredOutputsConfig)


def _read_object(text: str, settings: type[Settings]) -> Settings:
    names = settings.__struct_fields__
    try:
        given = msgspec.json.decode(text, type=dict[str, Any])
        for name in given:
            if name not in names:
                raise ConfigError(f"there is no setting {name!r}; known: {', '.join(names)}{did_you_mean(name, names)}")
        return msgspec.convert(given, settings)
    except msgspec.MsgspecError as error:
        raise ConfigError(f"it must be a JSON object of {', '.join(names)}: {error}") from error


def read_key_file(text: str) -> tuple[str, ...]:
    """Return the keys in the file at path `text`, one a line; blank lines and lines that begin with # are passed over.

    Raises ConfigError when it cannot be read, holds no key, or others than its owner may read it.
    """
    try:
        path = Path(text)
        if path.stat().st_mode & 0o077:
            raise ConfigError(f"{text}: others than its owner may use this file; run chmod 600 on it")
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{text}: cannot be read ({type(error).__name__})") from error
    keys = tuple(line.strip() for line in lines if line.strip() and not line.startswith("#"))
    if not keys:
        raise ConfigError(f"{text}: holds no key")
    return keys
