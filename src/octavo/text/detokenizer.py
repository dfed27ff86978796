"""`Detokenizer`: one request's output tokens to text, piece by piece, with an end at stop strings.

Invariants
- The pieces of all pushes and of `finish`, joined, are the decoded text of all tokens, up to the stop string if one came.
- No piece ends inside a character: bytes of an unfinished one wait. Bytes that can become no character are U+FFFD.
- No piece holds text that may still turn out to begin a stop string; everything else goes out at once.

A token costs the same however long the answer is: its bytes are fed to an incremental UTF-8 decoder. Only vocabularies
whose token text has no fixed bytes (`Spelling.OTHER`) are decoded in short windows that overlap.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from octavo.text.tokenizer import Tokenizer
from octavo.text.vocabulary import Spelling

_UNFINISHED = "\ufffd"


class Piece(NamedTuple):
    """New text (maybe empty), and the stop string that ended the answer, if one did."""

    text: str
    stop_string: str | None = None


class Detokenizer:
    """Raises nothing, whatever the ids. `min_tokens`: text of the first so many tokens is not searched for stop strings.

    `continues_text`: the tokens continue a text, so a vocabulary that writes the space before a word keeps even the first.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        skip_special_tokens: bool = True,
        stop: Sequence[str] = (),
        include_stop_str_in_output: bool = False,
        min_tokens: int = 0,
        continues_text: bool = False,
    ) -> None:
        drops_first_space = tokenizer.drops_first_space and not continues_text
        self._stream: _Stream
        if tokenizer.spelling is Spelling.OTHER:
            self._stream = _WindowStream(tokenizer, skip_special_tokens)
        else:
            self._stream = _ByteStream(tokenizer.shown_bytes if skip_special_tokens else tokenizer.token_bytes, drops_first_space)
        self._search = _StopSearch(stop, include_stop_str_in_output) if stop else None
        self._unsearched_tokens = min_tokens if stop else 0

    def push(self, token_ids: Sequence[int]) -> Piece:
        """Return the text that these further tokens bring. After a stop string every piece is empty and names it."""
        if self._search is None:
            return Piece(self._stream.push(token_ids))
        if self._search.found is not None:
            return Piece("", self._search.found)
        head = ""
        if self._unsearched_tokens:
            head = self._stream.push(token_ids[: self._unsearched_tokens])
            rest = token_ids[self._unsearched_tokens :]
            self._unsearched_tokens = max(0, self._unsearched_tokens - len(token_ids))
            token_ids = rest
        text = self._search.push(self._stream.push(token_ids))
        return Piece(head + text, self._search.found)

    def finish(self) -> str:
        """Return the text held back so far: the answer ended before it became a character or a stop string."""
        if self._search is None or self._unsearched_tokens:
            return self._stream.finish()
        if self._search.found is not None:
            return ""
        return self._search.push(self._stream.finish()) + self._search.finish()


class _Stream(Protocol):
    def push(self, token_ids: Sequence[int]) -> str: ...

    def finish(self) -> str: ...


class _ByteStream:
    """Tokens are bytes; text is what they spell in UTF-8."""

    def __init__(self, bytes_of: Callable[[int], bytes], drops_first_space: bool) -> None:
        self._bytes_of = bytes_of
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._drops_space = drops_first_space

    def push(self, token_ids: Sequence[int]) -> str:
        text = self._decoder.decode(b"".join(map(self._bytes_of, token_ids)))
        return self._trim(text) if self._drops_space else text

    def finish(self) -> str:
        return self._trim(self._decoder.decode(b"", final=True))

    def _trim(self, text: str) -> str:
        if self._drops_space and text:
            self._drops_space = False
            return text.removeprefix(" ")
        return text


class _WindowStream:
    """Text is what the decoder of the vocabulary makes of a few tokens at a time.

    A window is decoded with the tokens before it, and what they alone give is taken off: a decoder looks at neighbours.
    """

    _CONTEXT = 6  # tokens before the window, enough for any decoder's view of neighbours
    _LIMIT = 16  # tokens that may wait for the end of a character; no character has so many

    def __init__(self, tokenizer: Tokenizer, skip_special_tokens: bool) -> None:
        self._tokenizer = tokenizer
        self._is_skipped = tokenizer.is_special if skip_special_tokens else lambda _: False
        self._context: list[int] = []
        self._waiting: list[int] = []

    def push(self, token_ids: Sequence[int]) -> str:
        return "".join(self._push_one(token_id) for token_id in token_ids if not self._is_skipped(token_id))

    def finish(self) -> str:
        text = self._text_of_waiting()
        self._waiting = []
        return text

    def _push_one(self, token_id: int) -> str:
        self._waiting.append(token_id)
        text = self._text_of_waiting()
        if not text or (text.endswith(_UNFINISHED) and len(self._waiting) < self._LIMIT):
            return ""
        self._context = (self._context + self._waiting)[-self._CONTEXT :]
        self._waiting = []
        return text

    def _text_of_waiting(self) -> str:
        before = self._tokenizer.decode(self._context, skip_special_tokens=False)
        return self._tokenizer.decode(self._context + self._waiting, skip_special_tokens=False)[len(before) :]


class _StopSearch:
    """Finds the stop string that is complete first (of two complete at once, the one listed first), and cuts there."""

    def __init__(self, stop: Sequence[str], include: bool) -> None:
        self._stop = tuple(stop)
        self._include = include
        self._longest = max(map(len, self._stop))
        self._first_characters = frozenset(text[0] for text in self._stop)
        self._held = ""  # the longest end of the text so far that begins a stop string
        self.found: str | None = None

    def push(self, new: str) -> str:
        """Return the text that is now safe to give out: up to the stop string once it is there."""
        if not new:
            return ""
        text = self._held + new
        ends = [(at + len(stop), order) for order, stop in enumerate(self._stop) if (at := text.find(stop)) >= 0]
        if ends:
            end, order = min(ends)
            self.found = self._stop[order]
            return text[: end if self._include else end - len(self.found)]
        cut = self._begin_of_held(text)
        self._held = text[cut:]
        return text[:cut]

    def finish(self) -> str:
        held, self._held = self._held, ""
        return held if self.found is None else ""

    def _begin_of_held(self, text: str) -> int:
        for start in range(max(0, len(text) - self._longest + 1), len(text)):
            if text[start] in self._first_characters:
                tail = text[start:]
                if any(stop.startswith(tail) for stop in self._stop):
                    return start
        return len(text)
