"""Frames on the internal sockets: MessagePack, typed, capped. A frame that does not decode is the sender's fault and is
dropped by the receiver with a log line; it never raises past this module's FrameError."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from octavo.errors import OctavoError
from octavo.messages.wire import FromEngine, ToEngine

MAX_FRAME_BYTES = 256 << 20

_encoder = msgspec.msgpack.Encoder()


class FrameError(ValueError):
    """A frame that is too large or is no message of ours."""


def encode(message: ToEngine | FromEngine) -> bytes:
    return _encoder.encode(message)


def frame_decoder(messages: Any) -> Callable[[bytes | memoryview], Any]:
    """Return what decodes frames of `messages`, ToEngine or FromEngine, and raises FrameError. Making one takes 2 ms: a process makes
    that of the way it reads."""
    decoder = msgspec.msgpack.Decoder(messages)

    def decode(frame: bytes | memoryview) -> Any:
        if len(frame) > MAX_FRAME_BYTES:
            raise FrameError(f"frame of {len(frame):,} bytes; the limit is {MAX_FRAME_BYTES:,}")
        try:
            return decoder.decode(frame)
        except (msgspec.DecodeError, UnicodeDecodeError, OctavoError) as error:
            raise FrameError("frame is no message of ours") from error

    return decode
