"""/v1/messages with the official client of Anthropic, validating strictly."""

import json

import anthropic
import pytest

from tests.api.calls import call, make_app, post
from tests.api.fake_engine import FakeEngine
from tests.api.live import live

URL = "/v1/messages"
ASK = {"model": "tiny", "max_tokens": 300, "messages": [{"role": "user", "content": "hi"}]}
WEATHER = {
    "name": "get_weather",
    "description": "Tell the weather",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
}
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'


@pytest.fixture(scope="module")
def server():
    engine = FakeEngine()
    with live(make_app(engine, api_key=("sk-test",), reasoning_parser="qwen3")) as running:
        running.engine = engine
        yield running


@pytest.fixture
def engine(server):
    yield server.engine
    server.engine.says = server.engine.fail_at = None


@pytest.fixture(scope="module")
def client(server):
    with anthropic.Anthropic(base_url=server.url, api_key="sk-test", max_retries=0, _strict_response_validation=True) as client:
        yield client


def prompt(engine):
    return bytes(engine.requests[-1][0]).decode()


def ask(client, **fields):
    return client.messages.create(**(ASK | fields))


def test_a_message_is_answered(client, engine):
    message = ask(client, system=[{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}])
    assert (message.content[0].text, message.stop_reason) == (":0 one two three four five six seven eight nine ten", "end_turn")
    assert prompt(engine) == "system: Be brief.\nuser: hi\nassistant:"
    cached = len(prompt(engine)) // 16 * 16
    assert (message.usage.cache_read_input_tokens, message.usage.input_tokens) == (cached, len(prompt(engine)) - cached)
    assert message.usage.output_tokens == 11


def test_stop_reasons(client, engine):
    assert ask(client, max_tokens=2).stop_reason == "max_tokens"
    assert ask(client, max_tokens=2, stop_sequences=["two"]).stop_reason == "max_tokens"
    assert engine.requests[-1][1].stop == ("two",)
    engine.says, engine.stop_reason = ["one "], "two"
    try:
        message = ask(client, stop_sequences=["two"])
        assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", "two")
    finally:
        engine.stop_reason = None


SAYS = {"text": ["Well", ", yes."], "call": list(CALL), "all": ["<think>", "Hm.", "</think>", "See:\n", *CALL, CALL, "done"]}


@pytest.mark.parametrize("says", SAYS)
def test_a_stream_builds_the_message_that_is_not_streamed(client, engine, says):
    engine.says = SAYS[says]
    fields = {"tools": [WEATHER], "thinking": {"type": "adaptive"}} if says == "all" else {"tools": [WEATHER]}
    whole = ask(client, **fields)
    with client.messages.stream(**(ASK | fields)) as stream:
        kinds = [event.type for event in stream]
        built = stream.get_final_message()
    assert kinds[0] == "message_start" and kinds[-1] == "message_stop"
    assert [block.type for block in built.content] == [block.type for block in whole.content]
    for one, other in zip(built.content, whole.content, strict=True):
        if one.type == "tool_use":
            assert (one.name, one.input) == (other.name, other.input) == ("get_weather", {"city": "Paris"})
        else:
            assert one.model_dump(exclude={"parsed_output"}) == other.model_dump(exclude={"parsed_output"})
    assert (built.stop_reason, built.usage.output_tokens) == (whole.stop_reason, whole.usage.output_tokens)
    assert whole.stop_reason == ("tool_use" if says != "text" else "end_turn")


