"""Tools beside a format, and tools of which some are allowed: a real model at every endpoint, through the official clients."""

import json

import anthropic
import openai
import pytest
from pydantic import BaseModel
from tests.fakes.served import served
from tests.real_models import path_or_skip

pytestmark = pytest.mark.model

SYSTEM = "You are a helpful assistant. Call a tool when it helps; otherwise answer with JSON about the city."
TELL, WEATHER = "Tell me of the city of Lyon: its name, its country and its number of people.", "What is the weather in Paris right now?"
PLACE = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": False}
ABOUT = {"name": "get_weather", "description": "Tell the weather in a city"}
TOOL = {"type": "function", "function": ABOUT | {"parameters": PLACE, "strict": True}}
FLAT = {"type": "function", "parameters": PLACE, "strict": True} | ABOUT
OTHER = {"name": "send_mail", "description": "Send a mail"}


class City(BaseModel):
    name: str
    country: str
    people: int


SCHEMA = City.model_json_schema() | {"additionalProperties": False}


@pytest.fixture(scope="module")
def url():
    with served(path_or_skip("qwen2.5-coder-0.5b-instruct"), "--max-model-len", 2048) as url:
        yield url


@pytest.fixture(scope="module")
def client(url):
    return openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)


def asking(question):
    return {
        "model": "tiny",
        "messages": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}],
        "max_tokens": 120,
        "temperature": 0,
    }


@pytest.mark.parametrize("question", [WEATHER, TELL])
def test_a_chat_is_answered_with_a_call_or_an_instance(client, question):
    asked = asking(question) | {"tools": [TOOL], "response_format": City}
    whole = client.beta.chat.completions.parse(**asked).choices[0]
    with client.beta.chat.completions.stream(**asked) as stream:
        built = stream.get_final_completion().choices[0]
    for choice in (whole, built):
        if question == TELL:
            assert isinstance(choice.message.parsed, City) and choice.finish_reason == "stop" and not choice.message.tool_calls
        else:
            (call,) = choice.message.tool_calls
            assert (call.function.name, call.function.parsed_arguments) == ("get_weather", {"city": "Paris"})
            assert choice.finish_reason == "tool_calls" and not choice.message.content


@pytest.mark.parametrize("question", [WEATHER, TELL])
def test_a_response_is_a_call_or_matches(client, question):
    text = {"format": {"type": "json_schema", "name": "city", "schema": SCHEMA, "strict": True}}
    asked = {"model": "tiny", "input": question, "instructions": SYSTEM, "tools": [FLAT], "text": text}
    asked |= {"max_output_tokens": 120, "temperature": 0}
    whole = client.responses.create(**asked)
    with client.responses.stream(**asked) as stream:
        built = stream.get_final_response()
    for response in (whole, built):
        (item,) = response.output
        if question == TELL:
            City.model_validate_json(response.output_text)
        else:
            assert (item.type, item.name, json.loads(item.arguments)) == ("function_call", "get_weather", {"city": "Paris"})


@pytest.mark.parametrize("question", [WEATHER, TELL])
def test_a_message_is_a_call_or_matches(url, question):
    client = anthropic.Anthropic(base_url=url, api_key="none", max_retries=0)
    asked = {"model": "tiny", "system": SYSTEM, "messages": [{"role": "user", "content": question}], "max_tokens": 120}
    config = {"format": {"type": "json_schema", "schema": SCHEMA}}
    asked |= {"tools": [ABOUT | {"input_schema": PLACE}], "extra_body": {"output_config": config, "temperature": 0}}
    whole = client.messages.create(**asked)
    with client.messages.stream(**asked) as stream:
        built = stream.get_final_message()
    for message in (whole, built):
        (block,) = message.content
        if question == TELL:
            City.model_validate_json(block.text)
        else:
            assert (block.type, block.name, block.input, message.stop_reason) == ("tool_use", "get_weather", {"city": "Paris"}, "tool_use")


@pytest.mark.parametrize("mode", ["auto", "required"])
def test_only_allowed_tools_are_called(client, mode):
    other = {"type": "function", "function": OTHER}
    choice = {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": [{"type": "function", "function": {"name": "send_mail"}}]}}
    for tool_choice, names in (("auto", ["get_weather"]), (choice, ["send_mail"] if mode == "required" else [])):
        answer = client.chat.completions.create(**asking(WEATHER), tools=[TOOL, other], tool_choice=tool_choice, parallel_tool_calls=False)
        assert [call.function.name for call in answer.choices[0].message.tool_calls or ()] == names
    flat = {"type": "allowed_tools", "mode": mode, "tools": [{"type": "function", "name": "send_mail"}]}
    tools = [FLAT, {"type": "function", "parameters": None, "strict": False} | OTHER]
    answer = client.responses.create(model="tiny", input=WEATHER, tools=tools, tool_choice=flat, max_output_tokens=120, temperature=0)
    assert [item.name for item in answer.output if item.type == "function_call"][:1] == (["send_mail"] if mode == "required" else [])
