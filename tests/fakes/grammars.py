"""Grammars over the small vocabularies of the tests, and answers drawn from them at random."""

import random

import numpy as np

from octavo.constraints import StructuredOutputsParams
from octavo.grammar.compile import compile_constraint
from octavo.grammar.vocabulary import Vocabulary


def vocabulary(tokenizer, size=None):
    return Vocabulary(tokenizer, tokenizer.eos_token_ids, size or tokenizer.vocab_size)


def compiled(words, **constraint):
    return compile_constraint(StructuredOutputsParams(**constraint), words)


def allowed_ids(matcher):
    matcher.fill()
    bits = np.unpackbits(matcher.allowed.view(np.uint8), bitorder="little")
    return np.flatnonzero(bits).tolist()


def draw_answer(grammar, ending, seed, most=4000):
    """Return tokens drawn evenly from what is allowed, without the one that ends them, and the matcher; after a while the end is taken
    where it is allowed."""
    choose = random.Random(seed)
    matcher, token_ids = grammar.open(), []
    while not matcher.is_complete and matcher.error is None and len(token_ids) < most:
        ids = allowed_ids(matcher)
        if not ids:
            break
        ends = [token_id for token_id in ids if token_id in ending]
        token_id = ends[0] if ends and len(token_ids) > 20 else choose.choice(ids)
        matcher.accept(token_id)
        if token_id not in ending:
            token_ids.append(token_id)
    return token_ids, matcher
