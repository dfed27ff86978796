"""`octavo tune MODEL`: search the flags of `octavo serve` for this machine and this workload, and write them to a file."""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from octavo import __version__
from octavo.bench.datasets import Lengths, Session, TextCounter, file_sessions, random_sessions, trace_sessions
from octavo.bench.objective import Objective
from octavo.bench.pareto import pareto_front, sweep_page, sweep_table
from octavo.cli.flag_types import integer, number, rate
from octavo.cli.passed import split_passed
from octavo.cli.time_limits import read_slo
from octavo.config.flag_parser import FlagParser, flag_type
from octavo.config.flags import ALL_GROUPS, FLAGS
from octavo.config.resolve import resolve
from octavo.config.schema import DEFAULT_MODEL
from octavo.errors import ConfigError, did_you_mean
from octavo.simulator.arrivals import arrival_times
from octavo.tune.candidates import Candidate, knobs_for
from octavo.tune.flags_file import flags_file
from octavo.tune.search import Outcome, Trial, search
from octavo.tune.trial import Bench
from octavo.units import parse_int

NUM_WARM_UP = 2
SWITCHES = {True: "on", False: "off"}


def tune_main(argv: Sequence[str]) -> int:
    own, serve_words = split_passed(argv)
    args = _parser().parse(own)
    knobs = knobs_for(len(os.sched_getaffinity(0)), (flag.name for flag in FLAGS), args.keep)
    base, fixed = read_base(args.model, serve_words, {knob.flag for knob in knobs})
    slo = read_slo(args.slo)
    objective = Objective(slo.get("ttft"), slo.get("itl"))
    sessions, warm_up, arrivals = _workload(args)
    bench = Bench((args.model, *fixed), tuple(sessions), tuple(warm_up), tuple(arrivals), args.max_concurrency, objective)
    deadline_s = time.monotonic() + 60 * args.minutes
    print(f"{len(sessions)} sessions, objective {objective}, {args.minutes:g} minutes; the base is: {base}", file=sys.stderr)

    outcome = search(
        base,
        knobs,
        lambda candidate: is_valid(args.model, [*fixed, *candidate.words()]),
        lambda candidate, share: _told(bench.measure(candidate, share), share),
        width=args.candidates,
        rng=random.Random(args.seed),
        has_time=lambda: time.monotonic() < deadline_s,
    )
    _print(outcome)
    told = [_machine(), f"workload: {_workload_line(args, sessions)}; objective: {objective}"]
    Path(args.output).write_text(flags_file(args.model, fixed, outcome, told))
    print(f"flags: {args.output}; start with: octavo serve @{args.output}")
    if args.html:
        Path(args.html).write_text(sweep_page(["flags"], _rows(outcome)))
        print(f"report: {args.html}")
    return 0 if outcome.figures_of(outcome.best) else 1


def read_base(model: str, words: Sequence[str], knob_flags: set[str]) -> tuple[Candidate, list[str]]:
    """Return (the knobs as `words` of a serve command turn them, the other words). Raises ConfigError."""
    parser = FlagParser("octavo serve", "", ALL_GROUPS)
    given = parser.given(parser.parse(words))
    resolve(given | {"model": model})
    turned = {flag: SWITCHES[value] if isinstance(value, bool) else str(value) for flag, value in given.items() if flag in knob_flags}
    fixed: list[str] = []
    is_kept = True
    for word in words:
        if word.startswith("--"):
            name = word[2:].split("=", 1)[0].replace("_", "-")
            is_kept = name.removeprefix("no-") not in knob_flags and name not in knob_flags
        if is_kept:
            fixed.append(word)
    return Candidate.of(turned), fixed


def is_valid(model: str, words: Sequence[str]) -> bool:
    """Whether `octavo serve` would take these flags together."""
    parser = FlagParser("octavo serve", "", ALL_GROUPS)
    try:
        resolve(parser.given(parser.parse(words)) | {"model": model})
    except ConfigError:
        return False
    return True


def _workload(args: argparse.Namespace) -> tuple[list[Session], list[Session], list[float]]:
    counter = _read_tokenizer(args.model)
    rng = random.Random(args.seed)
    path = Path(args.workload)
    try:
        is_trace = '"timestamp"' in path.read_text(encoding="utf-8")[:4096]
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    if is_trace:
        sessions = trace_sessions(path, counter, rng)[: args.num_prompts]
        arrivals = [session.arrival_s or 0.0 for session in sessions]
    else:
        sessions = file_sessions(path, args.num_prompts, 64, counter, rng)
        arrivals = arrival_times(len(sessions), args.request_rate, 1.0, random.Random(args.seed + 1))
    return sessions, random_sessions(NUM_WARM_UP, Lengths(32, 8), 0, counter, random.Random(f"warm-up {args.seed}")), arrivals


