"""The official SDKs against a running server: every endpoint they have that it has, streamed and not, and what a refusal raises.

Each suite raises at the first thing that is not as it should be, and otherwise returns how many calls it made.
"""

from __future__ import annotations

import itertools
from typing import Any

import anthropic
import openai

MODEL = "tiny"
KEY = "sk-conformance"
MESSAGES: list[Any] = [{"role": "user", "content": "hi"}]
WEATHER = {"name": "get_weather", "description": "Tell the weather", "parameters": {"type": "object", "properties": {}}}


def raises(kind: type[Exception], call: Any, **fields: Any) -> Any:
    """Return what `call` raised; AssertionError unless that is a `kind`."""
    try:
        call(**fields)
    except kind as error:
        return error
    raise AssertionError(f"{fields} was not refused as {kind.__name__}")


def openai_suite(url: str) -> int:
    """Validating strictly, but for streamed and echoed completions: the client's own type has no null there, which OpenAI sends."""
    count = itertools.count()
    with openai.OpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0, _strict_response_validation=True) as client:
        for suite in (openai_chats, openai_texts, openai_responses, openai_refusals):
            for _ in suite(client, url):
                next(count)
    return next(count)


def openai_chats(client: openai.OpenAI, url: str) -> Any:
    assert [model.id for model in client.models.list()] == [MODEL]
    yield
    assert client.models.retrieve(MODEL).id == MODEL
    yield
    asked: dict[str, Any] = {"model": MODEL, "messages": MESSAGES, "max_tokens": 6, "temperature": 0}
    for fields in (
        {},
        {"n": 2},
        {"logprobs": True, "top_logprobs": 2},
        {"stop": ["e", "zz"]},
        {"seed": 7, "temperature": 1},
        {"tools": [], "parallel_tool_calls": True, "service_tier": "auto"},
        {"tools": [{"type": "function", "function": WEATHER}], "tool_choice": "none"},
        {"max_tokens": None, "max_completion_tokens": 10**6, "extra_body": {"min_p": 0.1, "top_k": 5}},
        {"response_format": {"type": "text"}, "user": "u", "metadata": {"a": "b"}, "store": False},
    ):
        whole = client.chat.completions.create(**(asked | fields))
        yield
        chunks = list(client.chat.completions.create(**(asked | fields), stream=True, stream_options={"include_usage": True}))
        yield
        for choice in whole.choices:
            pieces = [piece for chunk in chunks for piece in chunk.choices if piece.index == choice.index]
            assert "".join(piece.delta.content or "" for piece in pieces) == choice.message.content
            assert pieces[-1].finish_reason == choice.finish_reason
        assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    with client.chat.completions.stream(model=MODEL, messages=MESSAGES, max_tokens=4) as stream:
        kinds = [event.type for event in stream]
        assert kinds[0] == "chunk" and "content.delta" in kinds and stream.current_completion_snapshot.choices[0].finish_reason == "length"
    yield


def openai_texts(client: openai.OpenAI, url: str) -> Any:
    answer = client.completions.create(model=MODEL, prompt=["a", "b"], max_tokens=2, logprobs=2)
    assert [choice.index for choice in answer.choices] == [0, 1]
    yield
    assert client.completions.create(model=MODEL, prompt=[40, 41], max_tokens=2).usage.prompt_tokens == 2
    yield
    with openai.OpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0) as lax:
        scored = lax.completions.create(model=MODEL, prompt="hello", max_tokens=1, echo=True, logprobs=1).choices[0]
        assert scored.text.startswith("hello") and scored.logprobs.token_logprobs[0] is None
        yield
        chunks = list(lax.completions.create(model=MODEL, prompt="a", max_tokens=3, stream=True, temperature=0))
        whole = client.completions.create(model=MODEL, prompt="a", max_tokens=3, temperature=0).choices[0]
        assert "".join(chunk.choices[0].text for chunk in chunks) == whole.text
        assert chunks[-1].choices[0].finish_reason == whole.finish_reason
        yield


