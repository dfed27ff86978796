"""TLS for the listener: one context, 1.2 and newer, whose certificate may be read anew while it serves.

Source: RFC 8446, RFC 9325 (recommendations for TLS).
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from pathlib import Path

from octavo.errors import StartupError

REFRESH_S = 5.0

_log = logging.getLogger("octavo.server")


def make_context(keyfile: str, certfile: str, ca_certs: str | None) -> ssl.SSLContext:
    """Return a server's context; with `ca_certs` clients must show a certificate that one of these has signed. Raises StartupError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certfile, keyfile)
        if ca_certs is not None:
            context.load_verify_locations(ca_certs)
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ssl.SSLError) as error:
        raise StartupError(f"TLS cannot start with {certfile}, {keyfile}{f', {ca_certs}' if ca_certs else ''}: {error}") from None
    return context


async def keep_fresh(context: ssl.SSLContext, keyfile: str, certfile: str) -> None:
    """Read key and certificate again whenever one of the files changes; new connections get them. Never returns.

    A pair that cannot be read leaves the old one in use.
    """
    seen = _stamps(keyfile, certfile)
    while True:
        await asyncio.sleep(REFRESH_S)
        now = _stamps(keyfile, certfile)
        if now == seen:
            continue
        seen = now
        try:
            make_context(keyfile, certfile, None)  # a pair that does not fit must not touch the context in use
            context.load_cert_chain(certfile, keyfile)
            _log.info("TLS certificate read again")
        except (StartupError, OSError, ssl.SSLError) as error:
            _log.warning("the changed TLS files cannot be used, the old ones stay: %s", error)


def _stamps(*names: str) -> list[int | None]:
    stamps: list[int | None] = []
    for name in names:
        try:
            stamps.append(Path(name).stat().st_mtime_ns)
        except OSError:
            stamps.append(None)
    return stamps
