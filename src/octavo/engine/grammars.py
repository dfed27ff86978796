"""`GrammarCompiler`: requests that wait for their grammar, and the grammars made last.

Compiling happens on threads of its own, so the engine goes on with everybody else. Requests for the same thing share one compilation.
What was made is kept for a while, for the tenant that asked and nobody else: how fast an answer comes must not tell what others ask.
The kept ones are bounded by number and by the size of what they were made of.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING

import msgspec

from octavo.constraints import StructuredOutputsParams
from octavo.errors import OctavoError, RequestError
from octavo.grammar.sandbox import GrammarSandbox
from octavo.messages.wire import ErrorCode, GenerateRequest

if TYPE_CHECKING:
    from octavo.grammar.matcher import CompiledGrammar
    from octavo.grammar.vocabulary import Vocabulary

log = logging.getLogger(__name__)

COMPILE_LIMIT_S = 10.0  # the first one reads the model's vocabulary too
NUM_THREADS = 2  # one that takes long does not hold up the others
MAX_KEPT = 128
MAX_KEPT_BYTES = 4 << 20

Key = tuple[str, bytes]  # tenant, constraint


@dataclass(frozen=True)
class Compiled:
    """A request whose waiting is over: with a grammar, or with the reason why there is none; `error_code` as in TokenDelta."""

    request: GenerateRequest
    grammar: CompiledGrammar | None
    error: str | None = None
    error_code: ErrorCode | None = None


class GrammarCompiler:
    """`open_vocabulary` is called once, on a compiling thread, when the first request needs it. `check` raises InvalidRequest for what is
    not safe to compile here; by default it asks a sandbox."""

    def __init__(
        self,
        open_vocabulary: Callable[[], Vocabulary],
        check: Callable[[StructuredOutputsParams], None] | None = None,
        limit_s: float = COMPILE_LIMIT_S,
    ) -> None:
        self._open_vocabulary = open_vocabulary
        self._check = check or GrammarSandbox().check
        self._limit_s = limit_s
        self._vocabulary: Vocabulary | None = None
        self._opening = Lock()
        self._threads = ThreadPoolExecutor(NUM_THREADS, thread_name_prefix="octavo-grammar")
        self._waiting: dict[str, tuple[GenerateRequest, Key, float]] = {}  # request id -> request, what it needs, until when
        self._compiling: dict[Key, Future[CompiledGrammar]] = {}
        self._kept: OrderedDict[Key, CompiledGrammar] = OrderedDict()  # the one used last at the end
        self._kept_bytes = 0

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    def begin(self, request: GenerateRequest) -> None:
        """Take in a request with structured_outputs; `take_compiled` gives it back."""
        constraint = request.params.structured_outputs
        key = (f"{request.tenant}\0{request.cache_salt}", msgspec.msgpack.encode(constraint))
        if constraint is not None and key not in self._kept and key not in self._compiling:
            self._compiling[key] = self._threads.submit(self._compile, constraint)
        self._waiting[request.request_id] = (request, key, time.monotonic() + self._limit_s)

    def drop(self, request_id: str) -> bool:
        """Let go of a request; return whether it waited here."""
        return self._waiting.pop(request_id, None) is not None

    def drop_all(self) -> list[str]:
        """Let go of all requests; return their ids."""
        dropped = list(self._waiting)
        self._waiting.clear()
        return dropped

    def wait(self, seconds: float) -> None:
        """Return when a compilation ends, or after `seconds`."""
        wait(self._compiling.values(), seconds, "FIRST_COMPLETED")

    def take_compiled(self) -> list[Compiled]:
        """Return the requests whose waiting is over, in the order of their arrival."""
        failures: dict[Key, tuple[str, ErrorCode | None]] = {}
        for key, future in list(self._compiling.items()):
            if future.done():
                del self._compiling[key]
                try:
                    self._keep(key, future.result())
                except Exception as error:
                    failures[key] = _reason(error), "invalid_grammar" if isinstance(error, RequestError) else None
        now = time.monotonic()
        done = []
        for request, key, until_s in list(self._waiting.values()):
            grammar, failure = self._kept.get(key), failures.get(key)
            if grammar is not None:
                self._kept.move_to_end(key)
            elif failure is None and now > until_s:
                failure = (f"the grammar was not compiled within {self._limit_s:g} s; ask for a simpler one", None)
            if grammar is not None or failure is not None:
                del self._waiting[request.request_id]
                reason, code = failure or (None, None)
                done.append(Compiled(request, grammar, reason, code))
        self._evict()
        return done

    def _compile(self, constraint: StructuredOutputsParams) -> CompiledGrammar:
        from octavo.grammar.compile import compile_constraint  # the library is an extra

        self._check(constraint)
        with self._opening:
            if self._vocabulary is None:
                self._vocabulary = self._open_vocabulary()
        return compile_constraint(constraint, self._vocabulary)

    def _keep(self, key: Key, grammar: CompiledGrammar) -> None:
        self._kept[key] = grammar
        self._kept_bytes += len(key[1])

    def _evict(self) -> None:
        while len(self._kept) > MAX_KEPT or self._kept_bytes > MAX_KEPT_BYTES:
            key, _ = self._kept.popitem(last=False)
            self._kept_bytes -= len(key[1])


def _reason(error: Exception) -> str:
    if isinstance(error, OctavoError):
        return error.message
    if isinstance(error, ImportError):
        return "structured output needs pip install 'octavo[grammar]'"
    log.error("a grammar could not be compiled (%s)", type(error).__name__)
    return f"the grammar could not be compiled ({type(error).__name__})"
