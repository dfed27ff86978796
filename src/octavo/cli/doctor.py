"""`octavo doctor URL|FILE`: what limits a running server, or the one that a bench result was measured on.

Exit codes: 0 nothing is wrong; 1 findings; 2 a flag is wrong; 3 the server cannot be observed; 130 interrupted.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import orjson
from rich.console import Console
from rich.markup import escape

from octavo.cli.flag_types import number
from octavo.cli.time_limits import read_slo
from octavo.config import env
from octavo.config.flag_parser import FlagParser, flag_type
from octavo.doctor.diagnosis import Diagnosis, diagnose
from octavo.doctor.finding import Finding
from octavo.doctor.observation import Observation, Settings
from octavo.doctor.observe import observe_bench
from octavo.doctor.visit import visit
from octavo.errors import ConfigError
from octavo.planner.catalogue import find_device
from octavo.units import parse_int

COLOURS = {"fault": "red", "limit": "yellow", "note": "green"}


def doctor_main(argv: Sequence[str]) -> int:
    args = _parser().parse(argv)
    stated = _stated(args)
    while True:
        diagnosis = diagnose(_observe(args, stated))
        if args.json:
            sys.stdout.buffer.write(msgspec.json.encode(_report(diagnosis)) + b"\n")
            sys.stdout.flush()
        else:
            print_diagnosis(diagnosis, clear=args.watch)
        if not args.watch:
            return 0 if diagnosis.is_healthy else 1


def print_diagnosis(diagnosis: Diagnosis, *, clear: bool) -> None:
    console = Console(width=None if sys.stdout.isatty() else 120)
    if clear and sys.stdout.isatty():
        console.clear()
    console.print(f"[bold]{escape(diagnosis.source)}[/] · {diagnosis.seconds:.1f} s observed", highlight=False)
    if not diagnosis.findings:
        console.print("[green]Nothing is wrong.[/]")
    for finding in diagnosis.findings:
        _print_finding(console, finding)


def _print_finding(console: Console, finding: Finding) -> None:
    colour = COLOURS[finding.severity]
    lines = [f"\n[bold {colour}]{finding.severity}[/] [bold]{finding.title}[/] [dim]({finding.rule})[/]"]
    lines += [f"  {escape(str(evidence))}" for evidence in finding.evidence]
    if finding.severity != "note":
        lines.append(f"  [bold]knob[/]   {escape(finding.knob)}")
        lines += [f"  [bold]trade[/]  {escape(finding.trade)}"] if finding.trade != "None." else []
        lines += [f"  [bold]run[/]    [cyan]{escape(finding.command)}[/]  [dim]with your other flags[/]"] if finding.command else []
    for line in lines:
        console.print(line, highlight=False, soft_wrap=finding.command is not None and line is lines[-1])


def _observe(args: argparse.Namespace, stated: Settings) -> Observation:
    if args.target.startswith(("http://", "https://")):
        keys = env.api_keys()
        headers = {"Authorization": f"Bearer {keys[0]}"} if keys else {}
        return asyncio.run(visit(args.target, headers, stated, args.seconds))
    if args.watch:
        raise ConfigError("--watch needs a running server; give its URL, as in http://127.0.0.1:8000")
    try:
        result = orjson.loads(Path(args.target).read_bytes())
    except (OSError, orjson.JSONDecodeError) as error:
        raise ConfigError(f"{args.target} is neither an http URL nor a bench result: {error}") from None
    if isinstance(result, list) and result:
        result = result[-1]  # --append-result: the latest
    if not isinstance(result, dict):
        raise ConfigError(f"{args.target} holds no bench result")
    return observe_bench(args.target, result, stated)


def _report(diagnosis: Diagnosis) -> dict[str, object]:
    return dataclasses.asdict(diagnosis) | {"healthy": diagnosis.is_healthy}


def _stated(args: argparse.Namespace) -> Settings:
    device = find_device(args.device) if args.device else None
    slo = read_slo(args.slo)
    return Settings(
        max_num_seqs=args.max_num_seqs,
        max_num_batched_tokens=args.max_num_batched_tokens,
        device=device.name if device else None,
        bandwidth=device.bandwidth if device else args.bandwidth_gbs * 1e9 if args.bandwidth_gbs else None,
        weight_bytes=args.weight_bytes,
        ttft_slo_s=slo.get("ttft"),
        itl_slo_s=slo.get("itl"),
    )


def _parser() -> FlagParser:
    about = "Name what limits a running server (Octavo or vLLM), or the one behind a bench result, and the way out."
    parser = FlagParser("octavo doctor", about, usage="octavo doctor [URL|FILE] [FLAGS]")
    parser.add_argument(
        "target", nargs="?", default="http://127.0.0.1:8000", metavar="URL|FILE", help="server or bench result [http://127.0.0.1:8000]"
    )
    parser.add_argument("--seconds", type=number(above=0), default=10.0, metavar="S", help="how long to look [10]")
    parser.add_argument("--watch", action="store_true", help="look again and again until interrupted")
    parser.add_argument("--json", action="store_true", help="print the diagnosis as JSON, one line for each look")
    parser.add_argument("--slo", default="", metavar="ttft=S,itl=S", help="objectives for the p99, as in ttft=0.5,itl=50ms")
    known = parser.add_argument_group("What the server does not tell (a vLLM server, or Octavo without --enable-admin-endpoints)")
    known.add_argument("--max-num-seqs", type=flag_type(parse_int), metavar="N", help="its --max-num-seqs")
    known.add_argument("--max-num-batched-tokens", type=flag_type(parse_int), metavar="N", help="its --max-num-batched-tokens")
    known.add_argument("--weight-bytes", type=flag_type(parse_int), metavar="BYTES", help="size of its weights, as in 32.8g")
    known.add_argument("--device", metavar="NAME", help="its device, by which its bandwidth is known (octavo plan --list names them)")
    known.add_argument("--bandwidth-gbs", type=number(above=0), metavar="GB/S", help="its memory's bandwidth, instead of --device")
    return parser
