"""The engines that the suite can measure: where each one is found, how its offline figures are taken, how it serves.

Octavo serves a model from its store (OCTAVO_HOME). Peers live under a folder (--peers-dir): venvs/{openvino,vllm}, models/, and
llama.cpp's binaries in any .../build*/bin. A model's GGUF file is the one that Octavo reads, but for SmolLM2, whose Q4_1 file
has no tuned kernels in llama.cpp: peers get the requantisation models/SmolLM2-135M-Instruct.Q4_0.gguf. OpenVINO reads no
K-quants. vLLM reads a folder models/NAME-hf. What is not there is left out, and said so.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from octavo.loaders.store import resolve_model

THREADS = str(len(os.sched_getaffinity(0)))
OFFLINE = Path(__file__).with_name("offline.py")
REQUANTISED = {"smollm2-135m-instruct": "SmolLM2-135M-Instruct.Q4_0.gguf"}
FOLDERS = {"smollm2-135m-instruct": "smollm2-135m-hf"}
OFFLINE_S = 3600


class EngineFailed(Exception):
    """An engine or its load ended with an error: it has no figure, the others go on."""


@dataclass(frozen=True)
class Shape:
    """What is measured offline."""

    prefills: tuple[int, ...]
    batches: tuple[int, ...]
    prompt_len: int  # of the batches
    output_len: int
    repeats: int


@dataclass(frozen=True)
class Engine:
    """`serve` is the command of its server, None where it has none; `weights` its file or folder."""

    name: str
    about: str
    offline_command: tuple[str, ...]
    serve: tuple[str, ...] | None
    weights: Path
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def weights_mib(self) -> float:
        files = self.weights.glob("*.safetensors") if self.weights.is_dir() else [self.weights]
        return sum(file.stat().st_size for file in files) / 2**20

    def offline(self, shape: Shape) -> Iterator[tuple[str, list[float]]]:
        """Yield (figure, tokens a second of each repeat)."""
        if self.name == "llama.cpp":
            yield from _llama_cpp(self.offline_command, shape)
            return
        words = ["--prefills", ",".join(map(str, shape.prefills)), "--batches", ",".join(map(str, shape.batches))]
        words += ["--prompt-len", str(shape.prompt_len), "--output-len", str(shape.output_len), "--repeats", str(shape.repeats)]
        for line in _lines([*self.offline_command, *words], self.environment):
            yield line["figure"], line["tok_s"]


def find_engines(peers: Path | None, model: str) -> tuple[list[Engine], list[str]]:
    """Return (the engines that are there and read the model, Octavo first; the names of the others)."""
    own = resolve_model(model)
    about = own.stem.rpartition(".")[2] if own.suffix == ".gguf" else own.name
    serve = (sys.executable, "-m", "octavo.cli.main", "serve", model, "--port", "{port}")
    octavo = Engine("octavo", about, (sys.executable, str(OFFLINE), "octavo", model), serve, own)
    finders = {"llama.cpp": _find_llama_cpp, "openvino": _find_openvino, "vllm": _find_vllm}
    found = {name: find(peers, model, own) if peers else None for name, find in finders.items()}
    return [octavo, *(engine for engine in found.values() if engine)], [name for name, engine in found.items() if engine is None]


def _peer_gguf(peers: Path, model: str, own: Path) -> Path | None:
    file = peers / "models" / REQUANTISED[model] if model in REQUANTISED else own
    return file if file.suffix == ".gguf" and file.exists() else None


def _find_llama_cpp(peers: Path, model: str, own: Path) -> Engine | None:
    bench = next(iter(peers.glob("src/**/build*/bin/llama-bench")), None)
    weights = _peer_gguf(peers, model, own)
    if bench is None or weights is None:
        return None
    context = ("-c", str(64 * 1280), "-np", "32", "-b", "2048", "-ub", "512")
    server = (
        str(bench.with_name("llama-server")),
        "-m",
        str(weights),
        "--alias",
        "m",
        "-t",
        THREADS,
        *context,
        "--port",
        "{port}",
        "--no-webui",
    )
    return Engine("llama.cpp", weights.stem.rpartition(".")[2], (str(bench), "-m", str(weights), "-t", THREADS), server, weights)


def _find_openvino(peers: Path, model: str, own: Path) -> Engine | None:
    python, weights = peers / "venvs/openvino/bin/python", _peer_gguf(peers, model, own)
    if not python.exists() or weights is None or "_K" in weights.stem:
        return None
    about = f"GenAI, {weights.stem.rpartition('.')[2]}"
    return Engine("openvino", about, (str(python), str(OFFLINE), "openvino", str(weights)), None, weights)


def _find_vllm(peers: Path, model: str, own: Path) -> Engine | None:
    python = peers / "venvs/vllm/bin/python"
    folder = peers / "models" / FOLDERS.get(model, f"{model}-hf")
    if not python.exists() or not folder.exists():
        return None
    preload = [*Path("/usr/lib").glob("*/libtcmalloc_minimal.so.4"), *(peers / "venvs/vllm/lib").glob("libiomp5.so")]
    environment = {
        "LD_PRELOAD": ":".join(map(str, preload)),
        "VLLM_CPU_KVCACHE_SPACE": "4",
        "VLLM_CPU_OMP_THREADS_BIND": f"0-{int(THREADS) - 1}",
        "VLLM_CPU_NUM_OF_RESERVED_CPU": "0",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    serve: tuple[str, ...] = (str(python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder), "--served-model-name", "m")
    serve += ("--dtype", "bfloat16", "--max-model-len", "4096", "--max-num-seqs", "64", "--port", "{port}", "--disable-uvicorn-access-log")
    return Engine("vllm", "CPU, bf16", (str(python), str(OFFLINE), "vllm", str(folder)), serve, folder, environment)


def _llama_cpp(command: tuple[str, ...], shape: Shape) -> Iterator[tuple[str, list[float]]]:
    prompts = ["-p", ",".join(map(str, shape.prefills)), "-n", "0", "-r", str(shape.repeats), "-o", "jsonl"]
    for line in _lines([*command, *prompts], {}):
        yield f"prefill {line['n_prompt']}", line["samples_ts"]
    batched = command[0].replace("llama-bench", "llama-batched-bench")
    context = max(shape.batches) * (shape.prompt_len + shape.output_len + 32)
    words = ["-c", str(context), "-b", "2048", "-ub", "512", "-npp", str(shape.prompt_len), "-ntg", str(shape.output_len), "-pps"]
    words += ["-npl", ",".join(map(str, shape.batches)), "--output-format", "jsonl"]
    for line in _lines([batched, *command[1:], *words], {}):
        yield f"decode b{line['pl']}", [line["speed_tg"]]


def _lines(command: list[str], environment: dict[str, str]) -> Iterator[dict[str, Any]]:
    """Run a command and yield the JSON objects that it prints, one a line."""
    for line in finish(command, OFFLINE_S, os.environ | environment).splitlines():
        if line.startswith("{"):
            yield json.loads(line)


def finish(command: Sequence[str], timeout_s: float, environment: Mapping[str, str]) -> str:
    """Run a command to its end and return what it prints. Raises EngineFailed."""
    try:
        run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired:
        raise EngineFailed(f"{Path(command[0]).name} did not end within {timeout_s:g} s") from None
    if run.returncode != 0:
        raise EngineFailed(f"{Path(command[0]).name} ended with status {run.returncode}: {run.stdout[-300:]} {run.stderr[-600:]}")
    return run.stdout
