"""`octavo bench kernels`: time, GB/s, GOP/s and share of the machine's peak of each native kernel, and the goals that some have,
as tables and as JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence

from octavo.bench.kernels import Timing, fastest_call, judge, kernels
from octavo.bench.peaks import Neighbours, Peaks, last_cache_bytes, measure_peaks
from octavo.cli.flag_types import integer
from octavo.config.flag_parser import FlagParser
from octavo.config.schema import ISAS
from octavo.units import MiB

BEYOND_CACHE = 4  # times the last cache: then hardly a line of an operand is still in it when its turn comes again


def bench_kernels_main(argv: Sequence[str]) -> int:
    parser = FlagParser(
        "octavo bench kernels",
        "Measure the native kernels and this machine's peaks, in one run.",
        usage="octavo bench kernels [FLAGS]",
    )
    parser.add_argument("--only", default="", metavar="TEXT", help="kernels whose name has this in it, such as q4_1 or attention")
    parser.add_argument("--threads", type=integer(1), metavar="N", help="CPU threads [all]")
    parser.add_argument("--isa", choices=ISAS, help="instruction set [the best]")
    parser.add_argument("--seconds", type=float, default=0.2, metavar="S", help="of each kernel [0.2]")
    parser.add_argument("--memory-mb", type=integer(1), metavar="N", help="of weights and of K/V [four times the last cache]")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    args = parser.parse(argv)

    from rich.console import Console
    from rich.progress import Progress

    cache_bytes = last_cache_bytes()
    memory_bytes = args.memory_mb * MiB if args.memory_mb else max(256 * MiB, BEYOND_CACHE * cache_bytes)
    neighbours = Neighbours()
    threads = (1, args.threads)
    before = [measure_peaks(args.isa, count, memory_bytes, args.seconds) for count in threads]
    done = []
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("kernels", total=None)
        for kernel in kernels(args.isa, args.threads, memory_bytes, args.only):
            progress.update(task, description=f"{kernel.work.op} {kernel.work.shape}")
            done.append((kernel.work, fastest_call(kernel, args.seconds)))
    after = [measure_peaks(args.isa, count, memory_bytes, args.seconds) for count in threads]
    peaks = [peak.higher(later) for peak, later in zip(before, after, strict=True)]
    timings = [judge(work, seconds, peaks[1]) for work, seconds in done]
    notes = [note for note in (neighbours.note(), _note_of_caches(memory_bytes, cache_bytes)) if note]
    if args.json:
        values = {"peaks": [dataclasses.asdict(peak) for peak in peaks], "kernels": [dataclasses.asdict(timing) for timing in timings]}
        print(json.dumps({**values, "memory_bytes": memory_bytes, "last_cache_bytes": cache_bytes, "notes": notes}, indent=2))
        return 0
    _print(peaks, timings, notes)
    return 0


def _note_of_caches(memory_bytes: int, cache_bytes: int) -> str | None:
    if memory_bytes >= BEYOND_CACHE * cache_bytes:
        return None
    return (
        f"operands of {memory_bytes // MiB:,} MiB come round within reach of the last cache of {cache_bytes // MiB:,} MiB: "
        "rates of memory, the peak's too, are partly the cache's"
    )


def _print(peaks: Sequence[Peaks], timings: Sequence[Timing], notes: Sequence[str]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    table = Table("threads", "memory GB/s", "f32 GOP/s", "bf16 GOP/s", "int8 GOP/s", title="peaks of this machine")
    for peak in peaks:
        figures = (f"{value * 1e-9:,.1f}" if value else "-" for value in (peak.read, peak.f32, peak.bf16, peak.int8))
        table.add_row(str(peak.threads), *figures)
    console.print(table)
    table = Table("kernel", "shape", "us", "GB/s", "GOP/s", "share", "of", title=f"kernels, {peaks[1].threads} threads")
    for timing in timings:
        rates = (f"{timing.seconds * 1e6:,.0f}", f"{timing.bytes_per_second * 1e-9:.1f}", f"{timing.operations_per_second * 1e-9:,.0f}")
        table.add_row(timing.op, timing.shape, *rates, f"{timing.share:.0%}", timing.limit)
    console.print(table)
    table = Table("kernel", "shape", "of", "reached", "peak", "share", "goal", title="goals")
    for timing in timings:
        for goal in timing.goals:
            unit = "GB/s" if goal.peak == "memory" else "GOP/s"
            reached = (f"{goal.reached * 1e-9:,.1f} {unit}", f"{goal.possible * 1e-9:,.1f} {unit}", f"{goal.share:.0%}")
            table.add_row(
                timing.op, timing.shape, goal.peak, *reached, f"{goal.wanted:.0%} {'met' if goal.share >= goal.wanted else 'not met'}"
            )
    if table.row_count:
        console.print(table)
    for note in notes:
        console.print(f"[yellow]{note}[/yellow]")
