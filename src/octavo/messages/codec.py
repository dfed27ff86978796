"""Frames on the internal sockets: MessagePack, typed, capped. A frame that does not decode is the sender's fault and is
dropped by the receiver with a log line; it never raises past this module's FrameError."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from octavo.errors import OctavoError
from octavo.messages.wire import FromEngine, ToEngine

MAX_FRAME_BYTES = 256 << 20

T = TypeVar("T")

_encoder = msgspec.msgpack.Encoder()
_to_engine = msgspec.msgpack.Decoder(ToEngine)
_from_engine = msgspec.msgpack.Decoder(FromEngine)


class FrameError(ValueError):
    """A frame that is too large or is no message of ours."""


def encode(message: ToEngine | FromEngine) -> bytes:
    return _encoder.encode(message)


def decode_to_engine(frame: bytes | memoryview) -> ToEngine:
    return _decode(_to_engine, frame)


def decode_from_engine(frame: bytes | memoryview) -> FromEngine:
    return _decode(_from_engine, frame)


def _decode(decoder: msgspec.msgpack.Decoder[T], frame: bytes | memoryview) -> T:
    if len(frame) > MAX_FRAME_BYTES:
        raise FrameError(f"frame of {len(frame):,} bytes; the limit is {MAX_FRAME_BYTES:,}")
    try:
        return decoder.decode(frame)
    except (msgspec.DecodeError, UnicodeDecodeError, OctavoError) as error:
        raise FrameError("frame is no message of ours") from error
