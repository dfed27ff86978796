"""`Transcript`: another API's conversation on its way to chat messages, which remembers where each message came from."""

from __future__ import annotations

import re
from typing import Any

from octavo.errors import RequestError

Message = dict[str, Any]

_FORMAT = re.compile(r"response_format(\.json_schema)?")
_PLACE = re.compile(r"messages\[(\d+)\]")


class Transcript:
    """`field`: the request's field that the messages come from; `effort` and `format`: those that a chat calls reasoning_effort and
    response_format. Errors are told in their terms."""

    def __init__(self, field: str, effort: str, format: str) -> None:
        self.messages: list[Message] = []
        self._effort = effort
        self._format = format
        self._field = field
        self._origins: list[int | None] = []

    def add(self, message: Message, origin: int | None) -> None:
        """Add a message that came from item `origin` of the field, or from elsewhere."""
        self.messages.append(message)
        self._origins.append(origin)

    def assistant(self, origin: int | None, *, free: str | None = None) -> Message:
        """Return the assistant's message if it is the last one and has no field `free` yet, else a further one of his."""
        if not self.messages or self.messages[-1]["role"] != "assistant" or free in self.messages[-1]:
            self.add({"role": "assistant"}, origin)
        return self.messages[-1]

    def complete(self) -> None:
        """Give content to messages that have none: null beside tool calls, else an empty text."""
        for message in self.messages:
            if message["role"] == "assistant":
                message.setdefault("content", None if message.get("tool_calls") else "")

    def in_terms_of_field(self, error: RequestError) -> RequestError:
        """Return an error about messages as one about the items that they came from."""
        if (error.param or "").startswith("tools["):  # there the function stands in the tool itself
            error.param = (error.param or "").replace(".function", "", 1)
            error.message = error.message.replace(".function", "", 1)
        if (error.param or "").startswith("tool_choice."):  # likewise
            for field in (".allowed_tools", ".function"):
                error.param = (error.param or "").replace(field, "", 1)
                error.message = error.message.replace(field, "", 1)
        if (error.param or "").startswith("response_format"):
            error.param, error.message = (_FORMAT.sub(self._format, text) for text in (error.param or "", error.message))
        place = _PLACE.match(error.param or "")
        if place is None:
            if error.param in ("messages", "prompt"):
                error.param = self._field
            if error.param == "reasoning_effort":
                error.param = self._effort
                error.message = error.message.replace("reasoning_effort", self._effort)
            return error
        number = int(place.group(1))
        origin = self._origins[number] if number < len(self._origins) else None
        named = self._field if origin is None else f"{self._field}[{origin}]"
        error.message = error.message.replace(place.group(), named)
        error.param = named
        return error
