"""`Template`: one model's chat template, compiled, and the shape in which it wants a conversation.

Templates were written for different habits: content as a text or as an array of parts, tool arguments as an object or
as JSON text, a developer role or none. Which it is, is found once, by rendering small conversations.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec
from jinja2 import TemplateError, meta

from octavo.text.conversation import Message
from octavo.text.marks import END, MarkLiterals, Marks, without_surrogates
from octavo.text.sandbox import MAX_SOURCE_CHARS, TemplateEnvironment
from octavo.text.template_budget import LimitExceeded
from octavo.text.template_functions import TemplateRaised

OWN_VARIABLES = frozenset({"messages", "tools", "documents", "add_generation_prompt", "bos_token", "eos_token"})

_PROBE = "probe-5f0c"
_PROBE_QUESTION: Message = {"role": "user", "content": _PROBE}
_PROBE_CALL: list[Message] = [
    _PROBE_QUESTION,
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "call00001", "type": "function", "function": {"name": "probe", "arguments": '{"probe": 1}'}}],
    },
]


class Shape(msgspec.Struct, frozen=True):
    """How a template wants messages: content in parts, tool arguments as JSON text, a message of tool calls alone with
    empty content (else with none), developer as a role of its own."""

    content_in_parts: bool = False
    arguments_as_text: bool = False
    empty_content: bool = False
    has_developer: bool = False


class Template:
    """`source`: its text. `supports_tools`, `supports_documents`: it reads them. `variables`: what else it reads, so what a
    request may set."""

    def __init__(self, source: str, control_tokens: Mapping[str, int], special_tokens: Mapping[str, str]) -> None:
        """`special_tokens`: bos_token and eos_token as texts.

        Raises jinja2.TemplateError, and RecursionError or LimitExceeded when it runs away even on the first small conversation.
        """
        if len(source) > MAX_SOURCE_CHARS:
            raise LimitExceeded(f"{len(source):,} characters; the limit is {MAX_SOURCE_CHARS:,}")
        self.source = source
        self._environment = TemplateEnvironment()
        self._marks = Marks(control_tokens)
        self._special_tokens = {name: self._marks.mark(text) for name, text in special_tokens.items()}
        read = meta.find_undeclared_variables(self._environment.parse(source))  # which folds constants in the tree it is given
        self.supports_tools = "tools" in read
        self.supports_documents = "documents" in read
        self.variables = frozenset(read) - OWN_VARIABLES - frozenset(self._environment.globals)
        tree = self._environment.parse(source)
        MarkLiterals(self._marks).visit(tree)
        self._template = self._environment.compile_charged(tree)
        self.shape = self._find_shape(Shape(has_developer="developer" in source))

    def render(self, messages: list[Message], variables: Mapping[str, Any], *, continues: bool = False) -> list[str | int]:
        """Return the prompt as runs of plain text and control token ids; with `continues`, up to the last message's content.

        Raises TemplateRaised when the template refuses, LimitExceeded, and whatever else a template stumbles over.
        """
        text = self._run(messages, variables, self.shape, END if continues else "")
        if continues:
            text, end, _ = text.rpartition(END)
            if not end:
                raise TemplateRaised("it leaves out the final message, so that cannot be continued")
        return self._marks.segments(text)

    def _run(self, messages: list[Message], variables: Mapping[str, Any], shape: Shape, end: str = "") -> str:
        shaped = [_shaped(message, shape, end if i == len(messages) - 1 else "") for i, message in enumerate(messages)]
        try:
            return self._environment.run(self._template, {**self._special_tokens, **without_surrogates(variables), "messages": shaped})
        except TemplateRaised as refusal:
            raise TemplateRaised(self._marks.restored(str(refusal))) from None

    def _find_shape(self, shape: Shape) -> Shape:
        """Return the first shape in which a question, and then a tool call, comes through."""
        for content_in_parts in (False, True):
            asked = msgspec.structs.replace(shape, content_in_parts=content_in_parts)
            if self._shows_probe([_PROBE_QUESTION], asked):
                shape = asked
                break
        for empty_content, arguments_as_text in ((False, False), (False, True), (True, False), (True, True)):
            called = msgspec.structs.replace(shape, empty_content=empty_content, arguments_as_text=arguments_as_text)
            if self._shows_probe(_PROBE_CALL, called):
                return called
        return shape

    def _shows_probe(self, messages: list[Message], shape: Shape) -> bool:
        try:
            return _PROBE in self._run(messages, {"tools": None, "add_generation_prompt": False}, shape)
        except (TemplateError, TemplateRaised, TypeError, ValueError, LookupError, AttributeError, ArithmeticError):
            return False


def _shaped(message: Message, shape: Shape, end: str) -> Message:
    """Return a message as the template wants it, with `end` behind its content."""
    shaped: Message = without_surrogates(message)
    content = "" if shaped["content"] is None and shape.empty_content else shaped["content"]
    if end:
        content += end
    shaped["content"] = [{"type": "text", "text": content}] if shape.content_in_parts and content is not None else content
    if shaped["role"] == "developer" and not shape.has_developer:
        shaped["role"] = "system"
    if "tool_calls" in shaped and not shape.arguments_as_text:
        shaped["tool_calls"] = [_with_parsed_arguments(call) for call in shaped["tool_calls"]]
    return shaped


def _with_parsed_arguments(call: dict[str, Any]) -> dict[str, Any]:
    """Return a tool call whose arguments are an object, if their text is one."""
    try:
        arguments = without_surrogates(json.loads(call["function"]["arguments"]))
    except (ValueError, RecursionError):
        return call
    return {**call, "function": {**call["function"], "arguments": arguments}} if isinstance(arguments, dict) else call
