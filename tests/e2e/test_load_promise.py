"""Same tokens whatever the load: on `native`, ids and log-probabilities are bit-equal alone, in a batch, chunked, after a prefix
hit, after preemption, eager or replayed, with one thread or several."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.real_models import path_or_skip

from octavo import LLM, SamplingParams

pytestmark = pytest.mark.model

COMMON = {"backend": "native", "max_model_len": 512, "kv_cache_memory_bytes": 64 << 20}
ENGINES = {
    "batched": {"max_num_batched_tokens": 512},
    "chunked by 16": {"max_num_batched_tokens": 16, "max_num_seqs": 8},
    "chunked by 7 and one at a time": {"max_num_batched_tokens": 7, "max_num_seqs": 1},
    "a pool that holds little more than one request": {"kv_cache_memory_bytes": None, "num_gpu_blocks_override": 34, "max_num_seqs": 6},
    "eager": {"enforce_eager": True},
    "one thread": {"threads": 1},
    "blocks of 32": {"block_size": 32},
}

token_ids = st.integers(0, 49_151)
prefixes = [[7 * i % 40_000 + 100 for i in range(48)], [11 * i % 40_000 + 50 for i in range(33)], []]
prompts = st.builds(lambda prefix, tail: prefix + tail, st.sampled_from(prefixes), st.lists(token_ids, min_size=1, max_size=60))
parameters = st.builds(
    lambda temperature, seed, max_tokens: SamplingParams(
        temperature=temperature, seed=seed, max_tokens=max_tokens, logprobs=2, ignore_eos=True
    ),
    temperature=st.sampled_from([0.0, 0.7, 1.3]),
    seed=st.integers(0, 1 << 40),
    max_tokens=st.integers(1, 24),
)


def require_model() -> None:
    path_or_skip()


@pytest.fixture(scope="module")
def solo():
    require_model()
    return LLM(enable_prefix_caching=False, **COMMON)


@pytest.fixture(scope="module", params=ENGINES, ids=lambda name: name.replace(" ", "-"))
def engine(request):
    require_model()
    return LLM(**{**COMMON, **ENGINES[request.param]})


def answers(llm: LLM, work: list[tuple[list[int], SamplingParams]]) -> list[tuple]:
    results = llm.generate([prompt for prompt, _ in work], [params for _, params in work], use_tqdm=False)
    return [(output.token_ids, output.logprobs) for result in results for output in result.outputs]


@settings(
    max_examples=6, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(work=st.lists(st.tuples(prompts, parameters), min_size=1, max_size=8))
def test_tokens_and_log_probabilities_are_those_of_a_request_alone(solo, engine, work):
    alone = [answers(solo, [one])[0] for one in work]
    assert answers(engine, work) == alone
    assert answers(engine, work) == alone, "the second time, from the prefix cache"
