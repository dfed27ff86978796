"""`Reader`: text that arrives in pieces, read as if it were all there.

A parser is a generator that reads like the grammar of its format; where it needs text that has not come, it yields.
So no decision depends on how the text was cut. Reading that may turn out to be a mistake is done inside `attempt`: it
holds on to what it reads, at most MAX_HELD characters, and goes back when NotACall is raised.

Every function is linear in the text it passes over.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Generator
from typing import TypeVar

MAX_HELD = 16_384  # characters that an attempt may read before it commits

T = TypeVar("T")
Steps = Generator[None, None, T]
Emit = Callable[[str], None]

_BRACKETS_AND_QUOTES = re.compile(r'["\\{}\[\]]')
_SPACE = " \t\r\n"


class NotACall(Exception):
    """What began like a call is none: it is text."""


class Reader:
    def __init__(self) -> None:
        self._text = ""
        self._at = 0
        self._hold: int | None = None  # where the attempt under way began
        self._ended = False

    def feed(self, text: str) -> None:
        keep = self._at if self._hold is None else self._hold
        self._text = self._text[keep:] + text
        self._at -= keep
        if self._hold is not None:
            self._hold = 0

    def end(self) -> None:
        self._ended = True

    def attempt(self, steps: Steps[None]) -> Steps[bool]:
        """Return whether `steps` came to its end or committed; else nothing has been read. Attempts are not nested."""
        self._hold = self._at
        try:
            yield from steps
        except NotACall:
            if self._hold is None:
                return True
            self._at = self._hold
            return False
        finally:
            self._hold = None
        return True

    def commit(self) -> None:
        """Make the attempt under way sure: what was read is not given back."""
        self._hold = None

    def peek(self, count: int = 1) -> Steps[str]:
        """Return the next `count` characters; fewer only at the end."""
        if self._hold is not None and self._at + count - self._hold > MAX_HELD:
            raise NotACall
        while len(self._text) - self._at < count and not self._ended:
            yield
        return self._text[self._at : self._at + count]

    def take(self) -> Steps[str]:
        """Return the next character, or "" at the end."""
        character = yield from self.peek()
        self._at += len(character)
        return character

    def skip_space(self) -> Steps[None]:
        while (character := (yield from self.peek())) and character in _SPACE:
            self._at += 1

    def try_word(self, word: str) -> Steps[bool]:
        """Read `word` if it comes next; return whether it did."""
        for length in range(1, len(word) + 1):
            if (yield from self.peek(length)) != word[:length]:
                return False
        self._at += len(word)
        return True

    def expect(self, word: str) -> Steps[None]:
        """Read `word`. Raises NotACall."""
        if not (yield from self.try_word(word)):
            raise NotACall

    def while_in(self, allowed: Callable[[str], bool]) -> Steps[str]:
        """Return the longest run of characters that are `allowed`."""
        run = ""
        while (character := (yield from self.peek())) and allowed(character):
            self._at += 1
            run += character
        return run

    def before(self, word: str) -> Steps[str]:
        """Return the text before `word`, and read both. Raises NotACall when it does not come. For short texts in an attempt."""
        text = ""
        while not (yield from self.try_word(word)):
            character = yield from self.take()
            if not character:
                raise NotACall
            text += character
        return text

    def until(self, words: tuple[str, ...], emit: Emit) -> Steps[str | None]:
        """Pass text on to `emit` until one of `words` is read; return that word, or None at the end.

        Of two words at one place the longer one counts. What may still become a word is held back.
        """
        while True:
            found = _any_of(words).search(self._text, self._at)
            if found is not None:
                self._pass_on(found.start(), emit)
                self._at = found.end()
                return found.group()
            self._pass_on(len(self._text) if self._ended else self._begin_of_word(words), emit)
            if self._ended:
                return None
            yield

    def json_object(self, emit: Emit) -> Steps[bool]:
        """Pass on an object or array, which comes next, up to the bracket that closes it; return False when the text ends before."""
        depth = 0
        in_string = escaped = closed = False
        place = self._at
        while True:
            while place < len(self._text):
                if escaped:
                    escaped = False
                    place += 1
                    continue
                match = _BRACKETS_AND_QUOTES.search(self._text, place)
                if match is None:
                    place = len(self._text)
                    break
                place = match.end()
                character = match.group()
                if in_string:
                    escaped = character == "\\"
                    in_string = character != '"'
                elif character == '"':
                    in_string = True
                elif character in "{[":
                    depth += 1
                elif character in "}]":
                    depth -= 1
                    closed = depth == 0
                    if closed:
                        break
            if self._hold is not None and place - self._hold > MAX_HELD:
                raise NotACall
            self._pass_on(place, emit)
            if closed:
                return True
            if self._ended:
                return False
            seen = place - (self._at if self._hold is None else self._hold)
            yield
            place = (self._at if self._hold is None else self._hold) + seen

    def json_string(self) -> Steps[str]:
        """Return the string whose JSON literal comes next. Raises NotACall."""
        literal = yield from self.take()
        if literal != '"':
            raise NotACall
        while True:
            character = yield from self.take()
            literal += character
            if character == "\\":
                literal += yield from self.take()
            elif character == '"':
                break
            elif not character:
                raise NotACall
        try:
            text: str = json.loads(literal)
        except ValueError:
            raise NotACall from None
        return text.encode("utf-8", "replace").decode()  # an escape may make half a surrogate pair

    def _pass_on(self, end: int, emit: Emit) -> None:
        if end > self._at:
            emit(self._text[self._at : end])
            self._at = end

    def _begin_of_word(self, words: tuple[str, ...]) -> int:
        """Return where the longest end of the text begins that may become one of `words`."""
        longest = max(map(len, words), default=0)
        for start in range(max(self._at, len(self._text) - longest + 1), len(self._text)):
            tail = self._text[start:]
            if any(word.startswith(tail) for word in words):
                return start
        return len(self._text)


@functools.lru_cache(maxsize=256)
def _any_of(words: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, sorted(words, key=len, reverse=True))) or r"(?!)")
