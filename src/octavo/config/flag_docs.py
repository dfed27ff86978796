"""What `--help` and docs/flags.md say of a flag: its meaning and its default."""

from __future__ import annotations

from typing import Any

from octavo.config.flags import FLAGS, Flag
from octavo.config.schema import EngineConfig
from octavo.config.server_schema import ServerConfig


def describe(flag: Flag) -> str:
    """Return the flag's help with its default."""
    default = _default_of(flag.field)
    return flag.help if default is None or default == () else f"{flag.help} [{_shown(default)}]"


def flags_markdown() -> str:
    """Return the table of flags for the docs."""
    lines = ["| flag | meaning |", "|---|---|"]
    for flag in FLAGS:
        form = f"--[no-]{flag.name}" if flag.switch else f"{flag.option} {flag.metavar}"
        lines.append(f"| `{form.replace('|', chr(92) + '|')}` | {describe(flag)} |")
    return "\n".join(lines) + "\n"


def _default_of(field: str) -> Any:
    """Return the default of a field such as model.max_model_len."""
    room, name = field.split(".")
    return getattr(ServerConfig() if room == "server" else getattr(EngineConfig(), room), name)


def _shown(default: Any) -> str:
    if isinstance(default, bool):
        return "on" if default else "off"
    return f"{default:,}" if isinstance(default, int) and default > 9999 else str(default)
