"""A tiny Llama that also reads and writes text: the folder of tiny_llama with a tokenizer and a chat template."""

import json
from pathlib import Path

from tests.fakes.tiny_llama import write_tiny_llama
from tests.fakes.vocabularies import CONTROL, byte_level_vocabulary

TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
END = "<|im_end|>"


def write_tiny_chat(folder: Path, *, seed: int = 0) -> Path:
    """Write config.json, model.safetensors and the files of a byte-level tokenizer into `folder` and return it."""
    vocabulary = byte_level_vocabulary()
    end = CONTROL.index(END)
    write_tiny_llama(folder, seed=seed, vocab=len(vocabulary.tokens))
    config = json.loads((folder / "config.json").read_text()) | {"eos_token_id": end}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text(json.dumps(_tokenizer(vocabulary)))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "eos_token": END,
        "pad_token": CONTROL[0],
        "chat_template": TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def _tokenizer(vocabulary) -> dict[str, object]:
    """Return tokenizer.json of a byte-level vocabulary."""
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    added = [
        {"id": token_id, "content": token, "special": kind == 3, **flags}
        for token_id, (token, kind) in enumerate(zip(vocabulary.tokens, vocabulary.token_types, strict=True))
        if kind != 1
    ]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "added_tokens": added,
        "pre_tokenizer": byte_level,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "vocab": {token: token_id for token_id, token in enumerate(vocabulary.tokens)},
            "merges": list(vocabulary.merges),
        },
    }
