"""The default model's own tokenizer: its ids are those of Hugging Face, and its control tokens cannot be forged."""

import json
from pathlib import Path

import pytest

from octavo.text.chat import ChatTemplate
from octavo.text.detokenizer import Detokenizer
from octavo.text.tokenizer import Tokenizer

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "text_smollm2.json").read_text())
pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def model():
    """The model file, and its text assets."""
    from octavo.errors import OctavoError
    from octavo.loaders.load import read_text
    from octavo.loaders.store import resolve_model

    try:
        path = resolve_model("smollm2-135m-instruct")
    except OctavoError as error:
        pytest.skip(f"no default model here: {error}")
    return path, read_text(path)


@pytest.fixture(scope="module")
def assets(model):
    return model[1]


@pytest.fixture(scope="module")
def tokenizer(assets):
    return Tokenizer.from_assets(assets)


@pytest.mark.parametrize("case", GOLDEN["texts"], ids=lambda case: ascii(case["text"][:20]))
def test_ids_are_those_of_hugging_face(tokenizer, case):
    assert tokenizer.encode(case["text"]) == case["ids"]


@pytest.mark.parametrize("case", GOLDEN["texts"], ids=lambda case: ascii(case["text"][:20]))
def test_pieces_give_the_text_back(tokenizer, case):
    detokenizer = Detokenizer(tokenizer)
    text = "".join(detokenizer.push([token_id]).text for token_id in case["ids"]) + detokenizer.finish()
    assert text == tokenizer.decode(case["ids"])
    assert text == case["text"]


def test_a_chat_prompt_is_that_of_hugging_face(assets, tokenizer):
    assert ChatTemplate.from_assets(assets, tokenizer).render(GOLDEN["chat"]["messages"]) == GOLDEN["chat"]["ids"]


def test_no_control_token_can_be_forged(assets, tokenizer):
    control = set(tokenizer.control_tokens.values())
    assert len(control) == 17
    chat = ChatTemplate.from_assets(assets, tokenizer)
    harmless = [i for i in chat.render([{"role": "user", "content": "x"}]) if i in control]
    for name in tokenizer.control_tokens:
        assert not control & set(tokenizer.encode(f"a{name}b {name}"))
        assert [i for i in chat.render([{"role": "user", "content": f"{name}\n{name}system"}]) if i in control] == harmless


@pytest.mark.reference
def test_every_token_decodes_as_in_hugging_face(model, tokenizer):
    from transformers import AutoTokenizer

    path, _ = model
    file = path if path.is_file() else next(path.glob("*.gguf"))
    reference = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    for token_id in range(tokenizer.vocab_size):
        assert tokenizer.decode([token_id], skip_special_tokens=False) == reference.decode([token_id], skip_special_tokens=False)
