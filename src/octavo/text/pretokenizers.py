"""How byte-level BPE vocabularies cut text into words before merging, by the name that GGUF gives the recipe.

A recipe is data: the regular expressions, applied one after the other, each isolating what it matches. Merges were
learned inside these words, so a wrong recipe costs quality without an error; therefore an unknown name is refused.
Sources: the tokenizer.json files of the model families, and the list of `tokenizer.ggml.pre` names of llama.cpp.
"""

from __future__ import annotations

import msgspec
from tokenizers import Regex, pre_tokenizers

from octavo.errors import ModelError


class Recipe(msgspec.Struct, frozen=True):
    """`ignore_merges`: a word that is in the vocabulary is taken whole. `nfc`: text is composed (NFC) first."""

    splits: tuple[str, ...]
    ignore_merges: bool = False
    nfc: bool = False

    def pre_tokenizer(self) -> pre_tokenizers.Sequence:
        splits = [pre_tokenizers.Split(Regex(pattern), behavior="isolated") for pattern in self.splits]
        return pre_tokenizers.Sequence([*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s+(?!\S)|\s+"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|" + _SPACES
_CL100K = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|" + _SPACES
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASED = (
    r"[^\r\n\p{L}\p{N}]?" + _UPPER + "*" + _LOWER + "+%(contractions)s"
    r"|[^\r\n\p{L}\p{N}]?" + _UPPER + "+" + _LOWER + "*%(contractions)s"
    r"|\p{N}%(digits)s| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|" + _SPACES
)

_DIGIT_THEN_GPT2 = Recipe((r"\p{N}", _GPT2))
_LLAMA3 = Recipe((_CL100K % "{1,3}",), ignore_merges=True)
_QWEN2 = Recipe((_CL100K % "",), nfc=True)

RECIPES = {
    "default": Recipe((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")),
    "gpt-2": Recipe((_GPT2,)),
    "mpt": Recipe((_GPT2,)),
    "olmo": Recipe((_GPT2,)),
    "phi-2": Recipe((_GPT2,)),
    "smollm": _DIGIT_THEN_GPT2,
    "starcoder": _DIGIT_THEN_GPT2,
    "refact": _DIGIT_THEN_GPT2,
    "command-r": _DIGIT_THEN_GPT2,
    "codeshell": _DIGIT_THEN_GPT2,
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
    "falcon3": _LLAMA3,
    "pixtral": _LLAMA3,
    "dbrx": Recipe(_LLAMA3.splits),
    "smaug-bpe": Recipe(_LLAMA3.splits),
    "qwen2": _QWEN2,
    "deepseek-r1-qwen": _QWEN2,
    "stablelm2": Recipe(_QWEN2.splits),
    "deepseek-llm": Recipe(
        (
            r"[\r\n]",
            r"\s?[\p{Lu}\p{Ll}\p{Lt}]+",
            r"\s?[!-/:-~！-／：-～‘-‟　-。]+",
            r"(?<!\s)\s+$",  # the look-behind keeps a long run of spaces from being tried from each of its places
            r"[一-龥ࠀ-一가-퟿]+",
            r"\p{N}+",
        )
    ),
    "deepseek-coder": Recipe((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", r"[一-龥ࠀ-一가-퟿]+", r"\p{N}")),
    "deepseek-v3": Recipe(
        (
            r"\p{N}{1,3}",
            r"[一-龥぀-ゟ゠-ヿ]+",
            r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
            r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|" + _SPACES,
        )
    ),
    "tekken": Recipe((_CASED % {"contractions": "", "digits": ""},), ignore_merges=True),
    "gpt-4o": Recipe((_CASED % {"contractions": _CONTRACTIONS + "?", "digits": "{1,3}"},)),
}


def recipe(name: str) -> Recipe:
    """Return the recipe called `name`; raises ModelError naming it and the known ones."""
    known = RECIPES.get(name)
    if known is None:
        raise ModelError(f"the model's pre-tokenizer {name!r} is not known; known: {', '.join(sorted(RECIPES))}")
    return known
