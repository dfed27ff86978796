"""A model's vocabulary as one value, whether it came as tokenizer.json or inside a GGUF file.

`encoder` knows nothing of added tokens (control tokens and those that the makers added by hand): it can only cut and
merge plain text. Finding added tokens is the affair of `tokenizer.py`, which therefore decides alone where text may
name one. `inner_encoder` differs where a vocabulary puts a space before the first word of a text, but not of a later run.

A token is *special* when its makers say so (it is left out of decoded text), and *control* when plain text must never
yield it: the special ones, and those written like a marker (<|...|>), which some makers forget to flag.
Sources: the GGUF specification (tokenizer.ggml.*), tokenizer.json as the `tokenizers` library writes it,
SentencePiece (Kudo 2018) for byte fallback and the meaning of scores.
"""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Iterable
from typing import Any

import msgspec
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Encoder
from tokenizers.decoders import Decoder
from tokenizers.normalizers import Normalizer
from tokenizers.pre_tokenizers import PreTokenizer

from octavo.errors import ModelError
from octavo.specs.text import GGUFVocabulary
from octavo.text.pretokenizers import recipe

MAX_VOCAB = 1_000_000
MAX_MERGES = 2_000_000
MAX_ADDED = 100_000

SPACE = "▁"  # how SentencePiece writes a space
_MARKER = re.compile(r"<[|｜].+[|｜]>", re.DOTALL)
_UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = 2, 3, 4, 5, 6  # tokenizer.ggml.token_type


class Spelling(enum.Enum):
    """How token text stands for bytes: GPT-2's byte alphabet, SentencePiece with <0xNN>, or only the decoder knows."""

    BYTE_LEVEL = "byte_level"
    BYTE_FALLBACK = "byte_fallback"
    OTHER = "other"


class AddedToken(msgspec.Struct, frozen=True):
    """A token that is found in text as it stands, before any cutting; `strips_*`: it swallows the spaces beside it."""

    id: int
    text: str
    special: bool
    strips_left: bool = False
    strips_right: bool = False

    @property
    def is_control(self) -> bool:
        return self.special or _MARKER.fullmatch(self.text) is not None


class Vocabulary(msgspec.Struct, frozen=True):
    """`size` counts ids, `longest_token` bytes. `drops_first_space`: decoded text loses one leading space.

    `prefix_ids` and `suffix_ids` are what the file itself puts around a text, `pair_ids` between two that are read together;
    `second_type` is the second one's segment. `unknown_id` stands for text that has no token. `decoder` is there only for
    Spelling.OTHER: the file's own way back to text.
    """

    encoder: Encoder
    inner_encoder: Encoder
    added: tuple[AddedToken, ...]
    size: int
    longest_token: int
    spelling: Spelling
    drops_first_space: bool = False
    prefix_ids: tuple[int, ...] = ()
    suffix_ids: tuple[int, ...] = ()
    pair_ids: tuple[int, ...] = ()
    second_type: int = 0
    unknown_id: int | None = None
    decoder: Encoder | None = None

    @property
    def composes(self) -> bool:
        """Whether text may get shorter before it is cut (a Unicode normal form, at most to a third)."""
        return self.encoder.normalizer is not None and self.spelling is not Spelling.BYTE_FALLBACK


def from_tokenizer_json(data: bytes) -> Vocabulary:
    """Return the vocabulary of a tokenizer.json file; raises ModelError when it cannot be read or is too large."""
    try:
        source = Encoder.from_buffer(data)
    except Exception as error:  # the library raises bare Exception
        raise ModelError(f"tokenizer.json cannot be read: {str(error)[:200]}") from error
    added = tuple(
        AddedToken(token_id, token.content, token.special, token.lstrip, token.rstrip)
        for token_id, token in source.get_added_tokens_decoder().items()
        if token.content
    )
    size = max(source.get_vocab_size(), *(token.id + 1 for token in added), 0)
    _check_sizes(size, 0, len(added))
    source.no_truncation()
    source.no_padding()
    spelling, drops_first_space = _spelling_of(source)
    around = source.encode("a", add_special_tokens=True).ids
    inside = source.encode("a", add_special_tokens=False).ids
    prefix_length = next((i for i in range(len(around)) if around[i : i + len(inside)] == inside), 0)
    pair_ids, second_type = _between_two(source, inside, prefix_length)
    return Vocabulary(
        encoder=_without_added_tokens(source),
        inner_encoder=_without_added_tokens(source, prefix_space=False),
        added=added,
        size=size,
        longest_token=_longest_token((*source.get_vocab(), *(token.text for token in added)), spelling),
        spelling=spelling,
        drops_first_space=drops_first_space,
        prefix_ids=tuple(around[:prefix_length]),
        suffix_ids=tuple(around[prefix_length + len(inside) :]),
        pair_ids=pair_ids,
        second_type=second_type,
        unknown_id=source.token_to_id(source.model.unk_token) if isinstance(source.model, models.WordPiece) else None,
        decoder=source if spelling is Spelling.OTHER else None,
    )


