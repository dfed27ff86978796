"""Structured output over HTTP with OpenAI's own client, from a tiny random model that writes noise wherever it may."""

import json
from typing import Literal

import openai
import pytest
from pydantic import BaseModel, ConfigDict, Field
from tests.fakes.served import served
from tests.fakes.tiny_chat import TEMPLATE, write_tiny_chat

HI = [{"role": "user", "content": "hi"}]
NOISE = {"model": "tiny", "temperature": 1.0, "max_tokens": 150}
PLACE = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 6}, "size": {"enum": [1, 2, 3]}},
    "required": ["city", "size"],
    "additionalProperties": False,
}


def tool(name, parameters=PLACE, **more):
    return {"type": "function", "function": {"name": name, "parameters": parameters, **more}}


class Step(BaseModel):
    model_config = ConfigDict(extra="forbid")
    text: str = Field(max_length=5)
    weight: int = Field(ge=0, le=30)


class Plan(BaseModel):
    model_config = ConfigDict(extra="forbid")
    kind: Literal["a", "b"]
    steps: list[Step] = Field(max_length=2)


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    folder = write_tiny_chat(tmp_path_factory.mktemp("tiny"))
    template = folder / "tools.jinja"
    template.write_text("{% for t in tools or [] %}{{ t.function.name }} {% endfor %}<tool_call> " + TEMPLATE)
    with served(folder, "--chat-template", template, "--tool-call-parser", "hermes") as url:
        yield openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)


def whole_answers(ask, wanted=4):
    """Return what `ask(seed)` gives for the seeds whose answer came to its end."""
    found = []
    for seed in range(20):
        answer = ask(seed)
        if answer is not None:
            found.append(answer)
        if len(found) == wanted:
            return found
    raise AssertionError(f"only {len(found)} answers came to their end")


def test_parse_gives_instances_of_a_pydantic_model(client):
    def ask(seed):
        try:
            return client.beta.chat.completions.parse(messages=HI, response_format=Plan, seed=seed, **NOISE).choices[0].message.parsed
        except openai.LengthFinishReasonError:
            return None

    assert all(isinstance(plan, Plan) for plan in whole_answers(ask))


def test_a_streamed_answer_is_the_whole_one_and_valid(client):
    asked = {"messages": HI, "response_format": {"type": "json_schema", "json_schema": {"name": "place", "schema": PLACE}}, **NOISE}

    def ask(seed):
        whole = client.chat.completions.create(seed=seed, **asked).choices[0]
        chunks = list(client.chat.completions.create(seed=seed, stream=True, **asked))
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == whole.message.content
        assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == whole.finish_reason
        return json.loads(whole.message.content) if whole.finish_reason == "stop" else None

    assert all(set(place) == {"city", "size"} for place in whole_answers(ask))


@pytest.mark.parametrize(
    ("fields", "texts"),
    [
        ({"structured_outputs": {"choice": ["red", "blue"]}}, {"red", "blue"}),
        ({"structured_outputs": {"regex": "(a|b)c"}}, {"ac", "bc"}),
        ({"structured_outputs": {"grammar": 'root ::= "x" | "y" "z"'}}, {"x", "yz"}),
        ({"structured_outputs": {"json": {"enum": [1, "a"]}}}, {"1", '"a"'}),
    ],
    ids=["choice", "regex", "grammar", "json"],
)
def test_every_kind_of_structured_outputs_holds_in_chats_and_completions(client, fields, texts):
    chat = client.chat.completions.create(messages=HI, n=4, extra_body=fields, **NOISE)
    text = client.completions.create(prompt="hi", n=4, extra_body=fields, **NOISE)
    for choice in (*chat.choices, *text.choices):
        assert choice.finish_reason == "stop"
    assert {choice.message.content for choice in chat.choices} | {choice.text for choice in text.choices} <= texts


