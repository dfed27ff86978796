"""The pages' examples of the official clients, run as they are printed, against an engine that says what it is told to."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.api.calls import make_app
from tests.api.fake_encoder import FakeEncoder
from tests.api.fake_engine import FakeEngine
from tests.api.live import live

DOCS = Path(__file__).parents[2] / "docs"
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'


def examples(page):
    """Return the page's examples that ask a server, one after the other, as a reader runs them."""
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    return "\n".join(block for block in blocks if "client" in block)


@pytest.mark.parametrize(("page", "engine"), [("tools.md", FakeEngine()), ("embeddings.md", FakeEncoder())], ids=["tools", "embeddings"])
def test_an_example_of_a_page_runs_as_it_is_printed(page, engine):
    engine.says = [CALL]
    engine.model_names = ("all-minilm-l6-v2",)
    with live(make_app(engine)) as server:
        program = examples(page).replace("http://127.0.0.1:8000", server.url)
        assert server.url in program
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
