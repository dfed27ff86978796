"""Tools and reasoning in chat: what the model is told, and what it says, streamed and not."""

import json
import logging

import pytest

from tests.api.calls import CHAT, events, make_app, post
from tests.api.calls import call as call_app
from tests.api.fake_engine import FakeEngine

URL = "/v1/chat/completions"
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Tell the weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
ASK = CHAT | {"tools": [WEATHER], "max_tokens": 400}
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris {1}"}}\n</tool_call>'


@pytest.fixture
def engine():
    engine = FakeEngine()
    engine.says = list(CALL)
    return engine


@pytest.fixture
def app(engine):
    return make_app(engine)


def fold(chunks):
    """What a client makes of a stream of one choice: message, finish reasons."""
    message, reasons = {}, []
    for chunk in chunks:
        for choice in chunk["choices"]:
            delta = choice["delta"]
            for name in ("content", "reasoning", "reasoning_content"):
                if name in delta:
                    message[name] = message.get(name, "") + delta[name]
            for call in delta.get("tool_calls", []):
                calls = message.setdefault("tool_calls", [])
                if call["index"] == len(calls):
                    calls.append({"id": call["id"], "type": call["type"], "function": dict(call["function"])})
                else:
                    assert set(call) == {"index", "function"} and set(call["function"]) == {"arguments"}
                    calls[call["index"]]["function"]["arguments"] += call["function"]["arguments"]
            reasons += [choice["finish_reason"]] * (choice["finish_reason"] is not None)
    return message, reasons


def without_ids(message):
    return [call["function"] for call in message["tool_calls"]]


def test_a_call_is_answered_in_the_shape_of_openai(app):
    choice = post(app, URL, ASK).json()["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] is None
    (call,) = choice["message"]["tool_calls"]
    assert call["id"].startswith("call_") and len(call["id"]) == 29
    assert call | {"id": ""} == {"id": "", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Paris {1}"}'}}


@pytest.mark.parametrize("says", [list(CALL), [CALL], ["Well. ", CALL, "\n", CALL], ["no call"], [CALL[:-30]]])
@pytest.mark.parametrize("fields", [{}, {"logprobs": True}, {"parallel_tool_calls": False}, {"max_tokens": 2}])
def test_a_streamed_call_folds_to_the_one_that_is_not(app, engine, says, fields):
    engine.says = says
    whole = post(app, URL, ASK | fields).json()["choices"][0]
    *chunks, done = events(post(app, URL, ASK | fields | {"stream": True}))
    message, reasons = fold(chunks)
    assert done == "[DONE]"
    assert reasons == [whole["finish_reason"]]
    assert message["content"] == (whole["message"]["content"] or "")
    assert ("tool_calls" in message) == ("tool_calls" in whole["message"])
    if "tool_calls" in message:
        assert without_ids(message) == without_ids(whole["message"])


def test_a_stream_gives_the_name_first_and_then_pieces_of_the_arguments(app):
    *chunks, _ = events(post(app, URL, ASK | {"stream": True}))
    deltas = [call for chunk in chunks for choice in chunk["choices"] for call in choice["delta"].get("tool_calls", [])]
    assert deltas[0]["function"] == {"name": "get_weather", "arguments": ""}
    assert len(deltas) > 10
    assert all("name" not in delta["function"] for delta in deltas[1:])
    assert json.loads("".join(delta["function"]["arguments"] for delta in deltas)) == {"city": "Paris {1}"}


def test_the_finish_reason_follows_what_was_said(app, engine):
    engine.says = ["nothing to call"]
    assert post(app, URL, ASK).json()["choices"][0]["finish_reason"] == "stop"
    engine.says = [*CALL, " x"]
    assert post(app, URL, ASK | {"max_tokens": len(CALL)}).json()["choices"][0]["finish_reason"] == "length"


def test_answers_that_were_looked_through_for_calls_are_counted_once_each(app, engine):
    def counts():
        name = "vllm:tool_call_parser_invocations_total{"
        lines = call_app(app, "GET", "/metrics").text.splitlines()
        return {line.split("{")[1].split("}")[0]: float(line.split()[-1]) for line in lines if line.startswith(name)}

    def series(mode, outcome, api):
        return f'engine="0",mode="{mode}",model_name="tiny",outcome="{outcome}",request_type="{api}"'

    assert len(counts()) == 12 and set(counts().values()) == {0}
    post(app, URL, ASK | {"n": 2})
    post(app, URL, ASK | {"stream": True})
    engine.says = ["nothing to call"]
    post(app, URL, ASK)
    post(app, URL, CHAT)  # no tools: nothing is looked for
    tool = {"name": "get_weather", "input_schema": {"type": "object"}}
    post(app, "/v1/messages", {"model": "tiny", "max_tokens": 50, "messages": [{"role": "user", "content": "hi"}], "tools": [tool]})
    seen = {name: count for name, count in counts().items() if count}
    assert seen == {
        series("non_streaming", "tool_call", "chat_completions"): 2,
        series("streaming", "tool_call", "chat_completions"): 1,
        series("non_streaming", "no_tool_call", "chat_completions"): 1,
        series("non_streaming", "no_tool_call", "other"): 1,
    }


def test_tool_choice_none_neither_tells_of_tools_nor_calls_them(app, engine):
    choice = post(app, URL, ASK | {"tool_choice": "none"}).json()["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"]) == (CALL, "stop")
    assert b"tools:" not in bytes(engine.requests[-1][0])
    post(app, URL, ASK | {"tool_choice": "auto"})
    assert bytes(engine.requests[-1][0]).startswith(b"tools: get_weather")


ALLOWED = {"type": "function", "function": {"name": "get_weather"}}


@pytest.mark.parametrize("mode", ["auto", "required"])
def test_of_allowed_tools_the_model_is_told_of_all_and_what_calls_another_is_text(app, engine, mode):
    other = {"type": "function", "function": {"name": "other"}}
    body = ASK | {"tools": [other, WEATHER], "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": [ALLOWED]}}}
    engine.says = [CALL] if mode == "auto" else ["[", *CALL.split("\n")[1:2], "]"]
    choice = post(app, URL, body).json()["choices"][0]
    assert (choice["finish_reason"], without_ids(choice["message"])[0]["name"]) == ("tool_calls", "get_weather")
    assert bytes(engine.requests[-1][0]).startswith(b"tools: other get_weather")
    assert (engine.requests[-1][1].structured_outputs is None) == (mode == "auto")
    engine.says = [said.replace("get_weather", "other") for said in engine.says]
    choice = post(app, URL, body).json()["choices"][0]
    assert (choice["finish_reason"], choice["message"]["content"]) == ("stop", "".join(engine.says))
    assert "tool_calls" not in choice["message"]


