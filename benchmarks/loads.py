"""An engine's server under load: launched, waited for, measured by `octavo bench serve`, its memory read, stopped."""

from __future__ import annotations

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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from engines import Engine, EngineFailed, finish
from memory import Memory, memory_of

START_S = 600
LOAD_S = 3600


@dataclass(frozen=True)
class Load:
    """`streams` users at a time who send `prompts` prompts; all begin with the same `prefix_len` tokens."""

    name: str
    prompts: int
    streams: int
    own_len: int
    output_len: int
    prefix_len: int = 0

    @property
    def flags(self) -> list[str]:
        lengths = ("--random-input-len", self.own_len, "--random-output-len", self.output_len, "--random-prefix-len", self.prefix_len)
        return [str(word) for word in ("--num-prompts", self.prompts, "--max-concurrency", self.streams, *lengths)]


LOADS = (
    Load("c1", 12, 1, 256, 128),
    Load("c8", 64, 8, 256, 128),
    Load("c32", 64, 32, 256, 128),
    Load("prefix c8", 48, 8, 64, 64, prefix_len=1024),
)
SHORT_LOADS = (Load("c1", 3, 1, 256, 64), Load("c8", 16, 8, 256, 64))


@dataclass(frozen=True)
class Server:
    port: int
    pid: int
    start_s: float  # launch to /health 200

    def bench(self, flags: Sequence[str]) -> dict[str, float]:
        """Return the result of `octavo bench serve` with these flags."""
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "octavo.cli.main", "bench", "serve", "--port", str(self.port), *flags]
            command += ["--save-result", "--result-dir", folder, "--result-filename", "result.json"]
            finish(command, LOAD_S, os.environ)
            result: dict[str, float] = json.loads((Path(folder) / "result.json").read_text())
        if result["failed"]:
            print(f"warning: {result['failed']} requests failed", file=sys.stderr)
        return result

    def memory(self) -> Memory:
        return memory_of(self.pid)


@contextmanager
def serving(engine: Engine) -> Iterator[Server]:
    """Yield the engine's server once it answers; it is stopped at the end."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [word.replace("{port}", str(port)) for word in engine.serve or ()]
    with tempfile.TemporaryFile() as log:
        launched_s = time.perf_counter()
        process = subprocess.Popen(command, env=os.environ | engine.environment, stdout=log, stderr=log, start_new_session=True)
        try:
            yield Server(port, process.pid, _wait_ready(process, port, launched_s))
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def measure_loads(engine: Engine, loads: Sequence[Load], seed: int) -> Iterator[tuple[str, float]]:
    """Yield (figure, value) of a fresh server under one load after another; prompts depend on `seed`."""
    with serving(engine) as server:
        yield "start, s", server.start_s
        seen = []
        for index, load in enumerate(loads):
            result = server.bench([*load.flags, "--seed", str(seed + index), "--num-warmups", "2"])
            seen.append(server.memory())
            yield f"http {load.name}, out tok/s", result["output_throughput"]
            yield f"http {load.name}, TTFT p50 ms", result["median_ttft_ms"]
        peak = max(seen, key=lambda memory: memory.pss_mib)
        yield "memory, MiB", peak.pss_mib
        yield "memory beyond weights and KV, MiB", peak.pss_mib - peak.kv_mib - engine.weights_mib


def _wait_ready(process: subprocess.Popen[bytes], port: int, launched_s: float) -> float:
    while time.perf_counter() - launched_s < START_S:
        if process.poll() is not None:
            raise EngineFailed(f"the server ended with status {process.returncode}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2) as answer:
                if answer.status == 200:
                    return time.perf_counter() - launched_s
        except (urllib.error.URLError, OSError):
            time.sleep(0.01)
    raise EngineFailed(f"the server did not answer within {START_S} s")
