"""The one file that reads the environment. Flags win over it."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

from octavo.errors import ConfigError


def api_keys() -> tuple[str, ...]:
    """Return the keys of OCTAVO_API_KEY (or VLLM_API_KEY), comma-separated; a key on the command line would show in `ps`."""
    text = os.environ.get("OCTAVO_API_KEY") or os.environ.get("VLLM_API_KEY") or ""
    return tuple(key for key in text.split(",") if key)


def cache_home() -> Path:
    """Return the folder of pulled models: $OCTAVO_HOME, else $XDG_CACHE_HOME/octavo, else ~/.cache/octavo. A variable that
    is empty is one that is not set."""
    if home := os.environ.get("OCTAVO_HOME"):
        return Path(home)
    return Path(os.environ.get("XDG_CACHE_HOME") or _user_home() / ".cache") / "octavo"


def _user_home() -> Path:
    """Return $HOME, else what the system has for this user. Raises ConfigError where neither is known."""
    try:
        return Path(os.environ.get("HOME") or pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        raise ConfigError("this user has no home; set OCTAVO_HOME to the folder in which models are to lie") from None


def hash_seed() -> str:
    """Return the seed of block hashes that are the same in every process: $PYTHONHASHSEED, by which vLLM goes too, else 0."""
    seed = os.environ.get("PYTHONHASHSEED", "")
    return seed if seed.isdecimal() else "0"


def child_environment(**changes: str) -> dict[str, str]:
    """Return this process's environment with `changes`, for a child process."""
    return os.environ | changes
