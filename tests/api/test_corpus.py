"""The bad-input corpus, groups B and D to G: each row's status, code and param, and a good request right after."""

import itertools
import json

import pytest

from tests.api.calls import CHAT, COMPLETION, assert_openai_error, call, make_app, post
from tests.api.fake_engine import MAX_MODEL_LEN

CHAT_URL, COMPLETION_URL = "/v1/chat/completions", "/v1/completions"
JSON = {"content-type": "application/json"}


def chat(**fields):
    return {name: value for name, value in (CHAT | fields).items() if value is not ...}


def completion(**fields):
    return {name: value for name, value in (COMPLETION | fields).items() if value is not ...}


def message(**fields):
    return chat(messages=[{name: value for name, value in ({"role": "user", "content": "hi"} | fields).items() if value is not ...}])


def tool(**fields):
    return {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}} | fields}


F = {"type": "function", "function": {"name": "f"}}
TOOLS = "tool_choice.allowed_tools.tools"


def calling(arguments):
    return {"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}]}


def nested(depth):
    return {"type": "object", "properties": {"a": nested(depth - 1)}} if depth else {}


@pytest.fixture(scope="module")
def app():
    return make_app()


def assert_refused(app, response, status, code, param):
    error = assert_openai_error(response)
    assert (response.status_code, error["code"], error["param"]) == (status, code, param), error["message"]
    assert post(app, CHAT_URL, CHAT).json()["choices"][0]["message"]["content"] == ":0 one two three"


ROUTING = [
    ("B032", "GET", CHAT_URL, None, {}, 405, "method_not_allowed"),
    ("B033", "POST", "/v1/nothing", b"{}", JSON, 404, "unknown_url"),
    ("B034", "POST", CHAT_URL + "/", b"{}", JSON, 404, "unknown_url"),
    ("B037", "POST", CHAT_URL, json.dumps(CHAT).encode(), {}, 415, "unsupported_media_type"),
    ("B038", "POST", CHAT_URL, json.dumps(CHAT).encode(), {"content-type": "text/plain"}, 415, "unsupported_media_type"),
    ("B039", "POST", CHAT_URL, b"a=1&" * 9999, {"content-type": "application/x-www-form-urlencoded"}, 415, "unsupported_media_type"),
    ("B040", "POST", CHAT_URL, b"x", {"content-type": "multipart/form-data; boundary=" + "b" * 9999}, 415, "unsupported_media_type"),
    ("B027", "POST", CHAT_URL, b"x", JSON | {"content-encoding": "gzip"}, 415, "unsupported_content_encoding"),
    ("B043", "OPTIONS", CHAT_URL, None, {"origin": "http://evil.example"}, 405, "method_not_allowed"),
    ("B044", "POST", CHAT_URL, json.dumps(CHAT).encode(), JSON | {"origin": "http://evil.example"}, 403, "origin_not_allowed"),
    ("B014", "GET", "/v1/models", None, {"host": "evil.example"}, 421, "invalid_host"),
    ("B031", "TRACE", CHAT_URL, None, {}, 405, "method_not_allowed"),
]


@pytest.mark.parametrize("row", ROUTING, ids=lambda row: row[0])
def test_routing_methods_and_content_types_are_refused_by_the_corpus(app, row):
    _, method, path, content, headers, status, code = row
    assert_refused(app, call(app, method, path, content=content, headers=headers), status, code, None)


SYNTAX = [
    ("B057", b"", "invalid_json", None),
    ("B058-open", b"{", "invalid_json", None),
    ("B058-comma", b'{"model":"tiny",}', "invalid_json", None),
    ("B058-quotes", b"{'model':'tiny'}", "invalid_json", None),
    ("B058-comment", b'{"model":"tiny" /* x */}', "invalid_json", None),
    ("B059-array", b"[]", "invalid_type", None),
    ("B059-string", b'"x"', "invalid_type", None),
    ("B059-number", b"1", "invalid_type", None),
    ("B059-null", b"null", "invalid_type", None),
    ("B059-true", b"true", "invalid_type", None),
    ("B061", b"\xef\xbb\xbf{}", "invalid_json", None),
    ("B062", b'{"model":"\xff"}', "invalid_encoding", None),
    ("B063-overlong", b'{"model":"\xc0\xaf"}', "invalid_encoding", None),
    ("B063-surrogate", b'{"model":"\xed\xa0\x80"}', "invalid_encoding", None),
    ("B066-nan", b'{"temperature":NaN}', "invalid_json", None),
    ("B066-infinity", b'{"temperature":-Infinity}', "invalid_json", None),
    ("B067", b'{"model":"tiny","messages":[],"temperature":1e999}', "invalid_value", "temperature"),
    ("deep", b'{"a":' * 100_000, "invalid_json", None),
    ("long number", b'{"seed":' + b"1" * 5000 + b"}", "invalid_json", None),
]


@pytest.mark.parametrize(("content", "code", "param"), [row[1:] for row in SYNTAX], ids=[row[0] for row in SYNTAX])
def test_json_that_is_none_is_refused_by_the_corpus(app, content, code, param):
    assert_refused(app, call(app, "POST", CHAT_URL, content=content, headers=JSON), 400, code, param)


def test_a_syntax_error_names_its_place(app):
    response = call(app, "POST", CHAT_URL, content=b'{"model": "tiny",\n "n": }', headers=JSON)
    assert "line 2, column 7" in response.json()["error"]["message"]


def test_a_null_character_in_content_works(app):
    assert post(app, CHAT_URL, message(content="a\x00b")).status_code == 200


def test_half_a_million_keys_are_refused_soon(app):
    content = json.dumps({f"k{i}": 1 for i in range(500_000)}).encode()
    response = call(app, "POST", CHAT_URL, content=content, headers=JSON)
    assert response.status_code == 400
    assert assert_openai_error(response)["code"] == "body_too_complex"
    assert response.elapsed.total_seconds() < 2


def test_a_body_beyond_the_limit_is_refused_and_the_connection_closed(app):
    response = call(app, "POST", CHAT_URL, content=b" " * (8 * 2**20 + 1), headers=JSON)
    assert_refused(app, response, 413, "request_too_large", None)
    assert response.headers["connection"] == "close"


def test_a_body_without_length_is_counted_as_it_comes(app):
    async def pieces():
        for _ in range(9):
            yield b" " * 2**20

    assert_refused(app, call(app, "POST", CHAT_URL, content=pieces(), headers=JSON), 413, "request_too_large", None)


MiB = 2**20
FIELDS = [
    ("B074", chat(model=...), 400, "missing_required_parameter", "model"),
    *[(f"B075-{value}", chat(model=value), 400, "invalid_type", "model") for value in (None, 1, [], {})],
    ("B076", chat(model=""), 404, "model_not_found", "model"),
    *[("B077/78", chat(model=name), 404, "model_not_found", "model") for name in ("gpt-4", "../../etc/passwd", "..%2f", "a\x00", "a\nb")],
    ("B079", chat(model="m" * MiB), 400, "string_above_max_length", "model"),
    *[(f"B080-{value}", chat(stream=value), 400, "invalid_type", "stream") for value in ("yes", 1)],
    ("B081", chat(stream_options={"include_usage": True}), 400, "invalid_value", "stream_options"),
    ("B082", chat(stream=True, stream_options={"include_usage": "x"}), 400, "invalid_type", "stream_options.include_usage"),
    *[(f"B083-{value}", chat(n=value), 400, "integer_below_min_value", "n") for value in (0, -1)],
    *[(f"B083-{value}", chat(n=value), 400, "invalid_type", "n") for value in (1.5, "2", True)],
    *[(f"B084-{value}", chat(n=value), 400, "integer_above_max_value", "n") for value in (17, 10**9)],
    ("B086-low", chat(temperature=-0.1), 400, "decimal_below_min_value", "temperature"),
    ("B086-int", chat(temperature=-1), 400, "decimal_below_min_value", "temperature"),
    ("B086-high", chat(temperature=2.1), 400, "decimal_above_max_value", "temperature"),
    ("B086-text", chat(temperature="hot"), 400, "invalid_type", "temperature"),
    *[(f"B087-{value}", chat(top_p=value), 400, "decimal_below_min_value", "top_p") for value in (0, -1)],
    ("B087-high", chat(top_p=1.01), 400, "decimal_above_max_value", "top_p"),
    ("B088-low", chat(top_k=-2), 400, "integer_below_min_value", "top_k"),
    ("B088-high", chat(top_k=10**18), 400, "integer_above_max_value", "top_k"),
    ("B088-half", chat(top_k=1.5), 400, "invalid_type", "top_k"),
    ("B089-low", chat(min_p=-1), 400, "decimal_below_min_value", "min_p"),
    ("B089-high", chat(min_p=2), 400, "decimal_above_max_value", "min_p"),
    *[(f"B091-{value}", chat(repetition_penalty=value), 400, "decimal_below_min_value", "repetition_penalty") for value in (0, -1)],
    ("B091-high", chat(repetition_penalty=1e308), 400, "decimal_above_max_value", "repetition_penalty"),
    *[(f"B092/93-{value}", chat(max_tokens=value), 400, "integer_below_min_value", "max_tokens") for value in (0, -1)],
    *[(f"B093-{value}", chat(max_tokens=value), 400, "integer_above_max_value", "max_tokens") for value in (2**31, 2**63, 2**64)],
    ("B094", chat(max_tokens=MAX_MODEL_LEN), 400, "context_length_exceeded", "messages"),
    ("B095", chat(max_completion_tokens=5), 400, "invalid_value", "max_tokens"),
    ("B097-high", chat(seed=2**64), 400, "integer_above_max_value", "seed"),
    ("B097-low", chat(seed=-(2**64)), 400, "integer_below_min_value", "seed"),
    *[(f"B097-{value}", chat(seed=value), 400, "invalid_type", "seed") for value in (1.5, "a")],
    ("B098-many", chat(stop=["x"] * 17), 400, "array_above_max_length", "stop"),
    ("B098-empty", chat(stop=[""]), 400, "invalid_value", "stop"),
    ("B098-long", chat(stop="x" * 10_240), 400, "invalid_value", "stop"),
    *[(f"B098-{value}", chat(stop=value), 400, "invalid_type", "stop") for value in ([1], {})],
    *[(f"B100-{key}", chat(logit_bias={key: 1}), 400, "invalid_value", "logit_bias") for key in ("a", "-1", "999999999", "256", "٣")],
    *[(f"B101-{value}", chat(logit_bias={"1": value}), 400, "invalid_value", "logit_bias") for value in (101, "x", True, None)],
    ("B101-many", chat(logit_bias={str(i): 1 for i in range(301)}), 400, "invalid_value", "logit_bias"),
    ("B103-high", chat(logprobs=True, top_logprobs=21), 400, "integer_above_max_value", "top_logprobs"),
    ("B103-low", chat(logprobs=True, top_logprobs=-1), 400, "integer_below_min_value", "top_logprobs"),
    ("B103-alone", chat(top_logprobs=2), 400, "invalid_value", "top_logprobs"),
    ("B104", chat(prompt_logprobs=10**9), 400, "integer_above_max_value", "prompt_logprobs"),
    ("B105-long", chat(user="u" * 10_240), 400, "string_above_max_length", "user"),
    ("B105-type", chat(user=1), 400, "invalid_type", "user"),
    ("B105-metadata", chat(metadata={"a": "x" * MiB}), 400, "string_above_max_length", "metadata.a"),
    ("B107", chat(foo=1), 400, "unknown_parameter", "foo"),
    *[
        (f"B108-{n}", chat(**{n: {}}), 400, "unknown_parameter", n)
        for n in ("kv_transfer_params", "prompt_embeds", "mm_processor_kwargs", "chat_template")
    ],
    ("B108-code", chat(add_generation_prompt="{{ x }}"), 400, "invalid_type", "add_generation_prompt"),
    ("B110", chat(chat_template_kwargs={"tokenize": True}), 400, "unknown_parameter", "chat_template_kwargs"),
    ("B110-messages", chat(chat_template_kwargs={"messages": []}), 400, "unknown_parameter", "chat_template_kwargs"),
    ("B111-low", chat(truncate_prompt_tokens=-5), 400, "integer_below_min_value", "truncate_prompt_tokens"),
    ("B111-high", chat(truncate_prompt_tokens=2**63), 400, "integer_above_max_value", "truncate_prompt_tokens"),
    ("B113-missing", chat(messages=...), 400, "missing_required_parameter", "messages"),
    *[(f"B113-{value}", chat(messages=value), 400, "invalid_type", "messages") for value in (None, {}, "hi")],
    ("B114", chat(messages=[]), 400, "empty_array", "messages"),
    *[(f"B115-{value}", chat(messages=[value]), 400, "invalid_type", "messages[0]") for value in (None, 1, [])],
    *[(f"B116-{value}", message(role=value), 400, "invalid_value", "messages[0].role") for value in (..., "root", 1, "")],
    ("B117", message(content=...), 400, "missing_required_parameter", "messages[0].content"),
    ("B118", message(content=None), 400, "invalid_type", "messages[0].content"),
    ("B120", message(content="x " * (7 * MiB // 2)), 400, "context_length_exceeded", "messages"),
    ("B122", chat(messages=[{"role": "user", "content": "a"}] * 100_000), 400, "array_above_max_length", "messages"),
    (
        "B123",
        message(content=[{"type": "image_url", "image_url": {"url": "http://x"}}]),
        400,
        "unsupported_content_type",
        "messages[0].content[0].type",
    ),
    *[
        (f"B126-{part}", message(content=[part]), 400, "invalid_value", "messages[0].content[0].type")
        for part in ({"text": "a"}, {"type": "x"}, {"type": 1})
    ],
    ("B127", message(content=[{"type": "text", "text": None}]), 400, "invalid_type", "messages[0].content[0].text"),
    ("B130", message(role="tool"), 400, "invalid_value", "messages[0].tool_call_id"),
    *[("B132", message(name=name), 400, "invalid_value", "messages[0].name") for name in ("a\nb", "n" * 1024)],
    ("B131-1MiB", chat(messages=[*CHAT["messages"], calling("x" * MiB)]), 400, "context_length_exceeded", "messages"),
    ("B158-none", chat(tool_choice="required"), 400, "invalid_value", "tool_choice"),
    ("B158-empty", chat(tools=[], tool_choice="required"), 400, "invalid_value", "tool_choice"),
    (
        "B158-missing",
        chat(tools=[tool()], tool_choice={"type": "function", "function": {"name": "g"}}),
        400,
        "invalid_value",
        "tool_choice",
    ),
    *[(f"B158-{value}", chat(tools=[tool()], tool_choice=value), 400, "invalid_value", "tool_choice") for value in ("any", 1, {}, [])],
    ("B159-129", chat(tools=[tool(name=f"f{i}") for i in range(129)]), 400, "array_above_max_length", "tools"),
    *[
        (f"B159-{name!r:.9}", chat(tools=[tool(name=name)]), 400, "invalid_value", "tools[0].function.name")
        for name in ("a b", "f" * 65, "", None, 1, "<|im_end|>", "a\n")
    ],
    ("B159-twice", chat(tools=[tool(), tool()]), 400, "invalid_value", "tools[1].function.name"),
    *[
        (f"B160-{value!r:.25}", chat(tools=[tool(parameters=value)]), 400, "invalid_json_schema", "tools[0].function.parameters")
        for value in (
            1,
            [],
            "object",
            {"type": "string"},
            {"type": 5},
            {"properties": []},
            {"properties": {"a": 1}},
            {"required": "a"},
            {"properties": {"a": {"type": "nope"}}},
            {"properties": {"a": {"type": ["string", 5]}}},
            {"properties": {"a": {"pattern": 5}}},
            {"properties": {"a": {"anyOf": {}}}},
            {"properties": {"a": {"enum": 1}}},
            {"properties": {"a": {"items": 5}}},
        )
    ],
    ("B150-deep", chat(tools=[tool(parameters=nested(40))]), 400, "schema_too_complex", "tools[0].function.parameters"),
    ("B150-deeper", chat(tools=[tool(parameters=nested(300))]), 400, "schema_too_complex", "tools[0].function.parameters"),
    (
        "B150-wide",
        chat(tools=[tool(parameters={"properties": {f"p{i}": {} for i in range(100_000)}})]),
        400,
        "schema_too_complex",
        "tools[0].function.parameters",
    ),
    (
        "B150-many",
        chat(tools=[tool(name=f"f{i}", parameters={"description": "x" * 10_000}) for i in range(128)]),
        400,
        "schema_too_complex",
        "tools",
    ),
    *[(f"tools-{value!r}", chat(tools=value), 400, "invalid_type", "tools") for value in (1, "a", {})],
    *[(f"tools-{value!r}", chat(tools=[value]), 400, "invalid_type", "tools[0]") for value in (1, "a", [], None)],
    ("tools-kind", chat(tools=[{"type": "web_search"}]), 400, "invalid_value", "tools[0].type"),
    ("tools-field", chat(tools=[tool() | {"x": 1}]), 400, "unknown_parameter", "tools[0].x"),
    ("tools-function", chat(tools=[{"type": "function"}]), 400, "invalid_type", "tools[0].function"),
    ("tools-description", chat(tools=[tool(description="d" * 99_999)]), 400, "string_above_max_length", "tools[0].function.description"),
    ("tools-strict", chat(tools=[tool(strict="yes")]), 400, "invalid_type", "tools[0].function.strict"),
    ("tools-format", chat(tools=[tool()], response_format={"type": "xml"}), 400, "invalid_value", "response_format.type"),
    ("tools-regex", chat(tools=[tool()], structured_outputs={"regex": "<.*"}), 400, "invalid_value", "structured_outputs.regex"),
    ("forced-format", chat(tools=[tool()], tool_choice="required", response_format=1), 400, "invalid_type", "response_format"),
    *[
        (f"B160-forced-{number}", chat(tools=[tool(parameters=value)], tool_choice="required"), 400, "invalid_value", "tools")
        for number, value in enumerate(
            (
                {"properties": {"a": {"pattern": "("}}},
                {"properties": {"a": {"type": "integer", "minimum": 2, "maximum": 1}}, "required": ["a"]},
            )
        )
    ],
    *[
        (f"allowed-{value!r:.40}", chat(tools=[tool()], tool_choice={"type": "allowed_tools"} | value), 400, code, param)
        for value, code, param in (
            ({}, "invalid_type", "tool_choice.allowed_tools"),
            ({"allowed_tools": []}, "invalid_type", "tool_choice.allowed_tools"),
            ({"mode": "auto", "tools": [F]}, "unknown_parameter", "tool_choice.mode"),
            ({"allowed_tools": {"mode": "none", "tools": [F]}}, "invalid_value", "tool_choice"),
            ({"allowed_tools": {"tools": [F]}}, "invalid_value", "tool_choice"),
            ({"allowed_tools": {"mode": "auto"}}, "invalid_type", "tool_choice"),
            ({"allowed_tools": {"mode": "auto", "tools": []}}, "invalid_value", "tool_choice"),
            ({"allowed_tools": {"mode": "auto", "tools": [F] * 129}}, "invalid_value", "tool_choice"),
            ({"allowed_tools": {"mode": "auto", "tools": ["f"]}}, "invalid_type", f"{TOOLS}[0]"),
            ({"allowed_tools": {"mode": "auto", "tools": [F, {"type": "mcp"}]}}, "invalid_value", "tool_choice"),
            ({"allowed_tools": {"mode": "auto", "tools": [{"type": "function"}]}}, "invalid_type", f"{TOOLS}[0].function"),
            ({"allowed_tools": {"mode": "auto", "tools": [F | {"function": {"name": "g"}}]}}, "invalid_value", "tool_choice"),
        )
    ],
    ("parallel", chat(parallel_tool_calls="no"), 400, "invalid_type", "parallel_tool_calls"),
    ("effort", chat(reasoning_effort="huge"), 400, "invalid_value", "reasoning_effort"),
    ("include", chat(include_reasoning=1), 400, "invalid_type", "include_reasoning"),
    ("priority", chat(priority="3"), 400, "invalid_type", "priority"),
]
TEXT_FIELDS = [
    ("B085-less", completion(best_of=1, n=2), 400, "invalid_value", "best_of"),
    ("B085-more", completion(best_of=10**6), 400, "invalid_value", "best_of"),
    ("B094", completion(max_tokens=MAX_MODEL_LEN), 400, "context_length_exceeded", "prompt"),
    ("B103", completion(logprobs=21), 400, "integer_above_max_value", "logprobs"),
    ("B134-missing", completion(prompt=...), 400, "missing_required_parameter", "prompt"),
    *[(f"B134-{value}", completion(prompt=value), 400, "invalid_type", "prompt") for value in (None, {}, 1)],
    *[(f"B135-{value}", completion(prompt=value), 400, "invalid_value", "prompt") for value in ("", [], [[]], [""], ["a", ""])],
    *[
        (f"B136-{value}", completion(prompt=value), 400, "invalid_value", "prompt")
        for value in ([-1], [256], [2**63], [2**64], [[1], [-1]])
    ],
    *[
        (f"B136-{value}", completion(prompt=value), 400, "invalid_type", "prompt")
        for value in ([1.5], [True], [1, "a"], ["a", 1], [[1], "a"], [None])
    ],
    ("B138", completion(suffix="x"), 400, "unsupported_parameter", "suffix"),
    ("B120", completion(prompt="x " * (7 * MiB // 2)), 400, "context_length_exceeded", "prompt"),
    ("many prompts", completion(prompt=["a"] * 33), 400, "array_above_max_length", "prompt"),
]


@pytest.mark.parametrize(("body", "status", "code", "param"), [row[1:] for row in FIELDS], ids=[row[0] for row in FIELDS])
def test_chat_fields_are_refused_by_the_corpus(app, body, status, code, param):
    assert_refused(app, post(app, CHAT_URL, body), status, code, param)


@pytest.mark.parametrize(("body", "status", "code", "param"), [row[1:] for row in TEXT_FIELDS], ids=[row[0] for row in TEXT_FIELDS])
def test_completion_fields_are_refused_by_the_corpus(app, body, status, code, param):
    assert_refused(app, post(app, COMPLETION_URL, body), status, code, param)


@pytest.mark.parametrize("path", ["/v1/models/%2e%2e%2f", "/v1/models/" + "m" * 7000, "/v1/models/a/b"])
def test_unknown_models_are_not_found(app, path):
    assert_refused(app, call(app, "GET", path), 404, "model_not_found", "model")


@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": None},
        {"messages": [{"role": "user", "content": ""}]},
        {"stop": None},
        {"response_format": {"type": "text"}},
        {"logit_bias": None},
        {"tools": []},
        {"tools": [], "tool_choice": "auto", "parallel_tool_calls": True},
        {"tools": [tool()], "response_format": {"type": "json_object"}},
        {"tools": [tool()], "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [F]}}},
    ],
)
def test_what_asks_for_nothing_special_is_taken(app, fields):
    assert post(app, CHAT_URL, CHAT | fields).status_code == 200


def test_an_unknown_field_names_the_nearest_known_one(app):
    assert "did you mean temperature?" in post(app, CHAT_URL, chat(temprature=1)).json()["error"]["message"]


def test_too_long_names_the_three_numbers(app):
    text = post(app, COMPLETION_URL, completion(prompt="hello", max_tokens=600)).json()["error"]["message"]
    assert all(number in text for number in ("5", "600", "512"))


def test_max_completion_tokens_is_an_upper_bound(app):
    body = chat(max_tokens=..., max_completion_tokens=65_536)
    assert post(app, CHAT_URL, body).status_code == 200


BAD_SCHEMAS = [
    *[(schema, "invalid_json_schema") for schema in (5, [], {"type": "nope"}, {"type": 5}, {"$ref": "#"}, {"pattern": "("})],
    *[(schema, "invalid_json_schema") for schema in ({"type": "integer", "minimum": 2, "maximum": 1}, {"multipleOf": 0}, {"enum": []})],
    *[(schema, "schema_too_complex") for schema in ({"enum": list(range(50_000))}, {"properties": {f"p{i}": {} for i in range(100_000)}})],
    (nested(300), "schema_too_complex"),
]
FORMAT = "response_format"
STRUCTURED = [
    *[({FORMAT: value}, "invalid_type", FORMAT) for value in (1, [], "json")],
    *[({FORMAT: value}, "invalid_type", f"{FORMAT}.type") for value in ({}, {"type": 1})],
    ({FORMAT: {"type": "xml"}}, "invalid_value", f"{FORMAT}.type"),
    ({FORMAT: {"type": "json_object", "x": 1}}, "unknown_parameter", FORMAT),
    ({FORMAT: {"type": "json_schema"}}, "missing_required_parameter", f"{FORMAT}.json_schema"),
    ({FORMAT: {"type": "json_schema", "json_schema": 1}}, "invalid_type", f"{FORMAT}.json_schema"),
    ({FORMAT: {"type": "json_schema", "json_schema": {}}}, "missing_required_parameter", f"{FORMAT}.json_schema.name"),
    ({FORMAT: {"type": "json_schema", "json_schema": {"name": "a"}}}, "missing_required_parameter", f"{FORMAT}.json_schema.schema"),
    ({FORMAT: {"type": "json_schema", "json_schema": {"name": "a b", "schema": {}}}}, "invalid_value", f"{FORMAT}.json_schema.name"),
    *[
        ({FORMAT: {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}}, code, f"{FORMAT}.json_schema.schema")
        for schema, code in BAD_SCHEMAS
    ],
    *[({"structured_outputs": {"json": schema}}, code, "structured_outputs.json") for schema, code in BAD_SCHEMAS],
    *[({"structured_outputs": {"choice": value}}, "invalid_value", "structured_outputs.choice") for value in ([], [""])],
    ({"structured_outputs": {"choice": ["a"] * 100_000}}, "array_above_max_length", "structured_outputs.choice"),
    ({"structured_outputs": {"choice": [1]}}, "invalid_type", "structured_outputs.choice"),
    *[({"structured_outputs": value}, "invalid_value", "structured_outputs") for value in ({"regex": "a", "json": {}}, {})],
    ({"structured_outputs": 5}, "invalid_type", "structured_outputs"),
    ({"structured_outputs": {"xml": 1}}, "unknown_parameter", "structured_outputs"),
    ({"structured_outputs": {"json": {}}, FORMAT: {"type": "json_object"}}, "invalid_value", "structured_outputs"),
    *[({"structured_outputs": {"regex": value}}, "invalid_value", "structured_outputs.regex") for value in ("", "(", "(?<=a)b")],
    *[({"structured_outputs": {"grammar": value}}, "invalid_value", "structured_outputs.grammar") for value in ("", "x", "start: start")],
    ({"structured_outputs": {"json_object": False}}, "invalid_value", "structured_outputs.json_object"),
    ({"structured_outputs": {"structural_tag": {"structures": []}}}, "invalid_json_schema", "structured_outputs.structural_tag"),
    ({"guided_regex": "(a+)+$"}, "unsupported_parameter", "guided_regex"),
]


@pytest.mark.parametrize(("fields", "code", "param"), STRUCTURED, ids=range(len(STRUCTURED)))
@pytest.mark.parametrize(("url", "body"), [(CHAT_URL, CHAT), (COMPLETION_URL, COMPLETION)], ids=["chat", "text"])
def test_structured_output_that_cannot_be_held_to_is_refused_by_the_corpus(app, url, body, fields, code, param):
    response = post(app, url, body | fields)
    assert_refused(app, response, 400, code, param)
    assert response.elapsed.total_seconds() < 1


@pytest.mark.parametrize(
    "fields",
    [
        {FORMAT: {"type": "json_object"}},
        {
            FORMAT: {
                "type": "json_schema",
                "json_schema": {"name": "a", "schema": {"pattern": "(a+)+$"}, "strict": True},
            }
        },
        {FORMAT: {"type": "structural_tag", "structures": [{"begin": "<f>", "schema": {}, "end": "</f>"}], "triggers": ["<f"]}},
        {"structured_outputs": {"json": '{"type": "object"}', "disable_any_whitespace": True, "regex": None}},
        {"structured_outputs": {"grammar": 'start: "a" | "b"'}, FORMAT: {"type": "text"}},
    ],
    ids=str,
)
@pytest.mark.parametrize(("url", "body"), [(CHAT_URL, CHAT), (COMPLETION_URL, COMPLETION)], ids=["chat", "text"])
def test_structured_output_that_can_be_held_to_is_answered(app, url, body, fields):
    assert post(app, url, body | fields).status_code == 200


ECHOES = list(itertools.product((True, False), (None, 0, 3), (0, 1, 4), (1, 3), (True, False), (None, 0, 2)))


@pytest.mark.parametrize("row", ECHOES, ids=str)
def test_echo_with_streams_and_logprobs_is_answered_in_every_combination(app, row):
    echo, logprobs, max_tokens, n, stream, prompt_logprobs = row
    fields = {"echo": echo, "logprobs": logprobs, "max_tokens": max_tokens, "n": n, "stream": stream, "prompt_logprobs": prompt_logprobs}
    response = post(app, COMPLETION_URL, COMPLETION | fields)
    assert response.status_code == (200 if echo or max_tokens else 400), response.text


def test_a_query_changes_nothing_of_the_metrics(app):
    plain, queried = (call(app, "GET", path) for path in ("/metrics", "/metrics?format=../../etc/passwd"))
    assert queried.status_code == 200
    assert plain.text.splitlines()[0] == queried.text.splitlines()[0]
