"""`Vocabulary`: a model's tokens as llguidance reads them, whatever files they came in. Made once for an engine: it takes a while."""

from __future__ import annotations

from collections.abc import Sequence

from llguidance import LLTokenizer, TokenizerWrapper

from octavo.errors import InvalidRequest
from octavo.text.tokenizer import Tokenizer
from octavo.text.vocabulary import Spelling

MARK = "\n"  # text in front of another, so that its first word is not taken for the first of all


class _Tokens:
    """The tokenizer under the names that TokenizerWrapper looks for. Called with text that a grammar forces, it says in which tokens
    the model would write it; they spell that text and nothing else, or the answer could not go on."""

    def __init__(self, tokenizer: Tokenizer, eos_token_id: int, size: int) -> None:
        self.eos_token_id = eos_token_id
        self.bos_token_id = tokenizer.bos_token_id
        ids = range(tokenizer.vocab_size)
        self.tokens = [tokenizer.token_bytes(token_id) for token_id in ids] + [b""] * (size - len(ids))
        control = set(tokenizer.control_tokens.values())
        self.special_token_ids = [token_id for token_id in ids if token_id in control or tokenizer.is_special(token_id)]
        self._tokenizer = tokenizer
        special = set(self.special_token_ids)
        self._plain = {self.tokens[token_id]: token_id for token_id in ids if self.tokens[token_id] and token_id not in special}
        self._longest = max(map(len, self._plain), default=0)

    def __call__(self, text: str | bytes) -> list[int]:
        wanted = text.encode("utf-8", "replace") if isinstance(text, str) else text
        for mark in ("", MARK):
            ids = self._tokenizer.encode(mark + wanted.decode("utf-8", "replace"), add_special_tokens=False)
            for start in range(len(mark) + 2):  # the mark, and a space that some vocabularies put first
                if b"".join(self.tokens[token_id] for token_id in ids[start:]) == wanted:
                    return ids[start:]
        return self._longest_first(wanted)

    def _longest_first(self, wanted: bytes) -> list[int]:
        """Return tokens that spell `wanted`, each the longest that fits; they end where there is none."""
        ids: list[int] = []
        at = 0
        while at < len(wanted):
            ends = range(min(len(wanted), at + self._longest), at, -1)
            end = next((end for end in ends if wanted[at:end] in self._plain), None)
            if end is None:
                break
            ids.append(self._plain[wanted[at:end]])
            at = end
        return ids


class Vocabulary:
    """`size` is the number of the model's logits, which may be more than the tokenizer has tokens: those ids are never allowed."""

    def __init__(self, tokenizer: Tokenizer, eos_token_ids: Sequence[int], size: int) -> None:
        """Raises InvalidRequest for a tokenizer whose tokens do not stand for bytes by themselves, and for one without an end."""
        if tokenizer.spelling is Spelling.OTHER:
            raise InvalidRequest("structured output is not supported for this model's kind of tokenizer", code="unsupported_value")
        ending = list(dict.fromkeys((*eos_token_ids, *tokenizer.eos_token_ids)))
        if not ending:
            raise InvalidRequest("structured output needs a model that has a token to end its answers with", code="unsupported_value")
        self.size = size
        self.tokens = LLTokenizer(TokenizerWrapper(_Tokens(tokenizer, ending[0], size)), eos_token=ending)
