"""Chats with tools and reasoning, responses, messages: a stream builds the answer that is not streamed, whatever is asked."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.api.calls import make_app, post
from tests.api.fake_engine import FakeEngine

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}}
CHAT_TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": PARAMETERS}}]
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Pa{r}is é"}}\n</tool_call>'
WORDS = ["a", " b", "\n", "😀", "", "<", "<think>", "</think>", "<tool_call>", '{"name": "get_weather", "arguments": {}}', CALL, CALL[:40]]
SAYS = st.lists(st.sampled_from([*WORDS, *CALL]), min_size=1, max_size=14) | st.just(list(CALL)) | st.just([*CALL, "\n", *CALL, "end"])
COMMON = {"temperature": st.floats(0, 2), "top_p": st.floats(0.1, 1), "stream_interval": st.integers(1, 5)}
several = settings(max_examples=50, deadline=None, derandomize=True)


def ask(url, body, says, stop_reason=None):
    """Return the whole answer and the streamed one's events."""
    engine = FakeEngine()
    engine.says, engine.stop_reason = says, stop_reason
    app = make_app(engine, reasoning_parser="qwen3")
    whole = post(app, url, body)
    assert whole.status_code == 200, whole.text
    lines = post(app, url, body | {"stream": True}).text.splitlines()
    data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
    return whole.json(), [text if text == "[DONE]" else json.loads(text) for text in data]


def optional(**fields):
    return st.fixed_dictionaries({}, optional={name: value for name, value in fields.items() if name != "stream_interval"})


NEW = {"id", "call_id", "created", "created_at", "completed_at"}


def same(value):
    """Return a value without what is new in each answer: ids and times."""
    if isinstance(value, dict):
        return {name: same(inner) for name, inner in value.items() if name not in NEW}
    return [same(inner) for inner in value] if isinstance(value, list) else value


CHATS = st.fixed_dictionaries(
    {},
    optional=COMMON
    | {
        "n": st.integers(1, 3),
        "max_tokens": st.integers(1, 400),
        "tools": st.just(CHAT_TOOLS),
        "tool_choice": st.sampled_from(["auto", "none"]),
        "parallel_tool_calls": st.booleans(),
        "include_reasoning": st.booleans(),
        "reasoning_effort": st.sampled_from(["none", "low"]),
        "logprobs": st.booleans(),
        "return_token_ids": st.booleans(),
        "stream_options": st.none(),
    },
)


@several
@given(CHATS, SAYS)
def test_chats_with_tools_and_reasoning_fold(fields, says):
    body = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}]} | fields
    whole, (*chunks, done) = ask("/v1/chat/completions", body, says)
    assert done == "[DONE]"
    for choice in whole["choices"]:
        pieces = [piece for chunk in chunks for piece in chunk["choices"] if piece["index"] == choice["index"]]
        deltas = [piece["delta"] for piece in pieces]
        message = choice["message"]
        assert "".join(delta.get("content", "") for delta in deltas) == (message["content"] or "")
        for name in ("reasoning", "reasoning_content"):
            assert "".join(delta.get(name, "") for delta in deltas) == message.get(name, "")
        calls = {}
        for call in (call for delta in deltas for call in delta.get("tool_calls", ())):
            name, arguments = calls.get(call["index"], ("", ""))
            calls[call["index"]] = (name + call["function"].get("name", ""), arguments + call["function"]["arguments"])
        wanted = [(call["function"]["name"], call["function"]["arguments"]) for call in message.get("tool_calls", ())]
        assert [calls[index] for index in sorted(calls)] == wanted
        assert [piece["finish_reason"] for piece in pieces] == [None] * (len(pieces) - 1) + [choice["finish_reason"]]
        assert (choice["finish_reason"] == "tool_calls") == (bool(wanted) and choice["finish_reason"] != "length")
        logprobs = [position for piece in pieces if piece["logprobs"] for position in piece["logprobs"]["content"]]
        assert logprobs == (choice["logprobs"] or {"content": []})["content"]


RESPONSES = optional(
    **COMMON,
    max_output_tokens=st.integers(1, 400),
    tools=st.just([{"type": "function"} | CHAT_TOOLS[0]["function"]]),
    tool_choice=st.sampled_from(["auto", "none"]),
    parallel_tool_calls=st.booleans(),
    reasoning=st.fixed_dictionaries({"effort": st.sampled_from(["none", "low"])}),
    instructions=st.just("Be brief."),
    store=st.booleans(),
    metadata=st.just({"a": "b"}),
    include=st.just(["message.output_text.logprobs"]),
)


@several
@given(RESPONSES, SAYS)
def test_responses_fold(fields, says):
    whole, stream = ask("/v1/responses", {"model": "tiny", "input": "hi"} | fields, says)
    assert [event["sequence_number"] for event in stream] == list(range(len(stream)))
    final = stream[-1]["response"]
    assert stream[-1]["type"] == f"response.{whole['status']}"
    assert same(final) == same(whole)
    written = {}
    for event in stream:
        if event["type"].endswith(".delta"):
            written[event["output_index"]] = written.get(event["output_index"], "") + event["delta"]
    for index, item in enumerate(whole["output"]):
        text = item["arguments"] if item["type"] == "function_call" else item["content"][0]["text"]
        assert written.get(index, "") == text
    assert [same(event["item"]) for event in stream if event["type"] == "response.output_item.done"] == same(whole["output"])


MESSAGES = optional(
    **COMMON,
    max_tokens=st.integers(1, 400),
    top_k=st.integers(0, 40),
    tools=st.just([{"name": "get_weather", "input_schema": PARAMETERS}]),
    tool_choice=st.fixed_dictionaries({"type": st.just("auto"), "disable_parallel_tool_use": st.booleans()}) | st.just({"type": "none"}),
    thinking=st.sampled_from([{"type": "disabled"}, {"type": "enabled", "budget_tokens": 1024}]),
    system=st.just("Be brief."),
    stop_sequences=st.just(["zz"]),
)


@several
@given(MESSAGES, SAYS, st.sampled_from([None, "zz"]))
def test_messages_fold(fields, says, stop_reason):
    body = {"model": "tiny", "max_tokens": 400, "messages": [{"role": "user", "content": "hi"}]} | fields
    whole, stream = ask("/v1/messages", body, says, stop_reason)
    message = stream[0]["message"]
    arguments = {}
    for event in stream:
        if event["type"] == "content_block_start":
            assert event["index"] == len(message["content"])
            message["content"].append(event["content_block"])
        if event["type"] == "content_block_delta":
            block, delta = message["content"][event["index"]], event["delta"]
            if delta["type"] == "input_json_delta":
                arguments[event["index"]] = arguments.get(event["index"], "") + delta["partial_json"]
            else:
                name = delta["type"].removesuffix("_delta")
                block[name] += delta[name]
        if event["type"] == "message_delta":
            message |= event["delta"] | {"usage": event["usage"]}
    for index, text in arguments.items():
        try:
            message["content"][index]["input"] = json.loads(text)
        except ValueError:
            message["content"][index]["input"] = {"INVALID_JSON": text}
    assert same(message) == same(whole)
    assert [event["type"] for event in stream[-2:]] == ["message_delta", "message_stop"]
