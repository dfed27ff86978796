"""The examples of docs/offline.md, run as they are printed."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.real_models import path_or_skip

pytestmark = pytest.mark.model

PAGE = (Path(__file__).parent.parent.parent / "docs" / "offline.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
SAID = {"priority=": "Paris", "ask =": "4", "beam_search": "Paris", "AsyncLLM(": "Paris"}


@pytest.mark.parametrize("sign", SAID)
def test_an_example_prints_what_it_promises(sign):
    path_or_skip()
    (example,) = [text for text in EXAMPLES if sign in text]
    done = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert SAID[sign] in done.stdout


def test_every_example_is_run():
    assert len(EXAMPLES) == len(SAID)
