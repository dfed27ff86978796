"""/v1/responses with the official client, which validates every answer and event strictly, and by hand where it would not help."""

import json

import openai
import pytest

from tests.api.calls import assert_openai_error, call, make_app, post
from tests.api.fake_engine import FakeEngine
from tests.api.live import live

URL = "/v1/responses"
ASK = {"model": "tiny", "input": "hi"}
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "Tell the weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    "strict": False,
}
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'


@pytest.fixture(scope="module")
def server():
    engine = FakeEngine()
    with live(make_app(engine, api_key=("sk-test", "sk-other"), reasoning_parser="qwen3")) as running:
        running.engine = engine
        yield running


@pytest.fixture
def engine(server):
    yield server.engine
    server.engine.says = server.engine.fail_at = None


@pytest.fixture(scope="module")
def client(server):
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="sk-test", max_retries=0, _strict_response_validation=True) as client:
        yield client


def prompt(engine):
    return bytes(engine.requests[-1][0]).decode()


def test_a_text_is_answered(client, engine):
    answer = client.responses.create(
        model="tiny", input="hi", instructions="Be brief.", max_output_tokens=64, temperature=0.5, metadata={"a": "b"}
    )
    assert (answer.status, answer.output_text) == ("completed", ":0 one two three four five six seven eight nine ten")
    assert answer.id.startswith("resp_")
    assert answer.output[0].id.startswith("msg_")
    assert (answer.metadata, answer.temperature, answer.instructions) == ({"a": "b"}, 0.5, "Be brief.")
    assert answer.usage.input_tokens == len(prompt(engine))
    assert answer.usage.output_tokens == 11
    assert answer.usage.input_tokens_details.cached_tokens == len(prompt(engine)) // 16 * 16
    assert prompt(engine) == "system: Be brief.\nuser: hi\nassistant:"


def test_an_answer_cut_short_is_incomplete_and_says_why(client, engine):
    answer = client.responses.create(model="tiny", input="hi", max_output_tokens=2)
    assert (answer.status, answer.incomplete_details.reason, answer.output_text) == ("incomplete", "max_output_tokens", ":0 one")
    assert answer.output[0].status == "incomplete"
    *_, last = client.responses.create(model="tiny", input="hi", max_output_tokens=2, stream=True)
    assert last.type == "response.incomplete"


SAYS = {
    "text": ["Well", ", yes."],
    "thought": ["<think>", "Hm.", "</think>", "\n\nYes", "."],
    "call": list(CALL),
    "all": ["<think>Hm.</think>", "See:\n", *CALL, CALL, "done"],
}


@pytest.mark.parametrize("says", SAYS)
def test_the_events_come_in_their_order_and_build_the_response(client, engine, says):
    engine.says = SAYS[says]
    stream = list(client.responses.create(model="tiny", input="hi", tools=[WEATHER], stream=True))
    assert [event.sequence_number for event in stream] == list(range(len(stream)))
    assert [event.type for event in stream[:2]] == ["response.created", "response.in_progress"]
    assert stream[0].response.output == []
    assert stream[-1].type == "response.completed"
    final = stream[-1].response
    open_item = None
    texts = {}
    for event in stream[2:-1]:
        kind = event.type
        if kind == "response.output_item.added":
            assert open_item is None and event.output_index == len(texts)
            open_item = event.item.id
            texts[open_item] = ""
        elif kind == "response.output_item.done":
            assert open_item == event.item.id
            assert event.item == final.output[event.output_index]
            open_item = None
        else:
            assert event.item_id == open_item
            if kind.endswith(".delta"):
                texts[open_item] += event.delta
            elif kind == "response.function_call_arguments.done":
                assert event.arguments == texts[open_item]
            elif kind.endswith("text.done"):
                assert event.text == texts[open_item]
    assert open_item is None
    written = [item.arguments if item.type == "function_call" else item.content[0].text for item in final.output]
    assert written == list(texts.values())
    whole = client.responses.create(model="tiny", input="hi", tools=[WEATHER])
    assert [item.type for item in whole.output] == [item.type for item in final.output]
    assert whole.output_text == final.output_text
    assert whole.usage == final.usage


