"""The forms of a prompt: what each means, and what is refused by name."""

import numpy as np
import pytest
from tests.fakes.vocabularies import byte_level_tokenizer

from octavo.client.prompts import list_prompts, read_prompt
from octavo.errors import InvalidRequest

TOKENIZER = byte_level_tokenizer()
HELLO = TOKENIZER.encode("hello")


@pytest.mark.parametrize(
    "prompt", ["hello", HELLO, tuple(HELLO), np.array(HELLO), {"prompt": "hello"}, {"prompt_token_ids": HELLO}], ids=lambda _: ""
)
def test_every_form_gives_the_same_tokens(prompt):
    assert read_prompt(prompt, TOKENIZER).token_ids == HELLO


def test_the_salt_of_a_dict_is_kept_and_text_is_told_from_ids():
    salted = read_prompt({"prompt": "hello", "cache_salt": "tenant"}, TOKENIZER)
    assert (salted.cache_salt, salted.text) == ("tenant", "hello")
    assert read_prompt(HELLO, TOKENIZER).text is None
    assert read_prompt("hello", TOKENIZER).cache_salt == ""


@pytest.mark.parametrize(
    ("prompt", "word"),
    [
        ({"prompt_embeds": [[0.5]]}, "prompt_embeds"),
        ({"prompt": "a", "multi_modal_data": {}}, "multi_modal_data"),
        ({"prompt": "a", "prompt_token_ids": [1]}, "either"),
        ({"cache_salt": "a"}, "either"),
        ({"prompt": "a", "cache_salt": ""}, "cache_salt"),
        ({"prompt": "a", "cache_salt": "a/b"}, "cache_salt"),
        ({"prompt": "a", "cache_salt": 5}, "cache_salt"),
        ({"prompt_token_ids": "abc"}, "token ids"),
        ({"prompt": None}, "string"),
        (b"text", "string"),
        ([1.5], "token ids"),
    ],
)
def test_what_is_no_prompt_is_refused_with_the_reason(prompt, word):
    with pytest.raises(InvalidRequest, match=word):
        read_prompt(prompt, TOKENIZER)


def test_one_prompt_and_several_are_told_apart():
    assert list_prompts("a") == ["a"]
    assert list_prompts([1, 2]) == [[1, 2]]
    assert list_prompts({"prompt": "a"}) == [{"prompt": "a"}]
    assert list_prompts(["a", {"prompt": "b"}, [3]]) == ["a", {"prompt": "b"}, [3]]
    assert list_prompts(iter([[1], [2]])) == [[1], [2]]
    with pytest.raises(InvalidRequest):
        list_prompts(5)
