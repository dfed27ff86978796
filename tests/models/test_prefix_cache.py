"""The prefix cache with the default model: what is reused, and that answers stay the same to the bit."""

import pytest
from tests.real_models import path_or_skip

from octavo import LLM, SamplingParams

pytestmark = pytest.mark.model

GREEDY = SamplingParams(max_tokens=24, temperature=0, ignore_eos=True, logprobs=2)


@pytest.fixture(scope="module")
def path():
    return str(path_or_skip())


def answer(llm, prompt):
    (result,) = llm.generate([prompt], GREEDY)
    return result.outputs[0].token_ids, result.outputs[0].logprobs, result.num_cached_tokens


def test_the_next_turn_reuses_prompt_and_answer_of_the_turn_before(path):
    llm = LLM(path, max_model_len=256, num_gpu_blocks_override=64)
    first = list(range(1000, 1020))
    tokens, _, cached = answer(llm, first)
    assert cached == 0
    turn = [*first, *tokens, 7, 8, 9]
    second, logprobs, cached = answer(llm, turn)
    assert cached == (20 + 24 - 1) // 16 * 16, "all full blocks, generated tokens included; the last token was never computed"
    assert llm.reset_prefix_cache()
    assert answer(llm, turn) == (second, logprobs, 0)


@pytest.mark.parametrize("algo", ["sha256", "sha256_cbor", "xxhash", "xxhash_cbor"])
def test_each_hash_algorithm_finds_the_same_and_a_full_hit_computes_the_last_token(path, algo):
    llm = LLM(path, max_model_len=128, num_gpu_blocks_override=16, prefix_caching_hash_algo=algo)
    prompt = list(range(500, 532))
    tokens, logprobs, _ = answer(llm, prompt)
    assert answer(llm, prompt) == (tokens, logprobs, 16)


def test_without_prefix_caching_nothing_is_reused(path):
    llm = LLM(path, max_model_len=128, num_gpu_blocks_override=16, enable_prefix_caching=False)
    prompt = list(range(500, 532))
    assert answer(llm, prompt) == answer(llm, prompt)
    assert answer(llm, prompt)[2] == 0
