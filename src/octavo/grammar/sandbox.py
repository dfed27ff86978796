"""`GrammarSandbox`: constraints are compiled in a process of their own first, so that one which kills its compiler kills nothing else.

A grammar whose rules lie thousands deep makes the compiler's stack overflow, which no exception tells of. What the process survives
with its small stack, in its time and memory, is safe to compile anywhere: compiling is the same work each time.

There are two such processes (`sandbox_process.py`), so that one slow constraint does not hold up all others. Each begins when it is
needed and is replaced when it dies. What they say of a constraint is remembered; what they die of is not.
"""

from __future__ import annotations

import selectors
import signal
import subprocess
import sys
import time
from collections import OrderedDict
from hashlib import sha256
from queue import LifoQueue
from threading import Lock

import msgspec

from octavo.constraints import StructuredOutputsParams, refusal
from octavo.errors import InvalidRequest, RequestFailed

CPU_S = 0.5  # for one constraint
LIMIT_S = 2.0  # likewise, by the clock: the machine may be busy
START_S = 10.0
NUM_PROCESSES = 2
MAX_KNOWN = 256  # constraints whose verdict is known
MAX_ANSWER_BYTES = 1 << 16


class Verdict(msgspec.Struct, frozen=True):
    """What a process says: nothing when the constraint compiles, else what InvalidRequest is raised with."""

    message: str = ""
    code: str = ""
    param: str = ""


class GrammarSandbox:
    """Any thread may call it; it waits while both processes are busy."""

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        self._limit_s = limit_s
        self._processes = [_Process() for _ in range(NUM_PROCESSES)]
        self._free: LifoQueue[_Process] = LifoQueue()  # the one used last first: the other may never have to begin
        for process in self._processes:
            self._free.put(process)
        self._known: OrderedDict[bytes, Verdict] = OrderedDict()  # by hash; the one used last at the end
        self._looking = Lock()

    def check(self, constraint: StructuredOutputsParams) -> None:
        """Raise InvalidRequest unless the constraint compiles within the sandbox's bounds, RequestFailed where nothing can be compiled."""
        question = msgspec.json.encode(constraint)
        name = sha256(question).digest()
        with self._looking:
            verdict = self._known.get(name)
            if verdict is not None:
                self._known.move_to_end(name)
        if verdict is None:
            verdict = self._ask(question, constraint.kind)
            with self._looking:
                self._known[name] = verdict
                if len(self._known) > MAX_KNOWN:
                    self._known.popitem(last=False)
        if verdict.message:
            raise InvalidRequest(verdict.message, code=verdict.code, param=verdict.param)

    def close(self) -> None:
        """End the processes. Others begin with the next constraint."""
        for process in self._processes:
            process.end()

    def __del__(self) -> None:
        self.close()

    def _ask(self, question: bytes, kind: str) -> Verdict:
        """Return what a process says. Raises InvalidRequest when it dies of the question, or takes too long over it."""
        process = self._free.get()
        try:
            return process.ask(question, self._limit_s)
        except TimeoutError:
            process.end()
            reason = f"it takes more than {self._limit_s:g} s to compile; ask for a simpler one"
        except (OSError, EOFError, msgspec.DecodeError):
            if process.end() == -signal.SIGPROF:
                reason = f"it takes more than {CPU_S:g} s of processor time to compile; ask for a simpler one"
            else:
                reason = "it is too complex, its compiler gave up; ask for a simpler one"
        finally:
            self._free.put(process)
        raise refusal(kind, reason)


class _Process:
    """One process, of which one thread at a time asks something."""

    def __init__(self) -> None:
        self._running: subprocess.Popen[bytes] | None = None

    def ask(self, question: bytes, limit_s: float) -> Verdict:
        """Return the answer, one line of JSON. Raises TimeoutError, and OSError or EOFError when the process has died."""
        if self._running is None:
            self._begin()
        if self._running is None or self._running.stdin is None:
            raise EOFError
        self._running.stdin.write(question + b"\n")
        return msgspec.json.decode(self._read_line(limit_s), type=Verdict)

    def end(self) -> int | None:
        """End the process; return its exit status, None when there was none."""
        if self._running is None:
            return None
        running, self._running = self._running, None
        running.kill()  # nothing to one that has ended by itself
        running.communicate()
        return running.returncode

    def _begin(self) -> None:
        """Begin the process. Raises RequestFailed when it cannot."""
        command = [sys.executable, "-m", "octavo.grammar.sandbox_process"]
        try:
            self._running = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0, start_new_session=True
            )
            self._read_line(START_S)
        except (OSError, EOFError, TimeoutError):
            self.end()
            raise RequestFailed(
                "structured output does not work on this server: its compiler cannot be started; install octavo[grammar] anew"
            ) from None

    def _read_line(self, limit_s: float) -> bytes:
        if self._running is None or self._running.stdout is None:
            raise EOFError
        until_s = time.monotonic() + limit_s
        line = b""
        with selectors.DefaultSelector() as selector:
            selector.register(self._running.stdout, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                if not selector.select(max(0.0, until_s - time.monotonic())):
                    raise TimeoutError
                piece = self._running.stdout.read(4096)
                if not piece or len(line) > MAX_ANSWER_BYTES:
                    raise EOFError
                line += piece
        return line
