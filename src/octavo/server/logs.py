"""The server's log on stderr: text for people, or one JSON object a line. Neither lets a caller write lines of his own."""

from __future__ import annotations

import logging
import sys
import time
from typing import Literal

import orjson

from octavo.engine.log_stream import LogStream

MAX_MESSAGE_CHARS = 4000


class TextFormatter(logging.Formatter):
    """Text lines with control characters escaped."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        return "".join(char if char.isprintable() or char in "\n\t" else f"\\x{ord(char):02x}" for char in text)


class JsonFormatter(logging.Formatter):
    """{"time", "level", "logger", "message"}, and "exception" where there is one; time is UTC, RFC 3339."""

    def format(self, record: logging.LogRecord) -> str:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        fields = {
            "time": f"{stamp}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage()[:MAX_MESSAGE_CHARS],
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(fields).decode()


def log_to_stderr(level: str, form: Literal["text", "json"] | str) -> None:
    handler = logging.StreamHandler(LogStream(sys.stderr.fileno()))
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    logger = logging.getLogger("octavo")
    logger.handlers[:] = [handler]
    logger.propagate = False
    logger.setLevel(level.upper())
