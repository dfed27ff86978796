"""Same tokens whatever the load: a request's tokens and log-probabilities, bit for bit, alone and in every kind of crowd.

The real engine on a tiny random model. Alone means: one request at a time, whole prompts in one step, no prefix cache.
"""

import gc
import random
from dataclasses import dataclass

import pytest
from tests.fakes.history_worker import make_request
from tests.fakes.tiny_deepseek import write_tiny_deepseek
from tests.fakes.tiny_llama import MAX_POSITION, VOCAB, write_tiny_llama

from octavo.config.schema import CacheConfig, EngineConfig, ModelConfig, RuntimeConfig, SchedulerConfig
from octavo.engine.startup import start_engine


@dataclass(frozen=True)
class Regime:
    """How the crowd is served. `together`: all at once; `resumed`: half of each answer is known already, as after a restart."""

    max_num_seqs: int = 16
    max_num_batched_tokens: int = 512
    num_blocks: int = 400
    prefix_caching: bool = False
    enforce_eager: bool = False
    together: bool = True
    resumed: bool = False
    async_scheduling: bool = True
    kv_offload_dir: str | None = None


ALONE = Regime(together=False, async_scheduling=False)
REGIMES = {
    "batched": Regime(),
    "batched, one step at a time": Regime(async_scheduling=False),
    "chunked": Regime(max_num_batched_tokens=17),
    "one token a step": Regime(max_num_seqs=1, max_num_batched_tokens=1, prefix_caching=True),
    "prefix hits": Regime(max_num_seqs=2, prefix_caching=True),
    "preempted": Regime(num_blocks=MAX_POSITION // 16 + 2, prefix_caching=False),
    "preempted, one step at a time": Regime(num_blocks=MAX_POSITION // 16 + 2, async_scheduling=False),
    "preempted with prefix hits in small chunks": Regime(num_blocks=MAX_POSITION // 16 + 3, max_num_batched_tokens=29, prefix_caching=True),
    "eager": Regime(enforce_eager=True, max_num_batched_tokens=64),
    "resumed": Regime(resumed=True),
}


WINDOW = 24  # of the second layer of the hybrid model, whose blocks are dropped as requests go on


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return str(write_tiny_llama(tmp_path_factory.mktemp("tiny")))


@pytest.fixture(scope="module")
def hybrid(tmp_path_factory):
    return str(write_tiny_llama(tmp_path_factory.mktemp("hybrid"), window=WINDOW))


@pytest.fixture(scope="module")
def latent(tmp_path_factory):
    return str(write_tiny_deepseek(tmp_path_factory.mktemp("latent")))


@pytest.fixture(params=["reference", "native"])
def backend(request):
    if request.param == "native":
        pytest.importorskip("octavo.backends.native._native", reason="the native library is not built")
    return request.param


def workload(seed):
    """Yield requests with prompts of 1 to 120 tokens, a third of them with a common start, and every kind of sampling."""
    chooser = random.Random(seed)
    common = [chooser.randrange(VOCAB) for _ in range(64)]
    for number in range(14):
        own = [chooser.randrange(VOCAB) for _ in range(chooser.choice([1, 2, 15, 16, 17, 40, 56]))]
        sampling = chooser.choice(
            [
                {"temperature": 0.0},
                {"temperature": 1.0},
                {"temperature": 0.7, "top_k": 20, "top_p": 0.9, "min_p": 0.01},
                {"temperature": 1.3, "repetition_penalty": 1.2, "presence_penalty": 0.5, "frequency_penalty": 0.3},
                {"temperature": 1.0, "typical_p": 0.8, "top_n_sigma": 2.0, "xtc_probability": 0.5, "logprobs_mode": "processed"},
                {"temperature": 0.2, "dry_multiplier": 1.0, "bad_word_ids": ((3,), (4, 5)), "dry_breaker_ids": (7,)},
                {"temperature": 1.0, "allowed_token_ids": tuple(range(40)), "prompt_logprobs": 2},
                {"temperature": 0.9, "logit_bias": {3: 5.0, 4: -100.0}, "min_tokens": 5, "stop_token_ids": (3,)},
            ]
        )
        prompt = [*common[: chooser.choice([0, 48, 64])], *own]
        yield f"r{number}", prompt, {"max_tokens": chooser.randint(5, 70), "logprobs": chooser.choice([None, 3]), **sampling}


def serve(model, backend, regime, requests, known=None):
    """Return (request id -> (tokens, logprobs, prompt's logprobs), preemptions, prefix hits) of the requests under `regime`."""
    core, _ = start_engine(
        EngineConfig(
            model=ModelConfig(model=model),
            cache=CacheConfig(
                num_gpu_blocks_override=regime.num_blocks,
                enable_prefix_caching=regime.prefix_caching,
                kv_offload_dir=regime.kv_offload_dir,
                preemption_mode="swap" if regime.kv_offload_dir else "auto",  # load whatever it costs
            ),
            scheduler=SchedulerConfig(
                max_num_seqs=regime.max_num_seqs,
                max_num_batched_tokens=regime.max_num_batched_tokens,
                async_scheduling=regime.async_scheduling,
            ),
            runtime=RuntimeConfig(backend=backend, enforce_eager=regime.enforce_eager),
        )
    )
    answers, preemptions, hits = {request_id: ([], [], []) for request_id, _, _ in requests}, 0, 0
    for number, (request_id, prompt, params) in enumerate(requests):
        resume = known[request_id][0][: len(known[request_id][0]) // 2] if regime.resumed else []
        answers[request_id][0].extend(resume)
        answers[request_id][1].extend(known[request_id][1][: len(resume)] if resume else [])
        answers[request_id][2].extend(known[request_id][2] if resume else [])
        core.add(make_request(request_id, prompt, resume=resume, **params))
        while core.has_work and (not regime.together or number == len(requests) - 1):
            outputs = core.step()
            if outputs is None:
                continue
            for delta in outputs.deltas:
                assert delta.finish_reason != "error", delta.error
                answers[delta.request_id][0].extend(delta.token_ids)
                answers[delta.request_id][1].extend(delta.logprobs or [])
                answers[delta.request_id][2].extend(delta.prompt_logprobs or [])
            if outputs.stats:
                preemptions += outputs.stats.num_preemptions
                hits += outputs.stats.prefix_cache_hits + outputs.stats.external_hits
    if regime.kv_offload_dir is not None:
        core._scheduler.kv._tier.flush()
        del core
        gc.collect()  # the directory serves one engine at a time
    return answers, preemptions, hits


def check_answers_are_those_of_each_alone(model, backend, name, regime):
    requests = list(workload(seed=11))
    alone, _, _ = serve(model, backend, ALONE, requests)
    crowd, preemptions, hits = serve(model, backend, regime, requests, known=alone)
    assert crowd == alone
    assert (preemptions > 0) == name.startswith("preempted"), "the regime is not what it says"
    assert (hits > 0) == regime.prefix_caching


@pytest.mark.parametrize("name", REGIMES)
def test_tokens_and_logprobs_are_those_of_the_request_alone(model, backend, name):
    check_answers_are_those_of_each_alone(model, backend, name, REGIMES[name])


HYBRID_REGIMES = {
    "chunked": REGIMES["chunked"],
    "prefix hits": REGIMES["prefix hits"],
    "preempted with prefix hits in small chunks": Regime(num_blocks=32, max_num_batched_tokens=29, max_num_seqs=6, prefix_caching=True),
    "eager": REGIMES["eager"],
}


@pytest.mark.parametrize("name", HYBRID_REGIMES)
def test_the_same_holds_where_layers_see_different_positions(hybrid, backend, name):
    check_answers_are_those_of_each_alone(hybrid, backend, name, HYBRID_REGIMES[name])


LATENT_REGIMES = ("batched", "chunked", "prefix hits", "preempted with prefix hits in small chunks", "eager")


@pytest.mark.parametrize(
    ("name", "backend"),
    [*((name, "native") for name in LATENT_REGIMES), ("preempted with prefix hits in small chunks", "reference")],
    indirect=["backend"],
)
def test_the_same_holds_for_latent_attention_and_experts(latent, backend, name):
    check_answers_are_those_of_each_alone(latent, backend, name, REGIMES[name])


def test_latents_on_disk_serve_the_next_engine(latent, tmp_path):
    pytest.importorskip("octavo.backends.native._native", reason="the native library is not built")
    requests = list(workload(seed=11))
    regime = Regime(max_num_seqs=2, prefix_caching=True, kv_offload_dir=str(tmp_path / "tier"))
    alone, _, _ = serve(latent, "native", ALONE, requests)
    first, _, first_hits = serve(latent, "native", regime, requests)
    second, _, second_hits = serve(latent, "native", regime, requests)
    assert first == second == alone
    assert second_hits > first_hits, "nothing came back from the disk"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_the_same_holds_for_many_crowds(model, backend, seed):
    chooser = random.Random(seed)
    requests = list(workload(seed))
    regime = Regime(
        max_num_seqs=chooser.randint(1, 8),
        max_num_batched_tokens=chooser.randint(8, 200),
        num_blocks=chooser.choice([MAX_POSITION // 16 + 2, 40, 400]),
        prefix_caching=chooser.random() < 0.7,
        enforce_eager=chooser.random() < 0.2,
        async_scheduling=chooser.random() < 0.7,
    )
    assert serve(model, backend, regime, requests)[0] == serve(model, backend, ALONE, requests)[0]
