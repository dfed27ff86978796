"""Conversations to prompts, for Python programs: one or many, tools and template arguments checked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from octavo.client.front import TextFront
from octavo.client.prompts import ReadPrompt
from octavo.errors import InvalidRequest
from octavo.loaders.load import read_text
from octavo.text.chat import ChatTemplate
from octavo.text.tools import validate_tools

Message = dict[str, Any]
Conversations = Sequence[Message] | Sequence[Sequence[Message]]


def render_conversations(
    front: TextFront,
    path: Path,
    messages: Conversations,
    *,
    chat_template: str | None = None,
    add_generation_prompt: bool | None = None,
    continue_final_message: bool = False,
    tools: list[dict[str, Any]] | None = None,
    chat_template_kwargs: dict[str, Any] | None = None,
) -> list[ReadPrompt]:
    """Return the prompt of each conversation. `chat_template`: the text of one to use in place of the model's own (at `path`).
    The generation prompt is added unless the final message is continued. Raises InvalidRequest."""
    if add_generation_prompt and continue_final_message:
        raise InvalidRequest("add_generation_prompt and continue_final_message cannot both be true", param="continue_final_message")
    template = front.chat
    if chat_template is not None:
        template = ChatTemplate.from_assets(read_text(path), front.tokenizer, override=chat_template)
    if template is None:
        raise InvalidRequest("the model has no chat template; use generate(), or give a chat_template", param="messages")
    offered = validate_tools(tools) if tools else None
    conversations = [messages] if messages and isinstance(messages[0], dict) else messages
    return [
        ReadPrompt(
            None,
            template.render(
                list(conversation),
                add_generation_prompt=not continue_final_message if add_generation_prompt is None else add_generation_prompt,
                continue_final_message=continue_final_message,
                tools=offered,
                template_kwargs=chat_template_kwargs,
            ),
        )
        for conversation in conversations
    ]
