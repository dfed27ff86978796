"""Flags in files: words of a command line (`@FILE`), and a YAML mapping of flag names (`--config FILE`).

Neither may hold keys: a file that is passed around is no place for a secret (--api-key-file and the environment are).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec.json
import msgspec.yaml

from octavo.config.flags import Flag
from octavo.errors import ConfigError, did_you_mean

MAX_FILE_BYTES = 1 << 20
SECRET_FLAGS = ("api-key",)


def expand_files(argv: Sequence[str]) -> list[str]:
    """Return the words with each `@FILE` replaced by the words in it: as a shell would split them, # begins a comment."""
    words: list[str] = []
    for word in argv:
        if word.startswith("@") and len(word) > 1:
            found = _split(Path(word[1:]))
            _refuse_secrets((each.removeprefix("--").partition("=")[0] for each in found if each.startswith("--")), word[1:])
            words += found
        else:
            words.append(word)
    return words


def read_config(path: Path, flags: Iterable[Flag]) -> dict[str, Any]:
    """Return flag name -> value from a YAML mapping: a list for a repeatable flag, true or false for a switch, a mapping for
    a flag that takes JSON. Raises ConfigError."""
    try:
        given = msgspec.yaml.decode(_read(path))
    except msgspec.DecodeError as error:
        raise ConfigError(f"{path} is no YAML: {error}") from None
    if given is None:
        return {}
    if not isinstance(given, dict) or not all(isinstance(name, str) for name in given):
        raise ConfigError(f"{path} must be a mapping of flag names to values, as in  max-model-len: 4k")
    named = {name.replace("_", "-").removeprefix("--"): value for name, value in given.items()}
    _refuse_secrets(named, str(path))
    known = {flag.name: flag for flag in flags}
    values = {}
    for name, value in named.items():
        if name not in known:
            raise ConfigError(f"{path}: there is no flag {name!r}{did_you_mean(name, known)}")
        try:
            values[name] = _value(known[name], value)
        except ConfigError as error:
            raise ConfigError(f"{path}: {name}: {error.message}") from None
    return values


def _value(flag: Flag, value: Any) -> Any:
    if flag.switch:
        if not isinstance(value, bool):
            raise ConfigError("it must be true or false")
        return value
    if flag.repeatable:
        items = value if isinstance(value, list) else [value]
        return [flag.parse(str(item)) for item in items]
    if isinstance(value, dict | list):
        return flag.parse(msgspec.json.encode(value).decode())
    if value is None or isinstance(value, bool):
        raise ConfigError("it must have a value")
    return flag.parse(str(value))


def _split(path: Path) -> list[str]:
    try:
        return shlex.split(_read(path), comments=True)
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from None


def _read(path: Path) -> str:
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ConfigError(f"{path} has {path.stat().st_size:,} bytes; a file of flags may have {MAX_FILE_BYTES:,}")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read ({type(error).__name__})") from None


def _refuse_secrets(names: Iterable[str], path: str) -> None:
    for name in names:
        if name.replace("_", "-") in SECRET_FLAGS:
            raise ConfigError(f"{path} holds {name}: keys belong into --api-key-file or OCTAVO_API_KEY")
