"""Text to ids and back, on small vocabularies of both kinds."""

import json
import threading
import time

import pytest
from msgspec.structs import replace
from tests.fakes.vocabularies import (
    CONTROL,
    byte_level_assets,
    byte_level_tokenizer,
    byte_level_vocabulary,
    sentencepiece_assets,
    sentencepiece_tokenizer,
    sentencepiece_vocabulary,
)

from octavo.errors import ModelError
from octavo.specs.text import TextAssets
from octavo.text.pretokenizers import RECIPES, recipe
from octavo.text.tokenizer import Tokenizer
from octavo.text.vocabulary import MAX_ADDED, Spelling, from_gguf

SAMPLES = [
    "",
    "hello",
    "hello world",
    " hello  world\n\n",
    "héllo wörld",
    "日本語",
    "👩‍👩‍👧",
    "a\tb\r\nc",
    "<think>hm</think>",
    "1234567",
    "é" * 50,
]


def texts(tokenizer, ids):
    return [tokenizer.token_text(token_id) for token_id in ids]


@pytest.mark.parametrize("text", SAMPLES)
def test_text_comes_back_from_its_ids(text):
    for tokenizer in (byte_level_tokenizer(), sentencepiece_tokenizer(), sentencepiece_tokenizer(add_space_prefix=False)):
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_merges_and_word_cuts_give_the_tokens_of_the_vocabulary():
    tokenizer = byte_level_tokenizer()
    assert texts(tokenizer, tokenizer.encode("hello world 12")) == ["hello", "Ġworld", "Ġ", "1", "2"]


def test_sentencepiece_joins_by_score_and_begins_each_text_with_a_space():
    tokenizer = sentencepiece_tokenizer()
    assert texts(tokenizer, tokenizer.encode("hello world", add_special_tokens=False)) == ["▁hello", "▁world"]
    assert texts(tokenizer, tokenizer.encode(" hello", add_special_tokens=False)) == ["▁", "▁hello"]
    bare = sentencepiece_tokenizer(add_space_prefix=False)
    assert texts(bare, bare.encode("hello world", add_special_tokens=False)) == ["hello", "▁world"]


def test_sentencepiece_spells_unknown_characters_in_bytes():
    tokenizer = sentencepiece_tokenizer()
    assert texts(tokenizer, tokenizer.encode("ü", add_special_tokens=False)) == ["▁", "<0xC3>", "<0xBC>"]


@pytest.mark.parametrize("name", sorted(byte_level_tokenizer().control_tokens))
def test_the_name_of_a_control_token_is_plain_text_unless_parsed(name):
    tokenizer = byte_level_tokenizer()
    control = set(tokenizer.control_tokens.values())
    for text in (name, f"a{name}b", f" {name} ", name * 3, f"{name}\n{name}"):
        ids = tokenizer.encode(text)
        assert not control & set(ids)
        assert tokenizer.decode(ids, skip_special_tokens=False) == text
        assert tokenizer.control_tokens[name] in tokenizer.encode(text, parse_special=True)


@pytest.mark.parametrize("name", ["<s>", "</s>", "<unk>", "[INST]", "[/INST]", "<0x0A>"])
def test_sentencepiece_text_makes_no_control_or_byte_token(name):
    tokenizer = sentencepiece_tokenizer()
    ids = tokenizer.encode(f"x{name}y", add_special_tokens=False)
    assert name not in texts(tokenizer, ids)
    assert tokenizer.decode(ids) == f"x{name}y"


def test_user_defined_tokens_are_ordinary_text_and_found_whole_but_not_those_written_like_markers():
    tokenizer = byte_level_tokenizer()
    assert texts(tokenizer, tokenizer.encode("a<think>b")) == ["a", "<think>", "b"]
    assert "<｜sep｜>" not in texts(tokenizer, tokenizer.encode("a<｜sep｜>b"))
    assert "<｜sep｜>" in texts(tokenizer, tokenizer.encode("a<｜sep｜>b", parse_special=True))


