"""The comparison: Octavo and whichever peers are there, in turn on this machine, medians of several rounds, with ratios.

    python benchmarks/suite.py [--peers-dir DIR] [--short] [--rounds 3] [--out benchmarks/results] [--only octavo,llama.cpp]

Prints the table, and saves it as JSON, Markdown and a chart (SVG). --short takes about two minutes for Octavo alone. Where
other programs are busy it says so, in the table too.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections import defaultdict
from pathlib import Path

import machine
from engines import Engine, Shape, find_engines
from table import as_chart, as_markdown

LOADS = {  # name -> flags of `octavo bench serve`
    "http c1": "--num-prompts 12 --max-concurrency 1 --random-input-len 256 --random-output-len 128",
    "http c8": "--num-prompts 64 --max-concurrency 8 --random-input-len 256 --random-output-len 128",
    "http c32": "--num-prompts 64 --max-concurrency 32 --random-input-len 256 --random-output-len 128",
    "http prefix c8": "--num-prompts 48 --max-concurrency 8 --random-prefix-len 1024 --random-input-len 64 --random-output-len 64",
}
SHORT_LOADS = {
    "http c1": "--num-prompts 3 --max-concurrency 1 --random-input-len 256 --random-output-len 64",
    "http c8": "--num-prompts 16 --max-concurrency 8 --random-input-len 256 --random-output-len 64",
}
START_S = 600

Figures = dict[str, dict[str, list[float]]]  # figure -> engine -> one value a round


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--peers-dir", type=Path)
    parser.add_argument("--only", default="", help="engines to measure, separated by commas [all that are there]")
    parser.add_argument("--short", action="store_true", help="fewer figures, one round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--skip-http", action="store_true")
    parser.add_argument("--skip-offline", action="store_true")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()

    engines, missing = find_engines(arguments.peers_dir, arguments.model)
    if arguments.only:
        engines = [engine for engine in engines if engine.name in arguments.only.split(",")]
    if missing:
        print(f"not installed here, left out: {', '.join(missing)}", file=sys.stderr)
    rounds = 1 if arguments.short else arguments.rounds
    shape = Shape((512,), (1, 8), 64, 2) if arguments.short else Shape((512, 2048), (1, 8, 32, 64), 128, 3)
    loads = SHORT_LOADS if arguments.short else LOADS
    figures: Figures = defaultdict(lambda: defaultdict(list))
    busy = []
    for number in range(rounds):
        for engine in engines:
            busy.append(machine.wait_until_quiet())
            if busy[-1] > 0.08:
                print(f"warning: others use {busy[-1]:.0%} of the CPUs; what is measured now is no good figure", file=sys.stderr)
            if not arguments.skip_offline:
                for figure, value in engine.offline(shape):
                    tell(figures, figure, engine, value, number)
            if not arguments.skip_http and engine.serve is not None:
                for figure, value in serve(engine, loads, seed=1000 * number):
                    tell(figures, figure, engine, value, number)

    result = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": machine.facts(),
        "busy": max(busy, default=0.0),
        "rounds": rounds,
        "engines": {engine.name: engine.about for engine in engines},
        "figures": {figure: dict(values) for figure, values in figures.items()},
    }
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "suite.json").write_text(json.dumps(result, indent=2) + "\n")
    (arguments.out / "suite.md").write_text(as_markdown(result))
    (arguments.out / "suite.svg").write_text(as_chart(result))
    print(as_markdown(result))
    return 0


def tell(figures: Figures, figure: str, engine: Engine, value: float, number: int) -> None:
    figures[figure][engine.name].append(value)
    print(f"round {number + 1}  {engine.name:<10} {figure:<18} {value:,.1f}", file=sys.stderr)


def serve(engine: Engine, loads: dict[str, str], seed: int) -> list[tuple[str, float]]:
    """Launch the engine's server, put the loads on it, stop it; return its figures."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [word.replace("{port}", str(port)) for word in engine.serve or ()]
    launched_s = time.perf_counter()
    with tempfile.TemporaryFile() as log:
        server = subprocess.Popen(command, env=os.environ | engine.environment, stdout=log, stderr=log, start_new_session=True)
        try:
            figures = [("start, s", wait_ready(server, port, launched_s))]
            for index, (name, flags) in enumerate(loads.items()):
                result = bench(port, [*flags.split(), "--seed", str(seed + index), "--num-warmups", "2"])
                figures += [(f"{name}, out tok/s", result["output_throughput"]), (f"{name}, TTFT p50 ms", result["median_ttft_ms"])]
            return [*figures, ("memory, MiB (PSS)", pss_mib(server.pid))]
        finally:
            os.killpg(server.pid, signal.SIGTERM)
            try:
                server.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(server.pid, signal.SIGKILL)
                server.wait()


def wait_ready(server: subprocess.Popen[bytes], port: int, launched_s: float) -> float:
    while time.perf_counter() - launched_s < START_S:
        if server.poll() is not None:
            raise SystemExit(f"the server ended with status {server.returncode}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2) as answer:
                if answer.status == 200:
                    return time.perf_counter() - launched_s
        except (urllib.error.URLError, OSError):
            time.sleep(0.01)
    raise SystemExit(f"the server did not answer within {START_S} s")


def bench(port: int, flags: list[str]) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "octavo.cli.main", "bench", "serve", "--port", str(port), *flags]
        command += ["--save-result", "--result-dir", folder, "--result-filename", "result.json"]
        run = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)
        if run.returncode != 0:
            raise SystemExit(f"octavo bench serve failed: {run.stdout[-300:]} {run.stderr[-600:]}")
        result: dict[str, float] = json.loads((Path(folder) / "result.json").read_text())
        if result["failed"]:
            print(f"warning: {result['failed']} requests failed", file=sys.stderr)
        return result


def pss_mib(root: int) -> float:
    """Return the memory of a process and all below it, shared pages counted once."""
    children: dict[int, list[int]] = defaultdict(list)
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            children[int(entry.read_text().rpartition(")")[2].split()[1])].append(int(entry.parent.name))
        except OSError:
            continue
    total_kib, waiting = 0, [root]
    while waiting:
        pid = waiting.pop()
        waiting += children[pid]
        try:
            lines = (Path("/proc") / str(pid) / "smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total_kib += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total_kib / 1024


if __name__ == "__main__":
    sys.exit(main())
