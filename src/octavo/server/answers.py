"""What a model's events say: content, reasoning and tool calls, choice by choice.

Answers streamed and whole, and all three APIs, are made of the same `AnswerPart`s: none of them looks at text again.
"""

from __future__ import annotations

import secrets
import string
from collections.abc import AsyncGenerator, Container, Mapping
from contextlib import aclosing
from typing import Literal

import msgspec

from octavo.client.outputs import RequestOutput
from octavo.parsers.calls import Grammar, JsonSchema, ToolCallParser, ToolSet
from octavo.parsers.deltas import Content, Delta, Reasoning, joined_deltas
from octavo.parsers.reasoning import ReasoningParser, Thinking
from octavo.server.openai.events import joined_events, paced
from octavo.server.openai.generation import Events, Usage
from octavo.text.tokenizer import Tokenizer

AnswerFinish = Literal["stop", "length", "tool_calls"]
Parts = AsyncGenerator["AnswerPart", None]

SHORT_ID_LETTERS = string.ascii_letters + string.digits
PROMPT_END_TOKENS = 32  # enough for the mark that begins reasoning, however it is spelled


class Reading(msgspec.Struct, frozen=True):
    """How the answers to one request are read.

    `calls`, `thinking`: the formats to look for, None for none. `schemas`: the tools that may be called, name -> parameters.
    `calls_lead`: an answer is calls from its first letter, or has none. `begins_thinking`: the prompt ends inside reasoning.
    """

    calls: Grammar | None
    thinking: Thinking | None
    schemas: Mapping[str, JsonSchema]
    max_calls: int | None
    calls_lead: bool
    begins_thinking: bool
    shows_reasoning: bool

    def looks_for_any(self, tokens: Container[str]) -> bool:
        """Return whether some marks are among `tokens`: the special ones are left out of text unless asked for."""
        marks = self.calls.openers + self.calls.closers if self.calls else ()
        if self.thinking is not None:
            marks += (self.thinking.open, self.thinking.close, *(self.thinking.frame or ()))
        return any(mark in tokens for mark in marks)


class AnswerPart(msgspec.Struct, frozen=True):
    """What one event of choice `index` says. The last part of a choice, and only it, has a finish_reason.

    `num_reasoning_tokens` is the total so far, the marks and the token that ends them included.
    """

    index: int
    deltas: list[Delta]
    finish_reason: AnswerFinish | None
    event: RequestOutput
    num_reasoning_tokens: int


class AnswerReader:
    """One choice: its events to parts. `is_done`: the answer has as many tool calls as it may, and is over."""

    def __init__(self, index: int, reading: Reading) -> None:
        self.is_done = False
        self._index = index
        self._shows_reasoning = reading.shows_reasoning
        self._num_reasoning_tokens = 0
        self._thoughts = None if reading.thinking is None else ReasoningParser(reading.thinking, inside=reading.begins_thinking)
        self._calls: ToolCallParser | None = None
        if reading.calls is not None:
            new_id = _short_call_id if reading.calls.short_ids else _call_id
            self._calls = ToolCallParser(reading.calls, ToolSet(reading.schemas, new_id, reading.max_calls, reading.calls_lead))

    def read(self, event: RequestOutput) -> AnswerPart:
        """Return what the event says. An event that ends the choice brings all that was held back."""
        deltas = self._read_text(event)
        finish_reason: AnswerFinish | None = None
        if event.finish_reason is not None:
            finish_reason = "length" if event.finish_reason == "length" else "stop"
        if self._calls is not None:
            self.is_done = self._calls.is_full
            if self._calls.num_calls and (finish_reason == "stop" or self.is_done):
                finish_reason = "tool_calls"
        return AnswerPart(self._index, deltas, finish_reason, event, self._num_reasoning_tokens)

    def _read_text(self, event: RequestOutput) -> list[Delta]:
        ends = event.finish_reason is not None
        deltas: list[Delta] = [Content(event.text)] if event.text else []
        if self._thoughts is not None:
            was_thinking = self._thoughts.is_thinking
            deltas = self._thoughts.push(event.text) + (self._thoughts.finish() if ends else [])
            if was_thinking or self._thoughts.is_thinking or any(isinstance(delta, Reasoning) for delta in deltas):
                self._num_reasoning_tokens += len(event.token_ids)
        shown: list[Delta] = []
        for delta in deltas:
            if isinstance(delta, Content) and self._calls is not None:
                shown += self._calls.push(delta.text)
            elif self._shows_reasoning or not isinstance(delta, Reasoning):
                shown.append(delta)
        if ends and self._calls is not None:
            shown += self._calls.finish()
        return shown


async def read_answers(events: Events, reading: Reading, usage: Usage, num_choices: int) -> Parts:
    """Yield the parts of all choices. `events` end with it: a choice that has all its calls costs no more tokens."""
    readers = [AnswerReader(index, reading) for index in range(num_choices)]
    unfinished = num_choices
    async with aclosing(events):
        async for index, event in events:
            if readers[index].is_done:
                continue
            part = readers[index].read(event)
            usage.see(index, event, part.num_reasoning_tokens)
            yield part
            unfinished -= part.finish_reason is not None
            if not unfinished:
                return


async def paced_parts(parts: Parts, interval: int) -> Parts:
    """Yield the same parts, those of a choice joined until they bring `interval` tokens."""
    numbered = ((part.index, part) async for part in parts)
    async with aclosing(parts), aclosing(paced(numbered, interval, _joined_parts, lambda part: part.event)) as joined:
        async for _, part in joined:
            yield part


def _joined_parts(first: AnswerPart, then: AnswerPart) -> AnswerPart:
    return msgspec.structs.replace(then, deltas=joined_deltas(first.deltas + then.deltas), event=joined_events(first.event, then.event))


def begins_thinking(thinking: Thinking | None, tokenizer: Tokenizer, prompt_token_ids: list[int], continued: str | None) -> bool:
    """Return whether an answer begins as reasoning: by the prompt's end, or by the message that it continues."""
    if thinking is None:
        return False
    if continued is not None:
        return thinking.is_left_open(continued)
    return thinking.is_inside(tokenizer.decode(prompt_token_ids[-PROMPT_END_TOKENS:], skip_special_tokens=False))


def _call_id() -> str:
    return f"call_{secrets.token_hex(12)}"


def _short_call_id() -> str:
    return "".join(secrets.choice(SHORT_ID_LETTERS) for _ in range(9))
