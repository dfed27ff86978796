"""The socket that the server listens on, bound before anything else is done."""

from __future__ import annotations

import errno
import os
import socket
import stat
from pathlib import Path

from octavo.errors import StartupError


def open_listener(host: str, port: int) -> socket.socket:
    """Return a bound socket. Raises StartupError when the address is taken or is not ours."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        reason = "another program listens there" if error.errno == errno.EADDRINUSE else error.strerror
        raise StartupError(f"cannot listen on {host} port {port}: {reason}; choose another with --port (0: any free one)") from None
    return listener


def open_listeners(host: str, port: int, count: int) -> list[socket.socket]:
    """Return `count` sockets bound to one address, among which the kernel deals out connections. Raises StartupError.

    The first is bound as if it were alone, so that an address that another program has is refused."""
    listeners = [open_listener(host, port)]
    for _ in range(count - 1):
        listeners[0].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener = socket.socket(listeners[0].family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        try:
            listener.bind(listeners[0].getsockname())
        except OSError as error:
            raise StartupError(f"cannot listen on {host} port {port} {count} times: {error.strerror}; use --api-server-count 1") from None
        listeners.append(listener)
    return listeners


def open_unix_listener(path: Path) -> socket.socket:
    """Return a bound Unix socket that only its owner may use; one that a dead server left behind is replaced.

    Raises StartupError when another program listens there, or something else than a socket is there.
    """
    try:
        if not stat.S_ISSOCK(path.stat().st_mode):
            raise StartupError(f"cannot listen on {path}: it is there and is no socket")
        if _is_answered(path):
            raise StartupError(f"cannot listen on {path}: another program listens there")
        path.unlink()
    except FileNotFoundError:
        pass
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o177)
    try:
        listener.bind(str(path))
    except OSError as error:
        listener.close()
        raise StartupError(f"cannot listen on {path}: {error.strerror or error}") from None
    finally:
        os.umask(mask)
    return listener


def _is_answered(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except OSError:
            return False
        return True
