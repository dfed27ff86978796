"""Settings out of flags, a file of flags, environment and defaults, in that order; each value remembers where it came from."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from octavo.config import env
from octavo.config.flags import FLAGS
from octavo.config.schema import EngineConfig
from octavo.config.server_schema import ServerConfig

SECRET_FIELDS = ("server.api_key",)
UNSET_FIELDS = (  # None means none, not "decide"
    "model.chat_template",
    "model.seed",
    "server.max_num_queued_reqs",
    "server.uds",
    "server.ssl_keyfile",
    "server.ssl_certfile",
    "server.ssl_ca_certs",
    "server.max_num_queued_tokens",
    "server.request_timeout_s",
    "scheduler.max_queue_s",
    "cache.kv_events",
    "cache.kv_offload_gib",
    "cache.kv_offload_dir",
)


class Settings(msgspec.Struct, frozen=True):
    """`sources`: field (model.max_model_len) -> "--max-model-len", a file's name, "environment" or "default"."""

    engine: EngineConfig
    server: ServerConfig
    sources: dict[str, str]

    def rows(self, derived: Mapping[str, tuple[Any, str]] = MappingProxyType({})) -> list[tuple[str, str, str]]:
        """Return (field, value, source) of every setting; secrets are counted, not shown. `derived`: what becomes of some that were
        left open, and what it was decided for."""
        rooms = {name: getattr(self.engine, name) for name in EngineConfig.__struct_fields__} | {"server": self.server}
        return [
            self._row(f"{name}.{field}", getattr(room, field), derived) for name, room in rooms.items() for field in room.__struct_fields__
        ]

    def _row(self, field: str, value: Any, derived: Mapping[str, tuple[Any, str]]) -> tuple[str, str, str]:
        if field in derived:
            made, reason = derived[field]
            return field, "none" if made is None else str(made), f"{self.sources[field]}, {reason}"
        return field, _shown(field, value), self.sources[field]


def resolve(given: Mapping[str, Any], from_file: Mapping[str, Any] | None = None, file_name: str = "") -> Settings:
    """Return the settings for flags `given` (flag name -> value, as FlagParser.given returns). Raises ConfigError.

    `from_file`: further ones, as read_config returns, which the given ones override.
    """
    beside = {name: value for name, value in (from_file or {}).items() if name not in given}
    chosen: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for flag in FLAGS:
        if flag.name not in given and flag.name not in beside:
            continue
        source, value = (flag.option, given[flag.name]) if flag.name in given else (file_name, beside[flag.name])
        value = tuple(value) if isinstance(value, list) else value
        if isinstance(value, tuple) and flag.field in chosen:  # --api-key and --api-key-file add up
            chosen[flag.field] += value
            sources[flag.field] += f", {source}"
        else:
            chosen[flag.field] = value
            sources[flag.field] = source
    if "server.api_key" not in chosen and (keys := env.api_keys()):
        chosen["server.api_key"] = keys
        sources["server.api_key"] = "environment"

    def room(name: str, schema: type[Any]) -> Any:
        for field in schema.__struct_fields__:
            sources.setdefault(f"{name}.{field}", "default")
        return schema(**{field.split(".")[1]: value for field, value in chosen.items() if field.startswith(f"{name}.")})

    rooms = {name: room(name, type(getattr(EngineConfig(), name))) for name in EngineConfig.__struct_fields__}
    return Settings(EngineConfig(**rooms), room("server", ServerConfig), sources)


def _shown(field: str, value: Any) -> str:
    if field in SECRET_FIELDS:
        return f"{len(value)} key{'' if len(value) == 1 else 's'}"
    if value is None:
        return "none" if field in UNSET_FIELDS else "decided when the model is known"
    if isinstance(value, tuple):
        return ", ".join(value) or "none"
    return str(value)
