"""The socket that the server listens on, bound before anything else is done."""

from __future__ import annotations

import errno
import socket

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
