"""The README's examples, run as they are printed (only the port differs)."""

import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from tests.real_models import path_or_skip

pytestmark = pytest.mark.model

ROOT = Path(__file__).parent.parent.parent
README = (ROOT / "README.md").read_text()
OCTAVO = [sys.executable, "-m", "octavo.cli.main"]


def examples(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def only(language: str, marker: str) -> str:
    (example,) = [text for text in examples(language) if marker in text]
    return example


@pytest.fixture(scope="module")
def port():
    path_or_skip()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = subprocess.Popen([*OCTAVO, "serve", "--port", str(port)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
                break
            except OSError:
                if time.monotonic() > deadline or server.poll() is not None:
                    raise
                time.sleep(0.05)
        yield port
    finally:
        server.terminate()
        server.communicate(timeout=30)


def run(command: list[str], port: int) -> str:
    done = subprocess.run([part.replace(":8000", f":{port}") for part in command], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl here")
def test_the_curl_example_streams_an_answer(port):
    lines = run(["sh", "-c", only("sh", "curl")], port).split("\n\n")
    assert sum(line.startswith("data: {") for line in lines) > 3
    assert lines[-2] == "data: [DONE]"


def test_the_openai_example_prints_an_answer(port):
    assert len(run([sys.executable, "-c", only("python", "from openai")], port).strip()) > 10


def test_the_llm_example_prints_two_answers(port):
    printed = run([sys.executable, "-c", only("python", "import LLM")], port)
    assert "Paris" in printed
    assert len(printed.strip().splitlines()) >= 2


def test_the_complete_example_continues_the_text(port):
    assert 'octavo complete "The capital of France is"' in only("sh", "octavo complete")
    assert "Paris" in run([*OCTAVO, "complete", "The capital of France is", "--max-tokens", "8", "--temperature", "0"], port)


def test_every_page_that_the_readme_names_exists():
    for page in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / page).exists(), page
