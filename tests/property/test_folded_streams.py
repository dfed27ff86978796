"""An answer that is not streamed is the streamed one, folded, whatever is asked: text, reasons, logprobs, ids, usage."""

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.api.calls import CHAT, COMPLETION, events, make_app, post
from tests.api.fake_engine import FakeEngine

FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "n": st.integers(1, 4),
        "max_tokens": st.integers(1, 11),
        "echo": st.booleans(),
        "prompt_logprobs": st.none() | st.integers(0, 3),
        "stream_interval": st.integers(1, 6),
        "return_token_ids": st.booleans(),
        "return_tokens_as_token_ids": st.booleans(),
        "truncate_prompt_tokens": st.none() | st.integers(1, 4),
        "stream_options": st.fixed_dictionaries({"include_usage": st.just(True), "continuous_usage_stats": st.booleans()}),
    },
)
SAYS = st.none() | st.lists(st.sampled_from(["", "a", " b", "\n", "😀", "long word"]), min_size=1, max_size=11)
LOGPROBS = st.none() | st.integers(0, 3)
several = settings(max_examples=60, deadline=None, derandomize=True)


def ask(url, body, says):
    """Return the whole answer and the chunks of the streamed one."""
    engine = FakeEngine()
    engine.says = says
    app = make_app(engine)
    whole = post(app, url, {name: value for name, value in body.items() if name != "stream_options"})
    assert whole.status_code == 200, whole.text
    *chunks, done = events(post(app, url, body | {"stream": True}))
    assert done == "[DONE]"
    return whole.json(), chunks


def assert_usage(body, whole, chunks):
    if "stream_options" in body:
        assert chunks[-1]["usage"] == whole["usage"]
        assert chunks[-1]["choices"] == []


def of_choice(chunks, index):
    return [choice for chunk in chunks for choice in chunk["choices"] if choice["index"] == index]


@several
@given(FIELDS, SAYS, LOGPROBS, st.sampled_from(["hi", ["hi", "héllo"], [104, 105]]))
def test_text_completions_fold(fields, says, logprobs, prompt):
    body = COMPLETION | fields | {"logprobs": logprobs, "prompt": prompt}
    whole, chunks = ask("/v1/completions", body, says)
    assert_usage(body, whole, chunks)
    for choice in whole["choices"]:
        new = of_choice(chunks, choice["index"])
        assert "".join(part["text"] for part in new) == choice["text"]
        assert [part["finish_reason"] for part in new] == [None] * (len(new) - 1) + [choice["finish_reason"]]
        for key in choice["logprobs"] or ():
            assert [value for part in new if part["logprobs"] for value in part["logprobs"][key]] == choice["logprobs"][key]
        for key in ("prompt_logprobs", "prompt_token_ids"):
            assert [part[key] for part in new if key in part] == [choice[key] for _ in range(key in choice)]
        assert [token for part in new for token in part.get("token_ids", ())] == choice.get("token_ids", [])


@several
@given(FIELDS, SAYS, LOGPROBS)
def test_chats_fold(fields, says, top_logprobs):
    body = CHAT | fields | ({} if top_logprobs is None else {"logprobs": True, "top_logprobs": top_logprobs})
    whole, chunks = ask("/v1/chat/completions", body, says)
    assert_usage(body, whole, chunks)
    for choice in whole["choices"]:
        new = of_choice(chunks, choice["index"])
        assert new[0]["delta"]["role"] == "assistant"
        assert "".join(part["delta"].get("content", "") for part in new) == (choice["message"]["content"] or "")
        assert [part["finish_reason"] for part in new] == [None] * (len(new) - 1) + [choice["finish_reason"]]
        logprobs = [position for part in new if part["logprobs"] for position in part["logprobs"]["content"]]
        assert logprobs == (choice["logprobs"] or {"content": []})["content"]
        assert [token for part in new for token in part.get("token_ids", ())] == choice.get("token_ids", [])
    for key in ("prompt_logprobs", "prompt_token_ids"):
        shown = [chunk[key] for chunk in chunks if key in chunk]
        assert all(value == whole[key] for value in shown) and bool(shown) == (key in whole)
