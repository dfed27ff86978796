"""Backends by name. A backend's module is imported only when it is asked for."""

from __future__ import annotations

from octavo.errors import ConfigError
from octavo.ops.interface import Backend


def open_backend(name: str, threads: int | None = None, isa: str | None = None) -> Backend:
    """Return the backend `name` (native | reference) with this many threads and this ISA (None: the device's best).

    Raises ConfigError for an unknown name."""
    if name == "reference":
        from octavo.backends.reference.backend import ReferenceBackend

        return ReferenceBackend()
    raise ConfigError(f"backend is {name!r}; choose native or reference")
