"""What a Hugging Face folder says of text: tokenizer.json, the chat template, where answers end, how to sample.

All of it is read as data.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from octavo.errors import ModelError
from octavo.loaders.endings import check_sampling, turn_end_ids, unique_ids
from octavo.loaders.fields import Fields
from octavo.loaders.hf_model import MAX_JSON_BYTES, read_config
from octavo.loaders.mapped_file import read_small_file
from octavo.loaders.safetensors import parse_json
from octavo.specs.text import GenerationDefaults, TextAssets
from octavo.units import MiB

MAX_TOKENIZER_BYTES = 128 * MiB
MAX_TEMPLATE_BYTES = 1 * MiB
MAX_ADDED_TOKENS = 100_000


def read_hf_text(folder: Path) -> TextAssets:
    """Return tokenizer.json's bytes, the chat template and the special ids. Raises ModelError."""
    if not (folder / "tokenizer.json").exists():
        raise ModelError(f"{folder.name}: holds no tokenizer.json; save the model's fast tokenizer beside its weights")
    data = read_small_file(folder / "tokenizer.json", MAX_TOKENIZER_BYTES)
    tokenizer = _parse_tokenizer(data)
    settings = _optional_json(folder, "tokenizer_config.json")
    template = _chat_template(folder, settings)
    defaults = _generation_defaults(folder, template, tokenizer)
    first, last = _added_by_post_processor(tokenizer.post_processor)
    return TextAssets(
        tokenizer_json=data,
        gguf_vocabulary=None,
        chat_template=template,
        bos_token_id=defaults.bos_token_id,
        eos_token_ids=defaults.eos_token_ids,
        add_bos=defaults.bos_token_id is not None and settings.boolean("add_bos_token", first == defaults.bos_token_id),
        add_eos=bool(defaults.eos_token_ids) and settings.boolean("add_eos_token", last in defaults.eos_token_ids),
    )


def read_hf_generation(folder: Path) -> GenerationDefaults:
    """Return where answers end and the sampling defaults of generation_config.json. Raises ModelError."""
    template = _chat_template(folder, _optional_json(folder, "tokenizer_config.json"))
    tokenizer = _Tokenizer()
    if (folder / "tokenizer.json").exists():
        tokenizer = _parse_tokenizer(read_small_file(folder / "tokenizer.json", MAX_TOKENIZER_BYTES))
    return _generation_defaults(folder, template, tokenizer)


class _AddedToken(msgspec.Struct):
    id: int
    content: str
    special: bool = False


class _Tokenizer(msgspec.Struct):
    """The few fields of tokenizer.json that are needed here; the vocabulary is skipped over unread."""

    added_tokens: list[_AddedToken] = []
    post_processor: dict[str, Any] | None = None


_TOKENIZER_DECODER = msgspec.json.Decoder(_Tokenizer)


def _parse_tokenizer(data: bytes) -> _Tokenizer:
    try:
        tokenizer = _TOKENIZER_DECODER.decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise ModelError(f"tokenizer.json: {error}") from error
    if len(tokenizer.added_tokens) > MAX_ADDED_TOKENS:
        raise ModelError(f"tokenizer.json: {len(tokenizer.added_tokens):,} added tokens; at most {MAX_ADDED_TOKENS:,} are read")
    return tokenizer


def _added_by_post_processor(processor: dict[str, Any] | None) -> tuple[int | None, int | None]:
    """Return the ids that the tokenizer's template puts before and after a text."""
    steps = processor.get("processors", [processor]) if processor else []
    for step in steps if isinstance(steps, list) else []:
        if isinstance(step, dict) and step.get("type") == "TemplateProcessing" and isinstance(step.get("single"), list):
            ids = [_template_id(piece, step) for piece in step["single"]]
            if ids:
                return ids[0], ids[-1]
    return None, None


def _template_id(piece: object, step: Mapping[str, Any]) -> int | None:
    special = piece.get("SpecialToken") if isinstance(piece, dict) else None
    table = step.get("special_tokens")
    entry = table.get(special.get("id")) if isinstance(special, dict) and isinstance(table, dict) else None
    ids = entry.get("ids") if isinstance(entry, dict) else None
    return ids[0] if isinstance(ids, list) and ids and type(ids[0]) is int else None


def _optional_json(folder: Path, name: str) -> Fields:
    path = folder / name
    return Fields(name, parse_json(read_small_file(path, MAX_JSON_BYTES), name) if path.exists() else {})


def _chat_template(folder: Path, settings: Fields) -> str | None:
    path = folder / "chat_template.jinja"
    if path.exists():
        try:
            return read_small_file(path, MAX_TEMPLATE_BYTES).decode()
        except UnicodeDecodeError as error:
            raise ModelError(f"{path.name}: is not UTF-8") from error
    templates = settings.values.get("chat_template")
    if isinstance(templates, list):  # several by name: [{"name": "default", "template": "..."}, ...]
        named = {entry.get("name"): entry.get("template") for entry in templates if isinstance(entry, dict)}
        return Fields(settings.source, {"chat_template": named.get("default")}).text("chat_template", None)
    return settings.text("chat_template", None)


def _generation_defaults(folder: Path, template: str | None, tokenizer: _Tokenizer) -> GenerationDefaults:
    config, generation = read_config(folder), _optional_json(folder, "generation_config.json")
    control = {token.content: token.id for token in tokenizer.added_tokens if token.special}
    sampling = {
        "temperature": generation.number("temperature", None),
        "top_k": generation.integer("top_k", None),
        "top_p": generation.number("top_p", None),
        "min_p": generation.number("min_p", None),
        "repetition_penalty": generation.number("repetition_penalty", None),
    }
    bos = generation.token_ids("bos_token_id") or config.token_ids("bos_token_id")
    return GenerationDefaults(
        bos_token_id=bos[0] if bos else None,
        eos_token_ids=unique_ids(generation.token_ids("eos_token_id"), config.token_ids("eos_token_id"), turn_end_ids(template, control)),
        **check_sampling(generation.source, sampling),
    )
