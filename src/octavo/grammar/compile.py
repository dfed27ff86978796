"""From a constraint to a grammar: first to llguidance's own text, then over a vocabulary.

The bounds on what a grammar may cost, to compile and at each token, stand here. They count work, not time: the same grammar passes
or fails on every machine. Sources: llguidance's documentation of its Lark dialect and of its JSON schema keywords.
"""

from __future__ import annotations

import time
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec
from llguidance import LLMatcher, LLParserLimits, LLTokenizer
from msgspec.structs import replace

from octavo.constraints import Calls, StructuredOutputsParams, refusal
from octavo.grammar.either import either, with_calls
from octavo.grammar.gbnf import as_lark
from octavo.grammar.json_schema import ANY_OBJECT, any_of, blank_space, closed
from octavo.grammar.lark import NO_CALLS, prepared, quoted
from octavo.grammar.matcher import MAX_ITEMS, MAX_OPEN_ITEMS, CompiledGrammar
from octavo.grammar.reasons import in_plain_words
from octavo.grammar.tags import check_apart, tags_to_lark
from octavo.grammar.thoughts import after_thoughts

if TYPE_CHECKING:
    from octavo.grammar.vocabulary import Vocabulary


def limits() -> LLParserLimits:
    """Return the bounds. Items weigh most: in a grammar that matches a text in many ways, each takes the longer the more there are."""
    return LLParserLimits(
        initial_lexer_fuel=200_000,
        step_lexer_fuel=200_000,
        step_max_items=MAX_ITEMS,
        max_items_in_row=MAX_OPEN_ITEMS,
        max_lexer_states=50_000,
        verbose_errors=False,
    )


def to_source(constraint: StructuredOutputsParams) -> str:
    """Return the constraint as llguidance reads it. Raises InvalidRequest where that can be seen already not to be one."""
    source = _source_of_answer(constraint)
    if constraint.calls is not None and constraint.kind != "structural_tag":
        source = either(source, constraint.calls)
    return source if constraint.thoughts is None else after_thoughts(constraint.thoughts, source)


def _source_of_answer(constraint: StructuredOutputsParams) -> str:
    try:
        match constraint.kind:
            case "json":
                return _json_source(constraint, msgspec.json.decode(str(constraint.json)))
            case "json_object":
                return _json_source(constraint, ANY_OBJECT)
            case "regex":
                return LLMatcher.grammar_from_regex(constraint.regex or "")
            case "choice":
                return LLMatcher.grammar_from_lark("start: " + " | ".join(map(quoted, constraint.choice or ())))
            case "grammar":
                return LLMatcher.grammar_from_lark(prepared("grammar", as_lark(constraint.grammar or "")))
            case _:
                return _tags_source(msgspec.json.decode(str(constraint.structural_tag)), constraint.calls)
    except (ValueError, RecursionError) as error:
        raise refusal(constraint.kind, in_plain_words(str(error))) from None


def check(constraint: StructuredOutputsParams) -> None:
    """Raise InvalidRequest unless the constraint compiles, as far as that can be seen without the model's vocabulary, and matches can be
    told from calls."""
    _beginning(_in_text(constraint), _single_bytes())
    if constraint.calls is not None and constraint.kind != "structural_tag":
        match = _beginning(replace(constraint, calls=None, thoughts=None), _single_bytes())
        for text in constraint.calls.begins:
            if match.deep_copy().try_consume_tokens(list(text.encode())) == len(text.encode()):
                raise refusal(constraint.kind, f"what matches may begin with {text!r}, as calls of tools do; {NO_CALLS}")


def compile_constraint(constraint: StructuredOutputsParams, vocabulary: Vocabulary) -> CompiledGrammar:
    """Return the grammar. Raises InvalidRequest."""
    beginning = _beginning(constraint, vocabulary.tokens)
    again = beginning.deep_copy()
    began = time.thread_time()
    again.compute_bitmask()  # what the lexer learns from a grammar's first mask, it has learned
    return CompiledGrammar(beginning, vocabulary.size, time.thread_time() - began)


def _beginning(constraint: StructuredOutputsParams, tokens: LLTokenizer) -> LLMatcher:
    beginning = LLMatcher(tokens, to_source(constraint), log_level=0, limits=limits())
    if not beginning.is_error():
        beginning.compute_bitmask()  # what is slow or endless shows here, where nobody waits for a token
    if beginning.is_error():
        _check_whitespace(constraint, tokens)
        raise refusal(constraint.kind, in_plain_words(beginning.get_error()))
    return beginning


def _in_text(constraint: StructuredOutputsParams) -> StructuredOutputsParams:
    """Return the constraint with a text for each mark that is a token, of which the vocabulary of bytes has none."""
    thoughts, calls = constraint.thoughts, constraint.calls
    if thoughts is not None:
        thoughts = replace(thoughts, open=_named(thoughts.open), close=_named(thoughts.close))
    if calls is not None:
        calls = replace(calls, open=_named(calls.open), close=None if calls.close is None else _named(calls.close))
    return replace(constraint, thoughts=thoughts, calls=calls)


def _named(mark: str | int) -> str:
    return f"<|{mark}|>" if isinstance(mark, int) else mark


def _check_whitespace(constraint: StructuredOutputsParams, tokens: LLTokenizer) -> None:
    """Raise InvalidRequest where whitespace_pattern alone is what does not compile."""
    if constraint.whitespace_pattern is not None:
        alone = LLMatcher(tokens, LLMatcher.grammar_from_regex(constraint.whitespace_pattern), log_level=0, limits=limits())
        if alone.is_error():
            raise refusal("whitespace_pattern", in_plain_words(alone.get_error()))


@cache
def _single_bytes() -> LLTokenizer:
    """Return a vocabulary whose tokens are the bytes."""
    return LLTokenizer("byte")


def _tags_source(tag: Any, calls: Calls | None) -> str:
    if calls is None:
        return LLMatcher.grammar_from_lark(prepared("structural_tag", tags_to_lark(tag)))
    tags = prepared("structural_tag", tags_to_lark(tag, ["tagged_call"]))
    for text in calls.begins:
        check_apart(tag, text)
    return with_calls(tags, calls)


def _json_source(constraint: StructuredOutputsParams, schema: Any) -> str:
    if constraint.disable_additional_properties:
        schema = closed(schema)
    if constraint.calls is not None and constraint.calls.bare is not None:
        schema = any_of([schema, msgspec.json.decode(constraint.calls.bare)])
    if constraint.disable_any_whitespace:
        return LLMatcher.grammar_from_json_schema(schema, overrides={"whitespace_flexible": False})
    return LLMatcher.grammar_from_json_schema(schema, overrides=blank_space(constraint.whitespace_pattern))
