"""The engines that the suite can measure: where each one is found, how its offline figures are taken, how it serves.

Peers live under a folder (--peers-dir): venvs/{openvino,vllm}, models/*.gguf and models/*-hf, and llama.cpp's binaries in
any .../build/bin. What is not there is left out, and said so.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

THREADS = len(os.sched_getaffinity(0))
OFFLINE = Path(__file__).with_name("offline.py")


@dataclass(frozen=True)
class Shape:
    """What is measured offline."""

    prefills: tuple[int, ...]
    batches: tuple[int, ...]
    output_len: int
    repeats: int


@dataclass(frozen=True)
class Engine:
    """`offline` yields (figure, tokens a second). `serve` is the command of its server, None where it has none.

    `tokens_as`: what the server is to be told of the model's name.
    """

    name: str
    about: str
    offline_command: tuple[str, ...]
    serve: tuple[str, ...] | None
    environment: dict[str, str]
    is_llama_cpp: bool = False

    def offline(self, shape: Shape) -> Iterator[tuple[str, float]]:
        if self.is_llama_cpp:
            yield from _llama_cpp(self.offline_command, shape)
            return
        words = ["--prefills", ",".join(map(str, shape.prefills)), "--batches", ",".join(map(str, shape.batches))]
        words += ["--output-len", str(shape.output_len), "--repeats", str(shape.repeats)]
        for line in _lines([*self.offline_command, *words], self.environment):
            yield line["figure"], line["tok_s"]


def find_engines(peers: Path | None, model: str) -> tuple[list[Engine], list[str]]:
    """Return (the engines that are there, Octavo first; the names of those that are not)."""
    octavo = Engine(
        "octavo",
        model,
        (sys.executable, str(OFFLINE), "octavo", model),
        (sys.executable, "-m", "octavo.cli.main", "serve", model, "--port", "{port}"),
        {},
    )
    found: list[Engine | None] = [octavo]
    missing = []
    for name, find in (("llama.cpp", _find_llama_cpp), ("openvino", _find_openvino), ("vllm", _find_vllm)):
        engine = find(peers) if peers else None
        found.append(engine)
        if engine is None:
            missing.append(name)
    return [engine for engine in found if engine is not None], missing


def _find_llama_cpp(peers: Path) -> Engine | None:
    bench = next(iter(peers.glob("src/**/build*/bin/llama-bench")), None)
    model = next(iter(peers.glob("models/SmolLM2-135M-Instruct.Q4_0.gguf")), None)
    if bench is None or model is None:
        return None
    server = bench.with_name("llama-server")
    serve = (
        str(server),
        "-m",
        str(model),
        "--alias",
        "m",
        "-t",
        str(THREADS),
        "-c",
        str(64 * 1280),
        "-np",
        "32",
        "-b",
        "2048",
        "-ub",
        "512",
    )
    return Engine(
        "llama.cpp", "Q4_0", (str(bench), "-m", str(model), "-t", str(THREADS)), (*serve, "--port", "{port}", "--no-webui"), {}, True
    )


def _find_openvino(peers: Path) -> Engine | None:
    python = peers / "venvs/openvino/bin/python"
    model = peers / "models/SmolLM2-135M-Instruct.Q4_0.gguf"
    if not python.exists() or not model.exists():
        return None
    return Engine("openvino", "GenAI, Q4_0 GGUF", (str(python), str(OFFLINE), "openvino", str(model)), None, {})


def _find_vllm(peers: Path) -> Engine | None:
    python = peers / "venvs/vllm/bin/python"
    model = peers / "models/smollm2-135m-hf"
    if not python.exists() or not model.exists():
        return None
    preload = [*Path("/usr/lib").glob("*/libtcmalloc_minimal.so.4"), *(peers / "venvs/vllm/lib").glob("libiomp5.so")]
    environment = {
        "LD_PRELOAD": ":".join(map(str, preload)),
        "VLLM_CPU_KVCACHE_SPACE": "4",
        "VLLM_CPU_OMP_THREADS_BIND": f"0-{THREADS - 1}",
        "VLLM_CPU_NUM_OF_RESERVED_CPU": "0",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    serve = (str(python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(model), "--served-model-name", "m")
    serve += ("--dtype", "bfloat16", "--max-model-len", "4096", "--max-num-seqs", "64", "--port", "{port}", "--disable-uvicorn-access-log")
    return Engine("vllm", "CPU, bf16", (str(python), str(OFFLINE), "vllm", str(model)), serve, environment)


def _llama_cpp(command: tuple[str, ...], shape: Shape) -> Iterator[tuple[str, float]]:
    for line in _lines([*command, "-p", ",".join(map(str, shape.prefills)), "-n", "0", "-r", str(shape.repeats), "-o", "jsonl"], {}):
        yield f"prefill {line['n_prompt']}", line["avg_ts"]
    batched = command[0].replace("llama-bench", "llama-batched-bench")
    words = ["-c", "20480", "-b", "2048", "-ub", "512", "-npp", "128", "-ntg", str(shape.output_len), "-pps"]
    words += ["-npl", ",".join(map(str, shape.batches)), "--output-format", "jsonl"]
    for line in _lines([batched, *command[1:], *words], {}):
        yield f"decode b{line['pl']}", line["speed_tg"]


def _lines(command: list[str], environment: dict[str, str]) -> Iterator[dict[str, float]]:
    """Run a command and yield the JSON objects that it prints, one a line."""
    run = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, timeout=1800, check=False)
    if run.returncode != 0:
        raise SystemExit(f"{Path(command[0]).name} failed ({run.returncode}): {run.stderr[-600:]}")
    for line in run.stdout.splitlines():
        if line.startswith("{"):
            yield json.loads(line)
