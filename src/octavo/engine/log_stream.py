"""`LogStream`: where log lines go so that nobody waits for whoever reads them. A pipe that is not read fills up, and a process
that writes to it stands still; here the lines wait in a queue, a thread writes them, and what does not fit is counted and left out."""

from __future__ import annotations

import atexit
import os
from contextlib import suppress
from queue import Full, Queue
from threading import Lock, Thread

MAX_LINES = 2000
LAST_WORDS_S = 1.0  # how long the end of the process waits for what is queued


class LogStream:
    """A text stream for logging.StreamHandler, which writes whole lines."""

    def __init__(self, descriptor: int, max_lines: int = MAX_LINES) -> None:
        self._descriptor = descriptor
        self._lines: Queue[str] = Queue(max_lines)
        self._num_dropped = 0
        self._counting = Lock()
        Thread(target=self._write_all, name="log", daemon=True).start()
        atexit.register(self.drain, LAST_WORDS_S)

    def write(self, line: str) -> None:
        """Queue a line, or count it as dropped. Never waits."""
        try:
            self._lines.put_nowait(line)
        except Full:
            with self._counting:
                self._num_dropped += 1

    def flush(self) -> None:
        """Nothing: whoever logs does not wait."""

    def drain(self, timeout_s: float) -> bool:
        """Wait until all that is queued has been written; return whether it has."""
        with self._lines.all_tasks_done:
            return self._lines.all_tasks_done.wait_for(lambda: not self._lines.unfinished_tasks, timeout_s)

    def _write_all(self) -> None:
        while True:
            line = self._lines.get()
            with suppress(OSError):  # closed at the other end: there is nobody to tell
                self._write(line + self._word_of_dropped())
            self._lines.task_done()

    def _write(self, text: str) -> None:
        data = text.encode(errors="backslashreplace")
        while data:
            data = data[os.write(self._descriptor, data) :]

    def _word_of_dropped(self) -> str:
        """Return a line about the lines that were dropped since the last such line, if any were."""
        with self._counting:
            num_dropped, self._num_dropped = self._num_dropped, 0
        return f"octavo: {num_dropped:,} log lines were dropped: standard error was not read fast enough\n" if num_dropped else ""
