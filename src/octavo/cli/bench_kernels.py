"""`octavo bench kernels`: time, GB/s, GOP/s and share of the machine's peak of each native kernel, as a table and as JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence

from octavo.bench.kernels import Neighbours, Peaks, Timing, kernels, measure, measure_peaks
from octavo.config.flags import FlagParser, flag_type
from octavo.config.schema import ISAS
from octavo.errors import ConfigError
from octavo.units import parse_int


def bench_kernels_main(argv: Sequence[str]) -> int:
    parser = FlagParser(
        "octavo bench kernels",
        "Measure the native kernels and this machine's peaks, in one run.",
        usage="octavo bench kernels [FLAGS]",
    )
    parser.add_argument("--only", default="", metavar="TEXT", help="kernels whose name has this in it, such as q4_1 or attention")
    parser.add_argument("--threads", type=flag_type(_positive), metavar="N", help="CPU threads [all]")
    parser.add_argument("--isa", choices=ISAS, help="instruction set [the best]")
    parser.add_argument("--seconds", type=float, default=0.2, metavar="S", help="of each kernel [0.2]")
    parser.add_argument("--memory-mb", type=flag_type(_positive), default=256, metavar="N", help="of weights and of K/V [256]")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    args = parser.parse(argv)

    from rich.console import Console
    from rich.progress import Progress

    memory_bytes = args.memory_mb << 20
    neighbours = Neighbours()
    peaks = [measure_peaks(args.isa, threads, memory_bytes) for threads in (1, args.threads)]
    timings = []
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("kernels", total=None)
        for kernel in kernels(args.isa, args.threads, memory_bytes, args.only):
            progress.update(task, description=f"{kernel.op} {kernel.shape}")
            timings.append(measure(kernel, peaks[1], args.seconds))
    note = neighbours.note()
    if args.json:
        values = {"peaks": [dataclasses.asdict(peak) for peak in peaks], "kernels": [dataclasses.asdict(timing) for timing in timings]}
        print(json.dumps({**values, "note": note}, indent=2))
        return 0
    _print(peaks, timings, note)
    return 0


def _print(peaks: Sequence[Peaks], timings: Sequence[Timing], note: str | None) -> None:
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
    if note:
        console.print(f"[yellow]{note}[/yellow]")


def _positive(text: str) -> int:
    number = parse_int(text)
    if number < 1:
        raise ConfigError(f"{text} must be at least 1")
    return number
