"""Texts a second of all-MiniLM-L6-v2 here and in Hugging Face transformers (float32, mean pooling), on as many threads, in turns.

    python benchmarks/embeddings_against_transformers.py [THREADS]

Needs torch and transformers beside Octavo, and `octavo pull all-minilm-l6-v2`. Prints, for short texts of many lengths, the best
of several runs of each by the clock, the CPU time of that side's best run, and their ratios.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable

import torch
from transformers import AutoModel, AutoTokenizer

from octavo import LLM
from octavo.loaders.store import resolve_model

NUM_TEXTS = 96
REPEATS = 4
BATCH = 32
WORDS = ("the", "of", "river", "to", "in", "market", "is", "that", "for", "engine", "as", "was", "with", "be", "by", "house")


def texts() -> list[str]:
    draw = random.Random(0)
    return [" ".join(draw.choices(WORDS, k=draw.randint(3, 24))) for _ in range(NUM_TEXTS)]


def hugging_face(path: str) -> Callable[[list[str]], None]:
    tokenizer, model = AutoTokenizer.from_pretrained(path), AutoModel.from_pretrained(path).eval()

    def embed(batch: list[str]) -> None:
        with torch.inference_mode():
            for start in range(0, len(batch), BATCH):
                inputs = tokenizer(batch[start : start + BATCH], padding=True, truncation=True, max_length=256, return_tensors="pt")
                mask = inputs["attention_mask"][..., None]
                mean = (model(**inputs).last_hidden_state * mask).sum(1) / mask.sum(1)
                torch.nn.functional.normalize(mean)

    return embed


def main(threads: int) -> None:
    torch.set_num_threads(threads)
    llm = LLM("all-minilm-l6-v2", threads=threads)
    sides = {"octavo": llm.embed, "transformers": hugging_face(str(resolve_model("all-minilm-l6-v2")))}
    batch = texts()
    wall: dict[str, list[float]] = {name: [] for name in sides}
    cpu: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(REPEATS):
        for name, embed in sides.items():
            began, cpu_began = time.perf_counter(), time.process_time()
            embed(batch)
            wall[name].append(time.perf_counter() - began)
            cpu[name].append(time.process_time() - cpu_began)
    for name in sides:
        print(f"{name:<13} {NUM_TEXTS / min(wall[name]):8,.0f} texts/s {1e3 * min(cpu[name]) / NUM_TEXTS:8.2f} ms of CPU a text")
    clock, busy = (min(times["transformers"]) / min(times["octavo"]) for times in (wall, cpu))
    print(f"ratio         {clock:8.2f} by the clock {busy:6.2f} by CPU time")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2)
