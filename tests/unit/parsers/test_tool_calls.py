"""Tool calls in every format: the calls come out, everything else stays text, and nothing raises."""

import json
import time

import pytest
from tests.fakes.tool_texts import CALLS, SCHEMAS, WRITERS, as_json, make_parser, parse

from octavo.parsers.deltas import CallArguments, CallBegin
from octavo.parsers.formats import TOOL_FORMATS

IDS = [f"{name}-{i}" for i, (name, _) in enumerate(WRITERS)]


def calls_of(folded):
    return [(name, json.loads(arguments)) for name, arguments in folded.calls]


@pytest.mark.parametrize(("name", "write"), WRITERS, ids=IDS)
def test_every_format_gives_the_same_calls_whole_and_letter_by_letter(name, write):
    text = write(CALLS)
    for pieces in ([text], list(text)):
        folded = parse(make_parser(name), pieces)
        assert calls_of(folded) == CALLS
        assert folded.content == ""


def test_every_format_has_a_text_here():
    assert {name for name, _ in WRITERS} == set(TOOL_FORMATS)


@pytest.mark.parametrize(("name", "write"), [pair for pair in WRITERS if TOOL_FORMATS[pair[0]].openers], ids=lambda value: str(value)[:20])
def test_text_around_calls_is_content_without_the_space_that_separates(name, write):
    text = write(CALLS[:1])
    if not text.startswith(TOOL_FORMATS[name].openers):
        return
    folded = parse(make_parser(name), ["Let me see.\n\n", text])
    assert (folded.content, calls_of(folded)) == ("Let me see.", CALLS[:1])


def test_content_after_a_call_keeps_its_distance_from_content_before():
    text = 'One.\n<tool_call>{"name": "stop", "arguments": {}}</tool_call>\nTwo.\n'
    assert parse(make_parser("hermes"), [text]).content == "One.\n\nTwo."


@pytest.mark.parametrize("name", TOOL_FORMATS)
@pytest.mark.parametrize("text", ["", " ", "hello", "\n a <b> [c] {d} \n", '{"answer": 4}', "[1, 2]", "<tool", "[TOOL_CALLS", "f(x)"])
def test_an_answer_without_calls_is_its_text(name, text):
    for pieces in ([text], list(text)):
        folded = parse(make_parser(name), pieces)
        assert (folded.content, folded.calls) == (text, [])


@pytest.mark.parametrize(("name", "write"), WRITERS, ids=IDS)
def test_a_call_of_a_tool_that_the_request_has_not_is_text(name, write):
    text = write([("rm_rf", {"path": "/"})])
    folded = parse(make_parser(name), [text])
    assert (folded.content, folded.calls) == (text, [])


