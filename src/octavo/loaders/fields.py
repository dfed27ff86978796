"""Typed reading of a model's own settings, whichever file they come from.

A value of the wrong type or out of sense is a ModelError that names the source, the field and the value. `null` counts
as absent. Names (activation, rope type ...) pass through explicit dicts of what is allowed, never to an import.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from octavo.errors import ModelError

Default = TypeVar("Default")
Choice = TypeVar("Choice")


@dataclass(frozen=True)
class Fields:
    """`values` of the file or section `source`. Each reader returns the field, or `default` when it is absent."""

    source: str
    values: Mapping[str, Any]

    def require(self, *names: str) -> None:
        """Raise ModelError naming every one of `names` that is absent."""
        absent = [name for name in names if self.values.get(name) is None]
        if absent:
            raise ModelError(f"{self.source}: {', '.join(absent)} missing")

    def integer(self, name: str, default: Default) -> int | Default:
        value = self.values.get(name)
        if value is None:
            return default
        if type(value) is not int:
            raise self._wrong(name, "an integer")
        if not -(1 << 63) <= value < 1 << 63:
            raise self._wrong(name, "an integer of at most 63 bits")
        return value

    def number(self, name: str, default: Default) -> float | Default:
        value = self.values.get(name)
        if value is None:
            return default
        if type(value) not in (int, float) or not math.isfinite(value):
            raise self._wrong(name, "a finite number")
        return float(value)

    def boolean(self, name: str, default: bool) -> bool:
        value = self.values.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self._wrong(name, "true or false")
        return value

    def text(self, name: str, default: Default) -> str | Default:
        value = self.values.get(name)
        if value is None:
            return default
        if not isinstance(value, str):
            raise self._wrong(name, "text")
        return value

    def choice(self, name: str, default: str, allowed: Mapping[str, Choice]) -> Choice:
        """Return what `allowed` gives for the field's text."""
        value = self.text(name, default)
        if value not in allowed:
            raise ModelError(f"{self.source}: {name} is {value[:64]!r}; supported are {', '.join(allowed)}")
        return allowed[value]

    def token_ids(self, name: str) -> tuple[int, ...]:
        """Return the field, an id or a list of ids, as a tuple."""
        value = self.values.get(name)
        if value is None:
            return ()
        ids = value if isinstance(value, list) else [value]
        if not all(type(token_id) is int and 0 <= token_id < 1 << 31 for token_id in ids):
            raise self._wrong(name, "a token id or a list of token ids")
        return tuple(ids)

    def section(self, name: str) -> Fields | None:
        """Return the fields of an inner object."""
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self._wrong(name, "an object")
        return Fields(f"{self.source}: {name}", value)

    def _wrong(self, name: str, wanted: str) -> ModelError:
        return ModelError(f"{self.source}: {name} is {repr(self.values[name])[:64]}; it must be {wanted}")
