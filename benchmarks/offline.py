"""Speed of one engine in its own process, no HTTP: prefill, and decode at several batch sizes. One JSON line for each figure.

    python benchmarks/offline.py octavo|openvino|vllm MODEL [--prefills 512,2048] [--batches 1,8,32,64] [--repeats 3] ...

Prompts are random token ids, drawn anew each time, prefix caching off, greedy, EOS ignored. Prefill rate: prompt tokens over
the time of one answer of one token. Decode rate: batch x (output - 1) tokens over the time that the whole answer takes longer
than an answer of one token (the median of as many). Rates of each repeat.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable

VOCABULARY = range(1000, 49000)

Generate = Callable[[list[list[int]], int], None]  # (prompts, tokens of each answer)


def open_octavo(model: str) -> Generate:
    from octavo import LLM, SamplingParams

    llm = LLM(model=model, enable_prefix_caching=False)

    def generate(prompts: list[list[int]], output_len: int) -> None:
        answers = llm.generate(prompts, SamplingParams(temperature=0, max_tokens=output_len, ignore_eos=True), use_tqdm=False)
        check([len(answer.outputs[0].token_ids) for answer in answers], output_len)

    return generate


def open_openvino(model: str) -> Generate:
    import numpy as np
    import openvino
    import openvino_genai

    scheduler = openvino_genai.SchedulerConfig()
    scheduler.cache_size, scheduler.max_num_batched_tokens, scheduler.max_num_seqs = 4, 4096, 64
    scheduler.enable_prefix_caching, scheduler.dynamic_split_fuse = False, True
    pipeline = openvino_genai.ContinuousBatchingPipeline(model, scheduler, "CPU", {})

    def generate(prompts: list[list[int]], output_len: int) -> None:
        config = openvino_genai.GenerationConfig()
        config.max_new_tokens = config.min_new_tokens = output_len
        config.ignore_eos, config.do_sample = True, False
        tensors = [openvino.Tensor(np.array([prompt], np.int64)) for prompt in prompts]
        check([len(answer.m_generation_ids[0]) for answer in pipeline.generate(tensors, [config] * len(tensors))], output_len)

    return generate


def open_vllm(model: str) -> Generate:
    from vllm import LLM, SamplingParams

    llm = LLM(model=model, dtype="bfloat16", max_model_len=4096, max_num_seqs=64, max_num_batched_tokens=4096, enable_prefix_caching=False)

    def generate(prompts: list[list[int]], output_len: int) -> None:
        params = SamplingParams(temperature=0, max_tokens=output_len, min_tokens=output_len, ignore_eos=True, detokenize=False)
        answers = llm.generate([{"prompt_token_ids": prompt} for prompt in prompts], params, use_tqdm=False)
        check([len(answer.outputs[0].token_ids) for answer in answers], output_len)

    return generate


OPENERS = {"octavo": open_octavo, "openvino": open_openvino, "vllm": open_vllm}


def check(lengths: list[int], wanted: int) -> None:
    if any(length != wanted for length in lengths):
        raise SystemExit(f"answers of {lengths} tokens where {wanted} were asked for: no fair figure")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("engine", choices=OPENERS)
    parser.add_argument("model")
    parser.add_argument("--prefills", default="512,2048")
    parser.add_argument("--batches", default="1,8,32,64")
    parser.add_argument("--prompt-len", type=int, default=128, help="of the batches")
    parser.add_argument("--output-len", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    generate = OPENERS[arguments.engine](arguments.model)
    rng = random.Random(0)

    def seconds(batch: int, prompt_len: int, output_len: int) -> float:
        prompts = [[rng.choice(VOCABULARY) for _ in range(prompt_len)] for _ in range(batch)]
        began = time.perf_counter()
        generate(prompts, output_len)
        return time.perf_counter() - began

    def report(figure: str, rates: list[float]) -> None:
        print(json.dumps({"figure": figure, "tok_s": rates}), flush=True)

    seconds(2, 64, 8)
    for length in map(int, filter(None, arguments.prefills.split(","))):
        seconds(1, length, 1)
        report(f"prefill {length}", [length / seconds(1, length, 1) for _ in range(arguments.repeats)])
    for batch in map(int, filter(None, arguments.batches.split(","))):
        first_s = statistics.median(seconds(batch, arguments.prompt_len, 1) for _ in range(arguments.repeats))
        tokens = batch * (arguments.output_len - 1)
        whole = [seconds(batch, arguments.prompt_len, arguments.output_len) for _ in range(arguments.repeats)]
        report(f"decode b{batch}", [tokens / (each - first_s) for each in whole])


if __name__ == "__main__":
    main()
