"""Over HTTP, on a real tiny model: an answer that is not streamed is the streamed one, folded, for random parameters."""

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.api.calls import events
from tests.fakes.served import served
from tests.fakes.tiny_chat import write_tiny_chat

PARAMETERS = st.fixed_dictionaries(
    {"seed": st.integers(0, 2**63 - 1), "max_tokens": st.integers(1, 24)},
    optional={
        "n": st.integers(1, 3),
        "temperature": st.floats(0, 2),
        "top_p": st.floats(0.1, 1),
        "top_k": st.integers(-1, 40),
        "min_p": st.floats(0, 0.3),
        "typical_p": st.floats(0.2, 1),
        "presence_penalty": st.floats(-2, 2),
        "frequency_penalty": st.floats(-2, 2),
        "repetition_penalty": st.floats(0.5, 2),
        "dry_multiplier": st.floats(0, 2),
        "xtc_probability": st.floats(0, 1),
        "top_n_sigma": st.floats(0, 3),
        "logit_bias": st.dictionaries(st.integers(20, 200).map(str), st.floats(-20, 20), max_size=3),
        "stop": st.lists(st.sampled_from(["a", "e", "P", "l", "f", " w", "ello"]), max_size=3),
        "include_stop_str_in_output": st.booleans(),
        "ignore_eos": st.booleans(),
        "min_tokens": st.integers(0, 4),
        "stop_token_ids": st.lists(st.integers(0, 200), max_size=20),
        "allowed_token_ids": st.just(list(range(20, 120))),
        "prompt_logprobs": st.integers(0, 2),
        "truncate_prompt_tokens": st.integers(1, 3),
        "skip_special_tokens": st.booleans(),
        "stream_interval": st.integers(1, 5),
        "return_token_ids": st.booleans(),
        "return_tokens_as_token_ids": st.booleans(),
        "bad_words": st.lists(st.sampled_from(["he", "P"]), max_size=2),
    },
).filter(lambda parameters: parameters.get("min_tokens", 0) <= parameters["max_tokens"])
PROMPTS = st.sampled_from(["hello world", "hé", [40, 41, 42], "x" * 40])
several = settings(max_examples=20, deadline=None, derandomize=True)


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    with served(write_tiny_chat(tmp_path_factory.mktemp("tiny"))) as url, httpx.Client(base_url=url, timeout=60) as client:
        yield client


def ask(client, path, body):
    """Return the whole answer's choices, and the streamed one's pieces by choice."""
    whole = client.post(path, json=body)
    assert whole.status_code == 200, whole.text
    *chunks, done = events(client.post(path, json=body | {"stream": True}))
    assert done == "[DONE]"
    pieces = [choice for chunk in chunks for choice in chunk["choices"]]
    choices = whole.json()["choices"]
    assert {piece["index"] for piece in pieces} == {choice["index"] for choice in choices}
    return [(choice, [piece for piece in pieces if piece["index"] == choice["index"]]) for choice in choices]


def assert_ends_alike(choice, pieces):
    assert [piece["finish_reason"] for piece in pieces] == [None] * (len(pieces) - 1) + [choice["finish_reason"]]
    assert pieces[-1]["stop_reason"] == choice["stop_reason"]
    assert [token for piece in pieces for token in piece.get("token_ids", ())] == choice.get("token_ids", [])


@several
@given(PARAMETERS, PROMPTS, st.none() | st.integers(0, 3), st.booleans())
def test_text_completions_fold(client, parameters, prompt, logprobs, echo):
    body = {"model": "tiny", "prompt": prompt, "logprobs": logprobs, "echo": echo} | parameters
    for choice, pieces in ask(client, "/v1/completions", body):
        assert_ends_alike(choice, pieces)
        assert "".join(piece["text"] for piece in pieces) == choice["text"]
        for key in choice["logprobs"] or ():
            assert [value for piece in pieces if piece["logprobs"] for value in piece["logprobs"][key]] == choice["logprobs"][key]


@several
@given(PARAMETERS, st.none() | st.integers(0, 3))
def test_chats_fold(client, parameters, top_logprobs):
    asked = {} if top_logprobs is None else {"logprobs": True, "top_logprobs": top_logprobs}
    body = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}]} | asked | parameters
    for choice, pieces in ask(client, "/v1/chat/completions", body):
        assert_ends_alike(choice, pieces)
        assert "".join(piece["delta"].get("content") or "" for piece in pieces) == (choice["message"]["content"] or "")
        logprobs = [position for piece in pieces if piece["logprobs"] for position in piece["logprobs"]["content"]]
        assert logprobs == (choice["logprobs"] or {"content": []})["content"]
