"""What rendering a chat template may cost. Every step and every character made is charged to the budget of the rendering; what could
grow in one step is checked before it is computed. The budget counts the CPU time of the rendering thread alone.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

MAX_TEXT_CHARS = 8 * 1024 * 1024  # of any one text, and of the whole output
MAX_INT_BITS = 1024
MAX_WORK = 2_000_000  # one step, or 64 characters made, is one
MAX_CPU_S = 0.5

_CHARS_PER_WORK = 64
_WORK_PER_CLOCK_READ = 256


class LimitExceeded(Exception):
    """The template takes more work or memory than a rendering is given."""


class _Budget:
    def __init__(self) -> None:
        self._work_left = MAX_WORK
        self._work_to_clock = _WORK_PER_CLOCK_READ
        self._deadline_s = time.thread_time() + MAX_CPU_S

    def charge(self, work: int) -> None:
        self._work_left -= work
        self._work_to_clock -= work
        if self._work_left < 0:
            raise LimitExceeded("too many steps")
        if self._work_to_clock < 0:
            self._work_to_clock = _WORK_PER_CLOCK_READ
            if time.thread_time() > self._deadline_s:
                raise LimitExceeded("too much time")


_budget: ContextVar[_Budget] = ContextVar("budget")


@contextmanager
def budget() -> Iterator[None]:
    """Give what runs inside, on this thread, one fresh budget."""
    token = _budget.set(_Budget())
    try:
        yield
    finally:
        _budget.reset(token)


def charge(work: int = 1) -> None:
    """Charge for a step. Raises LimitExceeded."""
    _budget.get().charge(work)


def charge_value(value: Any) -> int:
    """Charge for a value just made, all of it if it is a container; return its size in characters."""
    if isinstance(value, str):
        check_chars(len(value))
        charge(1 + len(value) // _CHARS_PER_WORK)
        return len(value)
    charge()
    size = 0
    if isinstance(value, dict):
        for key, item in value.items():
            size += charge_value(key) + charge_value(item)
    elif isinstance(value, list | tuple):
        for item in value:
            size += charge_value(item)
    check_chars(size)
    return size + 8


def check_chars(count: int) -> None:
    """Raise LimitExceeded for a text of so many characters, if that is too many."""
    if count > MAX_TEXT_CHARS:
        raise LimitExceeded(f"a text of {count:,} characters; the limit is {MAX_TEXT_CHARS:,}")


def check_bits(bits: int) -> None:
    """Raise LimitExceeded for a number of so many bits, if that is too many."""
    if bits > MAX_INT_BITS:
        raise LimitExceeded(f"a number of {bits:,} bits; the limit is {MAX_INT_BITS:,}")
