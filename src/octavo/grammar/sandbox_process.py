"""What a process of the sandbox does: a line of JSON in, a constraint; a line of JSON out, a Verdict. One of them comes unasked, when it
is ready.

It ends with its input. Its stack is an eighth of a thread's usual one, so what fits here fits elsewhere; memory and the processor time
for one constraint are bounded, and a signal ends it where they do not suffice.
"""

from __future__ import annotations

import resource
import signal
import sys
import threading

import msgspec

from octavo.constraints import StructuredOutputsParams
from octavo.errors import InvalidRequest
from octavo.grammar.compile import check
from octavo.grammar.sandbox import CPU_S, Verdict

STACK_BYTES = 1 << 20
MEMORY_BYTES = 2 << 30


def serve() -> None:
    check(StructuredOutputsParams(regex="a"))  # what is made once is made
    answer(Verdict())
    for line in sys.stdin.buffer:
        signal.setitimer(signal.ITIMER_PROF, CPU_S)
        try:
            check(msgspec.json.decode(line, type=StructuredOutputsParams))
            verdict = Verdict()
        except InvalidRequest as error:
            verdict = Verdict(error.message, error.code or "invalid_value", error.param or "structured_outputs")
        signal.setitimer(signal.ITIMER_PROF, 0)
        answer(verdict)


def answer(verdict: Verdict) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(verdict) + b"\n")
    sys.stdout.buffer.flush()


def main() -> None:
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    threading.stack_size(STACK_BYTES)
    worker = threading.Thread(target=serve)
    worker.start()
    worker.join()


if __name__ == "__main__":
    main()
