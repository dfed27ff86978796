"""However the text is cut into pieces, and whatever it says, a parser gives the same calls, content and reasoning, and loses nothing."""

import itertools
import json

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fakes.tool_texts import CALLS, WRITERS, make_parser, parse

from octavo.parsers.formats import REASONING_FORMATS, TOOL_FORMATS
from octavo.parsers.python_calls import PythonCalls
from octavo.parsers.reasoning import ReasoningParser
from octavo.parsers.xml_calls import XmlCalls

quick = settings(max_examples=250, deadline=None, derandomize=True)

MARKS = sorted({mark for grammar in TOOL_FORMATS.values() for mark in grammar.openers + grammar.closers})
WORDS = [
    *MARKS,
    "[ARGS]", "<parameter=city>", "</parameter>", "</function>", "<function=", ">", "{", "}", "[", "]", "(", ")", ",", ":", "=",
    "'", '"', "\\", "stop", "get_weather", "math.add", "city", '"name": "stop"', '{"name": "stop", "arguments": {',
    '"arguments": ', "\n", " ", "\n```json\n",
    "```", "function<｜tool▁sep｜>", "functions.", ":0", "hello", "é", "1", "null", "<", "<think>", "</think>",
]  # fmt: skip
texts = st.lists(st.sampled_from(WORDS), max_size=12).map("".join)
calls = st.sampled_from([write(CALLS)[:end] for _, write in WRITERS for end in (None, -9)])
noise = st.tuples(texts, calls, texts).map("".join)


def cut(text, places):
    """Cut `text` into pieces, some empty, at these places."""
    borders = sorted({0, len(text), *(place % (len(text) + 1) for place in places)})
    return [text[low:high] for low, high in itertools.pairwise(borders)]


places = st.lists(st.integers(0, 2000), max_size=30)


@quick
@given(st.sampled_from(sorted(TOOL_FORMATS)), texts | noise, places)
def test_the_cut_does_not_matter_to_tool_calls(name, text, cuts):
    whole = parse(make_parser(name), [text])
    assert parse(make_parser(name), cut(text, cuts)) == whole
    assert parse(make_parser(name), list(text)) == whole


@quick
@given(st.sampled_from(sorted(TOOL_FORMATS)), texts | st.text(max_size=60))
def test_an_answer_without_calls_loses_no_letter(name, text):
    folded = parse(make_parser(name), [text])
    if not folded.calls:
        assert folded.content == text


@quick
@given(st.sampled_from([writer for writer in WRITERS if isinstance(TOOL_FORMATS[writer[0]], PythonCalls | XmlCalls)]), noise)
def test_arguments_that_we_write_ourselves_are_json_unless_the_answer_was_cut(writer, text):
    name, write = writer
    folded = parse(make_parser(name), [text + write(CALLS[:1])])
    for _, arguments in folded.calls[:-1]:
        assert isinstance(json.loads(arguments), dict)


@quick
@given(st.sampled_from(sorted(REASONING_FORMATS)), st.booleans(), texts, places)
def test_the_cut_does_not_matter_to_reasoning(name, inside, text, cuts):
    def read(pieces):
        return parse(ReasoningParser(REASONING_FORMATS[name], inside=inside), pieces)

    assert read(cut(text, cuts)) == read([text]) == read(list(text))
