"""Output tokens to text, piece by piece."""

import json

import pytest
from tests.fakes.vocabularies import byte_level_tokenizer, sentencepiece_tokenizer

from octavo.specs.text import TextAssets
from octavo.text.detokenizer import Detokenizer, Piece
from octavo.text.tokenizer import Tokenizer


def pieces(tokenizer, text, **options):
    """Return the texts of pushing the tokens of `text` one by one, and of finish, and the stop string."""
    detokenizer = Detokenizer(tokenizer, **options)
    out, stop = [], None
    for token_id in tokenizer.encode(text, add_special_tokens=False, parse_special=True):
        piece = detokenizer.push([token_id])
        out.append(piece.text)
        stop = stop or piece.stop_string
    return [*out, detokenizer.finish()], stop


def test_text_comes_token_by_token():
    assert pieces(byte_level_tokenizer(), "hello world") == (["hello", " world", ""], None)


def test_a_character_is_never_split():
    parts, _ = pieces(byte_level_tokenizer(), "a€b")
    assert parts == ["a", "", "", "€", "b", ""]


def test_an_unfinished_character_becomes_the_replacement_character_at_the_end():
    tokenizer = byte_level_tokenizer()
    detokenizer = Detokenizer(tokenizer)
    assert detokenizer.push(tokenizer.encode("€")[:2]) == Piece("")
    assert detokenizer.finish() == "�"


def test_bytes_that_are_no_text_become_replacement_characters_and_raise_nothing():
    tokenizer = sentencepiece_tokenizer()
    byte = {tokenizer.token_text(i): i for i in range(tokenizer.vocab_size)}
    detokenizer = Detokenizer(tokenizer)
    assert detokenizer.push([byte["<0xE2>"], byte["<0x82>"], byte["<0xFF>"], byte["a"]]).text == "��a"
    assert detokenizer.push([-1, 10**9]).text == ""


def test_the_space_that_encoding_puts_first_is_dropped_once_unless_the_answer_continues_a_text():
    tokenizer = sentencepiece_tokenizer()
    assert pieces(tokenizer, "hello hello")[0] == ["hello", " hello", ""]
    assert pieces(tokenizer, "hello", continues_text=True)[0] == [" hello", ""]
    assert pieces(sentencepiece_tokenizer(add_space_prefix=False), " hello")[0] == [" hello", ""]


def test_special_tokens_are_skipped_or_shown():
    assert "".join(pieces(byte_level_tokenizer(), "a<|im_end|>b")[0]) == "ab"
    assert "".join(pieces(byte_level_tokenizer(), "a<|im_end|>b", skip_special_tokens=False)[0]) == "a<|im_end|>b"


def test_a_stop_string_ends_the_text_and_is_named():
    detokenizer = Detokenizer(byte_level_tokenizer(), stop=["wor"])
    assert detokenizer.push(byte_level_tokenizer().encode("hello world hello")) == Piece("hello ", "wor")
    assert detokenizer.push(byte_level_tokenizer().encode("more")) == Piece("", "wor")
    assert detokenizer.finish() == ""


def test_a_stop_string_split_over_tokens_leaks_nothing():
    parts, stop = pieces(byte_level_tokenizer(), "ab<x>END", stop=["<x>"])
    assert "".join(parts) == "ab"
    assert stop == "<x>"


def test_the_stop_string_is_part_of_the_text_when_asked_for():
    parts, stop = pieces(byte_level_tokenizer(), "ab<x>END", stop=["<x>"], include_stop_str_in_output=True)
    assert "".join(parts) == "ab<x>"
    assert stop == "<x>"


def test_only_what_may_still_become_a_stop_string_is_held_back():
    parts, _ = pieces(byte_level_tokenizer(), "a<b<<x", stop=["<x>"])
    assert parts == ["a", "", "<b", "", "<", "", "<x"]


def test_what_was_held_back_is_given_out_at_the_end():
    parts, stop = pieces(byte_level_tokenizer(), "ab<x", stop=["<x>"])
    assert "".join(parts) == "ab<x"
    assert stop is None


@pytest.mark.parametrize(
    ("stops", "text", "kept", "stop"),
    [
        (["cd", "bc"], "abcd", "a", "bc"),  # completes first
        (["abcd", "bc"], "abcd", "a", "bc"),  # begins later, completes first
        (["bc", "abc"], "abcd", "a", "bc"),  # complete at once: listed first
        (["abc", "bc"], "abcd", "", "abc"),
        (["aab"], "aaab", "a", "aab"),
        (["\n\n"], "a\n\nb", "a", "\n\n"),
    ],
)
@pytest.mark.parametrize("at_once", [False, True])
def test_the_stop_string_that_is_complete_first_wins_and_ties_go_by_order(stops, text, kept, stop, at_once):
    tokenizer = byte_level_tokenizer()
    detokenizer = Detokenizer(tokenizer, stop=stops)
    ids = tokenizer.encode(text)
    answers = [detokenizer.push(part) for part in ([ids] if at_once else [[token_id] for token_id in ids])]
    assert "".join(answer.text for answer in answers) + detokenizer.finish() == kept
    assert answers[-1].stop_string == stop


@pytest.mark.parametrize("at_once", [False, True])
def test_text_of_the_first_min_tokens_is_not_searched(at_once):
    tokenizer = byte_level_tokenizer()
    ids = tokenizer.encode("xyxyxy")
    detokenizer = Detokenizer(tokenizer, stop=["x"], min_tokens=3)
    answers = [detokenizer.push(part) for part in ([ids] if at_once else [[token_id] for token_id in ids])]
    assert "".join(answer.text for answer in answers) == "xyxy"
    assert answers[-1].stop_string == "x"


def test_no_text_is_lost_when_the_answer_ends_before_min_tokens():
    tokenizer = byte_level_tokenizer()
    detokenizer = Detokenizer(tokenizer, stop=["�"], min_tokens=9)
    assert detokenizer.push(tokenizer.encode("€")[:2]).text + detokenizer.finish() == "�"


def word_piece_tokenizer():
    """A vocabulary whose text depends on neighbours: '##' joins, words are parted by spaces."""
    vocab = {"[UNK]": 0, "[SEP]": 1, "un": 2, "##able": 3, "##s": 4, "word": 5, ".": 6, "don": 7, "'": 8, "t": 9}
    document = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": 1, "content": "[SEP]", "special": True, "single_word": False, "normalized": False, "lstrip": False, "rstrip": False}
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": None,
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": False},
        "model": {
            "type": "WordPiece",
            "vocab": vocab,
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
        },
    }
    return Tokenizer.from_assets(TextAssets(json.dumps(document).encode(), None, None, None, (), False))


def test_a_vocabulary_whose_text_depends_on_neighbours_is_decoded_in_windows():
    tokenizer = word_piece_tokenizer()
    ids = tokenizer.encode("unables word unable . word don ' t") * 5
    detokenizer = Detokenizer(tokenizer)
    assert "".join(detokenizer.push([i]).text for i in ids) + detokenizer.finish() == tokenizer.decode(ids)
