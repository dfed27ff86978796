"""Many simulated histories of the scheduler and the KV memory, each from its seed; the seeds that fail are printed.

    python benchmarks/histories.py 200000 [--first 0] [--processes N]

A failing seed is told again by: python benchmarks/histories.py 1 --first SEED
"""

import argparse
import os
import sys
import time
import traceback
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent.parent)]

from tests.fakes.simulated_history import run_history  # noqa: E402

BATCH = 200


def run_batch(first: int, count: int) -> list[tuple[int, str]]:
    """Return (seed, traceback) of each history that breaks a promise."""
    failures = []
    for seed in range(first, first + count):
        try:
            run_history(seed)
        except Exception:
            failures.append((seed, traceback.format_exc()))
    return failures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", type=int, help="how many histories")
    parser.add_argument("--first", type=int, default=0, help="seed of the first [0]")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    args = parser.parse_args()
    began = time.perf_counter()
    end = args.first + args.count
    firsts = range(args.first, end, BATCH)
    failures = []
    with ProcessPoolExecutor(args.processes) as pool:
        for found in pool.map(run_batch, firsts, [min(BATCH, end - first) for first in firsts]):
            for seed, text in found:
                failures.append(seed)
                print(f"seed {seed}\n{text}", flush=True)
    print(f"{args.count:,} histories in {time.perf_counter() - began:.0f} s, {len(failures)} failed: {failures[:20]}")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