def _read_tokenizer(model: str) -> TextCounter:
    from octavo.loaders.load import read_text
    from octavo.loaders.store import resolve_model
    from octavo.text.tokenizer import Tokenizer

    return Tokenizer.from_assets(read_text(resolve_model(model)))


def _told(trial: Trial, share: float) -> Trial:
    result = trial.failure or f"{trial.score:,.1f} good tok/s"
    print(f"{share:>4.0%} of the workload  {result:>18}  {trial.candidate}", file=sys.stderr)
    return trial


def _print(outcome: Outcome) -> None:
    rows = _rows(outcome)
    sweep_table(["flags"], rows, pareto_front(rows))
    print(f"best: {outcome.best}")
    print(f"{outcome.against_base} of the base's score" if outcome.best != outcome.base else "the base is the best")
    print(outcome.why)


def _rows(outcome: Outcome) -> list[dict[str, object]]:
    """Return each candidate's last run as a row of a sweep: a finalist's is on the whole workload, another's on what it reached."""
    last = {trial.candidate: trial for trial in outcome.trials if trial.figures}
    return [{"flags": str(candidate), **trial.figures} for candidate, trial in last.items()]


def _machine() -> str:
    now = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
    cpus = len(os.sched_getaffinity(0))
    return f"octavo {__version__} on {_cpu_name()}, {cpus} CPUs, load {os.getloadavg()[0]:.1f}, {now}"


def _cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _workload_line(args: argparse.Namespace, sessions: Sequence[Session]) -> str:
    turns = [turn for session in sessions for turn in session.turns]
    given, made = (sum(getattr(turn, name) for turn in turns) / len(turns) for name in ("input_len", "output_len"))
    at_once = f"at most {args.max_concurrency} at once" if args.max_concurrency else "as they arrive"
    return f"{Path(args.workload).name}, {len(sessions)} sessions, {given:.0f} tokens in and {made:.0f} out a turn, {at_once}"


def _parser() -> FlagParser:
    about = "Search the flags of octavo serve for this machine and a workload. Flags behind -- are where the search begins."
    parser = FlagParser("octavo tune", about, usage="octavo tune [MODEL] --workload FILE [FLAGS] [-- FLAGS OF SERVE]")
    count = integer(1, 1_000_000)
    parser.add_argument("model", nargs="?", metavar="MODEL", default=DEFAULT_MODEL, help=f"model to tune for [{DEFAULT_MODEL}]")
    parser.add_argument(
        "--workload", metavar="FILE", required=True, help="custom, ShareGPT or timed-trace file, as octavo bench serve reads them"
    )
    parser.add_argument(
        "--slo", default="", metavar="ttft=S,itl=S", help="only answers within these count, as in ttft=0.5,itl=50ms [all count]"
    )
    parser.add_argument("--num-prompts", type=count, default=64, metavar="N", help="sessions of a whole run [64]")
    parser.add_argument("--max-concurrency", type=count, default=16, metavar="N", help="sessions at once [16]")
    parser.add_argument("--request-rate", type=flag_type(rate), default=float("inf"), metavar="R", help="sessions a second [inf]")
    parser.add_argument("--candidates", type=count, default=12, metavar="N", help="candidates of the first round [12]")
    parser.add_argument("--minutes", type=number(above=0), default=15.0, metavar="M", help="time to spend, about [15]")
    parser.add_argument(
        "--keep", type=_knob, action="append", default=[], metavar="FLAG", help="a flag that is not to be turned; repeatable"
    )
    parser.add_argument("--output", default="octavo.flags", metavar="FILE", help="file of flags to write [octavo.flags]")
    parser.add_argument("--html", metavar="FILE", help="write the Pareto chart and the table as a page")
    parser.add_argument("--seed", type=flag_type(parse_int), default=0, metavar="N", help="of the candidates and the workload [0]")
    return parser


def _knob(text: str) -> str:
    known = {flag.name for flag in FLAGS}
    name = text.removeprefix("--").replace("_", "-")
    if name not in known:
        raise argparse.ArgumentTypeError(f"there is no flag {text!r}{did_you_mean(name, known)}")
    return name
