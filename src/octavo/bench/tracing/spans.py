"""Spans of time in the threads of a server, and how they are recorded: functions of its public doors are replaced by timed ones.

That happens in processes which only a measurement starts (`engine.py`, `server.py`), so a server that is not measured has no trace of
it. Times are time.monotonic_ns(), one clock for all processes of a machine and for the native library.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

import msgspec


class Span(msgspec.Struct, frozen=True, array_like=True):
    """`lane`: a process, or a thread of one. `rows` and `tokens` are those of a step, 0 where a span is of none. `cpu_begin_ns` and
    `cpu_end_ns`: the CPU time of its thread by then, both 0 where nobody looked."""

    lane: str
    name: str
    begin_ns: int
    end_ns: int
    rows: int = 0
    tokens: int = 0
    cpu_begin_ns: int = 0
    cpu_end_ns: int = 0


class Recorder:
    """Spans of one process. Its main thread is the lane of that name, another thread is a lane of its own."""

    def __init__(self, process: str) -> None:
        self.spans: list[Span] = []
        self._process = process
        self._main = threading.main_thread()

    def timed(self, name: str, function: Callable[..., Any], size: Callable[..., tuple[int, int]] | None = None) -> Callable[..., Any]:
        """Return `function` with each of its calls as a span. `size`: (rows, tokens) from the arguments of a call."""
        clock, cpu_clock = time.monotonic_ns, time.thread_time_ns

        @wraps(function)
        def call(*args: Any, **named: Any) -> Any:
            cpu_begin_ns, begin_ns = cpu_clock(), clock()
            try:
                return function(*args, **named)
            finally:
                end_ns, cpu_end_ns = clock(), cpu_clock()
                thread = threading.current_thread()
                lane = self._process if thread is self._main else f"{self._process} {thread.name}"
                rows, tokens = size(*args, **named) if size else (0, 0)
                self.spans.append(Span(lane, name, begin_ns, end_ns, rows, tokens, cpu_begin_ns, cpu_end_ns))

        return call

    def time(self, owner: Any, attribute: str, name: str) -> None:
        """Replace a method of a class, or a function of a module, by a timed one."""
        self.replace(owner, attribute, self.timed(name, getattr(owner, attribute)))

    def replace(self, owner: Any, attribute: str, function: Callable[..., Any]) -> None:
        """Put `function` in the place of a method of a class, or of a function of a module."""
        setattr(owner, attribute, function)


def write_spans(path: Path, spans: Iterable[Span]) -> None:
    path.write_bytes(msgspec.msgpack.encode(list(spans)))


def read_spans(path: Path) -> list[Span]:
    """Raises OSError and msgspec.DecodeError."""
    return msgspec.msgpack.decode(path.read_bytes(), type=list[Span])


def innermost(spans: Sequence[Span], between: str) -> list[Span]:
    """Return the spans of one lane, in order, without overlap and without gaps: of those that lie in one another, each moment is the
    innermost's; a moment of none is `between`."""
    pieces: list[Span] = []
    open_spans: list[Span] = []
    at_ns = at_cpu_ns = 0

    def go_to(ns: int, cpu_ns: int) -> None:
        nonlocal at_ns, at_cpu_ns
        if ns > at_ns and at_ns:
            owner = open_spans[-1] if open_spans else Span(spans[0].lane, between, 0, 0)
            pieces.append(Span(owner.lane, owner.name, at_ns, ns, owner.rows, owner.tokens, at_cpu_ns, cpu_ns))
        at_ns, at_cpu_ns = max(at_ns, ns), max(at_cpu_ns, cpu_ns)

    for span in sorted(spans, key=lambda span: (span.begin_ns, -span.end_ns)):
        while open_spans and open_spans[-1].end_ns <= span.begin_ns:
            go_to(open_spans[-1].end_ns, open_spans[-1].cpu_end_ns)
            open_spans.pop()
        go_to(span.begin_ns, span.cpu_begin_ns)
        open_spans.append(span)
    while open_spans:
        go_to(open_spans[-1].end_ns, open_spans[-1].cpu_end_ns)
        open_spans.pop()
    return pieces
