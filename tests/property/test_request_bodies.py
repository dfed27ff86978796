"""Whatever a client sends, the answer is 200 or a 4xx in OpenAI's shape, and never a 5xx."""

import json

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.api.calls import CHAT, COMPLETION, assert_openai_error, call, make_app, post

from octavo.server.anthropic.schemas import MessagesRequest
from octavo.server.openai.schemas import ChatRequest, CompletionRequest
from octavo.server.responses.schemas import ResponsesRequest

APP = make_app()
RESPONSE = {"model": "tiny", "input": "hi", "max_output_tokens": 4}
MESSAGE = CHAT
LAST_EVENT = {"/v1/responses": "response.", "/v1/messages": "message_stop"}
NUMBERS = [-(2**64), -(2**31), -100.5, -2, -1, -0.0, 0, 1e-9, 0.5, 1, 1.5, 2, 16, 17, 20, 21, 100, 300, 2**31 - 1, 2**31, 2**63, 1e308]
WORDS = ["", "a", "auto", "text", "hi\x00", "é\u0301", "😀", "x" * 300, "0", "-1", "١"]
scalars = st.one_of(st.none(), st.booleans(), st.sampled_from(NUMBERS), st.sampled_from(WORDS), st.text(max_size=8))
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from([*WORDS, "type", "text", "role", "content"]), inner, max_size=4)
    ),
    max_leaves=12,
)
parts = st.lists(st.fixed_dictionaries({}, optional={"type": st.sampled_from(["text", "image_url", 1]), "text": values}), max_size=3)
messages = st.lists(
    st.fixed_dictionaries(
        {}, optional={"role": st.sampled_from(["user", "assistant", "system", "developer", "tool"]) | values, "content": values | parts}
    ),
    max_size=3,
)


def bodies(schema, valid):
    """A valid body with up to four fields that hold anything."""
    names = [*schema.model_fields, *schema.refused, "unheard_of"]
    strange = st.dictionaries(st.sampled_from(names), values, max_size=4)
    talk = st.fixed_dictionaries({}, optional={"messages": messages}) if "messages" in names else st.just({})
    return st.tuples(strange, talk).map(lambda pair: valid | pair[0] | pair[1])


def assert_answered(path, body):
    response = post(APP, path, body)
    assert response.status_code in (200, 400, 404), response.text
    if response.status_code != 200:
        if path == "/v1/messages":
            assert set(response.json()["error"]) == {"type", "message"}
        else:
            assert_openai_error(response)
    elif body.get("stream"):
        assert response.text.endswith("data: [DONE]\n\n") or path in LAST_EVENT
        assert response.text.rpartition("event: ")[2].startswith(LAST_EVENT.get(path, ""))


quick = settings(max_examples=100, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])


@quick
@given(bodies(ChatRequest, CHAT))
def test_any_chat_body_gets_a_proper_answer(body):
    assert_answered("/v1/chat/completions", body)


@quick
@given(bodies(CompletionRequest, COMPLETION))
def test_any_completion_body_gets_a_proper_answer(body):
    assert_answered("/v1/completions", body)


pieces = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["message", "function_call", "function_call_output", "reasoning", "text", "tool_use", "tool_result"]),
        "role": st.sampled_from(["user", "assistant", "system"]),
        "content": values | parts,
        "call_id": st.just("c"),
        "id": st.just("c"),
        "tool_use_id": st.just("c"),
        "name": st.sampled_from(["f", "a b"]),
        "arguments": values,
        "input": values,
        "output": values,
        "summary": values | parts,
    },
)
blocks = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant"])}, optional={"content": values | st.lists(pieces, max_size=3)}
)


@quick
@given(bodies(ResponsesRequest, RESPONSE), st.none() | st.lists(pieces, max_size=4))
def test_any_responses_body_gets_a_proper_answer(body, items):
    assert_answered("/v1/responses", body if items is None else body | {"input": items})


@quick
@given(bodies(MessagesRequest, MESSAGE), st.none() | st.lists(blocks, max_size=3))
def test_any_messages_body_gets_a_proper_answer(body, conversation):
    assert_answered("/v1/messages", body if conversation is None else body | {"messages": conversation})


@quick
@given(
    st.sampled_from(sorted(set(ChatRequest.model_fields) - {"messages", "model"})),
    st.sampled_from([*NUMBERS, *WORDS, None, True, [], {}, [1], ["a"]]),
)
def test_each_field_at_and_beyond_its_borders_gets_a_proper_answer(name, value):
    assert_answered("/v1/chat/completions", CHAT | {name: value})


@quick
@given(st.binary(max_size=64) | st.text(max_size=64).map(str.encode) | values.map(json.dumps).map(str.encode))
def test_any_bytes_get_a_proper_answer(content):
    response = call(APP, "POST", "/v1/chat/completions", content=content, headers={"content-type": "application/json"})
    assert response.status_code == 400
    assert_openai_error(response)