CHOICE = {"type": "function", "name": "get_weather"}


def test_only_allowed_tools_are_called(client, engine):
    engine.says = list(CALL)
    for name in ("get_weather", "other"):
        choice = {"type": "allowed_tools", "mode": "auto", "tools": [CHOICE | {"name": name}]}
        answer = client.responses.create(**ASK, tools=[WEATHER, WEATHER | {"name": "other"}], tool_choice=choice)
        assert [item.type for item in answer.output] == (["function_call"] if name == "get_weather" else ["message"])
        assert prompt(engine).startswith("tools: get_weather") and answer.tool_choice.mode == "auto"


def test_a_format_goes_with_tools(client, engine):
    text = {"format": {"type": "json_schema", "name": "place", "schema": {"type": "object", "properties": {"a": {"type": "integer"}}}}}
    for says, kind in ((CALL, "function_call"), ('{"a": 1}', "message")):
        engine.says = list(says)
        answer = client.responses.create(**ASK, tools=[WEATHER], text=text)
        assert [item.type for item in answer.output] == [kind]
        assert engine.requests[-1][1].structured_outputs.calls is not None


def test_the_items_of_an_answer_of_all_kinds(client, engine):
    engine.says = SAYS["all"]
    answer = client.responses.create(model="tiny", input="hi", tools=[WEATHER])
    thought, message, first, second, rest = answer.output
    assert (thought.type, thought.content[0].text) == ("reasoning", "Hm.")
    assert (message.type, message.content[0].text) == ("message", "See:")
    assert (first.type, first.name, json.loads(first.arguments)) == ("function_call", "get_weather", {"city": "Paris"})
    assert first.call_id != second.call_id
    assert rest.content[0].text == "\ndone"
    assert answer.usage.output_tokens_details.reasoning_tokens == 1


def test_the_stream_is_named_and_ends_without_done():
    text = post(make_app(), URL, ASK | {"stream": True}).text
    for block in text.strip().split("\n\n"):
        name, data = block.split("\n")
        assert name.removeprefix("event: ") == json.loads(data.removeprefix("data: "))["type"]
    assert "[DONE]" not in text


def test_a_stored_response_is_gone_on_with_found_and_deleted(client, engine):
    engine.says = [CALL]
    first = client.responses.create(model="tiny", input="Weather?", instructions="Be brief.", tools=[WEATHER])
    call_id = first.output[0].call_id
    engine.says = ["Rain."]
    result = {"type": "function_call_output", "call_id": call_id, "output": "rain"}
    second = client.responses.create(model="tiny", previous_response_id=first.id, input=[result], tools=[WEATHER])
    assert second.previous_response_id == first.id
    assert prompt(engine) == (
        'tools: get_weather\nuser: Weather?\nassistant: None\ncall: get_weather{"city": "Paris"}\ntool: rain\nassistant:'
    )
    client.responses.create(model="tiny", previous_response_id=second.id, input="Sure?")
    assert prompt(engine).endswith("tool: rain\nassistant: Rain.\nuser: Sure?\nassistant:")
    assert client.responses.retrieve(first.id) == first
    client.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(first.id)
    client.responses.create(model="tiny", previous_response_id=second.id, input="Still there?")


def test_input_items_are_listed_page_by_page(client, engine):
    answer = client.responses.create(
        model="tiny", input=[{"role": "user", "content": f"{i}"} for i in range(5)] + [{"role": "assistant", "content": "ok"}]
    )
    assert [item.content[0].text for item in client.responses.input_items.list(answer.id, order="asc", limit=2)] == [*"01234", "ok"]
    page = client.responses.input_items.list(answer.id, limit=2)
    assert [item.content[0].text for item in page.data] == ["ok", "4"]
    assert page.has_more