MALFORMED = [
    ("hermes", "<tool_call>"),
    ("hermes", "<tool_call></tool_call>"),
    ("hermes", "<tool_call>stop()</tool_call>"),
    ("hermes", '<tool_call>{"name": "stop"'),
    ("hermes", '<tool_call>{"name": "stop", "arguments": '),
    ("hermes", '<tool_call>{"name": "stop", "arguments": 5}</tool_call>'),
    ("hermes", '<tool_call>{"arguments": {}}</tool_call>'),
    ("hermes", '<tool_call>{"name": ["stop"], "arguments": {}}</tool_call>'),
    ("hermes", '<tool_call>{"name": "\\x", "arguments": {}}</tool_call>'),
    ("hermes", "<tool_call>" * 50),
    ("llama3_json", '{"name": "stop", "other": 1}'),
    ("llama3_json", '{"city": "Paris"}'),
    ("mistral", "[TOOL_CALLS]"),
    ("mistral", "[TOOL_CALLS]stop"),
    ("mistral", '[TOOL_CALLS] [["stop"]]'),
    ("qwen3_coder", "<function=stop"),
    ("qwen3_coder", "<tool_call>\n<function stop>\n"),
    ("deepseek_v3", "<｜tool▁calls▁begin｜> what"),
    ("deepseek_v3", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>stop\n```json\nnone"),
    ("pythonic", "[stop("),
    ("pythonic", "[stop(a=)]"),
    ("pythonic", "[stop(1)]"),
    ("pythonic", "[stop(a=__import__('os'))]"),
    ("pythonic", "[stop(a=1 + 1)]"),
    ("pythonic", "[stop(a=1e999)]"),
    ("pythonic", "[stop(a=" + "[" * 100_000 + ")]"),
    ("pythonic", "[stop(a='" + "x" * 20_000 + "')]"),
    ("kimi_k2", "<|tool_call_begin|>functions.stop<|tool_call_argument_begin|>{}"),
]


@pytest.mark.parametrize(("name", "text"), MALFORMED)
def test_what_only_begins_like_a_call_is_text_and_none_of_it_is_lost(name, text):
    for pieces in ([text], [*text[:2000], text[2000:]]):
        folded = parse(make_parser(name), pieces)
        assert (folded.content, folded.calls) == (text, [])


def test_a_call_after_a_failed_one_is_found():
    text = '<tool_call>oops<tool_call>\n{"name": "stop", "arguments": {}}\n</tool_call>'
    folded = parse(make_parser("hermes"), [text])
    assert (folded.content, folded.calls) == ("<tool_call>oops", [["stop", "{}"]])


def test_a_missing_bracket_or_one_too_many_costs_no_call():
    less = '<tool_call>\n{"name": "math.add", "arguments": {"a": 1}\n</tool_call>'
    more = '<tool_call>\n{"name": "math.add", "arguments": {"a": 1}}}\n</tool_call>'
    assert parse(make_parser("hermes"), [less]).calls == [["math.add", '{"a": 1}']]
    assert parse(make_parser("hermes"), [more]).calls == [["math.add", '{"a": 1}']]
    assert parse(make_parser("hermes"), [more]).content == "}"


def test_arguments_before_the_name_as_text_or_null_are_taken():
    texts = [
        '{"arguments": {"a": 1}, "name": "math.add"}',
        '{"name": "math.add", "arguments": "{\\"a\\": 1}"}',
        '{"type": "function", "id": 5, "name": "math.add", "parameters": {"a": 1}, "id": "x"}',
    ]
    for text in texts:
        folded = parse(make_parser("hermes"), [f"<tool_call>{text}</tool_call>"])
        assert (folded.content, folded.calls) == ("", [["math.add", '{"a": 1}']])
    assert parse(make_parser("hermes"), ['<tool_call>{"name": "stop", "arguments": null}']).calls == [["stop", "{}"]]
    assert parse(make_parser("hermes"), ['<tool_call>{"name": "stop"}']).calls == [["stop", "{}"]]


@pytest.mark.parametrize("text", ["{}", " {}", "```json\n{}\n```", "```\n{}\n```\n", "{}\n{}", "{},{}", "[{}, {}]"])
def test_hermes_takes_calls_without_tags_at_the_beginning_of_an_answer(text):
    call = as_json("math.add", {"a": 1})
    text = text.replace("{}", call)
    folded = parse(make_parser("hermes"), [text])
    assert (folded.content, calls_of(folded)) == ("", [("math.add", {"a": 1})] * text.count("add"))
    later = f"For example:\n{text}"
    assert parse(make_parser("hermes"), [later]).content == later


def test_arguments_stream_as_they_come():
    parser = make_parser("hermes")
    begun = parser.push('<tool_call>{"name": "get_weather", "arguments": {"ci')
    assert begun == [CallBegin(0, "call_0", "get_weather"), CallArguments(0, '{"ci')]
    assert parser.push('ty": "Par') == [CallArguments(0, 'ty": "Par')]
    assert parser.push('is"}}') == [CallArguments(0, 'is"}')]
    assert parser.push("</tool_call>") + parser.finish() == []


def test_text_parameters_stream_as_they_come():
    parser = make_parser("qwen3_coder")
    parser.push("<tool_call>\n<function=get_weather>\n<parameter=city>\n")
    assert parser.push("Saint-\n") == [CallArguments(0, "Saint-")]
    assert parser.push('"D"') == [CallArguments(0, '\\n\\"D\\"')]


def test_an_answer_cut_short_keeps_the_arguments_that_came():
    folded = parse(make_parser("hermes"), ['<tool_call>{"name": "get_weather", "arguments": {"city": "Par'])
    assert (folded.content, folded.calls) == ("", [["get_weather", '{"city": "Par']])
    folded = parse(make_parser("qwen3_coder"), ["<function=get_weather>\n<parameter=city>\nPar"])
    assert (folded.content, folded.calls) == ("", [["get_weather", '{"city": "Par']])


def test_garbage_between_parameters_closes_the_call_and_is_text():
    folded = parse(make_parser("qwen3_coder"), ["<function=get_weather><parameter=city>x</parameter> oops </function>"])
    assert (folded.content, folded.calls) == ("oops </function>", [["get_weather", '{"city": "x"}']])


@pytest.mark.parametrize(
    ("written", "read"),
    [("5", 5), ("-1.5", -1.5), ("abc", "abc"), ("NaN", "NaN"), ("None", None), ("", ""), ("1" * 5000, "1" * 5000), ('"5"', "5")],
)
def test_a_parameter_that_is_no_text_is_read_as_json_else_kept_as_text(written, read):
    folded = parse(make_parser("qwen3_coder"), [f"<function=get_weather><parameter=days>\n{written}\n</parameter></function>"])
    assert json.loads(folded.calls[0][1]) == {"days": read}


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("'it\\'s'", "it's"),
        ('"\\u00e9\\x41\\n"', "éA\n"),
        ("'\\ud83d'", "\ud83d"),
        ("[1, 2.5, (True, None,), {'k': []}]", [1, 2.5, [True, None], {"k": []}]),
        ("-1_000", -1000),
        ("true", True),
    ],
)
def test_python_literals_are_read_by_hand(written, read):
    folded = parse(make_parser("pythonic"), [f"[math.add(a = {written} , b=1)]"])
    assert json.loads(folded.calls[0][1]) == {"a": read, "b": 1}
    folded.calls[0][1].encode()


@pytest.mark.parametrize(("name", "write"), WRITERS, ids=IDS)
def test_no_more_calls_come_out_than_the_request_takes(name, write):
    parser = make_parser(name, max_calls=2)
    folded = parse(parser, [write(CALLS), " and more"])
    assert (folded.content, calls_of(folded), parser.is_full) == ("", CALLS[:2], True)


@pytest.mark.parametrize(("name", "write"), WRITERS, ids=IDS)
def test_twice_the_text_takes_at_most_about_twice_the_time(name, write):
    def seconds(times):
        text = (write([("nobody", {"a": "x" * 50})]) + write([("stop", {})])[:-3] + "{" * 20) * times
        spent = []
        for _ in range(3):
            parser = make_parser(name)
            began = time.process_time()
            parser.push(text)
            parser.finish()
            spent.append(time.process_time() - began)
        return min(spent)

    assert seconds(160) < 3.5 * seconds(80) + 0.005


def test_the_schemas_here_are_what_the_calls_need():
    assert {name for name, _ in CALLS} == set(SCHEMAS)


REAL = [  # with the spaces and line breaks that models and their makers' examples have
    ("glm45", "<tool_call>get_weather <arg_key>city</arg_key> <arg_value>Oslo</arg_value> </tool_call>"),
    ("glm47", "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Oslo</arg_value></tool_call>"),
    (
        "minimax_m2",
        '<minimax:tool_call>\n<invoke name="get_weather">\n<parameter name="city">Oslo</parameter>\n</invoke>\n</minimax:tool_call>',
    ),
    (
        "step3",
        "<｜tool_calls_begin｜>\n<｜tool_call_begin｜>function<｜tool_sep｜>\n"
        '<steptml:invoke name="get_weather">\n<steptml:parameter name="city">Oslo</steptml:parameter>\n</steptml:invoke>\n'
        "<｜tool_call_end｜>\n<｜tool_calls_end｜>",
    ),
    (
        "deepseek_v32",
        '<｜DSML｜function_calls>\n<｜DSML｜invoke name="get_weather">\n'
        '<｜DSML｜parameter name="city" string="true">Oslo</｜DSML｜parameter>\n'
        "</｜DSML｜invoke>\n</｜DSML｜function_calls>",
    ),
    ("mimo", "<tool_call>\n<function=get_weather>\n<parameter=city>Oslo</parameter>\n</function>\n</tool_call>"),
    ("xlam", '[{"name": "get_weather", "arguments": {"city": "Oslo"}}]'),
]


@pytest.mark.parametrize(("name", "text"), REAL, ids=[name for name, _ in REAL])
def test_calls_are_read_as_models_have_written_them(name, text):
    folded = parse(make_parser(name), list(f"Let me look.\n{text}" if name != "xlam" else text))
    assert folded.calls == [["get_weather", '{"city": "Oslo"}']]
    assert folded.content == ("Let me look." if name != "xlam" else "")


def test_a_kind_that_the_answer_names_goes_before_the_schema():
    text = (
        '<｜DSML｜invoke name="get_weather"><｜DSML｜parameter name="days" string="true">3</｜DSML｜parameter>'
        '<｜DSML｜parameter name="city" string="false">["a"]</｜DSML｜parameter></｜DSML｜invoke>'
    )
    assert parse(make_parser("deepseek_v32"), [text]).calls == [["get_weather", '{"days": "3", "city": ["a"]}']]
