"""GGUF metadata as numbers, text and sampling."""

import math
import struct

import pytest
from model_files import (
    CHATML,
    F32,
    GGML_F32,
    HEAD_DIM,
    HEADS,
    HIDDEN,
    I32,
    KV_HEADS,
    LAYERS,
    MERGES,
    TOKEN_TYPES,
    TOKENS,
    U32,
    encode_numbers,
    gguf_bytes,
    gguf_metadata,
    gguf_shapes,
    tiny_gguf,
    zeros,
)

from octavo.errors import ModelError
from octavo.loaders.gguf import read_gguf
from octavo.loaders.gguf_model import read_gguf_spec
from octavo.loaders.gguf_text import read_gguf_generation, read_gguf_text
from octavo.specs.model import RopeSpec


@pytest.fixture
def file_of(tmp_path):
    def read(*args, **changes):
        path = tmp_path / "model.gguf"
        path.write_bytes(tiny_gguf(*args, **changes))
        return read_gguf(path)

    return read


def refused(door, file) -> str:
    with pytest.raises(ModelError) as caught:
        door(file)
    return caught.value.message


def test_metadata_and_tensors_give_the_numbers(file_of):
    spec = read_gguf_spec(file_of())
    assert (spec.family, spec.num_layers, spec.hidden_size, spec.num_heads, spec.num_kv_heads) == ("llama", LAYERS, HIDDEN, HEADS, KV_HEADS)
    assert (spec.head_dim, spec.vocab_size, spec.max_position) == (HEAD_DIM, len(TOKENS), 128)
    assert spec.rope == RopeSpec(dim=HEAD_DIM, interleaved=True)
    assert spec.tie_embeddings and not any((spec.qkv_bias, spec.o_bias, spec.mlp_bias, spec.qk_norm))


def test_an_output_tensor_unties_the_embedding(file_of):
    assert not read_gguf_spec(file_of(extra={"output.weight": (len(TOKENS), HIDDEN)})).tie_embeddings


def test_qwen_files_do_not_interleave_and_have_their_extra_layers(file_of):
    qwen2 = read_gguf_spec(file_of("qwen2", extra={"blk.0.attn_q.bias": (32,)}))
    assert (qwen2.rope.interleaved, qwen2.qkv_bias, qwen2.qk_norm) == (False, True, False)
    qwen3 = read_gguf_spec(file_of("qwen3", qwen3__attention__key_length=16, qwen3__attention__value_length=16))
    assert (qwen3.rope.interleaved, qwen3.head_dim, qwen3.rope.dim, qwen3.qk_norm) == (False, 16, 16, True)


def test_rope_settings_are_read(file_of):
    rope = read_gguf_spec(file_of(llama__rope__freq_base=5e5, llama__rope__dimension_count=4)).rope
    assert (rope.theta, rope.dim) == (5e5, 4)
    linear = read_gguf_spec(file_of(llama__rope__scaling__type="linear", llama__rope__scaling__factor=2.0)).rope
    assert (linear.kind, linear.factor) == ("linear", 2.0)
    assert read_gguf_spec(file_of(llama__rope__scale_linear=2.0)).rope.kind == "linear"
    yarn = {"llama__rope__scaling__type": "yarn", "llama__rope__scaling__factor": 4.0, "llama__rope__scaling__original_context_length": 32}
    assert read_gguf_spec(file_of(**yarn)).rope.original_max_position == 32
    scaled = read_gguf_spec(file_of(**yarn, llama__rope__scaling__attn_factor=0.5)).rope
    assert scaled.attention_factor == pytest.approx(0.5 * (0.1 * math.log(4) + 1))


def test_frequency_factors_come_from_their_tensor(tmp_path):
    tensors = {name: (shape, GGML_F32, zeros(*shape)) for name, shape in gguf_shapes().items()}
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf_bytes(gguf_metadata(), tensors | {"rope_freqs.weight": ((4,), GGML_F32, struct.pack("<4f", 1, 2, 4, 8))}))
    assert read_gguf_spec(read_gguf(path)).rope.frequency_factors == (1.0, 2.0, 4.0, 8.0)


def test_frequency_factors_that_are_no_positive_numbers_are_refused(file_of):
    assert "not a positive number" in refused(read_gguf_spec, file_of(extra={"rope_freqs.weight": (4,)}))
    assert "it must be (4,)" in refused(read_gguf_spec, file_of(extra={"rope_freqs.weight": (5,)}))


