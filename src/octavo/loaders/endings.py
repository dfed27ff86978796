"""Where an answer ends, and how a model's files would have it sampled: shared by both file formats."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from octavo.errors import InvalidRequest, ModelError
from octavo.params import SamplingParams

# Control tokens with which a chat template closes the assistant's turn.
_TURN_ENDS = ("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<end_of_turn>", "<|end_of_turn|>", "<|return|>", "</s>")


def turn_end_ids(chat_template: str | None, control_tokens: Mapping[str, int]) -> tuple[int, ...]:
    """Return the ids of the turn-ending tokens that the template writes and the vocabulary marks as control tokens.

    Files often name only the end of a document as eos; a chat model that then writes its turn end would run on.
    """
    if chat_template is None:
        return ()
    return tuple(control_tokens[token] for token in _TURN_ENDS if token in control_tokens and token in chat_template)


def unique_ids(*groups: Iterable[int]) -> tuple[int, ...]:
    """Return all ids once each, in the order of their first appearance."""
    return tuple(dict.fromkeys(token_id for group in groups for token_id in group))


def check_sampling(source: str, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of `defaults` that are given, found to be within the bounds of a request. Raises ModelError."""
    given = {name: value for name, value in defaults.items() if value is not None}
    try:
        SamplingParams(**given)
    except InvalidRequest as error:
        raise ModelError(f"{source}: sampling default: {error.message}") from error
    return given