def _between_two(source: Encoder, inside: list[int], prefix_length: int) -> tuple[tuple[int, ...], int]:
    """Return what the file puts between two texts, and the segment of the second; `inside` are the ids of "a" alone."""
    pair = source.encode("a", "a", add_special_tokens=True)
    first_end = prefix_length + len(inside)
    second = next((i for i in range(first_end, len(pair.ids)) if pair.ids[i : i + len(inside)] == inside), first_end)
    return tuple(pair.ids[first_end:second]), pair.type_ids[second] if second < len(pair.ids) else 0


def from_gguf(vocabulary: GGUFVocabulary) -> Vocabulary:
    """Return the vocabulary that GGUF metadata tells; raises ModelError when it does not hold together."""
    builders = {"gpt2": _byte_level_encoder, "llama": _sentencepiece_encoder}
    build = builders.get(vocabulary.model)
    if build is None:
        raise ModelError(f"the model's tokenizer is of kind {vocabulary.model!r}; known kinds: {', '.join(builders)}")
    size = len(vocabulary.tokens)
    if len(vocabulary.token_types) not in (0, size):
        raise ModelError(f"the model's tokenizer has {size:,} tokens, but {len(vocabulary.token_types):,} token types")
    added = tuple(
        AddedToken(token_id, vocabulary.tokens[token_id], special=kind != _USER_DEFINED)
        for token_id, kind in enumerate(vocabulary.token_types)
        if kind in (_UNKNOWN, _CONTROL, _USER_DEFINED) and vocabulary.tokens[token_id]
    )
    _check_sizes(size, len(vocabulary.merges), len(added))
    try:
        encoder = build(vocabulary)
    except ModelError:
        raise
    except Exception as error:  # the library raises bare Exception
        raise ModelError(f"the model's tokenizer cannot be built: {str(error)[:200]}") from error
    sentencepiece = vocabulary.model == "llama"
    spelling = Spelling.BYTE_FALLBACK if sentencepiece else Spelling.BYTE_LEVEL
    return Vocabulary(
        encoder=encoder,
        inner_encoder=encoder,  # every run between control tokens begins a word, as SentencePiece models were trained
        added=added,
        size=size,
        longest_token=_longest_token(vocabulary.tokens, spelling),
        spelling=spelling,
        drops_first_space=sentencepiece and vocabulary.add_space_prefix,
    )


def _check_sizes(tokens: int, merges: int, added: int) -> None:
    for what, count, limit in (("tokens", tokens, MAX_VOCAB), ("merges", merges, MAX_MERGES), ("added tokens", added, MAX_ADDED)):
        if count > limit:
            raise ModelError(f"the model's tokenizer has {count:,} {what}; the limit is {limit:,}")
    if tokens == 0:
        raise ModelError("the model's tokenizer has no tokens")


def _byte_level_encoder(vocabulary: GGUFVocabulary) -> Encoder:
    plan = recipe(vocabulary.pre)
    encoder = Encoder(models.BPE(_ids(vocabulary.tokens), _pairs(vocabulary.merges), ignore_merges=plan.ignore_merges))
    if plan.nfc:
        encoder.normalizer = normalizers.NFC()
    encoder.pre_tokenizer = plan.pre_tokenizer()
    encoder.decoder = decoders.ByteLevel()
    return encoder


def _sentencepiece_encoder(vocabulary: GGUFVocabulary) -> Encoder:
    ids = _ids(vocabulary.tokens)
    unknown = vocabulary.tokens[vocabulary.unknown_token_id] if vocabulary.unknown_token_id is not None else None
    merges = _pairs(vocabulary.merges) if vocabulary.merges else _merges_by_score(vocabulary)
    encoder = Encoder(models.BPE(ids, merges, unk_token=unknown, fuse_unk=True, byte_fallback=True))
    spaces = normalizers.Replace(" ", SPACE)
    encoder.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), spaces]) if vocabulary.add_space_prefix else spaces
    if not any(SPACE in token.lstrip(SPACE) for token in vocabulary.tokens):
        # No token spans two words, so cutting before each word changes no result and lets the library cache words.
        encoder.pre_tokenizer = pre_tokenizers.Split(Regex(f"{SPACE}*[^{SPACE}]+|{SPACE}+"), behavior="isolated")
    return encoder


