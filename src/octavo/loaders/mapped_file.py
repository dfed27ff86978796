"""A file's bytes as read-only memory, without reading them.

Pages come from disk when they are touched and are shared between processes. The mapping lives as long as a memoryview
of it does. A file that shrinks later raises SIGBUS at the touch of a lost page, so weights that must outlive the file
are copied (packed) by the backend; here the length is checked again after mapping.
"""

from __future__ import annotations

import mmap
import os
import stat
from pathlib import Path

from octavo.errors import ModelError


def map_file(path: Path) -> memoryview:
    """Return the bytes of the regular file `path`, read-only and not copied. Raises ModelError."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # not blocking: a pipe would wait for a writer
        try:
            return _map(descriptor, path.name)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise ModelError(f"{path.name}: cannot be opened: {error.strerror}") from error


def read_small_file(path: Path, limit: int) -> bytes:
    """Return the whole content of `path`, at most `limit` bytes. Raises ModelError."""
    data = map_file(path)
    if len(data) > limit:
        raise ModelError(f"{path.name}: {len(data):,} bytes; at most {limit:,} are read")
    return bytes(data)


def _map(descriptor: int, name: str) -> memoryview:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise ModelError(f"{name}: is no regular file")
    if status.st_size == 0:
        raise ModelError(f"{name}: is empty")
    mapping = mmap.mmap(descriptor, status.st_size, access=mmap.ACCESS_READ)
    if os.fstat(descriptor).st_size != status.st_size:
        raise ModelError(f"{name}: changed its length while it was being opened; try again when its copy is complete")
    return memoryview(mapping)
