"""What tool_choice, strict and a format come to: which tools the model is told of, how its calls are read, what its answer must match."""

from __future__ import annotations

from typing import Any

import msgspec

from octavo.config.server_schema import StructuredOutputsConfig
from octavo.constraints import StructuredOutputsParams
from octavo.errors import InvalidRequest
from octavo.grammar.calls import MAX_FORCED_CALLS, calls_to_lark, text_with_calls_to_lark
from octavo.grammar.library import require
from octavo.grammar.sandbox import GrammarSandbox
from octavo.parsers.calls import Grammar
from octavo.parsers.json_calls import JsonCalls
from octavo.server.match_or_calls import match_or_calls
from octavo.server.openai.schemas import ChatRequest
from octavo.server.structured import read_constraint, tools_constraint
from octavo.text.tokenizer import Tokenizer
from octavo.text.tools import Tool, read_tool_choice, strict_names, validate_tools

FORCED_CALLS = JsonCalls(is_bare=True)  # as the grammar of forced calls writes them


class ToolUse(msgspec.Struct, frozen=True):
    """`offered`: the tools that the model is told of; `callable`: those that it may call. `calls`: how calls are read, None where there
    are none, `calls_lead`: only at the answer's beginning. `constraint`: what the answer must match, None for any text."""

    offered: list[Tool]
    callable: list[Tool]
    calls: Grammar | None
    constraint: StructuredOutputsParams | None
    calls_lead: bool = False


def read_tool_use(
    body: ChatRequest, calls: Grammar | None, tokenizer: Tokenizer, usual: StructuredOutputsConfig, sandbox: GrammarSandbox
) -> ToolUse:
    """Return what the body's tools, tool_choice, response_format and structured_outputs come to. `calls`: how this model writes calls
    of its own will, None when that is not known or off. Raises InvalidRequest. Runs off the event loop: it waits for the sandbox."""
    tools = validate_tools(body.tools or [])
    choice = read_tool_choice(body.tool_choice, tools)
    asked = read_constraint(body, usual, sandbox)
    if choice.kind == "none":
        return ToolUse([], [], None, asked)
    callable_tools = [tool for tool in tools if choice.allows(tool)]
    strict = strict_names(body.tools or [])
    if choice.kind in ("required", "function"):
        max_calls = 1 if choice.kind == "function" or body.parallel_tool_calls is False else None
        return ToolUse(tools, callable_tools, FORCED_CALLS, _forced(callable_tools, max_calls, sandbox))
    if calls is None:
        raise InvalidRequest(
            "tools are off, or it is not known how this model writes tool calls; leave tools out, send tool_choice none, "
            "or start the server with --tool-call-parser NAME",
            code="unsupported_parameter",
            param="tools",
        )
    schemas = {name: _arguments(tool) if name in strict else {"type": "object"} for name, tool in _by_name(callable_tools)}
    if asked is not None:
        param = "response_format" if body.structured_outputs is None else "structured_outputs"
        max_calls = 1 if body.parallel_tool_calls is False else MAX_FORCED_CALLS
        held, constraint = match_or_calls(asked, schemas, calls, max_calls, tokenizer, sandbox, param)
        return ToolUse(tools, callable_tools, held, constraint, calls_lead=asked.structural_tag is None)
    if strict.isdisjoint(schemas):
        return ToolUse(tools, callable_tools, calls, None)
    return ToolUse(tools, callable_tools, calls, _strict(schemas, calls, tokenizer, sandbox))


def _forced(tools: list[Tool], max_calls: int | None, sandbox: GrammarSandbox) -> StructuredOutputsParams:
    """Return what makes the answer calls of these tools."""
    require("tool_choice")
    return tools_constraint(calls_to_lark({name: _arguments(tool) for name, tool in _by_name(tools)}, max_calls), sandbox)


def _strict(schemas: dict[str, Any], calls: Grammar, tokenizer: Tokenizer, sandbox: GrammarSandbox) -> StructuredOutputsParams:
    """Return what holds calls to these schemas, and leaves the rest of the answer free."""
    require("tools")
    opener = calls.openers[0] if calls.openers else ""
    if not isinstance(calls, JsonCalls) or not opener or opener in tokenizer.control_tokens:
        raise InvalidRequest(
            "strict cannot be held to with this model's way of writing calls; send strict false, or tool_choice required",
            code="unsupported_value",
            param="tools",
        )
    fences = calls.fences if calls.is_bare else None
    closer = calls.closers[0] if calls.closers else None
    return tools_constraint(text_with_calls_to_lark(schemas, opener, closer, fences), sandbox)


def _by_name(tools: list[Tool]) -> list[tuple[str, Tool]]:
    return [(tool["function"]["name"], tool) for tool in tools]


def _arguments(tool: Tool) -> Tool:
    """Return the schema of a tool's arguments, which are an object whatever it says."""
    parameters: Tool = tool["function"].get("parameters", {})
    return {"type": "object"} | parameters