@pytest.mark.parametrize("stream", [False, True])
def test_beside_a_format_only_the_beginning_tells_calls_from_a_match(app, engine, stream):
    body = ASK | {"response_format": {"type": "json_object"}, "stream": stream}

    def said(*pieces):
        engine.says = list(pieces)
        answer = post(app, URL, body)
        message = fold(events(answer)[:-1])[0] if stream else answer.json()["choices"][0]["message"]
        return message["content"] or "", without_ids(message) if "tool_calls" in message else []

    assert said(*CALL) == ("", [{"name": "get_weather", "arguments": '{"city": "Paris {1}"}'}])
    assert engine.requests[-1][1].structured_outputs.calls.open == "<tool_call>"
    match = json.dumps({"text": CALL}).replace('\\"', '"')
    assert said(*match) == (match, [])


def test_one_call_at_most_ends_the_answer_and_the_request(app, engine):
    engine.says = [CALL, CALL, "more", "more"]
    for stream in (False, True):
        answer = post(app, URL, ASK | {"parallel_tool_calls": False, "stream": stream})
        message, reasons = fold(events(answer)[:-1]) if stream else (answer.json()["choices"][0]["message"], ["tool_calls"])
        assert (len(message["tool_calls"]), reasons) == (1, ["tool_calls"])
    assert len(engine.aborted) == 2
    assert len(post(app, URL, ASK).json()["choices"][0]["message"]["tool_calls"]) == 2


def test_every_choice_has_its_own_calls(app):
    choices = post(app, URL, ASK | {"n": 2}).json()["choices"]
    assert [without_ids(choice["message"]) for choice in choices] == [[{"name": "get_weather", "arguments": '{"city": "Paris {1}"}'}]] * 2
    assert len({choice["message"]["tool_calls"][0]["id"] for choice in choices}) == 2


def test_calls_and_their_results_reach_the_template(app, engine):
    message = post(app, URL, ASK).json()["choices"][0]["message"]
    engine.says = ["It rains."]
    result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "rain"}
    answer = post(app, URL, ASK | {"messages": [*CHAT["messages"], message, result]})
    assert answer.json()["choices"][0]["message"]["content"] == "It rains."
    prompt = bytes(engine.requests[-1][0]).decode()
    assert prompt.endswith('call: get_weather{"city": "Paris {1}"}\ntool: rain\nassistant:')


@pytest.mark.parametrize("settings", [{"tool_call_parser": "none"}, {"enable_auto_tool_choice": False}])
def test_tools_without_a_parser_are_refused_with_the_way_out(settings):
    error = post(make_app(**settings), URL, ASK).json()["error"]
    assert (error["code"], error["param"]) == ("unsupported_parameter", "tools")
    assert "--tool-call-parser" in error["message"]
    assert post(make_app(**settings), URL, ASK | {"tool_choice": "none"}).status_code == 200


def test_the_parser_is_recognised_from_the_template_and_the_log_says_so(caplog):
    with caplog.at_level(logging.INFO, "octavo.server"):
        make_app()
        assert "hermes" in caplog.text


def test_mistral_gets_ids_that_its_template_takes(engine):
    engine.says = ['[TOOL_CALLS] [{"name": "get_weather", "arguments": {}}]']
    message = post(make_app(engine, tool_call_parser="mistral"), URL, ASK).json()["choices"][0]["message"]
    assert len(message["tool_calls"][0]["id"]) == 9 and message["tool_calls"][0]["id"].isalnum()