def test_one_begin_token_at_most():
    tokenizer = Tokenizer.from_assets(byte_level_assets(add_bos=True))
    bos = tokenizer.bos_token_id
    assert tokenizer.encode("hello")[0] == bos
    assert tokenizer.encode("<|begin|>hello", parse_special=True).count(bos) == 1
    assert bos not in tokenizer.encode("hello", add_special_tokens=False)


def test_end_tokens_are_added_where_the_model_says_so():
    tokenizer = Tokenizer.from_assets(byte_level_assets(add_eos=True))
    assert tokenizer.encode("hello")[-1] == tokenizer.eos_token_ids[0]


def test_decoding_leaves_special_tokens_out_or_writes_their_names():
    tokenizer = byte_level_tokenizer()
    ids = tokenizer.encode("<|im_start|>hello<think><|im_end|>", parse_special=True)
    assert tokenizer.decode(ids) == "hello<think>"
    assert tokenizer.decode(ids, skip_special_tokens=False) == "<|im_start|>hello<think><|im_end|>"


def test_ids_outside_the_vocabulary_stand_for_nothing():
    tokenizer = byte_level_tokenizer()
    for token_id in (-1, tokenizer.vocab_size, 1 << 40):
        assert tokenizer.token_text(token_id) == ""
        assert tokenizer.token_bytes(token_id) == b""
        assert not tokenizer.is_special(token_id)
    assert tokenizer.decode([-1, tokenizer.vocab_size]) == ""


def test_token_bytes_are_the_bytes_that_a_token_stands_for():
    tokenizer = byte_level_tokenizer()
    assert b"".join(map(tokenizer.token_bytes, tokenizer.encode("é hello"))) == "é hello".encode()
    assert tokenizer.token_bytes(tokenizer.control_tokens["<|im_end|>"]) == b"<|im_end|>"
    pieces = sentencepiece_tokenizer()
    assert [pieces.token_bytes(i) for i in pieces.encode("ü the", add_special_tokens=False)] == [b" ", b"\xc3", b"\xbc", b" the"]


def test_lone_surrogates_become_the_replacement_character():
    tokenizer = byte_level_tokenizer()
    assert tokenizer.decode(tokenizer.encode("a\ud800b\udfff")) == "a�b�"


@pytest.mark.parametrize("text", [*SAMPLES, "hello" * 1000, " " * 999])
def test_min_tokens_is_never_more_than_the_tokens(text):
    for tokenizer in (byte_level_tokenizer(), sentencepiece_tokenizer()):
        assert tokenizer.min_tokens(text) <= len(tokenizer.encode(text, add_special_tokens=False))


def test_min_tokens_of_a_long_text_is_quick_and_large():
    tokenizer = byte_level_tokenizer()
    text = "word " * 1_500_000
    began = time.perf_counter()
    assert tokenizer.min_tokens(text) > 100_000
    assert time.perf_counter() - began < 0.1


