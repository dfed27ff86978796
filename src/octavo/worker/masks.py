"""`MaskFiller`: the masks of a step's grammars, filled on a thread of its own while the forward pass runs.

What a grammar may cost those who share its steps has bounds, in processor time, so that a busy machine ends nobody:

- one mask: MASK_S. The parser counts its own work and mostly gives up before.
- one answer: PACE_S for each token. What is more is its debt, which later tokens pay off; SPARE_S of debt end it.
- one step: once its masks have taken STEP_S, the answers left whose masks are slower than the pace end. The quick are filled first.

An answer ends by its matcher's error; the others of the step go on.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from octavo.grammar.matcher import SIMPLER, Matcher

MASK_S = 0.05
PACE_S = 0.005  # several times what the masks of usual grammars take
SPARE_S = 0.25
STEP_S = 0.1

TOO_SLOW = f"the grammar is too slow: the mask of one token took more than {MASK_S * 1000:g} ms of processor time, the limit; {SIMPLER}"
TOO_SLOW_IN_ALL = (
    f"the grammar is too slow: its masks took {SPARE_S:g} s of processor time more than {PACE_S * 1000:g} ms a token, the limit; {SIMPLER}"
)
TOO_SLOW_TOGETHER = (
    f"the grammar is too slow: its masks take more than {PACE_S * 1000:g} ms of processor time a token, and all masks of a step more than "
    f"{STEP_S * 1000:g} ms, the limit; {SIMPLER}"
)


class MaskFiller:
    """The thread begins with the first mask."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="octavo-masks")

    def start(self, matchers: Sequence[Matcher | None]) -> Future[None]:
        """Begin to fill the masks of these matchers, which nobody else touches until the result is there."""
        return self._thread.submit(fill_masks, [matcher for matcher in matchers if matcher is not None])


def fill_masks(matchers: Sequence[Matcher]) -> None:
    """Fill the masks of a step, and end the answers whose grammars take too long."""
    began = now = time.thread_time()
    for matcher in sorted(matchers, key=slowness_s):
        if now - began > STEP_S and slowness_s(matcher) > PACE_S:
            matcher.end(TOO_SLOW_TOGETHER)
        matcher.fill()
        before, now = now, time.thread_time()
        matcher.mask_s = now - before
        matcher.debt_s = max(0.0, matcher.debt_s + matcher.mask_s - PACE_S)
        if matcher.mask_s > MASK_S:
            matcher.end(TOO_SLOW)
        elif matcher.debt_s > SPARE_S:
            matcher.end(TOO_SLOW_IN_ALL)


def slowness_s(matcher: Matcher) -> float:
    """Return what the next mask is likely to take, and what the answer is behind."""
    return matcher.debt_s + matcher.mask_s
