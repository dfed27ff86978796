"""An engine process that has begun, before its settings are known: it imports what it needs while the one that launched it reads
flags, opens ports and imports its own. `EngineProcess` tells it the settings and takes it over.

It imports little itself, for the sake of that.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from octavo.engine.socket_path import fits
from octavo.errors import StartupError


class LaunchedEngine:
    """The process, `directory` (mode 0700, its socket's home, gone when the process is), and `line`, the other end of its standard
    input: the settings go in, and its end of file is the death of the process, for that never closes its own.

    As a context it is closed at the end."""

    def __init__(self, command: Sequence[str] = ("octavo.engine.process",)) -> None:
        """Start the process: the module and words of `command`, and the directory. Raises StartupError."""
        self.directory = _make_directory()
        try:
            self.line, stdin = socket.socketpair()
            try:
                words = [sys.executable, "-m", *command, str(self.directory)]
                self.process = subprocess.Popen(words, stdin=stdin.fileno(), start_new_session=True)
            except BaseException:
                self.line.close()
                raise
            finally:
                stdin.close()
        except OSError as error:
            shutil.rmtree(self.directory, ignore_errors=True)
            raise StartupError(f"the engine process cannot be started: {error.strerror}") from error

    def tell(self, settings: bytes) -> None:
        """Send what it waits for. One that has died is not noticed here, but at the end of `line`."""
        with suppress(OSError):
            self.line.sendall(settings)
            self.line.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Kill the process, unless it has ended, and remove its directory. Idempotent."""
        self.process.kill()
        self.process.wait()
        self.line.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> LaunchedEngine:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _make_directory() -> Path:
    """Return a fresh directory of mode 0700, in /tmp where the path of a socket in TMPDIR would be too long. Raises StartupError."""
    try:
        directory = Path(tempfile.mkdtemp(prefix="octavo-"))
        if not fits(directory):
            directory.rmdir()
            directory = Path(tempfile.mkdtemp(prefix="octavo-", dir="/tmp"))
    except OSError as error:
        raise StartupError(f"no directory for the engine's socket can be made: {error.strerror}; look at TMPDIR") from error
    return directory
