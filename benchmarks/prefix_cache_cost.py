"""What prefix caching costs where nothing is ever found: the engine with and without it, in turn, on prompts that all differ.

    python benchmarks/prefix_cache_cost.py [--model smollm2-135m-instruct] [--pairs 20]

CPU time of the process, threads that compute included. The pool holds half of what comes, so blocks are evicted too. Beside it the
direct figure: what the scheduler and the KV memory take longer with the cache, with no model at all, as a share of that CPU time.
"""

import argparse
import gc
import random
import statistics
import time

from octavo import LLM, SamplingParams
from octavo.kv.manager import KVManager
from octavo.messages.wire import GenerateRequest
from octavo.scheduler.admission import Limits
from octavo.simulator.fake_model import FakeModel
from octavo.simulator.simulation import Arrival, Simulation
from octavo.simulator.step_time import StepTime

PROMPTS, PROMPT, OUTPUT, BLOCKS = 8, 128, 16, 40
VOCAB = 40_000


def new_prompts(rng: random.Random) -> list[list[int]]:
    return [[rng.randrange(100, VOCAB) for _ in range(PROMPT)] for _ in range(PROMPTS)]


def engine_s(llm: LLM, prompts: list[list[int]]) -> float:
    """Return the CPU seconds of answering `prompts`. Raises SystemExit when something was found in the cache."""
    began = time.process_time()
    results = llm.generate(prompts, SamplingParams(max_tokens=OUTPUT, temperature=0, ignore_eos=True))
    seconds = time.process_time() - began
    if any(result.num_cached_tokens for result in results):
        raise SystemExit("prompts that should all differ were found in the cache")
    return seconds


def scheduling_s(prompts: list[list[int]], is_caching: bool) -> float:
    """Return the least CPU seconds of scheduling `prompts`, with no model."""
    params = SamplingParams(max_tokens=OUTPUT, seed=0, ignore_eos=True)
    arrivals = [
        Arrival(0.0, GenerateRequest(request_id=str(number), prompt_token_ids=prompt, params=params, arrival_s=0.0))
        for number, prompt in enumerate(prompts)
    ]
    limits = Limits(max_model_len=256, max_num_seqs=128, max_num_batched_tokens=512, vocab_size=VOCAB)
    least = float("inf")
    for _ in range(200):
        simulation = Simulation(limits, KVManager(BLOCKS, 16, enable_prefix_caching=is_caching), FakeModel(VOCAB), StepTime())
        began = time.process_time()
        simulation.run(arrivals)
        least = min(least, time.process_time() - began)
    return least


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--pairs", type=int, default=20)
    args = parser.parse_args()
    rng = random.Random(0)
    engines = {
        is_caching: LLM(args.model, max_model_len=256, num_gpu_blocks_override=BLOCKS, enable_prefix_caching=is_caching)
        for is_caching in (False, True)
    }
    for llm in engines.values():
        engine_s(llm, new_prompts(rng))
    gc.collect()
    times: dict[bool, list[float]] = {False: [], True: []}
    for pair in range(args.pairs):
        for is_caching in (False, True) if pair % 2 else (True, False):
            times[is_caching].append(engine_s(engines[is_caching], new_prompts(rng)))
    ratios = sorted(with_it / without for without, with_it in zip(times[False], times[True], strict=True))
    low, middle, high = statistics.quantiles(ratios, n=4)
    tokens = PROMPTS * (PROMPT + OUTPUT)
    print(f"{args.pairs} pairs of {tokens:,} tokens; CPU seconds of a run: {statistics.median(times[False]):.3f} without, ", end="")
    print(f"{statistics.median(times[True]):.3f} with the cache; with / without {middle:.4f} (quartiles {low:.4f} to {high:.4f})")
    prompts = new_prompts(rng)
    more = scheduling_s(prompts, True) - scheduling_s(prompts, False)
    share = more / statistics.median(times[False])
    print(f"scheduling with the cache takes {more * 1e6 / tokens:.2f} us a token more: {share:.3%} of the engine's CPU time")


if __name__ == "__main__":
    main()