def openai_responses(client: openai.OpenAI, url: str) -> Any:
    first = client.responses.create(model=MODEL, input="hi", max_output_tokens=4, instructions="Be brief.")
    yield
    assert client.responses.retrieve(first.id).output_text == first.output_text
    yield
    assert [item.type for item in client.responses.input_items.list(first.id)] == ["message"]
    yield
    more = client.responses.create(model=MODEL, input="and?", previous_response_id=first.id, max_output_tokens=4)
    assert more.usage.input_tokens > first.usage.input_tokens
    yield
    events = list(client.responses.create(model=MODEL, input="hi", max_output_tokens=4, stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[-1].type == "response.incomplete"
    yield
    with client.responses.stream(model=MODEL, input="hi", max_output_tokens=4) as stream:
        assert "response.output_text.done" in [event.type for event in stream]
    yield
    client.responses.delete(first.id)
    raises(openai.NotFoundError, client.responses.retrieve, response_id=first.id)
    raises(openai.BadRequestError, client.responses.cancel, response_id=more.id)
    yield


def openai_refusals(client: openai.OpenAI, url: str) -> Any:
    chat = {"model": MODEL, "messages": MESSAGES}
    bad, missing = openai.BadRequestError, openai.NotFoundError
    for call, fields, kind, code in (
        (client.chat.completions.create, chat | {"model": "gpt"}, missing, "model_not_found"),
        (client.chat.completions.create, chat | {"temperature": 9}, bad, "decimal_above_max_value"),
        (client.chat.completions.create, chat | {"max_tokens": 10**6}, bad, "context_length_exceeded"),
        (client.chat.completions.create, chat | {"extra_body": {"nonsense": 1}}, bad, "unknown_parameter"),
        (client.chat.completions.create, chat | {"response_format": {"type": "json_schema"}}, bad, "missing_required_parameter"),
        (client.chat.completions.create, chat | {"messages": []}, bad, "empty_array"),
        (client.completions.create, {"model": MODEL, "prompt": "a", "suffix": "b"}, bad, "unsupported_parameter"),
        (client.embeddings.create, {"model": MODEL, "input": "a"}, bad, "unsupported_task"),
        (client.responses.create, {"model": MODEL, "input": "a", "background": True}, bad, "unsupported_parameter"),
        (client.responses.retrieve, {"response_id": "resp_none"}, missing, "not_found"),
        (client.models.retrieve, {"model": "gpt"}, missing, "model_not_found"),
        (client.images.generate, {"model": MODEL, "prompt": "a"}, missing, "unknown_url"),
        (
            client.chat.completions.create,
            chat | {"extra_headers": {"origin": "http://x"}},
            openai.PermissionDeniedError,
            "origin_not_allowed",
        ),
    ):
        error = raises(kind, call, **fields)
        assert error.code == code, error
        if "stream" not in fields and call in (client.chat.completions.create, client.responses.create):
            raises(kind, call, **fields, stream=True)
        yield
    with openai.OpenAI(base_url=f"{url}/v1", api_key="sk-wrong", max_retries=0) as stranger:
        raises(openai.AuthenticationError, stranger.models.list)
    yield


def embeddings_suite(url: str) -> int:
    """Of an encoder's server. Validating strictly only for numbers: the client itself turns bytes into numbers after validating."""
    count = itertools.count()
    texts = ["A man is eating food.", "A man is eating a piece of bread.", "The girl is carrying a baby."]
    with openai.OpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0, _strict_response_validation=True) as client:
        lax = openai.OpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0)
        for asker, fields in ((lax, {}), (client, {"encoding_format": "float"}), (lax, {"dimensions": 384}), (lax, {"user": "u"})):
            answer = asker.embeddings.create(model=MODEL, input=texts, **fields)
            vectors = [item.embedding for item in answer.data]
            near, far = (sum(a * b for a, b in zip(vectors[0], other, strict=True)) for other in vectors[1:])
            assert len(vectors[0]) == 384 and near > 0.6 and far < 0.4, (near, far)
            next(count)
        for fields in ({"input": []}, {"input": "a " * 3000}, {"dimensions": 3}):
            raises(openai.BadRequestError, client.embeddings.create, **({"model": MODEL, "input": "a"} | fields))
            next(count)
        raises(openai.BadRequestError, client.chat.completions.create, model=MODEL, messages=MESSAGES)
    return next(count) + 1


def anthropic_suite(url: str) -> int:
    count = itertools.count()
    with anthropic.Anthropic(base_url=url, api_key=KEY, max_retries=0, _strict_response_validation=True) as client:
        asked: dict[str, Any] = {"model": MODEL, "max_tokens": 6, "messages": MESSAGES, "extra_body": {"temperature": 0}}
        tool = {"name": WEATHER["name"], "input_schema": WEATHER["parameters"]}
        for fields in (
            {},
            {"system": "Be brief."},
            {"stop_sequences": ["e"]},
            {"tools": [tool], "tool_choice": {"type": "none"}},
            {"tools": []},
        ):
            message = client.messages.create(**(asked | fields))
            with client.messages.stream(**(asked | fields)) as stream:
                built = stream.get_final_message()
            assert built.content[0].text == message.content[0].text
            assert (built.stop_reason, built.usage.output_tokens) == (message.stop_reason, message.usage.output_tokens)
            events = list(client.messages.create(**(asked | fields), stream=True))
            assert events[0].type == "message_start" and events[-1].type == "message_stop"
            assert client.messages.count_tokens(model=MODEL, messages=MESSAGES).input_tokens > 0
            next(count)
        for fields, kind in (
            ({"model": "claude"}, anthropic.NotFoundError),
            ({"max_tokens": 0}, anthropic.BadRequestError),
            ({"messages": [{"role": "user", "content": "a " * 3000}]}, anthropic.BadRequestError),
            ({"messages": []}, anthropic.BadRequestError),
            ({"extra_body": {"nonsense": 1}}, anthropic.BadRequestError),
            ({"extra_headers": {"origin": "http://x"}}, anthropic.PermissionDeniedError),
        ):
            raises(kind, client.messages.create, **(asked | fields))
            raises(kind, client.messages.create, **(asked | fields), stream=True)
            next(count)
    with anthropic.Anthropic(base_url=url, api_key="sk-wrong", max_retries=0) as stranger:
        raises(anthropic.AuthenticationError, stranger.messages.create, **asked)
    return next(count) + 1
