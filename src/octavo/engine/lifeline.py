"""What binds a helper process to the one that started it, by Linux's prctl: it dies with its parent, and leaves no core dump
(a dump would hold prompts and weights)."""

from __future__ import annotations

import ctypes
import os
import resource
import signal

PR_SET_PDEATHSIG = 1  # linux/prctl.h
PR_SET_DUMPABLE = 4


def die_with_parent() -> None:
    """Have the kernel kill this process when the thread that started it ends. Exits when the parent ended meanwhile."""
    parent_pid = os.getppid()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:
        raise SystemExit(1)


def forbid_core_dumps() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
