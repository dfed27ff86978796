"""`GrammarSandbox`: constraints are compiled in a process of their own first, so that one which kills its compiler kills nothing else.

A grammar whose rules lie thousands deep makes the compiler's stack overflow, which no exception tells of. What the process survives
with its small stack, in its time and memory, is safe to compile anywhere: compiling is the same work each time.

The process (`sandbox_process.py`) begins with the first constraint and is replaced when it dies.
"""

from __future__ import annotations

import selectors
import subprocess
import sys
import time
from collections import OrderedDict
from hashlib import sha256
from threading import Lock

import msgspec

from octavo.constraints import StructuredOutputsParams
from octavo.errors import InvalidRequest

LIMIT_S = 2.0  # for one constraint; the first waits for the process to begin too
START_S = 10.0
MAX_KNOWN = 256  # constraints that are known to compile
MAX_ANSWER_BYTES = 1 << 16


class GrammarSandbox:
    """Any thread may call it; one constraint is checked at a time."""

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        self._limit_s = limit_s
        self._process: subprocess.Popen[bytes] | None = None
        self._turn = Lock()
        self._known: OrderedDict[bytes, None] = OrderedDict()  # by hash; the one used last at the end

    def check(self, constraint: StructuredOutputsParams) -> None:
        """Raise InvalidRequest unless the constraint compiles within the sandbox's bounds."""
        question = msgspec.json.encode(constraint)
        name = sha256(question).digest()
        with self._turn:
            if name in self._known:
                self._known.move_to_end(name)
                return
            reason = self._ask(question)
            if reason is None:
                self._known[name] = None
                if len(self._known) > MAX_KNOWN:
                    self._known.popitem(last=False)
                return
        code = "invalid_json_schema" if constraint.kind in ("json", "structural_tag") else "invalid_value"
        where = f"structured_outputs.{constraint.kind}"
        raise InvalidRequest(f"{where} cannot be held to: {reason}", code=code, param=where)

    def close(self) -> None:
        """End the process. Another begins with the next constraint."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def __del__(self) -> None:
        self.close()

    def _ask(self, question: bytes) -> str | None:
        """Return why the constraint does not compile, None when it does."""
        limit_s = self._limit_s
        if self._process is None:
            self._process = self._begin()
            limit_s += START_S
        try:
            return self._answer(self._process, question, time.monotonic() + limit_s)
        except TimeoutError:
            self.close()
            return f"it takes more than {self._limit_s:g} s to compile; ask for a simpler one"
        except (OSError, EOFError, msgspec.DecodeError):
            self.close()
            return "it is too complex, its compiler gave up; ask for a simpler one"

    def _begin(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "octavo.grammar.sandbox_process"]
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0, start_new_session=True
        )

    @staticmethod
    def _answer(process: subprocess.Popen[bytes], question: bytes, until_s: float) -> str | None:
        """Return the process' answer: one line of JSON. Raises TimeoutError, and EOFError when it has died."""
        if process.stdin is None or process.stdout is None:
            raise EOFError
        process.stdin.write(question + b"\n")
        line = b""
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                if not selector.select(max(0.0, until_s - time.monotonic())):
                    raise TimeoutError
                piece = process.stdout.read(4096)
                if not piece or len(line) > MAX_ANSWER_BYTES:
                    raise EOFError
                line += piece
        return msgspec.json.decode(line, type=str | None)
