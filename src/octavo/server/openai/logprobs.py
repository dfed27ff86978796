"""Log-probabilities in the shapes of chat, of text completions and of prompt_logprobs.

A token is shown as its text, its bytes that are no whole characters as U+FFFD, or, with return_tokens_as_token_ids, as
"token_id:5".
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from octavo.client.outputs import Logprob, PositionLogprobs


class TokenNames(msgspec.Struct, frozen=True):
    as_ids: bool

    def of(self, candidate: Logprob) -> str:
        return self.name(candidate.token_id, candidate.token_bytes)

    def name(self, token_id: int, token_bytes: bytes) -> str:
        return f"token_id:{token_id}" if self.as_ids else token_bytes.decode("utf-8", "replace")

    def chat(self, position: PositionLogprobs) -> dict[str, Any]:
        """Return one position of a chat's logprobs."""
        return self._entry(position.sampled) | {"top_logprobs": [self._entry(candidate) for candidate in position.top]}

    def by_name(self, position: PositionLogprobs) -> dict[str, float]:
        """Return the position's candidates, best first; of two with one text the likelier."""
        named: dict[str, float] = {}
        for candidate in sorted((position.sampled, *position.top), key=lambda candidate: candidate.rank):
            named.setdefault(self.of(candidate), candidate.logprob)
        return named

    def _entry(self, candidate: Logprob) -> dict[str, Any]:
        return {"token": self.of(candidate), "logprob": candidate.logprob, "bytes": list(candidate.token_bytes)}


def only_top(positions: Sequence[PositionLogprobs], count: int | None) -> list[PositionLogprobs]:
    """Return the positions with at most `count` most likely tokens each; none when `count` is None."""
    return [] if count is None else [replace(position, top=position.top[:count]) for position in positions]


def as_prompt_logprobs(positions: Sequence[PositionLogprobs]) -> list[dict[str, Any] | None]:
    """Return an object a position: token id -> its logprob, rank and text, for the prompt's own token and the most likely ones."""
    return [
        {
            str(candidate.token_id): {"logprob": candidate.logprob, "rank": candidate.rank, "decoded_token": candidate.text}
            for candidate in (position.sampled, *position.top)
        }
        for position in positions
    ]


class TextLogprobs:
    """The logprobs of one text-completion choice: text_offset goes on from chunk to chunk, in characters of the whole text."""

    def __init__(self, names: TokenNames) -> None:
        self._names = names
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._offset = 0

    def of_first(self, token_id: int, token_bytes: bytes, *, is_shown: bool) -> dict[str, Any]:
        """Return the entry of a prompt's first token, which has no logprob; `is_shown`: it has a part in the text."""
        return {
            "tokens": [self._names.name(token_id, token_bytes)],
            "token_logprobs": [None],
            "top_logprobs": [None],
            "text_offset": [self._advance(token_bytes if is_shown else b"")],
        }

    def of(self, positions: Sequence[PositionLogprobs]) -> dict[str, Any]:
        return {
            "tokens": [self._names.of(position.sampled) for position in positions],
            "token_logprobs": [position.sampled.logprob for position in positions],
            "top_logprobs": [self._names.by_name(position) for position in positions],
            "text_offset": [self._advance(position.sampled.token_bytes) for position in positions],
        }

    def _advance(self, token_bytes: bytes) -> int:
        """Return where the token begins, and go on behind it. A character that tokens share begins with its last one."""
        begin = self._offset
        self._offset += len(self._decoder.decode(token_bytes))
        return begin


def joined(first: dict[str, Any] | None, then: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the logprobs of one choice over two chunks."""
    if first is None or then is None:
        return then if first is None else first
    return {key: first[key] + values for key, values in then.items()}
