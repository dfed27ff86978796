"""`ResponseWriter`: the parts of an answer to the events of the Responses API, and to the response that they build up.

The order, which clients rely on: created, in_progress; for each item output_item.added, its content, output_item.done; then
completed, incomplete or failed, which has the whole response. Every event has the next sequence_number. A response that is
not streamed is the last event's.
"""

from __future__ import annotations

import secrets
from typing import Any

from octavo.client.outputs import Logprob, PositionLogprobs
from octavo.errors import OctavoError
from octavo.parsers.deltas import CallArguments, CallBegin, Content, Delta, Reasoning
from octavo.server.answers import AnswerPart
from octavo.server.openai.generation import Usage

Event = dict[str, Any]


class ResponseWriter:
    """`response` is the response as it stands."""

    def __init__(self, response: dict[str, Any], *, with_logprobs: bool) -> None:
        self.response = response
        self._with_logprobs = with_logprobs
        self._sequence_number = -1
        self._item: dict[str, Any] | None = None  # the one being written: the output's last

    def begin(self) -> list[Event]:
        return [self._state("response.created"), self._state("response.in_progress")]

    def write(self, part: AnswerPart) -> list[Event]:
        """Return the events of one part. The log-probabilities of its tokens stand with its first text."""
        logprobs = [_position(position) for position in part.event.logprobs or ()] if self._with_logprobs else []
        events: list[Event] = []
        for delta in part.deltas:
            events += self._write(delta, logprobs)
            if isinstance(delta, Content):
                logprobs = []
        return events

    def end(self, usage: Usage, *, is_whole: bool, completed_at: int) -> list[Event]:
        """Return the last events. Not whole: max_output_tokens, or the end of the context, came first."""
        events = self._close("completed" if is_whole else "incomplete")
        self.response["status"] = "completed" if is_whole else "incomplete"
        self.response["completed_at"] = completed_at if is_whole else None
        self.response["incomplete_details"] = None if is_whole else {"reason": "max_output_tokens"}
        self.response["usage"] = {
            "input_tokens": usage.num_prompt_tokens,
            "input_tokens_details": {"cached_tokens": usage.num_cached_tokens, "cache_write_tokens": 0},
            "output_tokens": usage.num_output_tokens,
            "output_tokens_details": {"reasoning_tokens": usage.num_reasoning_tokens},
            "total_tokens": usage.num_prompt_tokens + usage.num_output_tokens,
        }
        return [*events, self._state("response.completed" if is_whole else "response.incomplete")]

    def fail(self, error: OctavoError) -> Event:
        """Return the event that ends a stream which has failed midway."""
        self.response["status"] = "failed"
        self.response["error"] = {"code": "server_error", "message": error.message}
        return self._state("response.failed")

    def _write(self, delta: Delta, logprobs: list[dict[str, Any]]) -> list[Event]:
        match delta:
            case Content(text):
                events = self._open("message", _message_item)
                events.append(self._in_part("response.output_text.delta", delta=text, logprobs=logprobs))
                self._part["text"] += text
                self._part["logprobs"] += logprobs
            case Reasoning(text):
                events = self._open("reasoning", _reasoning_item)
                events.append(self._in_part("response.reasoning_text.delta", delta=text))
                self._part["text"] += text
            case CallBegin(_, call_id, name):
                events = [*self._close("completed"), *self._add(_call_item(call_id, name))]
            case CallArguments(_, text):
                self._current["arguments"] += text
                events = [self._in_item("response.function_call_arguments.delta", delta=text)]
        return events

    @property
    def _current(self) -> dict[str, Any]:
        item: dict[str, Any] = self.response["output"][-1]
        return item

    @property
    def _part(self) -> dict[str, Any]:
        part: dict[str, Any] = self._current["content"][0]
        return part

    def _open(self, kind: str, make: Any) -> list[Event]:
        """Make sure that an item of this kind is being written."""
        if self._item is not None and self._item["type"] == kind:
            return []
        events = [*self._close("completed"), *self._add(make())]
        self._current["content"].append(_empty_part(kind))
        return [*events, self._in_part("response.content_part.added", part=dict(self._part))]

    def _add(self, item: dict[str, Any]) -> list[Event]:
        self.response["output"].append(item)
        self._item = item
        return [self._event("response.output_item.added", output_index=len(self.response["output"]) - 1, item=_copy(item))]

    def _close(self, status: str) -> list[Event]:
        item = self._item
        if item is None:
            return []
        item["status"] = status
        if item["type"] == "function_call":
            events = [self._in_item("response.function_call_arguments.done", name=item["name"], arguments=item["arguments"])]
        elif item["type"] == "message":
            events = [
                self._in_part("response.output_text.done", text=self._part["text"], logprobs=self._part["logprobs"]),
                self._in_part("response.content_part.done", part=dict(self._part)),
            ]
        else:
            events = [
                self._in_part("response.reasoning_text.done", text=self._part["text"]),
                self._in_part("response.content_part.done", part=dict(self._part)),
            ]
        events.append(self._event("response.output_item.done", output_index=len(self.response["output"]) - 1, item=_copy(item)))
        self._item = None
        return events

    def _state(self, kind: str) -> Event:
        return self._event(kind, response=self.response | {"output": [_copy(item) for item in self.response["output"]]})

    def _in_part(self, kind: str, **fields: Any) -> Event:
        return self._in_item(kind, content_index=0, **fields)

    def _in_item(self, kind: str, **fields: Any) -> Event:
        return self._event(kind, item_id=self._current["id"], output_index=len(self.response["output"]) - 1, **fields)

    def _event(self, kind: str, **fields: Any) -> Event:
        self._sequence_number += 1
        return {"type": kind, "sequence_number": self._sequence_number, **fields}


def new_id(kind: str) -> str:
    return f"{kind}_{secrets.token_hex(16)}"


def _message_item() -> dict[str, Any]:
    return {"type": "message", "id": new_id("msg"), "role": "assistant", "status": "in_progress", "content": []}


def _reasoning_item() -> dict[str, Any]:
    return {"type": "reasoning", "id": new_id("rs"), "status": "in_progress", "summary": [], "content": []}


def _call_item(call_id: str, name: str) -> dict[str, Any]:
    return {"type": "function_call", "id": new_id("fc"), "call_id": call_id, "name": name, "arguments": "", "status": "in_progress"}


def _empty_part(kind: str) -> dict[str, Any]:
    if kind == "reasoning":
        return {"type": "reasoning_text", "text": ""}
    return {"type": "output_text", "text": "", "annotations": [], "logprobs": []}


def _copy(item: dict[str, Any]) -> dict[str, Any]:
    """Return an item that does not change when the one being written does."""
    return item | {"content": [dict(part) for part in item["content"]]} if "content" in item else dict(item)


def _position(position: PositionLogprobs) -> dict[str, Any]:
    return _candidate(position.sampled) | {"top_logprobs": [_candidate(candidate) for candidate in position.top]}


def _candidate(candidate: Logprob) -> dict[str, Any]:
    return {"token": candidate.token_bytes.decode("utf-8", "replace"), "logprob": candidate.logprob, "bytes": list(candidate.token_bytes)}
