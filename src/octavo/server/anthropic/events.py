"""`MessageWriter`: the parts of an answer to the events of Anthropic's API, and to the message that they build up."""

from __future__ import annotations

import json
from typing import Any

from octavo.parsers.deltas import CallArguments, CallBegin, Content, Delta, Reasoning
from octavo.server.answers import AnswerPart
from octavo.server.openai.generation import Usage

Event = dict[str, Any]

_STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}


class MessageWriter:
    """`message` is the message as it stands; the input of its tool calls is filled in at their end."""

    def __init__(self, message_id: str, model: str) -> None:
        self.message: dict[str, Any] = {
            "id": message_id,
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {},
        }
        self._is_open = False
        self._arguments = ""  # of the call being written

    def begin(self, usage: Usage) -> list[Event]:
        self.message["usage"] = _usage(usage) | {"output_tokens": 0}
        return [{"type": "message_start", "message": self.message | {"content": []}}, {"type": "ping"}]

    def write(self, part: AnswerPart) -> list[Event]:
        return [event for delta in part.deltas for event in self._write(delta)]

    def end(self, last: AnswerPart, usage: Usage) -> list[Event]:
        stopped_by = last.event.stop_reason if last.finish_reason == "stop" and isinstance(last.event.stop_reason, str) else None
        reason = "stop_sequence" if stopped_by is not None else _STOP_REASONS[last.finish_reason or "stop"]
        events = self._close()
        self.message |= {"stop_reason": reason, "stop_sequence": stopped_by, "usage": _usage(usage)}
        delta = {"stop_reason": reason, "stop_sequence": stopped_by}
        return [*events, {"type": "message_delta", "delta": delta, "usage": _usage(usage)}, {"type": "message_stop"}]

    def _write(self, delta: Delta) -> list[Event]:
        match delta:
            case Content(text):
                events = self._open({"type": "text", "text": ""})
                self._block["text"] += text
                return [*events, self._delta({"type": "text_delta", "text": text})]
            case Reasoning(text):
                events = self._open({"type": "thinking", "thinking": "", "signature": ""})
                self._block["thinking"] += text
                return [*events, self._delta({"type": "thinking_delta", "thinking": text})]
            case CallBegin(_, call_id, name):
                return [*self._close(), *self._open({"type": "tool_use", "id": call_id, "name": name, "input": {}})]
            case CallArguments(_, text):
                self._arguments += text
                return [self._delta({"type": "input_json_delta", "partial_json": text})]

    @property
    def _block(self) -> dict[str, Any]:
        block: dict[str, Any] = self.message["content"][-1]
        return block

    def _open(self, block: dict[str, Any]) -> list[Event]:
        """Begin a block, unless one of its kind is being written."""
        if self._is_open and self._block["type"] == block["type"]:
            return []
        events = self._close()
        self.message["content"].append(block)
        self._is_open = True
        return [*events, {"type": "content_block_start", "index": len(self.message["content"]) - 1, "content_block": dict(block)}]

    def _delta(self, delta: dict[str, Any]) -> Event:
        return {"type": "content_block_delta", "index": len(self.message["content"]) - 1, "delta": delta}

    def _close(self) -> list[Event]:
        if not self._is_open:
            return []
        self._is_open = False
        if self._block["type"] == "tool_use":
            self._block["input"] = _as_input(self._arguments)
            self._arguments = ""
        return [{"type": "content_block_stop", "index": len(self.message["content"]) - 1}]


def _as_input(arguments: str) -> dict[str, Any]:
    """Return arguments as an object; a text that is none goes under the name that Anthropic's documentation has for it."""
    try:
        value = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, dict) else {"INVALID_JSON": arguments}


def _usage(usage: Usage) -> dict[str, Any]:
    """Anthropic counts the prompt's cached tokens apart from its others."""
    return {
        "input_tokens": usage.num_prompt_tokens - usage.num_cached_tokens,
        "cache_read_input_tokens": usage.num_cached_tokens,
        "cache_creation_input_tokens": 0,
        "output_tokens": usage.num_output_tokens,
    }