def test_values_given_layer_by_layer_must_be_equal(file_of):
    equal = encode_numbers(U32, [KV_HEADS] * LAYERS)
    assert read_gguf_spec(file_of(llama__attention__head_count_kv=equal)).num_kv_heads == KV_HEADS
    mixed = encode_numbers(U32, [KV_HEADS, HEADS])
    assert "differs between layers" in refused(read_gguf_spec, file_of(llama__attention__head_count_kv=mixed))


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"general__architecture": "gemma3"}, "'gemma3'; supported are llama, qwen2, qwen3"),
        ({"general__architecture": None}, "general.architecture missing"),
        ({"llama__block_count": None, "llama__context_length": None}, "block_count, context_length missing"),
        ({"llama__expert_count": 8}, "8 experts"),
        ({"llama__attention__value_length": 4}, "keys of 8 and values of 4"),
        ({"llama__attention__head_count": 0}, "head_count is 0"),
        ({"llama__block_count": "two"}, "block_count is 'two'"),
        ({"llama__rope__scaling__type": "longrope"}, "'longrope'"),
        ({"llama__rope__freq_base": float("nan")}, "rope.freq_base"),
        ({"llama__rope__dimension_count": 6, "llama__attention__key_length": 4}, "rotary dimension 6"),
        ({"llama__rope__dimension_count": 0}, "rotary dimension 0"),
        ({"tokenizer__ggml__tokens": [*TOKENS, "more"]}, "9 tokens, but the embedding only 8 rows"),
    ],
)
def test_what_metadata_cannot_mean_is_refused_by_name(file_of, changes, part):
    assert part in refused(read_gguf_spec, file_of(**changes))


def test_the_vocabulary_comes_back_whole(file_of):
    text = read_gguf_text(file_of(tokenizer__ggml__unknown_token_id=0, tokenizer__ggml__add_space_prefix=False))
    vocabulary = text.gguf_vocabulary
    assert (vocabulary.model, vocabulary.pre, vocabulary.tokens, vocabulary.merges) == ("gpt2", "smollm", tuple(TOKENS), tuple(MERGES))
    assert vocabulary.token_types == tuple(TOKEN_TYPES) and vocabulary.scores == (0.0,) * len(TOKENS)
    assert (vocabulary.unknown_token_id, vocabulary.add_space_prefix) == (0, False)
    assert (text.chat_template, text.tokenizer_json) == (CHATML, None)


def test_add_bos_defaults_by_kind_of_vocabulary(file_of):
    assert not read_gguf_text(file_of()).add_bos
    assert read_gguf_text(file_of(tokenizer__ggml__pre="llama-bpe")).add_bos
    assert read_gguf_text(file_of(tokenizer__ggml__model="llama")).add_bos
    assert not read_gguf_text(file_of(tokenizer__ggml__model="llama", tokenizer__ggml__add_bos_token=False)).add_bos


def test_the_templates_turn_end_ends_an_answer_when_it_is_a_control_token(file_of):
    assert read_gguf_generation(file_of()).eos_token_ids == (0, 2)
    as_text = encode_numbers(I32, [1] * len(TOKENS))
    assert read_gguf_generation(file_of(tokenizer__ggml__token_type=as_text)).eos_token_ids == (0,)
    assert read_gguf_generation(file_of(tokenizer__chat_template=None)).eos_token_ids == (0,)
    assert read_gguf_generation(file_of(tokenizer__ggml__eot_token_id=5)).eos_token_ids == (0, 5, 2)


def test_sampling_defaults_are_read(file_of):
    defaults = read_gguf_generation(file_of(general__sampling__temp=0.5, general__sampling__top_k=(I32, 40)))
    assert (defaults.bos_token_id, defaults.temperature, defaults.top_k, defaults.top_p) == (1, 0.5, 40, None)


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"tokenizer__ggml__model": "bert"}, "'bert'; supported are gpt2, llama"),
        ({"tokenizer__ggml__tokens": None}, "tokenizer.ggml.tokens missing"),
        ({"tokenizer__ggml__tokens": 5}, "strings"),
        ({"tokenizer__ggml__token_type": encode_numbers(I32, [1])}, "one a token"),
        ({"tokenizer__ggml__scores": encode_numbers(I32, [1] * len(TOKENS))}, "float32"),
        ({"tokenizer__ggml__scores": encode_numbers(F32, [1.0])}, "one a token"),
        ({"tokenizer__ggml__eos_token_id": 99}, "eos_token_id is 99"),
        ({"tokenizer__ggml__bos_token_id": -0.5}, "bos_token_id"),
        ({"general__sampling__temp": 50.0}, "temperature"),
    ],
)
def test_a_vocabulary_that_does_not_fit_is_refused_by_name(file_of, changes, part):
    assert part in refused(read_gguf_text, file_of(**changes))
