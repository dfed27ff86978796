"""A real `octavo serve` in a process of its own, on a free port."""

import re
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager


@contextmanager
def serve(*flags):
    """Yield the URL of a server with these flags; it is stopped afterwards."""
    command = [sys.executable, "-m", "octavo.cli.main", "serve", "--enable-admin-endpoints", *map(str, flags), "--port", "0"]
    with tempfile.TemporaryFile("w+") as log:  # of a pipe that nobody reads the last lines would be lost
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            found = re.search(r"http://127\.0\.0\.1:\d+", process.stdout.readline())
            if found is None:
                log.seek(0)
                raise RuntimeError(log.read())
            yield found.group(0)
        finally:
            process.send_signal(signal.SIGTERM)
            process.send_signal(signal.SIGTERM)  # the second: do not wait for answers
            process.communicate(timeout=60)


def served(folder, *flags):
    """Serve a model folder under the name tiny, with a log of errors only."""
    return serve(folder, "--served-model-name", "tiny", "--log-level", "error", *flags)
