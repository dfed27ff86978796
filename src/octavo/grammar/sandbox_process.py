"""What the sandbox's process does: a line of JSON in, a constraint; a line of JSON out, why it does not compile, or null.

It ends with its input. Its stack is an eighth of a thread's usual one, so what fits here fits elsewhere; memory, processor time for one
constraint and the files that it may open are bounded.
"""

from __future__ import annotations

import resource
import sys
import threading

import msgspec

from octavo.constraints import StructuredOutputsParams
from octavo.errors import InvalidRequest
from octavo.grammar.compile import check

STACK_BYTES = 1 << 20
MEMORY_BYTES = 2 << 30
CPU_S = 4  # for one constraint; the caller's clock is stricter


def serve() -> None:
    for line in sys.stdin.buffer:
        used = resource.getrusage(resource.RUSAGE_SELF)
        resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + CPU_S, resource.RLIM_INFINITY))
        try:
            check(msgspec.json.decode(line, type=StructuredOutputsParams))
            reason = None
        except InvalidRequest as error:
            reason = error.message.partition(" cannot be held to: ")[2] or error.message
        sys.stdout.buffer.write(msgspec.json.encode(reason) + b"\n")
        sys.stdout.buffer.flush()


def main() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    threading.stack_size(STACK_BYTES)
    worker = threading.Thread(target=serve)
    worker.start()
    worker.join()


if __name__ == "__main__":
    main()
