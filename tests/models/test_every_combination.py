"""The default model's answers are the same bits in every combination of what may change how they come about.

The default suite takes combinations in which each pair of settings occurs; the full product is slow.
"""

import gc
import itertools
from dataclasses import asdict, dataclass, fields

import pytest
from tests.real_models import path_or_skip

from octavo import LLM, SamplingParams

pytestmark = pytest.mark.model

SETTINGS = {
    "cache": ("off", "pool", "memory", "disk"),
    "chunk": (512, 24, 7),
    "preemption": ("auto", "recompute", "swap"),
    "planned_ahead": (False, True),
    "batch": (1, 3, 6),
    "blocks": (64, 10),  # one request alone takes 5; two at once 8 when they share what they can
}
PROMPTS = [[*range(2000, 2040), *range(start, start + 20)] for start in (100, 300, 500, 700, 100, 900)]
PARAMS = [
    SamplingParams(max_tokens=9, temperature=0, ignore_eos=True, logprobs=2),
    SamplingParams(max_tokens=9, temperature=0.9, top_p=0.95, seed=7, ignore_eos=True, logprobs=2),
]


@dataclass(frozen=True)
class Combination:
    cache: str
    chunk: int
    preemption: str
    planned_ahead: bool
    batch: int
    blocks: int

    @property
    def is_possible(self):
        """Swapping needs somewhere to swap to, and a step a token for each request."""
        return (self.preemption != "swap" or self.cache in ("memory", "disk")) and self.batch <= self.chunk

    @property
    def pairs(self):
        return set(itertools.combinations(asdict(self).items(), 2))

    def flags(self, folder):
        tier = {"memory": {"kv_offload_gib": 0.05}, "disk": {"kv_offload_dir": str(folder / "kv")}}.get(self.cache, {})
        return tier | {
            "enable_prefix_caching": self.cache != "off",
            "max_num_batched_tokens": self.chunk,
            "preemption_mode": self.preemption,
            "async_scheduling": self.planned_ahead,
            "max_num_seqs": self.batch,
            "num_gpu_blocks_override": self.blocks,
        }


ALL = [one for values in itertools.product(*SETTINGS.values()) if (one := Combination(*values)).is_possible]


def covering(combinations):
    """Return some of them in which each pair of settings that any has occurs, each time the one with most new pairs."""
    chosen, missing = [], set().union(*(one.pairs for one in combinations))
    while missing:
        best = max(combinations, key=lambda one: len(one.pairs & missing))
        chosen.append(best)
        missing -= best.pairs
    return chosen


PAIRWISE = covering(ALL)


@pytest.fixture(scope="module")
def path():
    return str(path_or_skip())


def answers(llm, prompts=PROMPTS):
    results = llm.generate(prompts, [PARAMS[PROMPTS.index(prompt) % 2] for prompt in prompts])
    return [(result.outputs[0].token_ids, result.outputs[0].logprobs) for result in results], [one.num_cached_tokens for one in results]


@pytest.fixture(scope="module")
def alone(path):
    """Each prompt by itself, whole in one step, nothing cached."""
    llm = LLM(path, max_model_len=96, enable_prefix_caching=False, num_gpu_blocks_override=64, async_scheduling=False)
    return [answers(llm, [prompt])[0][0] for prompt in PROMPTS]


def end(llm):
    if (tier := llm._engine.core._scheduler.kv._tier) is not None:
        tier.flush()
    del llm, tier
    gc.collect()


@pytest.mark.parametrize(
    "combination",
    [pytest.param(one, marks=() if one in PAIRWISE else pytest.mark.slow) for one in ALL],
    ids=lambda one: "-".join(str(getattr(one, field.name)) for field in fields(one)),
)
def test_answers_are_those_of_each_prompt_alone(path, tmp_path, alone, combination):
    llm = LLM(path, max_model_len=96, **combination.flags(tmp_path))
    assert answers(llm)[0] == alone
    assert answers(llm)[0] == alone, "the second time, with whatever is cached"
    counters = llm._engine.core._scheduler.counters
    if combination.blocks == 64 or combination.batch == 1:
        assert counters.preemptions == 0
    elif combination.chunk == 512 and combination.cache in ("off", "pool"):  # beside a tier, loads put requests off
        assert counters.preemptions > 0, "the pool was not tight"
    end(llm)
    del llm
    gc.collect()
    if combination.cache == "disk":
        again = LLM(path, max_model_len=96, **combination.flags(tmp_path))
        found, cached = answers(again)
        assert found == alone, "after a restart, from what the directory keeps"
        assert cached[0] == 48
        end(again)


def test_each_pair_of_settings_occurs_in_the_default_suite():
    for (one, ones), (two, twos) in itertools.combinations(SETTINGS.items(), 2):
        for pair in itertools.product(ones, twos):
            possible = any((getattr(case, one), getattr(case, two)) == pair for case in ALL)
            assert possible == any((getattr(case, one), getattr(case, two)) == pair for case in PAIRWISE)
    assert len(PAIRWISE) < 20
    assert len(ALL) == 360
