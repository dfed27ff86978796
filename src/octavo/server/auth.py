"""Who may call what. Default deny: a route is open only when it says so (see routes.py), everything else needs a key.

Keys are kept and compared as SHA-256 digests in constant time; a wrong key and no key get the same answer. Also here: what
protects a server on loopback from web pages (DNS rebinding, cross-site requests), and the rule about addresses off it.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
from typing import Literal

from starlette.datastructures import Headers

from octavo.errors import AuthenticationFailed, ConfigError
from octavo.server.errors import invalid_host, origin_not_allowed

Access = Literal["open", "key"]
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")


def credentials(headers: Headers) -> list[str]:
    """Return every Authorization header; where there is none, x-api-key (Anthropic's) as one."""
    return headers.getlist("authorization") or [f"Bearer {key}" for key in headers.getlist("x-api-key")]


class KeyRing:
    """The keys of this server, and a secret, of this start or kept, from which tenants' cache salts come."""

    def __init__(self, keys: tuple[str, ...]) -> None:
        for key in keys:
            if not key or not key.isascii() or not key.isprintable() or " " in key:
                raise ConfigError("an API key must be printable ASCII without spaces, and not empty")
        self._digests = [hashlib.sha256(key.encode()).digest() for key in keys]
        self._secret = secrets.token_bytes(32)

    def __len__(self) -> int:
        return len(self._digests)

    def keep_salts(self, secret: bytes) -> None:
        """Make salts from `secret`, which outlives this start, so that tenants find again what a prefix cache on disk has of them."""
        self._secret = secret

    def tenant_salt(self, authorization: list[str]) -> str:
        """Return the prefix-cache salt of the caller, or "" when this server has no keys.

        `authorization`: every Authorization header of the request. Raises AuthenticationFailed unless it is one that
        carries a key of this server.
        """
        if not self._digests:
            return ""
        scheme, _, token = authorization[0].partition(" ") if len(authorization) == 1 else ("", "", "")
        offered = hashlib.sha256(token.encode("latin-1", "replace")).digest()
        matches = [hmac.compare_digest(offered, digest) for digest in self._digests]
        if scheme.lower() != "bearer" or not any(matches):
            raise AuthenticationFailed("send a key of this server in the header Authorization: Bearer KEY")
        return hmac.new(self._secret, offered, hashlib.sha256).hexdigest()[:32]


def check_origin(
    method: str, headers: Headers, host: str, allowed_hosts: tuple[str, ...] = (), allowed_origins: tuple[str, ...] = ()
) -> None:
    """Raise unless Host names this server (on loopback) and Origin, when a request changes state, is the same host or an allowed one."""
    asked = headers.get("host", "")
    name = _hostname(asked)
    if is_loopback(host) and not is_loopback(name) and name not in (host, *allowed_hosts):
        raise invalid_host()
    origin = headers.get("origin")
    if origin in allowed_origins or "*" in allowed_origins:
        return
    if origin is not None and method not in SAFE_METHODS and origin.partition("://")[2].lower() != asked.lower():
        raise origin_not_allowed()


def check_exposure(host: str, num_keys: int, insecure_no_auth: bool) -> None:
    """Raise ConfigError when everyone on the network could use the server."""
    if not is_loopback(host) and num_keys == 0 and not insecure_no_auth:
        raise ConfigError(
            f"host is {host}, which others can reach, and no API key is set; give --api-key-file FILE or OCTAVO_API_KEY, "
            "listen on 127.0.0.1, or say --insecure-no-auth"
        )


def is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _hostname(host: str) -> str:
    """Return a Host header without its port and brackets."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]
