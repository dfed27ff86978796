"""`octavo serve` with an encoder: it starts, gives vectors and scores, and says what it does not do."""

import string

import openai
import pytest
from tests.fakes.served import served
from tests.models import tiny_bert
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *string.ascii_lowercase, *(f"##{letter}" for letter in string.ascii_lowercase)]


def write_word_pieces(path):
    tokenizer = Tokenizer(models.WordPiece({token: number for number, token in enumerate(TOKENS)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", [("[CLS]", 2), ("[SEP]", 3)])
    tokenizer.add_special_tokens(TOKENS[:5])
    tokenizer.save(str(path))


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    folder = tiny_bert.write_folder(tmp_path_factory.mktemp("encoder"), tiny_bert.spec())
    write_word_pieces(folder / "tokenizer.json")
    with served(folder) as url, openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        yield client


def test_vectors_come_as_numbers_and_as_bytes_alike(client):
    texts = ["a cat", "a dog sat"]
    plain, packed = (client.embeddings.create(model="tiny", input=texts, encoding_format=how) for how in ("float", "base64"))
    assert [len(item.embedding) for item in plain.data] == [32, 32]
    assert plain.usage.prompt_tokens == 15
    assert client.embeddings.create(model="tiny", input=texts[1]).data[0].embedding == pytest.approx(plain.data[1].embedding, abs=1e-6)
    assert len(packed.data[0].embedding) == len("A" * 172)


def test_a_text_is_nearest_to_itself(client):
    fields = {"model": "tiny", "query": "a cat", "documents": ["dog", "a cat"]}
    (best, _) = client.post("/rerank", body=fields, cast_to=object)["results"]
    assert best["index"] == 1 and best["relevance_score"] == pytest.approx(1, abs=1e-5)


def test_a_chat_is_refused_by_name(client):
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": "hi"}])
    assert refused.value.code == "unsupported_task"
