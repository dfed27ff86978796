"""`AnswerFormat`: how the served model writes tool calls and reasoning. Chosen once, when the engine is attached."""

from __future__ import annotations

import logging

import msgspec

from octavo.config.server_schema import ServerConfig
from octavo.parsers.calls import Grammar
from octavo.parsers.formats import REASONING_FORMATS, TOOL_FORMATS, recognise_tool_format
from octavo.parsers.reasoning import Thinking

_log = logging.getLogger("octavo.server")


class AnswerFormat(msgspec.Struct, frozen=True):
    """None: the model has none, nobody knows it, or the operator wants none."""

    calls: Grammar | None = None
    thinking: Thinking | None = None


def choose_format(config: ServerConfig, chat_template: str) -> AnswerFormat:
    """Return the formats that the settings name; for tool calls, by default, the one that the template surely teaches."""
    name: str | None = config.tool_call_parser
    if name == "auto":
        name = recognise_tool_format(chat_template)
        if name is not None:
            _log.info("tool calls are read as %s, which the model's chat template teaches (--tool-call-parser)", name)
    return AnswerFormat(
        calls=TOOL_FORMATS.get(name or "") if config.enable_auto_tool_choice else None,
        thinking=REASONING_FORMATS.get(config.reasoning_parser),
    )
