"""`Tokenizer`: text to token ids and back.

Text is plain unless the caller says otherwise: written in a prompt, the name of a control token is encoded letter by
letter, so no user can forge the marks that separate roles. The invariant, held by construction and checked on every
encoding: plain text yields no control token, but for the one that stands for text without a token.

Immutable after building, so any number of threads may encode at once; the library lets go of the interpreter lock.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cached_property

from octavo.errors import ModelError
from octavo.specs.text import TextAssets
from octavo.text.vocabulary import SPACE, AddedToken, Spelling, Vocabulary, from_gguf, from_tokenizer_json

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def _byte_alphabet() -> dict[str, int]:
    """Return GPT-2's alphabet, character -> byte: printable bytes stand for themselves, the rest follow from U+0100."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = {chr(byte): byte for byte in printable}
    others = [byte for byte in range(256) if byte not in set(printable)]
    return alphabet | {chr(0x100 + i): byte for i, byte in enumerate(others)}


_ALPHABET = _byte_alphabet()
_LETTERS = {byte: letter for letter, byte in _ALPHABET.items()}


class Tokenizer:
    """`control_tokens` maps the text of each control token to its id. `bos_token_id` may be None; `eos_token_ids` empty."""

    def __init__(self, vocabulary: Vocabulary, *, bos_token_id: int | None, eos_token_ids: Sequence[int], add_bos: bool, add_eos: bool):
        for token_id in (bos_token_id, *eos_token_ids):
            if token_id is not None and not 0 <= token_id < vocabulary.size:
                raise ModelError(f"the model begins or ends text with token {token_id}, but its tokenizer has {vocabulary.size:,} tokens")
        self._vocabulary = vocabulary
        self._added = {token.id: token for token in vocabulary.added}
        self._special_ids = frozenset(token.id for token in vocabulary.added if token.special)
        self._bytes: dict[int, bytes] = {}  # filled as tokens are met; two threads would write the same value
        self.bos_token_id = bos_token_id
        self.eos_token_ids = tuple(eos_token_ids)
        self.control_tokens = {token.text: token.id for token in vocabulary.added if token.is_control}
        self._control_ids = frozenset(self.control_tokens.values()) - {vocabulary.unknown_id}
        self._prefix = vocabulary.prefix_ids or ((bos_token_id,) if add_bos and bos_token_id is not None else ())
        self._suffix = vocabulary.suffix_ids or (self.eos_token_ids[:1] if add_eos else ())

    @classmethod
    def from_assets(cls, assets: TextAssets) -> Tokenizer:
        """Return the tokenizer of a model; raises ModelError when its files do not hold one that works."""
        if assets.tokenizer_json is not None:
            vocabulary = from_tokenizer_json(assets.tokenizer_json)
        elif assets.gguf_vocabulary is not None:
            vocabulary = from_gguf(assets.gguf_vocabulary)
        else:
            raise ModelError("the model has no tokenizer: neither tokenizer.json nor tokenizer.ggml.* metadata")
        return cls(
            vocabulary,
            bos_token_id=assets.bos_token_id,
            eos_token_ids=assets.eos_token_ids,
            add_bos=assets.add_bos,
            add_eos=assets.add_eos,
        )

    @property
    def vocab_size(self) -> int:
        return self._vocabulary.size

    @property
    def spelling(self) -> Spelling:
        return self._vocabulary.spelling

    @property
    def drops_first_space(self) -> bool:
        """Whether decoded text loses one leading space, which encoding put there."""
        return self._vocabulary.drops_first_space

    def is_special(self, token_id: int) -> bool:
        return token_id in self._special_ids

    def encode(self, text: str, *, add_special_tokens: bool = True, parse_special: bool = False) -> list[int]:
        """Return the ids of `text`, with the model's begin and end tokens around it unless told otherwise.

        `parse_special` is for text that the operator wrote: there the names of control tokens mean the tokens.
        A text that begins with its own begin token gets no second one. Lone surrogates become U+FFFD.
        """
        ids = self.encode_segments(self._split(text, self._any_added) if parse_special else [text])
        return self.with_special_tokens(ids) if add_special_tokens else ids

    def with_special_tokens(self, ids: list[int]) -> list[int]:
        """Return `ids` between the model's begin and end tokens; a begin token that stands there already is not doubled."""
        prefix = () if tuple(ids[: len(self._prefix)]) == self._prefix else self._prefix
        return [*prefix, *ids, *self._suffix]

    def encode_pair(self, first: str, second: str) -> tuple[list[int], int]:
        """Return the ids of two plain texts that a model reads together, and the index at which the second one's segment begins
        (the number of ids where segments are not told apart)."""
        head = [*self._prefix, *self.encode_segments([first]), *self._vocabulary.pair_ids]
        ids = [*head, *self.encode_segments([second]), *self._suffix]
        return ids, len(head) if self._vocabulary.second_type else len(ids)

    def truncate(self, ids: list[int], length: int) -> list[int]:
        """Return the first `length` of `ids`, of which the last are the model's end tokens if they were: [CLS] ... [SEP]."""
        if len(ids) <= length:
            return ids
        tail = list(self._suffix) if self._suffix and tuple(ids[-len(self._suffix) :]) == self._suffix else []
        return [*ids[: length - len(tail)], *tail] if len(tail) < length else ids[:length]

    def encode_segments(self, segments: Iterable[str | int]) -> list[int]:
        """Return the ids of plain text runs (str) and tokens already known (int), in order.

        A run is cut and merged as one text; runs on either side of a token do not see each other.
        """
        pieces: list[str | int] = []
        for segment in segments:
            pieces += [segment] if isinstance(segment, int) else self._split(segment, self._plain_added)
        ids: list[int] = []
        for i, piece in enumerate(pieces):
            if isinstance(piece, int):
                ids.append(piece)
                continue
            run = piece
            if i > 0 and self._strips(pieces[i - 1], right=True):
                run = run.lstrip()
            if i + 1 < len(pieces) and self._strips(pieces[i + 1], right=False):
                run = run.rstrip()
            if run:
                ids += self._encode_run(run, is_first=i == 0)
        return ids

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """Return the text of `ids`. Bytes that are no UTF-8 become U+FFFD; ids outside the vocabulary stand for nothing."""
        kept = [token_id for token_id in ids if not (skip_special_tokens and token_id in self._special_ids)]
        if self._vocabulary.decoder is not None:
            known = [token_id for token_id in kept if 0 <= token_id < self.vocab_size]
            return self._vocabulary.decoder.decode(known, skip_special_tokens=False)
        text = b"".join(map(self.token_bytes, kept)).decode("utf-8", "replace")
        return text[1:] if self.drops_first_space and text.startswith(" ") else text

    def token_text(self, token_id: int) -> str:
        """Return the token as the vocabulary writes it; empty for an id outside."""
        added = self._added.get(token_id)
        if added is not None:
            return added.text
        if not 0 <= token_id < self.vocab_size:
            return ""
        return self._vocabulary.encoder.id_to_token(token_id) or ""

    def token_bytes(self, token_id: int) -> bytes:
        """Return the bytes that the token stands for (not always whole characters); a special token's are its name's."""
        known = self._bytes.get(token_id)
        if known is None:
            known = self._bytes[token_id] = self._read_bytes(token_id)
        return known

    def shown_bytes(self, token_id: int) -> bytes:
        """Return the same, but nothing for a special token."""
        return b"" if token_id in self._special_ids else self.token_bytes(token_id)

    def min_tokens(self, text: str) -> int:
        """Return a number of tokens that `text` surely takes, in little time: its bytes over those of the longest token.

        It holds for text that the vocabulary can spell; bytes that the model has no token for take none.
        """
        num_bytes = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
        return num_bytes // (self._vocabulary.longest_token * (3 if self._vocabulary.composes else 1))

    @cached_property
    def _any_added(self) -> re.Pattern[str] | None:
        return _matcher(self._vocabulary.added)

    @cached_property
    def _plain_added(self) -> re.Pattern[str] | None:
        return _matcher([token for token in self._vocabulary.added if not token.is_control])

    @cached_property
    def _added_ids(self) -> dict[str, int]:
        return {token.text: token.id for token in self._vocabulary.added}

    def _split(self, text: str, pattern: re.Pattern[str] | None) -> list[str | int]:
        """Return `text` cut into runs (never empty) and the tokens that `pattern` finds between them."""
        if pattern is None:
            return [text] if text else []
        pieces: list[str | int] = []
        end = 0
        for match in pattern.finditer(text):
            if match.start() > end:
                pieces.append(text[end : match.start()])
            pieces.append(self._added_ids[match.group()])
            end = match.end()
        if end < len(text):
            pieces.append(text[end:])
        return pieces

    def _strips(self, neighbour: str | int, *, right: bool) -> bool:
        token = self._added.get(neighbour) if isinstance(neighbour, int) else None
        return token is not None and (token.strips_right if right else token.strips_left)

    def _encode_run(self, text: str, *, is_first: bool) -> list[int]:
        encoder = self._vocabulary.encoder if is_first else self._vocabulary.inner_encoder
        if not text.isascii():
            text = _LONE_SURROGATE.sub("\ufffd", text)
        # The batch call, even for one text: unlike encode() it lets go of the interpreter lock and computes no offsets.
        ids: list[int] = encoder.encode_batch_fast([text], add_special_tokens=False)[0].ids
        if self._control_ids.isdisjoint(ids):
            return ids
        return [part for token_id in ids for part in (self._spell(token_id) if token_id in self._control_ids else (token_id,))]

    def _spell(self, token_id: int) -> list[int]:
        """Return the ids of a control token's name letter by letter (merges of some vocabularies lead to the whole name)."""
        find = self._vocabulary.encoder.token_to_id
        text = self._added[token_id].text
        if self.spelling is Spelling.BYTE_LEVEL:
            letters = [find(_LETTERS[byte]) for byte in text.encode()]
        else:
            letters = []
            for character in text:
                whole = find(character)
                letters += [whole] if whole is not None else [find(f"<0x{byte:02X}>") for byte in character.encode()]
        return [letter for letter in letters if letter is not None and letter not in self._control_ids]

    def _read_bytes(self, token_id: int) -> bytes:
        text = self.token_text(token_id)
        if token_id in self._added:
            return text.encode()
        if self.spelling is Spelling.BYTE_LEVEL:
            try:
                return bytes(map(_ALPHABET.__getitem__, text))
            except KeyError:  # not written in the byte alphabet: it stands for itself
                return text.encode()
        byte_token = _BYTE_TOKEN.fullmatch(text)
        if byte_token is not None and self.spelling is Spelling.BYTE_FALLBACK:
            return bytes.fromhex(byte_token[1])
        return text.replace(SPACE, " ").encode()


def _matcher(tokens: Sequence[AddedToken]) -> re.Pattern[str] | None:
    """Return a pattern that finds these tokens, the longest one at each place; None when there are none."""
    if not tokens:
        return None
    texts = sorted((token.text for token in tokens), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, texts)))