def test_the_raw_events_have_their_names_and_order(engine):
    app = make_app(engine)
    engine.says = ["Well", CALL]
    blocks = post(app, URL, ASK | {"tools": [WEATHER], "stream": True}).text.strip().split("\n\n")
    events = [
        (name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in (block.split("\n") for block in blocks)
    ]
    assert all(name == event["type"] for name, event in events)
    assert [name for name, _ in events] == [
        "message_start", "ping", "content_block_start", "content_block_delta", "content_block_stop",
        "content_block_start", "content_block_delta", "content_block_stop", "message_delta", "message_stop",
    ]  # fmt: skip
    assert [event["index"] for _, event in events if "index" in event] == [0, 0, 0, 1, 1, 1]
    assert events[0][1]["message"]["usage"]["output_tokens"] == 0
    assert events[-2][1] == {
        "type": "message_delta",
        "delta": {"stop_reason": "tool_use", "stop_sequence": None},
        "usage": events[-2][1]["usage"],
    }


def test_calls_and_results_go_back_and_forth(client, engine):
    engine.says = ["See:\n", CALL]
    message = ask(client, tools=[WEATHER])
    block = message.content[1]
    engine.says = ["Rain."]
    results = [
        {"type": "tool_result", "tool_use_id": block.id, "content": [{"type": "text", "text": "rain"}], "is_error": True},
        {"type": "text", "text": "And?"},
    ]
    echoed = [part.model_dump(exclude_none=True) for part in message.content]
    answer = ask(
        client, tools=[WEATHER], messages=[*ASK["messages"], {"role": "assistant", "content": echoed}, {"role": "user", "content": results}]
    )
    assert answer.content[0].text == "Rain."
    assert prompt(engine).endswith(
        'user: hi\nassistant: See:\ncall: get_weather{"city": "Paris"}\ntool: Error: rain\nuser: And?\nassistant:'
    )


def test_thinking_is_shown_when_it_is_asked_for(client, engine):
    engine.says = ["Hm.</think>Yes."]
    message = ask(client, thinking={"type": "enabled", "budget_tokens": 1024})
    assert [block.type for block in message.content] == ["thinking", "text"]
    assert (message.content[0].thinking, message.content[1].text) == ("Hm.", "Yes.")
    engine.says = ["<think>Hm.</think>Yes."]
    assert [block.type for block in ask(client).content] == ["text"]
    assert [block.type for block in ask(client, thinking={"type": "disabled"}).content] == ["text"]


def test_a_final_message_of_the_assistant_is_gone_on_with(client, engine):
    ask(client, messages=[*ASK["messages"], {"role": "assistant", "content": "Well"}])
    assert prompt(engine) == "user: hi\nassistant: Well"


def test_tool_choice(client, engine):
    engine.says = [CALL, CALL]
    assert len(ask(client, tools=[WEATHER]).content) == 2
    assert len(ask(client, tools=[WEATHER], tool_choice={"type": "auto", "disable_parallel_tool_use": True}).content) == 1
    assert ask(client, tools=[WEATHER], tool_choice={"type": "none"}).content[0].type == "text"
    engine.says = ['[{"name": "get_weather", "arguments": {"city": "Oslo"}}]']
    for choice in ({"type": "any"}, {"type": "tool", "name": "get_weather"}):
        message = ask(client, tools=[WEATHER], tool_choice=choice)
        assert message.stop_reason == "tool_use"
        assert [block.input for block in message.content] == [{"city": "Oslo"}]
        assert engine.requests[-1][1].structured_outputs is not None


def test_a_format_goes_with_tools(client, engine):
    config = {"format": {"type": "json_schema", "schema": {"type": "object", "properties": {"a": {"type": "integer"}}}}}
    for says, kind in ((CALL, "tool_use"), ('{"a": 1}', "text")):
        engine.says = list(says)
        message = ask(client, tools=[WEATHER], output_config=config)
        assert [block.type for block in message.content] == [kind]
        assert engine.requests[-1][1].structured_outputs.calls is not None


def test_arguments_that_are_no_json_are_given_under_a_name_of_their_own(client, engine):
    engine.says = [CALL.replace('"Paris"', "Paris")]
    assert ask(client, tools=[WEATHER]).content[0].input == {"INVALID_JSON": '{"city": Paris}'}


def test_tokens_are_counted_as_the_message_would_have_them(client, engine):
    fields = {"system": "Be brief.", "tools": [WEATHER], "messages": ASK["messages"]}
    count = client.messages.count_tokens(model="tiny", **fields).input_tokens
    ask(client, **fields)
    assert count == len(engine.requests[-1][0])


def test_mistakes_raise_the_right_class_in_anthropics_shape(client, server, engine):
    with pytest.raises(anthropic.BadRequestError) as refused:
        ask(client, max_tokens=0)
    assert refused.value.body["error"]["type"] == "invalid_request_error"
    assert "max_tokens" in refused.value.body["error"]["message"]
    with pytest.raises(anthropic.NotFoundError):
        ask(client, model="claude")
    with anthropic.Anthropic(base_url=server.url, api_key="sk-wrong", max_retries=0) as other, pytest.raises(anthropic.AuthenticationError):
        ask(other)
    engine.fail_at = 0
    with pytest.raises(anthropic.InternalServerError):
        ask(client)
    engine.fail_at = 3
    with pytest.raises(anthropic.APIStatusError, match="NaN"), client.messages.stream(**ASK) as stream:
        list(stream)


def test_a_key_may_come_as_x_api_key():
    app = make_app(api_key=("sk-test",))
    assert post(app, URL, ASK, x_api_key="sk-test").status_code == 200
    refused = post(app, URL, ASK, x_api_key="sk-wrong")
    assert (refused.status_code, refused.json()["type"], refused.json()["error"]["type"]) == (401, "error", "authentication_error")
    assert post(app, URL, ASK, x_api_key="sk-test", authorization="Bearer sk-wrong").status_code == 401


REFUSED = [
    ({"max_tokens": ...}, "max_tokens"),
    ({"messages": [{"role": "system", "content": "a"}]}, "messages[0].role"),
    ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, "messages[0].content[0].type"),
    ({"messages": [{"role": "user", "content": [{"type": "text", "text": 1}]}]}, "text of a block"),
    ({"messages": [{"role": "user", "content": []}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x", "content": "a"}]}]}, "messages[0]"),
    ({"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "x", "name": "a", "input": 1}]}]}, "input of a tool_use"),
    ({"messages": ["hi"]}, "messages[0]"),
    ({"messages": []}, "messages"),
    ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "tools[0].type"),
    ({"tools": [{"name": "a b", "input_schema": {}}]}, "tools[0]"),
    ({"tools": [WEATHER | {"strict": 1}]}, "strict"),
    ({"output_config": {"format": {"type": "json_schema", "schema": {"type": "nope"}}}}, "output_config.format.schema"),
    ({"system": 5}, "system"),
    ({"stop_sequences": [""]}, "stop_sequences"),
    ({"thinking": {"type": "maybe"}}, "thinking.type"),
    ({"n": 2}, "n"),
    ({"container": "x"}, "container"),
]


@pytest.mark.parametrize(("fields", "place"), REFUSED, ids=lambda value: str(value)[:40])
def test_what_cannot_be_honoured_is_refused_by_name(fields, place):
    body = {name: value for name, value in (ASK | fields).items() if value is not ...}
    response = post(make_app(), URL, body)
    assert response.status_code == 400
    assert set(response.json()) == {"type", "error"} and response.json()["error"]["type"] == "invalid_request_error"
    assert place in response.json()["error"]["message"]


def test_thinking_is_refused_where_nothing_thinks(engine):
    engine.chat.variables = frozenset()
    try:
        assert "thinking" in post(make_app(engine), URL, ASK | {"thinking": {"type": "adaptive"}}).json()["error"]["message"]
    finally:
        del engine.chat.variables


def test_the_wrong_method_has_anthropics_shape():
    response = call(make_app(), "GET", URL)
    assert (response.status_code, response.json()["type"]) == (405, "error")
