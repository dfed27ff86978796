"""Point the clients of the field at running servers, all offline, and print a table of what came of it.

    python tests/conformance/run_clients.py                        # tiny random models and MiniLM, started and ended here
    python tests/conformance/run_clients.py --only schemathesis --examples 50
    python tests/conformance/run_clients.py --tools ~/tools/bin    # where `st`, `lm_eval`, `guidellm` and `aiperf` are, if not on PATH

    pip install schemathesis==4.32.5 "lm-eval[api]==0.4.13" guidellm==0.8.1 aiperf==0.13.0    # in an environment of their own

What a client is told and what is looked at afterwards stand in sdks.py and harnesses.py. What is not installed (or pulled:
`octavo pull all-minilm-l6-v2`) is named and left out. The exit code is the number of clients that failed. Run it from the
repository's root with an interpreter that has Octavo and its dev dependencies.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT))

from tests.conformance import harnesses, sdks  # noqa: E402
from tests.fakes.served import served  # noqa: E402
from tests.fakes.tiny_chat import write_tiny_chat  # noqa: E402

from octavo.errors import OctavoError  # noqa: E402
from octavo.loaders.store import resolve_model  # noqa: E402

ENCODER = "all-minilm-l6-v2"
ADMIN_PATHS = "^/(server_info|reset_prefix_cache|pause|resume|is_paused|ui/)"
SMALL_BODIES = ("--max-body-bytes", "16384")  # so that bodies beyond it can be made up in no time
SERVERS = {  # endpoints that pause the server for everybody are asked by themselves
    "chat, with a key": ("--api-key", sdks.KEY),
    "chat": (*SMALL_BODIES, "--no-enable-admin-endpoints", "--enable-tokenizer-info-endpoint"),
    "chat, admin": (*SMALL_BODIES,),
    "encoder, with a key": ("--api-key", sdks.KEY),
    "encoder": (*SMALL_BODIES, "--no-enable-admin-endpoints"),
}


class NotThere(Exception):
    """A program that is not installed, or a model that is not pulled."""


@dataclass(frozen=True)
class Run:
    """What a client is run with."""

    url: str
    folder: Path  # of the served model
    work: Path  # where the client may write
    options: argparse.Namespace

    def do(self, commands: harnesses.Commands) -> None:
        """Run programs without a network of models. Raises NotThere, and RuntimeError with what one said when it failed."""
        path = os.pathsep.join([*self.options.tools, os.environ.get("PATH", "")])
        environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(self.work / "hf"), "PATH": path}
        environment.pop("PYTHONPATH", None)
        for command in commands:
            if shutil.which(command[0], path=path) is None:
                raise NotThere(f"{command[0]} is not installed")
            done = subprocess.run(
                command, capture_output=True, text=True, cwd=self.work, env=environment, timeout=self.options.timeout, check=False
            )
            (self.work / "said.txt").write_text(done.stdout + done.stderr)
            if done.returncode:
                raise RuntimeError((done.stdout + done.stderr)[-6000:])


def run_lm_eval(run: Run) -> None:
    run.do(harnesses.lm_eval(run.url, run.folder, run.work))


def run_guidellm(run: Run) -> None:
    run.do(harnesses.guidellm(run.url, run.folder, run.work))
    harnesses.check_guidellm(run.work)


def run_aiperf(run: Run) -> None:
    run.do(harnesses.aiperf(run.url, run.folder, run.work))
    harnesses.check_aiperf(run.work)


def run_schemathesis(run: Run, *only: str) -> None:
    run.do(harnesses.schemathesis(run.url, run.options.examples, *only))


CLIENTS: list[tuple[str, str, Callable[[Run], object]]] = [  # client, server, what it does
    ("openai", "chat, with a key", lambda run: sdks.openai_suite(run.url)),
    ("openai", "encoder, with a key", lambda run: sdks.embeddings_suite(run.url)),
    ("anthropic", "chat, with a key", lambda run: sdks.anthropic_suite(run.url)),
    ("lm-eval", "chat", run_lm_eval),
    ("guidellm", "chat", run_guidellm),
    ("aiperf", "chat", run_aiperf),
    ("schemathesis", "chat", run_schemathesis),
    ("schemathesis", "chat, admin", lambda run: run_schemathesis(run, ADMIN_PATHS)),
    ("schemathesis", "encoder", run_schemathesis),
]


@contextmanager
def server_of(kind: str, work: Path) -> Iterator[tuple[str, Path]]:
    """Yield the URL of a server of this kind and the folder of its model. Raises NotThere."""
    if kind.startswith("encoder"):
        try:
            folder = resolve_model(ENCODER)
        except OctavoError as error:
            raise NotThere(f"{ENCODER} is not pulled") from error
    else:
        folder = write_tiny_chat(work)
    with served(folder, *SERVERS[kind]) as url:
        yield url, folder


def outcome(kind: str, client: Callable[[Run], object], options: argparse.Namespace) -> str:
    """Return in a word or a line what came of it; what a failed client said is printed."""
    with tempfile.TemporaryDirectory() as model, tempfile.TemporaryDirectory() as work:
        try:
            with server_of(kind, Path(model)) as (url, folder):
                client(Run(url, folder, Path(work), options))
        except NotThere as error:
            return str(error)
        except subprocess.TimeoutExpired:
            return f"FAILED: did not end within {options.timeout:.0f} s"
        except (AssertionError, Exception):
            traceback.print_exc()
            return "FAILED"
    return "well"


def version_of(client: str, tools: list[str]) -> str:
    """Return the version that is installed here, or where the tools are."""
    for python in (sys.executable, *(str(Path(folder) / "python") for folder in tools)):
        program = f"import importlib.metadata; print(importlib.metadata.version({client!r}))"
        done = subprocess.run([python, "-c", program], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return done.stdout.strip()
    return "-"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=sorted({name for name, _, _ in CLIENTS}), help="these clients")
    parser.add_argument("--tools", nargs="*", default=[], metavar="DIR", help="folders to look for programs in, before PATH")
    parser.add_argument("--examples", type=int, default=10, help="requests that schemathesis makes up for an endpoint [10]")
    parser.add_argument("--timeout", type=float, default=1800, metavar="S", help="for one program [1800]")
    options = parser.parse_args()
    print(f"| {'client':<12} | {'version':<8} | {'server':<19} | {'seconds':>7} | came to |")
    print(f"|{'-' * 14}|{'-' * 10}|{'-' * 21}|{'-' * 9}|---------|", flush=True)
    failures = 0
    for name, kind, client in CLIENTS:
        if options.only and name not in options.only:
            continue
        began = time.monotonic()
        came_to = outcome(kind, client, options)
        seconds = time.monotonic() - began
        print(f"| {name:<12} | {version_of(name, options.tools):<8} | {kind:<19} | {seconds:>7.0f} | {came_to} |", flush=True)
        failures += came_to.startswith("FAILED")
    return failures


if __name__ == "__main__":
    sys.exit(main())
