"""`MaskFiller`: the masks of a step's grammars, filled on a thread of its own while the forward pass runs."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from octavo.grammar.matcher import Matcher


class MaskFiller:
    """The thread begins with the first mask."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="octavo-masks")

    def start(self, matchers: Sequence[Matcher | None]) -> Future[None]:
        """Begin to fill the masks of these matchers, which nobody else touches until the result is there."""
        return self._thread.submit(_fill, [matcher for matcher in matchers if matcher is not None])


def _fill(matchers: Sequence[Matcher]) -> None:
    for matcher in matchers:
        matcher.fill()
