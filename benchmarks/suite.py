"""The comparison: Octavo and whichever peers are there, in turn on this machine, with ratios and shares of the machine's limits.

    python benchmarks/suite.py --short                      # two minutes, Octavo alone: anyone can run it
    python benchmarks/suite.py --peers-dir DIR              # SmolLM2 against all peers, three rounds
    python benchmarks/suite.py --peers-dir DIR --models qwen2.5-coder-0.5b-instruct,qwen2.5-coder-1.5b-instruct --rounds 1

Parts: offline (prefill and decode in process), http (a server under load, its start and memory), contexts (long prompts).
Prints the tables, and saves suite.json, suite.md and suite.html. Where other programs are busy it says so, in the table too.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import shlex
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import machine
import roofline
from contexts import Point, contexts_up_to, likely_s, measure_context
from engines import Engine, EngineFailed, Shape, find_engines
from loads import LOADS, SHORT_LOADS, Load, measure_loads
from roofline import Roofline
from table import BUSY, as_markdown, as_page

from octavo.bench.peaks import Peaks

PARTS = ("offline", "http", "contexts")
DEFAULT_MODEL = "smollm2-135m-instruct"


@dataclasses.dataclass(frozen=True)
class Work:
    """What is measured of each model."""

    shape: Shape
    loads: Sequence[Load]
    parts: Sequence[str]
    rounds: int


class Suite:
    """A run: what was measured so far, of the machine and of each model."""

    def __init__(self, work: Work, minutes: float) -> None:
        self.work = work
        self.began_s = time.perf_counter()
        self.deadline_s = self.began_s + 60 * minutes
        self.peaks: list[Peaks] = []
        self.busy: list[float] = []
        self.left_out: list[str] = []
        self.models: dict[str, dict[str, Any]] = {}

    def measure(self, model: str, engines: Sequence[Engine], max_context: int | None) -> None:
        """Measure all parts of one model; the first engine is Octavo where it is chosen."""
        self.measure_peaks()
        figures = self.compare(model, engines)
        limits = Roofline(model, self.highest_peaks())
        most = min(max_context or limits.max_context, limits.max_context)
        self.models[model] = {
            "engines": {engine.name: engine.about for engine in engines},
            "figures": figures,
            "limits": limits.of_figures(self.work.shape, self.work.loads),
            "kv_mib_for_1024": limits.kv_mib_for_1024,
            "contexts": self.contexts(model, engines[0], limits, most) if engines[0].name == "octavo" else [],
        }

    def result(self) -> dict[str, Any]:
        """Return all that there is, as JSON has it."""
        return {
            "date": time.strftime("%Y-%m-%d"),
            "command": shlex.join(["python", *sys.argv]),
            "seconds": time.perf_counter() - self.began_s,
            "machine": machine.facts(),
            "peaks": dataclasses.asdict(self.highest_peaks()),
            "busy": max(self.busy, default=0.0),
            "rounds": self.work.rounds,
            "left_out": self.left_out,
            "models": self.models,
        }

    def compare(self, model: str, engines: Sequence[Engine]) -> dict[str, dict[str, list[float]]]:
        """Return figure -> engine -> values, all engines in turn, round after round."""
        figures: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))

        def keep(engine: Engine, measured: Iterable[tuple[str, list[float]]]) -> None:
            with self.failures_told(f"{model}: {engine.name}, round {number + 1}"):
                for figure, values in measured:
                    figures[figure][engine.name] += values
                    tell(f"{model} round {number + 1}  {engine.name:<10} {figure:<34} {' '.join(f'{value:,.1f}' for value in values)}")

        for number in range(self.work.rounds if {"offline", "http"} & set(self.work.parts) else 0):
            for engine in engines:
                if "offline" in self.work.parts and self.may_begin(f"{model}: {engine.name} offline, round {number + 1}"):
                    keep(engine, engine.offline(self.work.shape))
                if "http" in self.work.parts and engine.serve and self.may_begin(f"{model}: {engine.name} http, round {number + 1}"):
                    keep(engine, ((figure, [value]) for figure, value in measure_loads(engine, self.work.loads, seed=1000 * number)))
            self.measure_peaks()
        return {figure: dict(values) for figure, values in figures.items()}

    def contexts(self, model: str, engine: Engine, limits: Roofline, most: int) -> list[dict[str, float]]:
        """Return the points of Octavo's long contexts as dictionaries."""
        points: list[Point] = []
        for context in contexts_up_to(most) if "contexts" in self.work.parts else ():
            if self.may_begin(f"{model}: context {context:,}", likely_s(points[-1] if points else None, context)):
                with self.failures_told(f"{model}: context {context:,}"):
                    points.append(point := measure_context(engine, limits, context))
                    times = f"TTFT {point.ttft_s:.2f} s, {1e3 * point.token_s:.1f} ms a token"
                    tell(f"{model} context {context:,}: {times}, {point.peak_rss_mib:,.0f} MiB")
        return [dataclasses.asdict(point) for point in points]

    def may_begin(self, what: str, likely_s: float = 0.0) -> bool:
        """Return whether there is time for it, once the machine is as quiet as it gets."""
        if time.perf_counter() + likely_s > self.deadline_s:
            self.left_out.append(what)
            return False
        self.busy.append(machine.wait_until_quiet(BUSY))
        if self.busy[-1] > BUSY:
            tell(f"warning: others use {self.busy[-1]:.0%} of the CPUs; what is measured now is no good figure")
        return True

    @contextmanager
    def failures_told(self, what: str) -> Iterator[None]:
        """Keep an engine's failure as something that is not in the tables, and go on."""
        try:
            yield
        except EngineFailed as failure:
            tell(f"warning: {what} failed: {failure}")
            self.left_out.append(f"{what} (failed)")

    def measure_peaks(self) -> None:
        self.peaks.append(roofline.measure())

    def highest_peaks(self) -> Peaks:
        highest = self.peaks[0]
        for peaks in self.peaks[1:]:
            highest = highest.higher(peaks)
        return highest


