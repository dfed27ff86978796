"""LLM.beam_search finds the beams of Hugging Face transformers, token for token, with their scores."""

import pytest
from tests.fakes.tiny_chat import write_tiny_chat

from octavo import LLM, BeamSearchParams

pytestmark = pytest.mark.reference

PROMPTS = [[5, 40, 77, 100], [201, 33], [64, 64, 120, 9, 250, 17]]
NEW_TOKENS = 12


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_tiny_chat(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def llm(folder):
    return LLM(folder, kv_cache_dtype="f32")


@pytest.fixture(scope="module")
def oracle(folder):
    from transformers import LlamaForCausalLM

    return LlamaForCausalLM.from_pretrained(folder)


@pytest.mark.parametrize(("width", "penalty"), [(1, 1.0), (3, 1.0), (5, 0.0), (4, 2.0)])
def test_the_beams_are_those_of_transformers(llm, oracle, width, penalty):
    import torch

    (eos,) = llm._front.generation.eos_token_ids
    for prompt in PROMPTS:
        (ours,) = llm.beam_search([prompt], BeamSearchParams(beam_width=width, max_tokens=NEW_TOKENS, length_penalty=penalty))
        theirs = oracle.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            num_beams=width,
            num_return_sequences=width,
            do_sample=False,
            max_new_tokens=NEW_TOKENS,
            length_penalty=penalty,
            early_stopping=False,
            eos_token_id=eos,
            pad_token_id=0,
            return_dict_in_generate=True,
            output_scores=True,
        )
        wanted = [trimmed(ids, len(prompt), eos) for ids in theirs.sequences.tolist()]
        assert [one.tokens for one in ours.sequences] == wanted
        if width > 1:
            assert [one.score for one in ours.sequences] == pytest.approx(theirs.sequences_scores.tolist(), abs=2e-3)


def trimmed(ids, num_prompt, eos):
    """Return ids without the padding behind the end token."""
    answer = ids[num_prompt:]
    return ids[:num_prompt] + (answer[: answer.index(eos) + 1] if eos in answer else answer)
