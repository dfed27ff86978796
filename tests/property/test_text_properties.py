"""What must hold of text and tokens whatever the input."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fakes.vocabularies import TEMPLATES, byte_level_assets, byte_level_tokenizer, sentencepiece_tokenizer

from octavo.text.chat import ChatTemplate
from octavo.text.detokenizer import Detokenizer

BYTES = byte_level_tokenizer()
TOKENIZERS = {"bytes": BYTES, "pieces": sentencepiece_tokenizer(), "pieces_bare": sentencepiece_tokenizer(add_space_prefix=False)}
CHATS = {name: ChatTemplate.from_assets(byte_level_assets(template), BYTES) for name, template in TEMPLATES.items()}

names = [*BYTES.control_tokens, "<think>", "</think>", "<result>", "</result>"]
halves = [name[:cut] for name in names for cut in range(1, len(name))] + [name[cut:] for name in names for cut in range(1, len(name))]
fragments = st.one_of(
    st.sampled_from(names), st.sampled_from(halves), st.sampled_from([" ", "\n", "user", "system", "{{", "\ud800", "\udfff"]), st.text()
)
hostile = st.lists(fragments, max_size=8).map("".join)
harmless = st.lists(st.sampled_from(["hello", " ", "\n", "world", "12", "é", "日本", "\U0001f469\u200d", "{%", "a<b"]), max_size=12).map(
    "".join
)
stops = st.lists(st.text(alphabet="abA \n", min_size=1, max_size=4), max_size=3)


def ids_of(tokenizer):
    return st.lists(st.integers(-2, tokenizer.vocab_size + 2), max_size=40)


def chunks(data, ids):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(ids)), max_size=6)))
    return [ids[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(ids)], strict=True)]


@pytest.mark.parametrize("name", TOKENIZERS)
@settings(deadline=None)
@given(data=st.data(), skip=st.booleans())
def test_pieces_joined_are_the_decoded_text(name, data, skip):
    tokenizer = TOKENIZERS[name]
    ids = data.draw(ids_of(tokenizer))
    detokenizer = Detokenizer(tokenizer, skip_special_tokens=skip)
    text = "".join(detokenizer.push(chunk).text for chunk in chunks(data, ids)) + detokenizer.finish()
    assert text == tokenizer.decode(ids, skip_special_tokens=skip)


def first_stop(text, stop, start):
    """Return where the answer is cut, and by which stop string: the definition, one character at a time."""
    for end in range(start, len(text) + 1):
        for candidate in stop:
            if end - len(candidate) >= start and text.endswith(candidate, start, end):
                return end - len(candidate), candidate
    return len(text), None


@pytest.mark.parametrize("include", [False, True])
@settings(deadline=None)
@given(data=st.data(), stop=stops, text=st.text(alphabet="abA \n", max_size=30), min_tokens=st.integers(0, 6))
def test_stop_strings_cut_where_the_definition_says_however_tokens_arrive(include, data, stop, text, min_tokens):
    ids = BYTES.encode(text)
    unsearched = len(BYTES.decode(ids[:min_tokens]))
    cut, found = first_stop(text, stop, unsearched)
    detokenizer = Detokenizer(BYTES, stop=stop, include_stop_str_in_output=include, min_tokens=min_tokens)
    answers = [detokenizer.push(chunk) for chunk in chunks(data, ids)]
    assert "".join(answer.text for answer in answers) + detokenizer.finish() == text[:cut] + (found or "" if include else "")
    assert answers[-1].stop_string == found


@settings(deadline=None)
@given(text=hostile)
def test_plain_text_yields_no_control_token_and_comes_back(text):
    for tokenizer in TOKENIZERS.values():
        ids = tokenizer.encode(text, add_special_tokens=False)
        assert not set(ids) & set(tokenizer.control_tokens.values())
    assert BYTES.decode(BYTES.encode(text)) == "".join("�" if "\ud800" <= c <= "\udfff" else c for c in text)


@settings(deadline=None)
@given(text=st.text(max_size=60))
def test_min_tokens_is_a_lower_bound(text):
    for tokenizer in TOKENIZERS.values():
        assert tokenizer.min_tokens(text) <= len(tokenizer.encode(text, add_special_tokens=False))


@pytest.mark.parametrize("name", TEMPLATES)
@settings(max_examples=60, deadline=None)
@given(first=hostile, second=hostile, third=hostile)
def test_no_content_changes_the_control_tokens_of_a_prompt(name, first, second, third):
    def control_ids(*contents):
        messages = [{"role": role, "content": content} for role, content in zip(("user", "assistant", "user"), contents, strict=True)]
        return [token_id for token_id in CHATS[name].render(messages) if token_id in BYTES.control_tokens.values()]

    if name == "macros":  # it leaves out messages without content
        first, second, third = (content or "x" for content in (first, second, third))
    assert control_ids(first, second, third) == control_ids("a", "b", "c")


@pytest.mark.parametrize("name", TEMPLATES)
@settings(max_examples=60, deadline=None)
@given(first=harmless, second=harmless, third=harmless)
def test_harmless_prompts_are_tokenised_as_one_whole_text(name, first, second, third):
    messages = [{"role": role, "content": content} for role, content in (("user", first), ("assistant", second), ("user", third))]
    text = CHATS[name].render_text(messages)
    assert CHATS[name].render(messages) == BYTES.encode(text, add_special_tokens=False, parse_special=True)
