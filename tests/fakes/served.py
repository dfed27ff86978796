"""`octavo serve` on a model folder, as a process on a free port."""

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def served(folder: Path, *flags: str) -> Iterator[str]:
    """Yield the server's URL; the model is called tiny. Raises RuntimeError with what the server says when it does not start."""
    command = [sys.executable, "-m", "octavo.cli.main", "serve", str(folder), "--served-model-name", "tiny", "--port", "0"]
    with tempfile.TemporaryFile("w+") as log:  # a pipe that nobody reads would hold the server up
        server = subprocess.Popen([*command, "--log-level", "error", *flags], stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            found = re.search(r"http://[0-9.]+:\d+", server.stdout.readline())
            if found is None:
                log.seek(0)
                raise RuntimeError(log.read())
            yield found.group()
        finally:
            server.terminate()
            server.communicate(timeout=30)
