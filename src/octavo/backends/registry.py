"""Backends by name. A backend's module is imported only when it is asked for."""

from __future__ import annotations

from octavo.errors import ConfigError
from octavo.ops.interface import Backend


def open_backend(name: str, threads: int | None = None, isa: str | None = None, *, few_rows: bool = False) -> Backend:
    """Return the backend `name` (native | reference). `threads` and `isa` are of native; None: this device's best, for steps of
    few rows where `few_rows`.

    Raises ConfigError for an unknown name or an ISA that this CPU does not have."""
    if name == "native":
        from octavo.backends.native.backend import NativeBackend

        return NativeBackend(threads, isa, few_rows=few_rows)
    if name == "reference":
        from octavo.backends.reference.backend import ReferenceBackend

        return ReferenceBackend()
    raise ConfigError(f"backend is {name!r}; choose native or reference")
