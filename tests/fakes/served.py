"""`octavo serve` on a model folder, as a process on a free port."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def served(folder: Path, *flags: str) -> Iterator[str]:
    """Yield the server's URL; the model is called tiny. Raises RuntimeError with what the server says when it does not start."""
    command = [sys.executable, "-m", "octavo.cli.main", "serve", str(folder), "--served-model-name", "tiny", "--port", "0"]
    server = subprocess.Popen([*command, "--log-level", "error", *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        found = re.search(r"http://[0-9.]+:\d+", server.stdout.readline())
        if found is None:
            raise RuntimeError(server.stderr.read())
        yield found.group()
    finally:
        server.terminate()
        server.communicate(timeout=30)
