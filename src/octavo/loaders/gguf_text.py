"""What the metadata of a GGUF file says of text: vocabulary, chat template, where answers end, how to sample.

Source: ggml's docs/gguf.md for the keys.
"""

from __future__ import annotations

from octavo.errors import ModelError
from octavo.loaders.endings import check_sampling, turn_end_ids, unique_ids
from octavo.loaders.fields import Fields
from octavo.loaders.gguf import GGUFFile, StringArray
from octavo.specs.text import GenerationDefaults, GGUFVocabulary, TextAssets

MAX_VOCABULARY = 1_000_000
MAX_MERGES = 2_000_000

_VOCABULARIES = {"gpt2": "gpt2", "llama": "llama"}
_LLAMA3_PRES = ("llama3", "llama-v3", "llama-bpe")
_NORMAL, _CONTROL = 1, 3


def read_gguf_text(file: GGUFFile) -> TextAssets:
    """Return the vocabulary, the chat template and the special ids. Raises ModelError."""
    metadata = Fields(file.name, file.metadata)
    vocabulary = _vocabulary(file, metadata)
    defaults = read_gguf_generation(file)
    adds_bos = vocabulary.model == "llama" or vocabulary.pre in _LLAMA3_PRES
    return TextAssets(
        tokenizer_json=None,
        gguf_vocabulary=vocabulary,
        chat_template=metadata.text("tokenizer.chat_template", None),
        bos_token_id=defaults.bos_token_id,
        eos_token_ids=defaults.eos_token_ids,
        add_bos=defaults.bos_token_id is not None and metadata.boolean("tokenizer.ggml.add_bos_token", adds_bos),
        add_eos=bool(defaults.eos_token_ids) and metadata.boolean("tokenizer.ggml.add_eos_token", False),
    )


def read_gguf_generation(file: GGUFFile) -> GenerationDefaults:
    """Return where answers end and the sampling defaults of general.sampling.*. Raises ModelError."""
    metadata = Fields(file.name, file.metadata)
    metadata.require("tokenizer.ggml.tokens")
    tokens = _string_array(file, "tokenizer.ggml.tokens", MAX_VOCABULARY)
    size = len(tokens)
    control_ids = {token_id for token_id, kind in enumerate(_token_types(file, size)) if kind == _CONTROL}
    control = {token: token_id for token_id, token in tokens.pick(control_ids).items()}
    named = [token_id for name in ("eos", "eot", "eom") if (token_id := _token_id(metadata, name, size)) is not None]
    sampling = {
        "temperature": metadata.number("general.sampling.temp", None),
        "top_k": metadata.integer("general.sampling.top_k", None),
        "top_p": metadata.number("general.sampling.top_p", None),
        "min_p": metadata.number("general.sampling.min_p", None),
        "repetition_penalty": metadata.number("general.sampling.penalty_repeat", None),
    }
    return GenerationDefaults(
        bos_token_id=_token_id(metadata, "bos", size),
        eos_token_ids=unique_ids(named, turn_end_ids(metadata.text("tokenizer.chat_template", None), control)),
        **check_sampling(metadata.source, sampling),
    )


def _vocabulary(file: GGUFFile, metadata: Fields) -> GGUFVocabulary:
    metadata.require("tokenizer.ggml.model", "tokenizer.ggml.tokens")
    tokens = _string_array(file, "tokenizer.ggml.tokens", MAX_VOCABULARY).decode()
    merges = _string_array(file, "tokenizer.ggml.merges", MAX_MERGES).decode() if "tokenizer.ggml.merges" in file.metadata else ()
    return GGUFVocabulary(
        model=metadata.choice("tokenizer.ggml.model", "", _VOCABULARIES),
        pre=metadata.text("tokenizer.ggml.pre", "default"),
        tokens=tokens,
        scores=_numbers(file, "tokenizer.ggml.scores", "f", len(tokens)) or (0.0,) * len(tokens),
        token_types=_token_types(file, len(tokens)),
        merges=merges,
        unknown_token_id=_token_id(metadata, "unknown", len(tokens)),
        add_space_prefix=metadata.boolean("tokenizer.ggml.add_space_prefix", True),
    )


def _token_types(file: GGUFFile, count: int) -> tuple[int, ...]:
    return _numbers(file, "tokenizer.ggml.token_type", "i", count) or (_NORMAL,) * count


def _string_array(file: GGUFFile, key: str, limit: int) -> StringArray:
    value = file.metadata[key]
    if not isinstance(value, StringArray) or len(value) > limit:
        raise ModelError(f"{file.name}: {key} must be an array of at most {limit:,} strings")
    return value


def _numbers(file: GGUFFile, key: str, letter: str, count: int) -> tuple[int, ...]:
    """Return an array of `count` numbers of type `letter`; () when it is absent."""
    value = file.metadata.get(key)
    if value is None:
        return ()
    if not isinstance(value, memoryview) or value.format != letter or len(value) != count:
        raise ModelError(f"{file.name}: {key} must be an array of {count:,} {'float32' if letter == 'f' else 'int32'} values, one a token")
    return tuple(value)


def _token_id(metadata: Fields, name: str, vocab_size: int) -> int | None:
    token_id = metadata.integer(f"tokenizer.ggml.{name}_token_id", None)
    if token_id is not None and not 0 <= token_id < vocab_size:
        raise ModelError(f"{metadata.source}: tokenizer.ggml.{name}_token_id is {token_id:,}; the vocabulary has {vocab_size:,} tokens")
    return token_id
