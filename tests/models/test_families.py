"""Each family of models against transformers' logits (golden file), on the reference backend."""

import numpy as np
import pytest
import tiny
from msgspec.structs import replace

from octavo.backends.reference.backend import ReferenceBackend
from octavo.backends.registry import open_backend
from octavo.errors import ModelError
from octavo.models.registry import bind
from octavo.specs.model import RopeSpec
from octavo.worker.runner import LoadedModel
from octavo.worker.scoring import Scorer

GOLDEN = np.load(tiny.GOLDEN)


def logits_of(spec, tensors, backend=None):
    backend = backend or ReferenceBackend()
    model = bind(spec, tensors, backend)
    return Scorer(LoadedModel(backend, model, spec, model.weight_bytes), spec.kv_spec("f32"), tiny.NUM_TOKENS).logits(tiny.token_ids())


def assert_close(actual, expected):
    assert np.abs(actual - expected).max() <= tiny.RELATIVE_BOUND * np.abs(expected).max()


@pytest.mark.parametrize("name", tiny.CASES)
def test_logits_equal_those_of_transformers(name):
    spec = tiny.CASES[name]
    assert_close(logits_of(spec, tiny.tensors(spec)), GOLDEN[name])


@pytest.mark.reference
@pytest.mark.parametrize("name", tiny.CASES)
def test_the_golden_logits_are_what_transformers_gives_today(name):
    hf_tiny = pytest.importorskip("hf_tiny")
    spec = tiny.CASES[name]
    assert_close(hf_tiny.logits(spec, tiny.tensors(spec), tiny.token_ids()), GOLDEN[name])


@pytest.mark.parametrize("name", ["llama", "qwen2"])
def test_interleaved_rotary_pairs_are_the_same_model_with_its_heads_shuffled(name):
    spec = tiny.CASES[name]
    tensors = tiny.tensors(spec)
    half = spec.head_dim // 2
    order = np.stack((np.arange(half), np.arange(half) + half), axis=1).ravel()  # (i, i + half) become neighbours
    for key, raw in tensors.items():
        if key.rsplit(".", 1)[-1] in ("q", "k", "q_bias", "k_bias"):
            heads = np.frombuffer(raw.data, np.float32).reshape(-1, spec.head_dim, *raw.shape[1:])
            tensors[key] = tiny.raw(key, heads[:, order].reshape(raw.shape))
    assert_close(logits_of(replace(spec, rope=replace(spec.rope, interleaved=True)), tensors), GOLDEN[name])


def test_frequency_factors_give_the_same_as_the_kind_that_they_spell_out():
    spec = tiny.CASES["llama-linear"]
    spelled = replace(spec, rope=RopeSpec(dim=8, frequency_factors=(4.0,) * 4))
    assert np.array_equal(logits_of(spelled, tiny.tensors(spec)), logits_of(spec, tiny.tensors(spec)))


def test_tied_embeddings_are_held_once():
    tied, untied = (bind(spec, tiny.tensors(spec), ReferenceBackend()) for spec in (tiny.spec(tie_embeddings=True), tiny.spec()))
    assert untied.weight_bytes - tied.weight_bytes == tiny.VOCAB_SIZE * 32 * 4
    assert tied.lm_head is tied.embed


def test_an_unknown_family_is_refused_with_the_known_ones():
    with pytest.raises(ModelError, match=r"'mamba'.*llama, mistral, qwen2, qwen3"):
        bind(tiny.spec("mamba"), {}, ReferenceBackend())


@pytest.mark.parametrize("name", [name for name in tiny.CASES if name.startswith("deepseek")])
def test_latent_attention_on_native_equals_transformers_too(name):
    pytest.importorskip("octavo.backends.native._native", reason="the native library is not built")
    spec = tiny.CASES[name]
    assert_close(logits_of(spec, tiny.tensors(spec), open_backend("native", threads=1)), GOLDEN[name])


def test_latents_are_kept_once_for_all_heads():
    latent = tiny.CASES["deepseek-v3"].kv_spec("bf16")
    assert latent.bytes_per_token == 2 * (32 + 6) * 2  # two layers, bf16