def test_what_was_said_may_be_sent_back_whole(client, engine):
    engine.says = SAYS["all"]
    answer = client.responses.create(model="tiny", input="hi", tools=[WEATHER], store=False)
    items = [{"role": "user", "content": "hi"}, *(item.model_dump(exclude_none=True) for item in answer.output)]
    items += [
        {"type": "function_call_output", "call_id": item.call_id, "output": [{"type": "input_text", "text": "rain"}]}
        for item in answer.output
        if item.type == "function_call"
    ]
    engine.says = ["ok"]
    assert client.responses.create(model="tiny", input=items, tools=[WEATHER]).output_text == "ok"
    assert "call: get_weather" in prompt(engine) and prompt(engine).endswith("tool: rain\ntool: rain\nassistant:")
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(answer.id)


def test_another_key_neither_sees_nor_goes_on_with_a_response(server, client, engine):
    answer = client.responses.create(model="tiny", input="secret")
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="sk-other", max_retries=0) as other:
        for attempt in (
            lambda: other.responses.retrieve(answer.id),
            lambda: other.responses.delete(answer.id),
            lambda: other.responses.cancel(answer.id),
            lambda: other.responses.input_items.list(answer.id),
            lambda: other.responses.create(model="tiny", input="hi", previous_response_id=answer.id),
        ):
            with pytest.raises(openai.NotFoundError):
                attempt()
    assert client.responses.retrieve(answer.id).id == answer.id