def test_threads_that_encode_at_once_do_not_disturb_each_other():
    tokenizer = byte_level_tokenizer()
    text = "hello <|im_end|> world " * 200
    plain, parsed = tokenizer.encode(text), tokenizer.encode(text, parse_special=True)
    wrong = []

    def encode_often(parse_special, expected):
        for _ in range(20):
            if tokenizer.encode(text, parse_special=parse_special) != expected:
                wrong.append(parse_special)

    threads = [threading.Thread(target=encode_often, args=case) for case in [(False, plain), (True, parsed)] * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("run", ["a", " ", "\n", "e\u0301\u0301", "👩\u200d", "<", "1", "<|im_"])
@pytest.mark.parametrize("tokenizer", [byte_level_tokenizer(), sentencepiece_tokenizer()], ids=["bytes", "pieces"])
def test_a_long_run_costs_in_proportion_to_its_length(tokenizer, run):

    def seconds(chars):
        text = run * (chars // len(run))
        times = []
        for _ in range(3):
            began = time.process_time()
            tokenizer.encode(text)
            times.append(time.process_time() - began)
        return min(times)

    assert seconds(80_000) < 10 * seconds(20_000) + 0.02  # linear is 4, quadratic 16


@pytest.mark.parametrize("name", sorted({id(known): name for name, known in RECIPES.items()}.values()))
def test_no_word_cut_tries_a_long_run_from_each_of_its_places(name):
    cut = recipe(name).pre_tokenizer()
    for run in (" ", "\u00a0", "a", "A", "1", "!", "\u0301", "日"):
        began = time.process_time()
        cut.pre_tokenize_str(run * 30_000 + "x")
        assert time.process_time() - began < 1.5, run  # trying each place takes 30,000 squared steps


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_every_pre_tokenizer_builds_and_keeps_the_text(name):
    tokenizer = Tokenizer.from_assets(TextAssets(None, byte_level_vocabulary(name), None, None, (), False))
    text = "Hello, wörld! It's 12345 日本語\r\n\r\n  def f(x):\n\treturn x"
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("smollm", "it's 123", ["it", "'s", "Ġ", "1", "2", "3"]),
        ("gpt-2", "it's 123", ["it", "'s", "Ġ123"]),
        ("llama-bpe", "IT'S 12345", ["IT", "'S", "Ġ", "123", "45"]),
        ("qwen2", "a 12!\n\nb", ["a", "Ġ", "1", "2", "!ĊĊ", "b"]),
        ("deepseek-v3", "x1234 ab", ["x", "123", "4", "Ġab"]),
        ("default", "a1234", ["a", "123", "4"]),
        ("tekken", "camelCase", ["camel", "Case"]),
    ],
)
def test_pre_tokenizers_cut_words_as_their_models_do(name, text, words):
    assert [word for word, _ in recipe(name).pre_tokenizer().pre_tokenize_str(text)] == words


def test_an_unknown_pre_tokenizer_is_refused_by_name():
    with pytest.raises(ModelError, match=r"'gpt-9'.*llama-bpe.*qwen2"):
        from_gguf(byte_level_vocabulary("gpt-9"))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"model": "unigram"}, "unigram"),
        ({"tokens": (), "token_types": (), "merges": ()}, "no tokens"),
        ({"token_types": (1, 1)}, "token types"),
        ({"merges": ("ab",)}, "no pair"),
        ({"merges": ("notthere either",)}, "cannot be built"),
    ],
)
def test_a_damaged_byte_level_vocabulary_is_refused(change, text):
    with pytest.raises(ModelError, match=text):
        from_gguf(replace(byte_level_vocabulary(), **change))


def test_a_sentencepiece_vocabulary_without_scores_is_refused():
    with pytest.raises(ModelError, match="scores"):
        from_gguf(replace(sentencepiece_vocabulary(), scores=()))


def test_too_many_added_tokens_are_refused():
    tokens = tuple(f"<{i}>" for i in range(MAX_ADDED + 1))
    with pytest.raises(ModelError, match="100,001 added tokens; the limit is 100,000"):
        from_gguf(replace(byte_level_vocabulary(), tokens=tokens, token_types=(3,) * len(tokens), merges=()))


def test_begin_and_end_tokens_outside_the_vocabulary_are_refused():
    with pytest.raises(ModelError, match="token 999999"):
        Tokenizer.from_assets(byte_level_assets(eos_token_ids=(999999,)))


def test_a_model_without_tokenizer_is_refused():
    with pytest.raises(ModelError, match="no tokenizer"):
        Tokenizer.from_assets(TextAssets(None, None, None, None, (), False))


def json_assets(decoder, *, pre_tokenizer=None, normalizer=None, post_processor=None, added=(), vocab=None, merges=()):
    vocab = vocab or {"<unk>": 0, "<s>": 1, "a": 2, "b": 3, "▁": 4, "▁a": 5, "ab": 6, **{f"<0x{i:02X}>": 7 + i for i in range(256)}}
    document = {
        "version": "1.0",
        "truncation": {"max_length": 4, "stride": 0, "strategy": "LongestFirst", "direction": "Right"},
        "padding": None,
        "added_tokens": [
            {"id": vocab.get(text, len(vocab) + i), "content": text, "special": special, "single_word": False, "normalized": False} | strips
            for i, (text, special, strips) in enumerate(added)
        ],
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": post_processor,
        "decoder": decoder,
        "model": {"type": "BPE", "vocab": vocab, "merges": list(merges), "byte_fallback": True, "unk_token": "<unk>", "fuse_unk": True},
    }
    return TextAssets(json.dumps(document).encode(), None, None, None, (), False)