def main() -> int:
    arguments = parse()
    if arguments.short:
        work = Work(Shape((512,), (1, 8), 128, 64, 2), SHORT_LOADS, [part for part in arguments.parts if part != "contexts"], 1)
    else:
        work = Work(Shape((512, 2048), arguments.batches, 128, 128, arguments.repeats), LOADS, arguments.parts, arguments.rounds)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that a server of ours is stopped, too
    suite = Suite(work, arguments.minutes)
    arguments.out.mkdir(parents=True, exist_ok=True)
    for model in arguments.models:
        engines, missing = find_engines(arguments.peers_dir, model)
        if arguments.peers_dir and missing:
            tell(f"{model}: not there, or does not read it: {', '.join(missing)}")
        if chosen := [engine for engine in engines if not arguments.only or engine.name in arguments.only]:
            suite.measure(model, chosen, arguments.max_context)
            save(suite.result(), arguments.out)
    print(as_markdown(suite.result()))
    return 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = partial(str.split, sep=",")
    parser.add_argument(
        "--models", type=names, default=[DEFAULT_MODEL], help=f"models of Octavo's store, separated by commas [{DEFAULT_MODEL}]"
    )
    parser.add_argument("--peers-dir", type=Path, help="where peers are installed [no peers]")
    parser.add_argument("--only", type=names, default=[], help="engines to measure, separated by commas [all that are there]")
    parser.add_argument("--parts", type=names, default=PARTS, help=f"of {', '.join(PARTS)} [all]")
    parser.add_argument("--short", action="store_true", help="two minutes: fewer figures, one round, no long contexts")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=3, help="of each offline figure in a round [3]")
    parser.add_argument("--batches", type=numbers, default=(1, 8, 32, 64), help="streams that decode at a time, offline [1,8,32,64]")
    parser.add_argument("--max-context", type=int, help="longest prompt of the part contexts [the model's]")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="nothing new is begun after so many [no bound]")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    if unknown := set(arguments.parts) - set(PARTS):
        parser.error(f"--parts has {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    return arguments


def numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


def save(result: dict[str, Any], folder: Path) -> None:
    (folder / "suite.json").write_text(json.dumps(result, indent=2) + "\n")
    (folder / "suite.md").write_text(as_markdown(result))
    (folder / "suite.html").write_text(as_page(result))


def tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