def test_marks_that_are_special_tokens_are_left_in_the_text(engine):
    engine.tokenizer.control_tokens = {"<tool_call>": 7}
    post(make_app(engine), URL, ASK)
    assert engine.requests[-1][1].skip_special_tokens is False
    post(make_app(engine), URL, CHAT)
    assert engine.requests[-1][1].skip_special_tokens is True


THOUGHT = ["<think>", "\nHm.", "\n", "</think>", "\n\n", "Yes."]


@pytest.fixture
def thinker(engine):
    engine.says = THOUGHT
    return make_app(engine, reasoning_parser="qwen3")


def test_reasoning_stands_beside_the_answer_and_is_counted(thinker):
    answer = post(thinker, URL, CHAT | {"max_tokens": 9}).json()
    message = answer["choices"][0]["message"]
    assert (message["content"], message["reasoning"], message["reasoning_content"]) == ("Yes.", "Hm.", "Hm.")
    assert answer["usage"]["completion_tokens_details"] == {"reasoning_tokens": 4}
    assert answer["usage"]["completion_tokens"] == 6


def test_reasoning_streams(thinker):
    body = CHAT | {"max_tokens": 9, "stream": True, "stream_options": {"include_usage": True}}
    *chunks, usage, _ = events(post(thinker, URL, body))
    message, reasons = fold(chunks)
    assert (message, reasons) == ({"content": "Yes.", "reasoning": "Hm.", "reasoning_content": "Hm."}, ["stop"])
    assert usage["usage"]["completion_tokens_details"] == {"reasoning_tokens": 4}


@pytest.mark.parametrize("interval", [1, 2, 3, 50])
def test_a_stream_interval_loses_no_reasoning_and_no_call(engine, interval):
    engine.says = [*THOUGHT[:-1], *CALL]
    app = make_app(engine, reasoning_parser="qwen3")
    body = ASK | {"stream": True, "stream_interval": interval, "stream_options": {"include_usage": True}}
    *chunks, _ = events(post(app, URL, body))
    message, reasons = fold(chunks)
    assert chunks[-1]["usage"]["completion_tokens_details"] == {"reasoning_tokens": 4}
    assert interval == 1 or len(chunks) < 3 + len(engine.says) / interval + 3
    assert (message["reasoning"], without_ids(message), reasons) == (
        "Hm.",
        [{"name": "get_weather", "arguments": '{"city": "Paris {1}"}'}],
        ["tool_calls"],
    )


def test_reasoning_is_left_out_when_not_wanted_and_counted_all_the_same(thinker):
    answer = post(thinker, URL, CHAT | {"max_tokens": 9, "include_reasoning": False}).json()
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": "Yes.", "refusal": None}
    assert answer["usage"]["completion_tokens_details"] == {"reasoning_tokens": 4}


def test_a_prompt_that_opens_reasoning_makes_the_answer_begin_inside(thinker, engine):
    engine.says = ["Hm.", "</think>", "Yes."]
    for fields in ({"chat_template_kwargs": {"enable_thinking": True}}, {"reasoning_effort": "low"}):
        message = post(thinker, URL, CHAT | fields).json()["choices"][0]["message"]
        assert (message["reasoning"], message["content"]) == ("Hm.", "Yes.")
    message = post(thinker, URL, CHAT | {"reasoning_effort": "none"}).json()["choices"][0]["message"]
    assert message["content"] == "Hm.</think>Yes."


def test_an_answer_cut_while_reasoning_has_no_content(thinker):
    choice = post(thinker, URL, CHAT | {"max_tokens": 2}).json()["choices"][0]
    assert (choice["message"]["reasoning"], choice["message"]["content"], choice["finish_reason"]) == ("Hm.", "", "length")


def test_tools_are_called_after_reasoning(engine):
    engine.says = [*THOUGHT[:-1], CALL]
    app = make_app(engine, reasoning_parser="qwen3")
    choice = post(app, URL, ASK).json()["choices"][0]
    assert (choice["message"]["reasoning"], choice["message"]["content"], choice["finish_reason"]) == ("Hm.", None, "tool_calls")


def test_reasoning_effort_is_refused_where_the_template_knows_none(engine):
    engine.chat.variables = frozenset()
    app = make_app(engine)
    assert post(app, URL, CHAT | {"reasoning_effort": "none"}).status_code == 200
    error = post(app, URL, CHAT | {"reasoning_effort": "low"}).json()["error"]
    assert (error["code"], error["param"]) == ("unsupported_parameter", "reasoning_effort")


def test_the_template_may_have_its_own_word_for_effort(engine):
    engine.chat.variables = frozenset({"reasoning_effort"})
    seen = []
    engine.chat.render = lambda messages, **options: seen.append(options["template_kwargs"]) or [1]
    post(make_app(engine), URL, CHAT | {"reasoning_effort": "low"})
    assert seen == [{"reasoning_effort": "low"}]
