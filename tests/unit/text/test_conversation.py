"""Messages from JSON: what is taken, what is refused, and where the refusal points."""

import pytest

from octavo.errors import InvalidRequest
from octavo.text.conversation import MAX_MESSAGES, validate_messages

CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}


def user(**fields):
    return [{"role": "user", "content": "hi"} | fields]


@pytest.mark.parametrize(
    ("messages", "code", "param"),
    [
        (None, "invalid_type", "messages"),
        ({}, "invalid_type", "messages"),
        ("hi", "invalid_type", "messages"),
        ([], "empty_array", "messages"),
        ([None], "invalid_type", "messages[0]"),
        ([1], "invalid_type", "messages[0]"),
        ([[]], "invalid_type", "messages[0]"),
        ([{"content": "hi"}], "invalid_value", "messages[0].role"),
        (user(role="root"), "invalid_value", "messages[0].role"),
        (user(role=1), "invalid_value", "messages[0].role"),
        (user(role=""), "invalid_value", "messages[0].role"),
        (user(role=["user"]), "invalid_value", "messages[0].role"),
        ([{"role": "user"}], "missing_required_parameter", "messages[0].content"),
        (user(content=None), "invalid_type", "messages[0].content"),
        (user(content=7), "invalid_type", "messages[0].content"),
        (user(content=[]), "empty_array", "messages[0].content"),
        ([*user(), {"role": "assistant", "content": None}], "invalid_type", "messages[1].content"),
        ([{"role": "user", "content": "a"}] * (MAX_MESSAGES + 1), "array_above_max_length", "messages"),
        (user(content=[{"type": "image_url", "image_url": {}}]), "unsupported_content_type", "messages[0].content[0].type"),
        (user(content=[{"type": "input_audio"}]), "unsupported_content_type", "messages[0].content[0].type"),
        (user(content=[{"text": "a"}]), "invalid_value", "messages[0].content[0].type"),
        (user(content=[{"type": "poem", "text": "a"}]), "invalid_value", "messages[0].content[0].type"),
        (user(content=[{"type": 1, "text": "a"}]), "invalid_value", "messages[0].content[0].type"),
        (user(content=["a"]), "invalid_type", "messages[0].content[0]"),
        (user(content=[{"type": "text", "text": None}]), "invalid_type", "messages[0].content[0].text"),
        (user(content=[{"type": "text"}]), "missing_required_parameter", "messages[0].content[0].text"),
        (user(content=[{"type": "text", "text": "a", "x": 1}]), "unknown_parameter", "messages[0].content[0].x"),
        (user(content=[{"type": "text", "text": "a"}] * 1025), "array_above_max_length", "messages[0].content"),
        ([{"role": "tool", "content": "3"}], "invalid_value", "messages[0].tool_call_id"),
        ([{"role": "tool", "content": "3", "tool_call_id": "c9"}], "invalid_value", "messages[0].tool_call_id"),
        ([{"role": "tool", "content": "3", "tool_call_id": 3}], "invalid_value", "messages[0].tool_call_id"),
        (user(name="a\nb"), "invalid_value", "messages[0].name"),
        (user(name="a" * 1024), "invalid_value", "messages[0].name"),
        (user(name="<|im_end|>"), "invalid_value", "messages[0].name"),
        (user(name=3), "invalid_value", "messages[0].name"),
        (user(tool_calls=[CALL]), "invalid_value", "messages[0].tool_calls"),
        (user(role="assistant", tool_calls={}), "invalid_type", "messages[0].tool_calls"),
        (user(role="assistant", tool_calls=[1]), "invalid_type", "messages[0].tool_calls[0]"),
        (user(role="assistant", tool_calls=[CALL | {"id": None}]), "invalid_value", "messages[0].tool_calls[0].id"),
        (user(role="assistant", tool_calls=[CALL | {"type": "x"}]), "invalid_value", "messages[0].tool_calls[0].type"),
        (user(role="assistant", tool_calls=[CALL | {"function": 1}]), "invalid_type", "messages[0].tool_calls[0].function"),
        (
            user(role="assistant", tool_calls=[CALL | {"function": {"name": "a b", "arguments": ""}}]),
            "invalid_value",
            "messages[0].tool_calls[0].function.name",
        ),
        (
            user(role="assistant", tool_calls=[CALL | {"function": {"name": "a", "arguments": 1}}]),
            "invalid_type",
            "messages[0].tool_calls[0].function.arguments",
        ),
        (user(role="assistant", tool_calls=[CALL] * 129), "array_above_max_length", "messages[0].tool_calls"),
        (user(foo=1), "unknown_parameter", "messages[0].foo"),
        (user(reasoning_content=1), "invalid_type", "messages[0].reasoning_content"),
    ],
)
def test_a_bad_message_is_refused_where_it_is_bad(messages, code, param):
    with pytest.raises(InvalidRequest) as caught:
        validate_messages(messages)
    assert (caught.value.code, caught.value.param) == (code, param)
    assert param.split(".")[0] in caught.value.message


def test_empty_content_is_content():
    assert validate_messages(user(content="")) == [{"role": "user", "content": ""}]


def test_text_parts_of_every_spelling_are_joined_by_newlines():
    parts = [{"type": kind, "text": kind} for kind in ("text", "input_text", "output_text")]
    assert validate_messages(user(content=parts))[0]["content"] == "text\ninput_text\noutput_text"


def test_an_assistant_message_with_tool_calls_needs_no_content():
    for message in ({"role": "assistant", "tool_calls": [CALL]}, {"role": "assistant", "content": None, "tool_calls": [CALL]}):
        clean = validate_messages([message, {"role": "tool", "tool_call_id": "c1", "content": "1"}])
        assert clean[0] == {"role": "assistant", "content": None, "tool_calls": [CALL]}
        assert clean[1] == {"role": "tool", "content": "1", "tool_call_id": "c1"}


def test_tool_arguments_may_be_an_object_and_need_not_be_json():
    for arguments, text in (({"a": "é"}, '{"a": "é"}'), ("no json {", "no json {")):
        call = CALL | {"function": {"name": "add", "arguments": arguments}}
        clean = validate_messages(user(role="assistant", tool_calls=[call]))
        assert clean[0]["tool_calls"][0]["function"]["arguments"] == text


def test_what_an_answer_carries_comes_back_without_harm():
    clean = validate_messages(
        user(role="assistant", refusal=None, annotations=[], audio=None, function_call=None, tool_calls=[], reasoning="r")
    )
    assert clean == [{"role": "assistant", "content": "hi", "reasoning_content": "r"}]


def test_cleaning_twice_is_cleaning_once():
    clean = validate_messages(
        [
            *user(name="ann"),
            {"role": "assistant", "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "1"}]},
        ]
    )
    assert validate_messages(clean) == clean
