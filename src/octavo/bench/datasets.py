"""What a load test sends: sessions of turns, from random words, from files, or from a trace. Knows no server and no clock.

A session is one user: its turns follow each other, each sent with all that was said before. Most workloads have sessions
of one turn. Prompts are drawn from a seed, so that two runs can send the same ones or, with another seed, none in common:
a prefix cache then helps only where the workload shares prefixes on purpose.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from octavo.errors import ConfigError

MAX_FILE_LINES = 1_000_000
_WORD = re.compile(r" [a-z]{2,12}")


class TextCounter(Hashable, Protocol):
    """What prompts are measured with: text.tokenizer.Tokenizer."""

    @property
    def vocab_size(self) -> int: ...
    def encode(self, text: str, *, add_special_tokens: bool = ...) -> list[int]: ...
    def decode(self, ids: list[int]) -> str: ...


@dataclass(frozen=True)
class Turn:
    """One question. `input_len` counts its own tokens, not those said before; `output_len` is how many are asked for."""

    prompt: str
    input_len: int
    output_len: int


@dataclass(frozen=True)
class Session:
    """`arrival_s`: seconds after the start at which a trace has it come, else None."""

    turns: tuple[Turn, ...]
    arrival_s: float | None = None


@dataclass(frozen=True)
class Lengths:
    """Tokens of prompt and answer; each is drawn from length * (1 - ratio) .. length * (1 + ratio)."""

    input_len: int
    output_len: int
    range_ratio: float = 0.0

    def draw(self, rng: random.Random) -> tuple[int, int]:
        return self._around(self.input_len, rng), self._around(self.output_len, rng)

    def _around(self, length: int, rng: random.Random) -> int:
        return max(1, rng.randint(int(length * (1 - self.range_ratio)), round(length * (1 + self.range_ratio))))


def random_sessions(count: int, lengths: Lengths, prefix_len: int, counter: TextCounter, rng: random.Random) -> list[Session]:
    """Return `count` prompts of random words; all begin with the same `prefix_len` tokens."""
    prefix = _words(prefix_len, counter, rng)
    sessions = []
    for _ in range(count):
        input_len, output_len = lengths.draw(rng)
        sessions.append(Session((_turn(prefix + _words(input_len, counter, rng), output_len, counter),)))
    return sessions


def shared_prefix_sessions(
    count: int, lengths: Lengths, prefix_len: int, num_prefixes: int, counter: TextCounter, rng: random.Random
) -> list[Session]:
    """Return `count` prompts, each one of `num_prefixes` prefixes of `prefix_len` tokens and then words of its own, in random order."""
    prefixes = [_words(prefix_len, counter, rng) for _ in range(num_prefixes)]
    sessions = []
    for index in range(count):
        input_len, output_len = lengths.draw(rng)
        sessions.append(Session((_turn(prefixes[index % num_prefixes] + _words(input_len, counter, rng), output_len, counter),)))
    rng.shuffle(sessions)
    return sessions


def multi_turn_sessions(count: int, lengths: Lengths, num_turns: int, counter: TextCounter, rng: random.Random) -> list[Session]:
    """Return `count` users who each ask `num_turns` questions; the server sees the whole talk every time."""
    sessions = []
    for _ in range(count):
        drawn = [lengths.draw(rng) for _ in range(num_turns)]
        sessions.append(Session(tuple(_turn(_words(input_len, counter, rng), output_len, counter) for input_len, output_len in drawn)))
    return sessions


def file_sessions(path: Path, count: int, output_len: int, counter: TextCounter, rng: random.Random) -> list[Session]:
    """Return `count` sessions drawn from a JSON or JSON Lines file, each of its lines used equally often.

    A line is {"prompt": text, "output_tokens": n?} or ShareGPT's {"conversations": [{"from": "human"|"gpt", "value": text}, ...]};
    of a conversation the human's texts are sent, and as many tokens asked for as the recorded answer has. Raises ConfigError.
    """
    turns_of = [tuple(_turns(record, output_len, counter)) for record in _records(path)]
    usable = [turns for turns in turns_of if turns]
    if not usable:
        raise ConfigError(f"{path.name} holds no line with a prompt or a conversation")
    rng.shuffle(usable)
    return [Session(usable[index % len(usable)]) for index in range(count)]


def trace_sessions(path: Path, counter: TextCounter, rng: random.Random) -> list[Session]:
    """Return one session for each line {"timestamp": seconds, "input_length": n, "output_length": n, "prompt": text?} of a trace."""
    sessions = []
    for record in _records(path):
        try:
            arrival_s, input_len, output_len = float(record["timestamp"]), int(record["input_length"]), int(record["output_length"])
        except (KeyError, TypeError, ValueError):
            raise ConfigError(f'a line of {path.name} lacks numbers for "timestamp", "input_length" and "output_length"') from None
        if arrival_s < 0 or input_len < 1 or output_len < 1:
            raise ConfigError(f"a line of {path.name} has timestamp {arrival_s:g}, input_length {input_len}, output_length {output_len}")
        prompt = record.get("prompt") or _words(input_len, counter, rng)
        sessions.append(Session((_turn(prompt, output_len, counter),), arrival_s))
    first_s = min((session.arrival_s or 0.0 for session in sessions), default=0.0)
    return sorted(
        (Session(session.turns, (session.arrival_s or 0.0) - first_s) for session in sessions), key=lambda each: each.arrival_s or 0
    )


def _turn(prompt: str, output_len: int, counter: TextCounter) -> Turn:
    return Turn(prompt, len(counter.encode(prompt, add_special_tokens=False)), output_len)


def _words(num_tokens: int, counter: TextCounter, rng: random.Random) -> str:
    """Return random words of the vocabulary, exactly `num_tokens` tokens of them."""
    if num_tokens == 0:
        return ""
    words = _vocabulary_words(counter)
    while True:
        text = "".join(rng.choices(words, k=num_tokens))
        text = counter.decode(counter.encode(text, add_special_tokens=False)[:num_tokens])
        if len(counter.encode(text, add_special_tokens=False)) == num_tokens:
            return text


@cache
def _vocabulary_words(counter: TextCounter) -> list[str]:
    """Return the tokens that are a space and a lower-case word: they stay what they are whatever stands beside them."""
    texts = (counter.decode([token_id]) for token_id in range(counter.vocab_size))
    words = [text for text in texts if _WORD.fullmatch(text)]
    if not words:
        raise ConfigError("this tokenizer has no tokens that are words; give --dataset-name custom and a file")
    return words


def _records(path: Path) -> Iterator[dict[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    try:
        records = json.loads(text) if text.lstrip().startswith("[") else [json.loads(line) for line in text.splitlines() if line.strip()]
    except (json.JSONDecodeError, RecursionError) as error:
        raise ConfigError(f"{path.name} is neither JSON nor JSON Lines: {error}") from None
    if len(records) > MAX_FILE_LINES:
        raise ConfigError(f"{path.name} has {len(records):,} lines; the limit is {MAX_FILE_LINES:,}")
    for record in records:
        if not isinstance(record, dict):
            raise ConfigError(f"{path.name} holds a {type(record).__name__} where an object belongs")
        yield record


def _turns(record: dict[str, Any], output_len: int, counter: TextCounter) -> Iterator[Turn]:
    if isinstance(prompt := record.get("prompt"), str) and prompt:
        yield _turn(prompt, int(record.get("output_tokens") or output_len), counter)
        return
    talk = record.get("conversations") or []
    for question, answer in zip(talk[::2], talk[1::2], strict=False):
        if question.get("from") in ("human", "user") and question.get("value") and answer.get("value"):
            num_answer = len(counter.encode(answer["value"], add_special_tokens=False))
            yield _turn(question["value"], max(1, num_answer), counter)


DATASETS: dict[str, str] = {
    "random": "random words, all prompts with a common prefix of --random-prefix-len tokens",
    "prefix_repetition": "random words behind one of --prefix-repetition-num-prefixes prefixes",
    "multi_turn": "users who each ask --num-turns questions, the talk growing",
    "custom": 'a JSON Lines file of {"prompt", "output_tokens"}',
    "sharegpt": "a ShareGPT file of conversations",
    "timed_trace": 'a JSON Lines file of {"timestamp", "input_length", "output_length"}',
}