def calls_of(client, seed, **fields):
    """Return the finish_reason, whole and streamed, and the calls (name, arguments), which are the same."""
    asked = {"messages": HI, "seed": seed, **NOISE, **fields}
    whole = client.chat.completions.create(**asked).choices[0]
    calls = [(call.function.name, call.function.arguments) for call in whole.message.tool_calls or ()]
    streamed, reasons = {}, []
    for chunk in client.chat.completions.create(stream=True, **asked):
        for choice in chunk.choices:
            reasons.append(choice.finish_reason)
            for call in choice.delta.tool_calls or ():
                name, arguments = streamed.get(call.index, ("", ""))
                streamed[call.index] = (name + (call.function.name or ""), arguments + (call.function.arguments or ""))
    assert list(streamed.values()) == calls
    assert reasons[-1] == whole.finish_reason
    return whole.finish_reason, calls


@pytest.mark.parametrize(
    ("choice", "reason", "names"),
    [("required", "tool_calls", {"f", "g"}), ({"type": "function", "function": {"name": "g"}}, "stop", {"g"})],
    ids=["required", "named"],
)
def test_forced_calls_come_with_valid_arguments_streamed_and_whole(client, choice, reason, names):
    closed = {"properties": {"k": {"$ref": "#/$defs/k"}}, "required": ["k"], "$defs": {"k": {"enum": [5]}}, "additionalProperties": False}
    tools = [tool("f"), tool("g", closed)]

    def ask(seed):
        finish, calls = calls_of(client, seed, tools=tools, tool_choice=choice, parallel_tool_calls=False)
        return (finish, calls) if finish != "length" else None

    for finish, calls in whole_answers(ask):
        ((name, arguments),) = calls
        assert finish == reason and name in names
        assert set(json.loads(arguments)) == ({"city", "size"} if name == "f" else {"k"})


def test_an_answer_is_calls_or_an_instance_streamed_and_whole(client):
    tools = [tool("f", strict=True), tool("g", strict=True)]
    seen = set()
    for seed in range(40):
        asked = {"messages": HI, "tools": tools, "response_format": Plan, "seed": seed, **NOISE}
        try:
            whole = client.beta.chat.completions.parse(**asked).choices[0]
        except openai.LengthFinishReasonError:
            continue
        with client.beta.chat.completions.stream(**asked) as stream:
            built = stream.get_final_completion().choices[0]
        calls = [(call.function.name, call.function.arguments) for call in whole.message.tool_calls or ()]
        assert [(call.function.name, call.function.arguments) for call in built.message.tool_calls or ()] == calls
        assert (built.finish_reason, built.message.parsed, built.message.content or None) == (
            whole.finish_reason,
            whole.message.parsed,
            whole.message.content,
        )
        seen.add(whole.finish_reason)
        if calls:
            assert whole.finish_reason == "tool_calls" and whole.message.content is None
            assert all(set(json.loads(arguments)) == {"city", "size"} for _, arguments in calls)
        else:
            assert isinstance(whole.message.parsed, Plan)
    assert seen == {"stop", "tool_calls"}


def test_the_responses_api_holds_to_a_schema_too(client):
    def ask(seed):
        format = {"type": "json_schema", "name": "place", "schema": PLACE}
        asked = {"input": "hi", "max_output_tokens": 150, "temperature": 1}
        response = client.responses.create(model="tiny", text={"format": format}, extra_body={"seed": seed}, **asked)
        assert response.text.format.name == "place"
        return json.loads(response.output_text) if response.status == "completed" else None

    assert all(place["size"] in (1, 2, 3) for place in whole_answers(ask, 2))


def test_fields_that_leave_no_token_are_a_bad_request_streamed_and_whole(client):
    fields = {"structured_outputs": {"choice": ["a"]}, "allowed_token_ids": [2]}
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError) as raised:
            client.chat.completions.create(messages=HI, extra_body=fields, stream=stream, **NOISE)
        assert raised.value.param == "structured_outputs" and "allowed_token_ids" in raised.value.message


def test_what_cannot_be_held_to_is_a_bad_request_and_the_next_one_is_answered(client):
    for fields in ({"structured_outputs": {"regex": "("}}, {"response_format": {"type": "json_schema"}}):
        with pytest.raises(openai.BadRequestError):
            client.chat.completions.create(messages=HI, extra_body=fields, **NOISE)
    assert client.chat.completions.create(messages=HI, **NOISE).choices[0].finish_reason
