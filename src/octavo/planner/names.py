"""What a person may have meant: the nearest of the known names, for errors."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str:
    """Return '; did you mean X or Y?' for the nearest of `known`, or nothing when none is near."""
    names = {name.lower(): name for name in known}
    near = difflib.get_close_matches(word.lower(), names, n=2, cutoff=0.5)
    return f"; did you mean {' or '.join(names[name] for name in near)}?" if near else ""
