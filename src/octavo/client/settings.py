"""Keyword arguments to an EngineConfig: how Python programs name the engine's settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from octavo.config.schema import CacheConfig, EngineConfig, ModelConfig, RuntimeConfig, SchedulerConfig
from octavo.errors import ConfigError

_ROOMS = {"model": ModelConfig, "cache": CacheConfig, "scheduler": SchedulerConfig, "runtime": RuntimeConfig}


def engine_config(settings: dict[str, Any]) -> EngineConfig:
    """Return the config of settings given flat, by the names of the fields of its four parts. Raises ConfigError."""
    home = {name: room for room, schema in _ROOMS.items() for name in schema.__struct_fields__}
    chosen: dict[str, dict[str, Any]] = {room: {} for room in _ROOMS}
    for name, value in settings.items():
        if name not in home:
            raise ConfigError(f"there is no setting {name!r}; there are {', '.join(sorted(home))}")
        chosen[home[name]][name] = str(value) if isinstance(value, Path) else value
    try:
        return msgspec.convert(chosen, EngineConfig)
    except msgspec.ValidationError as error:
        raise ConfigError(f"a setting has a wrong type: {error}") from None
