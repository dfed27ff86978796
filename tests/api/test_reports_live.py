"""What users of other servers ran into, where only a model can show it: a tiny one behind HTTP; each test is named for its case."""

import httpx
import pytest

from tests.api.calls import assert_openai_error
from tests.fakes.served import served
from tests.fakes.tiny_chat import TEMPLATE, write_tiny_chat

TURNS = "{% if messages[0]['role'] != 'user' %}{{ raise_exception('A conversation must begin with a user.') }}{% endif %}"
MESSAGES = [{"role": "user", "content": "hello"}]


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    folder = write_tiny_chat(tmp_path_factory.mktemp("tiny"))
    (folder / "strict.jinja").write_text(TURNS + TEMPLATE)
    with served(folder, "--chat-template", folder / "strict.jinja") as url, httpx.Client(base_url=url, timeout=60) as client:
        yield client


def complete(client, **fields):
    answer = client.post("/v1/completions", json={"model": "tiny", "prompt": [40, 41, 42], "max_tokens": 24} | fields)
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]


def test_c36_c37_a_prompt_of_ids_ends_at_a_stop_string_too_and_says_which(client):
    text = complete(client, seed=1)["text"]
    stop = text[5:7]
    stopped = complete(client, seed=1, stop=["no such text", stop])
    assert (stopped["text"], stopped["finish_reason"], stopped["stop_reason"]) == (text[: text.index(stop)], "stop", stop)
    assert complete(client, seed=1, stop=stop, include_stop_str_in_output=True)["text"] == text[: text.index(stop)] + stop


def test_c50_an_answer_ends_where_the_context_does(client):
    context = client.get("/v1/models").json()["data"][0]["max_model_len"]
    answer = client.post(
        "/v1/chat/completions", json={"model": "tiny", "messages": MESSAGES, "max_completion_tokens": 10**6, "ignore_eos": True}
    ).json()
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["total_tokens"] == context


def test_c59_c60_a_seed_gives_the_same_text_and_no_seed_another_each_time(client):
    assert len({complete(client, seed=5)["text"] for _ in range(3)}) == 1
    assert len({complete(client)["text"] for _ in range(3)}) == 3


@pytest.mark.parametrize("stream", [False, True])
def test_b133_a_template_that_refuses_is_an_invalid_prompt_with_its_reason(client, stream):
    turns = [{"role": "assistant", "content": "hi"}, *MESSAGES]
    response = client.post("/v1/chat/completions", json={"model": "tiny", "messages": turns, "stream": stream})
    error = assert_openai_error(response)
    assert (response.status_code, error["code"], error["param"]) == (400, "invalid_prompt", "messages")
    assert "must begin with a user" in error["message"]
