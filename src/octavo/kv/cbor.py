"""CBOR (RFC 8949, core deterministic encoding) of the few types that block hashes are made of.

Shortest heads, definite lengths: the same value always gives the same bytes, in any process, version and language.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

CborValue = int | bytes | str | Sequence["CborValue"] | None

_BYTES, _TEXT, _ARRAY = 2, 3, 4  # major types; 0 is an unsigned integer
NULL = b"\xf6"


def encode(value: CborValue) -> bytes:
    """Return `value` as CBOR; integers must lie in 0..2^64 - 1 (OverflowError)."""
    if value is None:
        return NULL
    if isinstance(value, int):
        return _head(0, value)
    if isinstance(value, bytes):
        return _head(_BYTES, len(value)) + value
    if isinstance(value, str):
        data = value.encode()
        return _head(_TEXT, len(data)) + data
    return encode_array([encode(item) for item in value])


def encode_array(items: Sequence[bytes]) -> bytes:
    """Return an array of items that are CBOR already."""
    return _head(_ARRAY, len(items)) + b"".join(items)


def encode_integers(values: Iterable[int]) -> bytes:
    """Return an array of unsigned integers."""
    return encode_array([_head(0, value) for value in values])


def _head(major: int, number: int) -> bytes:
    first = major << 5
    if number < 24:
        return bytes((first | number,))
    if number < 1 << 8:
        return bytes((first | 24, number))
    if number < 1 << 16:
        return bytes((first | 25,)) + number.to_bytes(2, "big")
    if number < 1 << 32:
        return bytes((first | 26,)) + number.to_bytes(4, "big")
    return bytes((first | 27,)) + number.to_bytes(8, "big")