def _merges_by_score(vocabulary: GGUFVocabulary) -> list[tuple[str, str]]:
    """Return the merges that make every normal token, best score first, ties by id.

    SentencePiece joins the neighbours whose union scores best: BPE whose merges are ranked by the union's score.
    Control, byte and unused tokens are no unions of text, so text cannot be merged into them.
    """
    if len(vocabulary.scores) != len(vocabulary.tokens):
        raise ModelError(f"the model's tokenizer has {len(vocabulary.tokens):,} tokens, but {len(vocabulary.scores):,} scores")
    no_text = {_UNKNOWN, _CONTROL, _UNUSED, _BYTE}
    kinds = vocabulary.token_types or (1,) * len(vocabulary.tokens)
    texts = {token for token, kind in zip(vocabulary.tokens, kinds, strict=True) if kind not in no_text}
    ranked = sorted(range(len(vocabulary.tokens)), key=lambda token_id: -vocabulary.scores[token_id])
    merges = []
    for token_id in ranked:
        token = vocabulary.tokens[token_id]
        if token in texts:
            cuts = range(1, len(token))
            merges += [(left, right) for cut in cuts if (left := token[:cut]) in texts and (right := token[cut:]) in texts]
    return merges


def _longest_token(texts: Iterable[str], spelling: Spelling) -> int:
    if spelling is Spelling.BYTE_LEVEL:  # one character, one byte
        return max(map(len, texts))
    return max(len(text.encode()) for text in texts)


def _ids(tokens: tuple[str, ...]) -> dict[str, int]:
    """Return token -> id; of equal tokens the first has the name."""
    return dict(zip(reversed(tokens), range(len(tokens) - 1, -1, -1), strict=True))


def _pairs(merges: Iterable[str]) -> list[tuple[str, str]]:
    pairs = [tuple(merge.split(" ", 1)) for merge in merges]
    if any(len(pair) != 2 for pair in pairs):
        raise ModelError("the model's tokenizer has a merge that is no pair of tokens")
    return pairs  # type: ignore[return-value]  # every tuple was just seen to be a pair


def _without_added_tokens(source: Encoder, *, prefix_space: bool = True) -> Encoder:
    """Return an encoder over the same model (shared, not copied) that knows no added tokens."""
    encoder = Encoder(source.model)
    if source.normalizer is not None:
        encoder.normalizer = source.normalizer
    if source.pre_tokenizer is not None:
        encoder.pre_tokenizer = source.pre_tokenizer
        settings = _settings(source.pre_tokenizer)
        if not prefix_space and settings["type"] == "Metaspace" and settings["prepend_scheme"] == "first":
            encoder.pre_tokenizer = pre_tokenizers.Metaspace(settings["replacement"], "never", settings["split"])
    return encoder


def _spelling_of(source: Encoder) -> tuple[Spelling, bool]:
    """Return how the decoder reads token text, and whether it drops the first space."""
    if source.decoder is None:
        return Spelling.OTHER, False
    settings = _settings(source.decoder)
    steps = settings["decoders"] if settings["type"] == "Sequence" else [settings]
    kinds = [step["type"] for step in steps]
    if kinds == ["ByteLevel"]:
        return Spelling.BYTE_LEVEL, False
    if kinds[:3] == ["Replace", "ByteFallback", "Fuse"] and steps[0]["pattern"] == {"String": SPACE} and steps[0]["content"] == " ":
        if len(steps) == 3:
            return Spelling.BYTE_FALLBACK, False
        if len(steps) == 4 and steps[3] == {"type": "Strip", "content": " ", "start": 1, "stop": 0}:
            return Spelling.BYTE_FALLBACK, True
    return Spelling.OTHER, False


def _settings(part: Normalizer | PreTokenizer | Decoder) -> dict[str, Any]:
    """Return the settings of one part of the library's pipeline, as its own JSON tells them."""
    settings: dict[str, Any] = json.loads(part.__getstate__())
    return settings
