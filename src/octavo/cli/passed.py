"""Words behind `--`: those that a command passes on to the server that it starts."""

from __future__ import annotations

from collections.abc import Sequence


def split_passed(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the words before `--` and those after it."""
    words = [*argv, "--"]
    place = words.index("--")
    return words[:place], words[place + 1 : -1]
