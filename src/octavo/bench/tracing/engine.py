"""The engine's process, traced: `python -m octavo.bench.tracing.engine FILE SOCKET_DIR`, else as octavo.engine.process.

When it is told to stop it writes the spans of its loop, and those of each compute thread region by region, to FILE.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from octavo.backends.registry import open_backend
from octavo.bench.tracing.spans import Recorder, Span, write_spans
from octavo.engine import service
from octavo.engine.core import EngineCore
from octavo.engine.endpoint import EngineSocket
from octavo.ops.interface import Backend, Batch, Forward
from octavo.sampling.plan import SamplingBatches
from octavo.scheduler.scheduler import Scheduler
from octavo.worker import runner, worker

WAITS = "waits"  # the span of a thread that waits for pieces which others have in hand


def main(argv: list[str]) -> int:
    recorder = Recorder("engine")
    for owner, attribute, name in (
        (EngineSocket, "receive", "messages in"),
        (EngineSocket, "send", "messages out"),
        (EngineCore, "step", "rest of the step"),
        (Scheduler, "plan", "plan"),
        (Scheduler, "apply", "apply"),
        (worker.Worker, "execute", "worker"),
        (worker, "build_batch", "arrays of the batch"),
        (SamplingBatches, "build", "arrays of sampling"),
    ):
        recorder.time(owner, attribute, name)
    forwards: list[Any] = []

    def open_traced(*args: Any, **named: Any) -> Backend:
        backend: Any = open_backend(*args, **named)
        compile_forward = backend.compile

        def compile_traced(*what: Any) -> Forward:
            forward = compile_forward(*what)
            if hasattr(forward, "take_trace"):
                forward.set_tracing(True)
                forwards.append(forward)
            timed: Forward = recorder.timed("forward", forward, _size)
            return timed

        backend.compile = compile_traced
        recorder.time(backend, "sample", "sampling")
        traced: Backend = backend
        return traced

    recorder.replace(runner, "open_backend", open_traced)
    code = service.main([argv[0], *argv[2:]])
    write_spans(Path(argv[1]), [*recorder.spans, *(span for forward in forwards for span in _of_threads(forward.take_trace()))])
    return code


def _size(batch: Batch) -> tuple[int, int]:
    return len(batch.context_len), len(batch.token_ids)


def _of_threads(trace: list[tuple[int, str, int, int, int]]) -> list[Span]:
    """Return the spans of the compute threads. What a thread waited in a region is put at the region's end."""
    spans = []
    for thread, name, begin_ns, end_ns, waited_ns in trace:
        spans.append(Span(f"thread {thread}", name, begin_ns, end_ns - waited_ns))
        if waited_ns:
            spans.append(Span(f"thread {thread}", WAITS, end_ns - waited_ns, end_ns))
    return spans


if __name__ == "__main__":
    raise SystemExit(main(sys.argv))