def test_only_background_responses_can_be_cancelled(client, engine):
    answer = client.responses.create(model="tiny", input="hi")
    with pytest.raises(openai.BadRequestError, match="background"):
        client.responses.cancel(answer.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.cancel("resp_none")


def test_logprobs_come_where_include_asks_for_them(client, engine):
    answer = client.responses.create(
        model="tiny", input="hi", include=["message.output_text.logprobs"], top_logprobs=2, max_output_tokens=3
    )
    logprobs = answer.output[0].content[0].logprobs
    assert len(logprobs) == 3 and len(logprobs[0].top_logprobs) == 2


def test_a_failure_midway_is_the_last_event(client, engine):
    engine.fail_at = 2
    *_, last = client.responses.create(model="tiny", input="hi", stream=True)
    assert (last.type, last.response.status, last.response.error.message) == ("response.failed", "failed", "the logits hold NaN")
    engine.fail_at = 0
    with pytest.raises(openai.InternalServerError):
        client.responses.create(model="tiny", input="hi", stream=True)


def test_the_clients_own_streaming_helper_takes_the_events(client, engine):
    engine.says = SAYS["all"]
    with client.responses.stream(model="tiny", input="hi", tools=[WEATHER]) as stream:
        for _ in stream:
            pass
        assert [item.type for item in stream.get_final_response().output][:2] == ["reasoning", "message"]


REFUSED = [
    ({"background": True}, "unsupported_parameter", "background"),
    ({"truncation": "auto"}, "unsupported_parameter", "truncation"),
    ({"conversation": "c"}, "unsupported_parameter", "conversation"),
    ({"max_tool_calls": 3}, "unsupported_parameter", "max_tool_calls"),
    ({"text": {"format": {"type": "json_schema", "name": "x", "schema": {"type": "nope"}}}}, "invalid_json_schema", "text.format.schema"),
    ({"text": {"format": {"type": "json_schema", "name": "x"}}}, "missing_required_parameter", "text.format.schema"),
    ({"text": {"format": {"type": "xml"}}}, "invalid_value", "text.format.type"),
    ({"structured_outputs": {"regex": "("}}, "invalid_value", "structured_outputs.regex"),
    ({"text": {"verbosity": "low"}}, "invalid_value", "text.verbosity"),
    ({"include": ["file_search_call.results"]}, "unsupported_value", "include"),
    ({"tools": [{"type": "web_search"}]}, "invalid_value", "tools[0].type"),
    ({"tools": [WEATHER | {"strict": 1}]}, "invalid_type", "tools[0].strict"),
    ({"tools": [WEATHER | {"name": "a b"}]}, "invalid_value", "tools[0].name"),
    ({"tools": [WEATHER], "tool_choice": {"type": "function", "name": "x"}}, "invalid_value", "tool_choice"),
    ({"tools": [WEATHER], "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": []}}, "invalid_value", "tool_choice"),
    ({"tools": [WEATHER], "tool_choice": {"type": "allowed_tools", "mode": "any", "tools": [CHOICE]}}, "invalid_value", "tool_choice"),
    ({"tools": [WEATHER], "structured_outputs": {"regex": "<.*"}}, "invalid_value", "structured_outputs.regex"),
    ({"tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [5]}}, "invalid_type", "tool_choice.tools[0]"),
    ({"tool_choice": {"type": "allowed_tools", "mode": "auto", "x": 5}}, "unknown_parameter", "tool_choice.x"),
    ({"top_logprobs": 3}, "invalid_value", "top_logprobs"),
    ({"input": []}, "invalid_value", "input"),
    ({"input": None}, "invalid_type", "input"),
    ({"input": 5}, "invalid_type", "input"),
    ({"input": ["hi"]}, "invalid_type", "input[0]"),
    ({"input": [{"type": "item_reference", "id": "x"}]}, "unsupported_value", "input[0].type"),
    ({"input": [{"role": "user", "content": "a"}, {"role": "root", "content": "a"}]}, "invalid_value", "input[1]"),
    ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, "unsupported_content_type", "input[0]"),
    ({"input": [{"role": "user", "content": "a", "x": 1}]}, "unknown_parameter", "input[0]"),
    ({"input": [{"type": "function_call_output", "call_id": "x", "output": "a"}]}, "invalid_value", "input[0]"),
    ({"input": [{"type": "function_call_output", "call_id": "x"}]}, "missing_required_parameter", "input[0].output"),
    ({"input": [{"type": "function_call", "call_id": "x", "name": "a b"}]}, "invalid_value", "input[0]"),
    ({"input": [{"type": "reasoning", "summary": 5}]}, "invalid_type", "input[0]"),
    ({"input": "x" * 3000}, "context_length_exceeded", "input"),
    ({"max_output_tokens": 0}, "integer_below_min_value", "max_output_tokens"),
    ({"n": 2}, "unknown_parameter", "n"),
    ({"stream_options": {"include_obfuscation": False}}, "invalid_value", "stream_options"),
    ({"metadata": {"a": 1}}, "invalid_type", "metadata.a"),
    ({"stream": True, "stream_options": {"include_obfuscation": True}}, "invalid_value", "stream_options.include_obfuscation"),
]


@pytest.mark.parametrize(("fields", "code", "param"), REFUSED, ids=lambda value: str(value)[:40])
def test_what_cannot_be_honoured_is_refused_by_name(fields, code, param):
    response = post(make_app(), URL, ASK | fields)
    error = assert_openai_error(response)
    assert response.status_code == 400
    assert (error["code"], error["param"]) == (code, param), error["message"]


def test_a_response_that_is_not_there_is_404():
    app = make_app()
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/cancel"), ("GET", "/input_items")):
        assert assert_openai_error(call(app, method, f"{URL}/resp_x{path}"))["code"] == "not_found"
    error = assert_openai_error(post(app, URL, ASK | {"previous_response_id": "resp_x"}))
    assert (error["code"], error["param"]) == ("not_found", "previous_response_id")


def test_a_server_without_a_store_says_so():
    app = make_app(response_store_bytes=0)
    answer = post(app, URL, ASK).json()
    assert (answer["status"], answer["store"]) == ("completed", False)
    assert call(app, "GET", f"{URL}/{answer['id']}").status_code == 404
    assert post(app, URL, ASK | {"store": True}).json()["error"]["param"] == "store"


def test_reasoning_effort_reaches_the_template(client, engine):
    engine.says = ["Hm.</think>Yes."]
    assert client.responses.create(model="tiny", input="hi", reasoning={"effort": "low"}).output_text == "Yes."
    assert prompt(engine).endswith("<think>\n")


def test_effort_that_nothing_knows_is_refused_under_the_name_that_the_client_sent():
    engine = FakeEngine()
    engine.chat.variables = frozenset()
    error = assert_openai_error(post(make_app(engine), URL, ASK | {"reasoning": {"effort": "low"}}))
    assert (error["code"], error["param"]) == ("unsupported_parameter", "reasoning.effort")
    assert "leave reasoning.effort out" in error["message"]
