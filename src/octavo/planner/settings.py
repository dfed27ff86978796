"""Whole numbers out of a model's settings, each checked before it is used: config.json or the metadata of a GGUF file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from octavo.errors import ModelError

MOST = 1 << 31  # of any count, size or length


@dataclass(frozen=True)
class Settings:
    """`values` of the file `source`. null counts as absent."""

    source: str
    values: Mapping[str, Any]

    def has(self, name: str) -> bool:
        return self.values.get(name) is not None

    def need(self, *names: str) -> int:
        """Return the first of `names` that is there, an integer of at least 1. Raises ModelError."""
        for name in names:
            if self.has(name):
                return self._checked(name, 1)
        raise ModelError(f"{self.source}: {' or '.join(names)} missing")

    def integer(self, name: str, default: int) -> int:
        """Return the setting, an integer of at least 0."""
        return self._checked(name, 0) if self.has(name) else default

    def flag(self, name: str, default: bool) -> bool:
        value = self.values.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise ModelError(f"{self.source}: {name} is {repr(value)[:64]}; it must be true or false")
        return value

    def texts(self, name: str) -> list[str] | None:
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise ModelError(f"{self.source}: {name} must be a list of names")
        return value

    def section(self, name: str) -> Settings:
        """Return the settings of an inner object; an empty one where there is none."""
        value = self.values.get(name)
        return Settings(f"{self.source}: {name}", value if isinstance(value, Mapping) else {})

    def _checked(self, name: str, least: int) -> int:
        value = self.values[name]
        if type(value) is not int or not least <= value <= MOST:
            raise ModelError(f"{self.source}: {name} is {repr(value)[:64]}; it must be an integer in {least}..2^31")
        return value
