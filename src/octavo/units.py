"""Numbers as people write and read them: bytes, counts, seconds.

Human-readable integers: `k m g t` are powers of 1000 and take decimals (25.6k = 25,600, cut to an integer);
`K M G T` are powers of 1024 and take none.
"""

from __future__ import annotations

import math
import re

from octavo.errors import ConfigError

GiB = 1 << 30
MiB = 1 << 20

_DECIMAL = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_MAX_DIGITS = 20  # as many as 64 bits fill, and a sign
_NUMBER = re.compile(r"(-?\d+)(?:\.(\d+))?([kmgtKMGT]?)")


def parse_int(text: str) -> int:
    """Return the integer that `text` writes: `4096`, `4k`, `2.5k`, `4K`. Raises ConfigError, also for one beyond 64 bits."""
    match = _NUMBER.fullmatch(text.strip())
    if match is None:
        raise ConfigError(f"{text!r} is not an integer; write 4096, 4k (= 4000), 2.5k (= 2500) or 4K (= 4096)")
    whole, fraction, suffix = match.groups()
    if fraction is not None and suffix not in _DECIMAL:
        raise ConfigError(f"{text!r}: decimals go with k, m, g or t only (powers of 1000)")
    scale: int = (_DECIMAL | _BINARY).get(suffix, 1)
    if len(whole) <= _MAX_DIGITS and len(fraction or "") <= _MAX_DIGITS:
        tenths: int = 10 ** len(fraction or "")
        value = int(whole) * scale + int(fraction or 0) * scale // tenths
        if -(1 << 63) <= value < 1 << 63:
            return value
    raise ConfigError(f"{text[:40]!r} is too large; integers have 64 bits")


def parse_number(text: str) -> float:
    """Return the number that `text` writes; infinity is one. Raises ConfigError, also for NaN."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if math.isnan(number):
        raise ConfigError(f"{text!r} is not a number")
    return number


def parse_positive(text: str) -> float:
    """Return the number that `text` writes. Raises ConfigError unless it is more than 0."""
    number = parse_number(text)
    if number <= 0:
        raise ConfigError(f"{text} must be more than 0")
    return number


def format_bytes(n: float) -> str:
    """Return `n` bytes in binary units: 1536 -> '1.5 KiB'."""
    size = float(n)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def cdiv(a: int, b: int) -> int:
    """Return a / b rounded up, for b > 0."""
    return -(-a // b)
