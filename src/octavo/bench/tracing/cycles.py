"""From spans to steps. A step begins when the engine's loop looks for messages and ends when it does so again; every lane is cut to that.

Only steps of one kind are looked at: all of `rows` requests, one token each. Of them the middle half by duration counts, so that what
the system did meanwhile does not.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise

from msgspec import Struct
from msgspec.structs import replace

from octavo.bench.tracing.spans import Span, innermost
from octavo.errors import EngineError

# The threads of processes that are shown, from the network down, and what each does where it has no span; the last one is there where
# steps are planned ahead.
BETWEEN = {"server": "answers (asyncio, ASGI)", "engine": "loop", "engine octavo-step": "waits for a plan"}
OUTSIDE = "outside the forward"  # where a compute thread is while no step is computed
COMPUTE = "compute, a thread"  # the lane of a mean over the threads


class Step(Struct, frozen=True):
    """`lanes`: what each did in the step, in order and without gaps."""

    begin_ns: int
    end_ns: int
    lanes: dict[str, list[Span]]

    @property
    def us(self) -> float:
        return (self.end_ns - self.begin_ns) / 1e3


class Share(Struct, frozen=True):
    """Microseconds that a lane gives to one thing in a step, in the mean, and how much CPU time that took (None: nobody looked). Where
    more time passes than that, the system had the thread wait."""

    lane: str
    name: str
    us: float
    cpu_us: float | None


class Lanes:
    """The spans of a run by lane, in order, without overlap."""

    def __init__(self, spans: Iterable[Span]) -> None:
        by_lane: defaultdict[str, list[Span]] = defaultdict(list)
        for span in spans:
            by_lane[span.lane].append(span)
        self._looks_ns = sorted(span.begin_ns for span in by_lane["engine"] if span.name == "messages in")
        self._forwards = sorted((span for lane in by_lane.values() for span in lane if span.rows), key=lambda span: span.end_ns)
        kept = sorted(lane for lane in by_lane if lane in BETWEEN or lane.startswith("thread "))
        self._pieces = {lane: innermost(by_lane[lane], BETWEEN.get(lane, OUTSIDE)) for lane in sorted(kept, key=_place)}
        self._ends = {lane: [piece.end_ns for piece in pieces] for lane, pieces in self._pieces.items()}

    def steps(self, rows: int) -> list[Step]:
        """Return the steps of `rows` requests that compute one token each, the middle half by duration, shortest first.

        Raises EngineError where there are fewer than four."""
        ends_ns = [forward.end_ns for forward in self._forwards]
        found = []
        for begin_ns, end_ns in pairwise(self._looks_ns):
            inside = self._forwards[bisect_left(ends_ns, begin_ns) : bisect_left(ends_ns, end_ns)]
            if len(inside) == 1 and inside[0].rows == inside[0].tokens == rows:
                found.append((begin_ns, end_ns))
        if len(found) < 4:
            raise EngineError(f"only {len(found)} steps had {rows} streams at one token each; ask for longer answers (--output-len)")
        found.sort(key=lambda step: step[1] - step[0])
        return [
            Step(begin_ns, end_ns, {lane: self._cut(lane, begin_ns, end_ns) for lane in self._pieces})
            for begin_ns, end_ns in found[len(found) // 4 : -(len(found) // 4)]
        ]

    def _cut(self, lane: str, begin_ns: int, end_ns: int) -> list[Span]:
        """Return a lane's pieces from `begin_ns` to `end_ns`; of one that is cut, CPU time goes with the time. Before the first piece and
        behind the last one a lane is between two."""
        between = BETWEEN.get(lane, OUTSIDE)
        cut, at_ns = [], begin_ns
        for piece in self._pieces[lane][bisect_right(self._ends[lane], begin_ns) :]:
            if piece.begin_ns >= end_ns:
                break
            if piece.begin_ns > at_ns:
                cut.append(Span(lane, between, at_ns, piece.begin_ns))
            at_ns = min(piece.end_ns, end_ns)
            inside = at_ns - max(piece.begin_ns, begin_ns)
            cpu_ns = (piece.cpu_end_ns - piece.cpu_begin_ns) * inside // (piece.end_ns - piece.begin_ns)
            cut.append(replace(piece, begin_ns=at_ns - inside, end_ns=at_ns, cpu_end_ns=piece.cpu_begin_ns + cpu_ns))
        return [*cut, Span(lane, between, at_ns, end_ns)] if at_ns < end_ns else cut


def shares(steps: Sequence[Step]) -> list[Share]:
    """Return where the mean step goes: the server, the engine's loop, and a compute thread; each adds up to the whole step."""
    sums: defaultdict[tuple[str, str], float] = defaultdict(float)
    cpu_sums: defaultdict[tuple[str, str], float] = defaultdict(float)
    num_threads = sum(lane.startswith("thread ") for lane in steps[0].lanes) or 1
    for step in steps:
        for lane, pieces in step.lanes.items():
            is_thread = lane.startswith("thread ")
            for piece in pieces:
                key = COMPUTE if is_thread else lane, piece.name
                weight = 1e3 * len(steps) * (num_threads if is_thread else 1)
                sums[key] += (piece.end_ns - piece.begin_ns) / weight
                cpu_sums[key] += (piece.cpu_end_ns - piece.cpu_begin_ns) / weight
    found = [Share(lane, name, us, None if lane == COMPUTE else cpu_sums[lane, name]) for (lane, name), us in sums.items()]
    return sorted(found, key=lambda share: (_place(share.lane), -share.us))


def _place(lane: str) -> tuple[int, str]:
    """The order of lanes from the network down."""
    return list(BETWEEN).index(lane) if lane in BETWEEN else len(BETWEEN), lane
