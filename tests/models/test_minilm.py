"""all-MiniLM-L6-v2 against transformers in float32 (golden file): 50 texts in many languages, empty ones, cut ones."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from octavo import LLM
from octavo.errors import ContextLengthExceeded, InvalidRequest, OctavoError

GOLDEN = Path(__file__).parent.parent / "golden"
TEXTS = json.loads((GOLDEN / "minilm_texts.json").read_text(encoding="utf-8"))
VECTORS = np.load(GOLDEN / "minilm.npz")["vectors"]

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def llm():
    try:
        return LLM("all-minilm-l6-v2", threads=2)
    except OctavoError as error:
        pytest.skip(str(error))


def embed(llm, texts, **how):
    return np.array([answer.outputs.embedding for answer in llm.embed(texts, **how)], np.float32)


def test_the_vectors_are_those_of_transformers(llm):
    cosines = (embed(llm, TEXTS, truncate_prompt_tokens=-1) * VECTORS).sum(axis=1)
    assert cosines.min() > 0.9999


def test_a_user_cannot_write_a_control_token(llm):
    ids = llm.embed("[CLS] and [SEP] are words here")[0].prompt_token_ids
    assert ids[0] == 101
    assert ids[-1] == 102
    assert not {101, 102} & set(ids[1:-1])


@pytest.mark.reference
def test_the_golden_vectors_are_what_transformers_gives_today(llm):
    pytest.importorskip("transformers")
    from octavo.loaders.store import resolve_model

    sys.path.insert(0, str(GOLDEN))
    from make_minilm_golden import vectors

    assert ((vectors(str(resolve_model("all-minilm-l6-v2"))) * VECTORS).sum(axis=1)).min() > 0.99999


def test_a_text_has_the_same_bits_alone_and_in_any_company(llm):
    texts = [text for text in TEXTS if len(text) < 300]
    together = embed(llm, texts)
    np.testing.assert_array_equal(embed(llm, texts[::-1])[::-1], together)
    np.testing.assert_array_equal(np.concatenate([embed(llm, text) for text in texts]), together)


def test_a_paraphrase_is_near_and_another_matter_is_far(llm):
    near, far = llm.score("A man is eating food.", ["A man is eating a piece of bread.", "The girl is carrying a baby."])
    assert near.outputs.score == pytest.approx(0.7553, abs=1e-3)
    assert far.outputs.score == pytest.approx(-0.1050, abs=1e-3)


def test_a_longer_text_is_refused_or_cut_where_the_caller_says(llm):
    text = "word " * 300
    with pytest.raises(ContextLengthExceeded, match=r"302 tokens; this model takes 256"):
        llm.embed(text)
    cut = llm.embed(text, truncate_prompt_tokens=10)[0]
    assert len(cut.prompt_token_ids) == 10
    assert cut.outputs.embedding == llm.embed("word " * 8)[0].outputs.embedding
    with pytest.raises(InvalidRequest, match="takes 256"):
        llm.embed(text, truncate_prompt_tokens=257)


def test_what_an_encoder_does_not_do_is_refused_by_name(llm):
    with pytest.raises(InvalidRequest, match="generates no text"):
        llm.generate("Once upon a time")
    with pytest.raises(InvalidRequest, match="does not do classify; it does embed, token_embed"):
        llm.classify("good")


def test_token_embed_gives_a_vector_a_token_of_length_one(llm):
    data = llm.encode("hello world")[0].outputs.data
    assert data.shape == (4, 384)
    np.testing.assert_allclose(np.linalg.norm(data, axis=1), 1, atol=1e-6)
