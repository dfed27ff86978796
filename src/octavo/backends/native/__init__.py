"""The native backend. Its library carries the hash of the interface that it was built for (`_native.pyi`), and is refused beside
Python code of another one: a wrong call into it would not raise, it would end the process."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import octavo.backends.native._native  # noqa: F401  # `from` alone speaks of circles where the library is missing
from octavo.backends.native import _native
from octavo.errors import StartupError

INTERFACE = Path(__file__).with_name("_native.pyi")


def check_library(built_for: str | None) -> None:
    """Raise StartupError unless a library built for the interface `built_for` fits this code."""
    if built_for != sha256(INTERFACE.read_bytes()).hexdigest():
        raise StartupError(
            "the native library was built for another version of this program than the Python code beside it; build it again: "
            "in a source tree `pip install -e .`, elsewhere `pip install --force-reinstall octavo`"
        )


check_library(getattr(_native, "interface", None))