NO_STRIP = {"lstrip": False, "rstrip": False}
METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}
LLAMA_DECODER = {
    "type": "Sequence",
    "decoders": [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0},
    ],
}
BEGIN = {
    "type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
    "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
    "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}},
}


def test_tokenizer_json_brings_its_own_begin_token_and_loses_its_truncation():
    added = [("<s>", True, NO_STRIP)]
    tokenizer = Tokenizer.from_assets(json_assets(LLAMA_DECODER, post_processor=BEGIN, added=added, pre_tokenizer=METASPACE))
    assert texts(tokenizer, tokenizer.encode("aaaaaaa")) == ["<s>", "▁", *"aaaaaaa"]
    assert tokenizer.spelling is Spelling.BYTE_FALLBACK
    assert tokenizer.drops_first_space


def test_tokenizer_json_puts_the_space_before_the_first_run_only():
    added = [("<s>", True, NO_STRIP), ("<mid>", True, NO_STRIP)]
    tokenizer = Tokenizer.from_assets(json_assets(LLAMA_DECODER, added=added, pre_tokenizer=METASPACE))
    assert texts(tokenizer, tokenizer.encode("a<mid>a b", parse_special=True)) == ["▁", "a", "<mid>", "a", "▁", "b"]


def test_added_tokens_swallow_the_spaces_beside_them_where_their_makers_say_so():
    added = [("<left>", True, {"lstrip": True, "rstrip": False}), ("<right>", True, {"lstrip": False, "rstrip": True})]
    tokenizer = Tokenizer.from_assets(json_assets(LLAMA_DECODER, added=added))
    assert texts(tokenizer, tokenizer.encode("a <left>b<right> \na", parse_special=True)) == ["a", "<left>", "b", "<right>", "a"]


def test_a_control_token_that_merges_lead_to_is_spelled_in_letters():
    added = [("ab", True, NO_STRIP)]
    tokenizer = Tokenizer.from_assets(json_assets(LLAMA_DECODER, added=added, merges=["a b"]))
    assert texts(tokenizer, tokenizer.encode("aaba")) == ["a", "a", "b", "a"]
    assert texts(tokenizer, tokenizer.encode("aaba", parse_special=True)) == ["a", "ab", "a"]


def test_a_file_that_is_no_tokenizer_json_is_refused():
    with pytest.raises(ModelError, match=r"tokenizer\.json cannot be read"):
        Tokenizer.from_assets(TextAssets(b'{"model": 1}', None, None, None, (), False))


def test_other_decoders_are_asked_for_the_text():
    decoder = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    tokenizer = Tokenizer.from_assets(json_assets(decoder, pre_tokenizer=METASPACE | {"prepend_scheme": "always"}))
    assert tokenizer.spelling is Spelling.OTHER
    assert tokenizer.decode(tokenizer.encode("a b")) == "a b"
    assert tokenizer.decode([10**6, 2]) == "a"


def test_control_tokens_are_told_by_name_and_id():
    tokenizer = byte_level_tokenizer()
    assert tokenizer.control_tokens == {name: i for i, name in enumerate(CONTROL)} | {"<｜sep｜>": len(CONTROL) + 2}
    assert tokenizer.is_special(0)
    assert not tokenizer.is_special(tokenizer.control_tokens["<｜sep｜>"])


def test_sentencepiece_begins_plain_prompts_as_the_assets_say():
    assert Tokenizer.from_assets(sentencepiece_assets()).encode("hello")[0] == 1
    assert Tokenizer.from_assets(sentencepiece_assets(add_bos=False)).encode("hello")[0] != 1
