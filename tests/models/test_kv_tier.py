"""KV beyond the pool with the default model: the same bits in every mode, and a prefix cache that survives a restart."""

import gc
import itertools

import pytest
from tests.real_models import path_or_skip

from octavo import LLM, SamplingParams

pytestmark = pytest.mark.model

PARAMS = [
    SamplingParams(max_tokens=24, temperature=0, ignore_eos=True, logprobs=2),
    SamplingParams(max_tokens=24, temperature=0.9, top_p=0.95, seed=7, ignore_eos=True, logprobs=2),
]
PROMPTS = [[*range(2000, 2040), *range(start, start + 20)] for start in (100, 300, 500, 700)]
ROOMY, TIGHT = 64, 12  # blocks: one request alone takes 6, four at once 15 when they share what they can


@pytest.fixture(scope="module")
def path():
    return str(path_or_skip())


class Served:
    """An engine with its settings, and what it did."""

    def __init__(self, path, **settings):
        self.llm = LLM(path, max_model_len=96, **{"num_gpu_blocks_override": ROOMY, **settings})

    def answers(self):
        results = self.llm.generate(PROMPTS, [PARAMS[number % 2] for number in range(len(PROMPTS))])
        self.cached = [result.num_cached_tokens for result in results]
        return [(result.outputs[0].token_ids, result.outputs[0].logprobs) for result in results]

    @property
    def counters(self):
        return self.llm._engine.core._scheduler.counters

    def stop(self):
        tier = self.llm._engine.core._scheduler.kv._tier
        if tier is not None:
            tier.flush()
        del self.llm, tier
        gc.collect()


@pytest.fixture(scope="module")
def undisturbed(path):
    return Served(path, enable_prefix_caching=False).answers()


QUICK = [("swap", "disk"), ("auto", "memory")]
ALL = [*itertools.product(["auto", "recompute", "swap"], ["memory", "disk"]), ("auto", None), ("recompute", "without caching")]


@pytest.mark.parametrize(("mode", "where"), [pytest.param(*case, marks=() if case in QUICK else pytest.mark.slow) for case in ALL])
def test_preempted_and_restarted_answers_are_those_of_undisturbed_requests(path, tmp_path, undisturbed, mode, where):
    settings = {"preemption_mode": mode, "num_gpu_blocks_override": TIGHT, "enable_prefix_caching": where != "without caching"}
    if where == "memory":
        settings["kv_offload_gib"] = 0.05
    if where == "disk":
        settings["kv_offload_dir"] = str(tmp_path / "kv")
    first = Served(path, **settings)
    assert first.answers() == undisturbed
    assert first.counters.preemptions > 0, "the pool was not tight"
    first.stop()
    second = Served(path, **settings)
    assert second.answers() == undisturbed
    assert (second.cached[0] == 48) == (where == "disk"), "the prompt's first 60 tokens hold three full blocks"
    second.stop()


def test_another_model_or_dtype_finds_nothing_in_the_directory(path, tmp_path, caplog):
    first = Served(path, kv_offload_dir=str(tmp_path / "kv"))
    first.answers()
    first.stop()
    other = Served(path, kv_offload_dir=str(tmp_path / "kv"), kv_cache_dtype="f32")
    other.answers()
    assert other.cached[0] == 0
    assert "KV files of another model" in caplog.text
    other.stop()


@pytest.mark.parametrize("dtype", [pytest.param("fp8", marks=pytest.mark.slow), "int8"])
def test_narrow_kv_is_swapped_out_and_kept_across_a_restart(path, tmp_path, undisturbed, dtype):
    alone = Served(path, kv_cache_dtype=dtype, enable_prefix_caching=False).answers()
    assert alone != undisturbed, "rounding shows in the logprobs"
    settings = {
        "kv_cache_dtype": dtype,
        "preemption_mode": "swap",
        "num_gpu_blocks_override": TIGHT,
        "kv_offload_dir": str(tmp_path / "kv"),
    }
    first = Served(path, **settings)
    assert first.answers() == alone
    assert first.counters.preemptions > 0, "the pool was not tight"
    first.stop()
    second = Served(path, **settings)
    assert second.answers() == alone
    assert second.cached[0] == 48
    second.stop()


def test_damaged_files_cost_only_time(path, tmp_path, undisturbed):
    first = Served(path, kv_offload_dir=str(tmp_path / "kv"))
    assert first.answers() == undisturbed
    first.stop()
    for file in (tmp_path / "kv").glob("*.kv"):
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 0x10
        file.write_bytes(content)
    second = Served(path, kv_offload_dir=str(tmp_path / "kv"))
    assert second.answers() == undisturbed
    assert second.cached[0] == 0
    second.stop()
