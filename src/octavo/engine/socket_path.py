"""Where an engine's socket lies: named `engine`, in a directory that only its user may enter."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from octavo.errors import StartupError

SOCKET_NAME = "engine"
MAX_PATH_BYTES = 107  # of a Unix socket's address, unix(7), less the final NUL


def fits(directory: Path) -> bool:
    """Return whether the address of a socket in `directory` is short enough."""
    return len(os.fsencode(directory / SOCKET_NAME)) <= MAX_PATH_BYTES


def check_private(directory: Path) -> None:
    """Raise StartupError unless `directory` is a directory of mode 0700 (no link to one) owned by this user."""
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise StartupError("the directory of the engine's socket must belong to this user, with mode 0700")
