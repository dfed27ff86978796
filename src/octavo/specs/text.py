"""What a model's files say of text: vocabulary, chat template, sampling defaults."""

from __future__ import annotations

from msgspec import Struct


class GenerationDefaults(Struct, frozen=True):
    """What the model's own files say of sampling and of where an answer ends."""

    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None


class GGUFVocabulary(Struct, frozen=True):
    """The tokenizer as GGUF metadata tells it (tokenizer.ggml.*). `model`: gpt2 (byte-level BPE) | llama (SentencePiece).

    `token_types`: 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte. `pre` names the pre-tokenizer of gpt2.
    """

    model: str
    pre: str
    tokens: tuple[str, ...]
    scores: tuple[float, ...]
    token_types: tuple[int, ...]
    merges: tuple[str, ...]
    unknown_token_id: int | None = None
    add_space_prefix: bool = True


class TextAssets(Struct, frozen=True):
    """What turns text into token ids: tokenizer.json's bytes or a GGUF vocabulary (one of the two), and the chat template.

    `add_bos` / `add_eos`: put around plain prompts (not around a rendered chat template, which brings its own).
    """

    tokenizer_json: bytes | None
    gguf_vocabulary: GGUFVocabulary | None
    chat_template: str | None
    bos_token_id: int | None
    eos_token_ids: tuple[int, ...]
    add_bos: bool
    add_eos: bool = False
