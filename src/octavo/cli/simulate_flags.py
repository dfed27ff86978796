"""The flags of `octavo simulate`: what is simulated, the traffic, and all flags of serve that concern memory and scheduling."""

from __future__ import annotations

import math

from octavo.cli.flag_types import integer, number, rate
from octavo.config.flag_parser import FlagParser, flag_type
from octavo.units import parse_int

CLOSED_FLAGS = frozenset({"kv-offload-gib", "kv-offload-dir", "kv-events-config", "preemption-mode", "prefix-caching-hash-algo"})
MAX_REQUESTS = 1_000_000


def simulate_parser() -> FlagParser:
    parser = FlagParser(
        "octavo simulate",
        "Run the real scheduler and KV memory against a fake model and clock: what would this fleet do under this traffic?",
        ("Memory", "Scheduling"),
        usage="octavo simulate --model NAME --device NAME --rate R [FLAGS]",
    )
    count = integer(1, MAX_REQUESTS)
    what = parser.add_argument_group("Model and machines")
    what.add_argument("--model", required=True, metavar="MODEL", help="as for octavo plan: a name, config.json, .gguf file or folder")
    what.add_argument(
        "--device", default="this", metavar="NAME", help="a device of octavo plan --list, or this: measure this machine [this]"
    )
    what.add_argument("--weights", metavar="FORMAT", help="format of the weights [that of the files]")
    what.add_argument("--tensor-parallel-size", "-tp", type=count, default=1, metavar="N", help="devices that share each layer [1]")
    what.add_argument("--data-parallel-size", "-dp", type=count, default=1, metavar="N", help="copies that take requests in turn [1]")
    what.add_argument("--max-model-len", type=count, metavar="N", help="longest request [the model's own]")
    what.add_argument(
        "--efficiency", type=number(above=0, most=1), default=1.0, metavar="0..1", help="share of the planner's floors reached [1]"
    )
    what.add_argument(
        "--profile", action="append", metavar="FILE", help="JSON of octavo bench profile, 4 shapes or more, in place of floors"
    )
    what.add_argument(
        "--measure", type=count, nargs="?", const=10, metavar="N", help="time the model's steps here, N times each [10], in place of floors"
    )
    work = parser.add_argument_group("Traffic")
    work.add_argument("--rate", type=flag_type(rate), default=math.inf, metavar="RPS", help="requests a second; inf: all at once [inf]")
    work.add_argument("--burstiness", type=number(above=0), default=1.0, metavar="X", help="1: Poisson; less: burstier; more: steadier [1]")
    work.add_argument("--num-prompts", type=count, default=1000, metavar="N", help="requests in all [1000]")
    work.add_argument("--input-len", type=count, default=1024, metavar="N", help="tokens of a prompt's own [1024]")
    work.add_argument("--output-len", type=count, default=128, metavar="N", help="tokens of an answer [128]")
    work.add_argument("--range-ratio", type=number(least=0, below=1), default=0.0, metavar="X", help="lengths vary by this share [0]")
    work.add_argument(
        "--prefix-len", type=integer(0, MAX_REQUESTS), default=0, metavar="N", help="tokens of the prefix before each prompt [0]"
    )
    work.add_argument("--num-prefixes", type=count, default=1, metavar="N", help="different prefixes [1]")
    work.add_argument("--trace", metavar="FILE", help='instead: JSON Lines of {"timestamp", "input_length", "output_length"}')
    work.add_argument("--max-concurrency", type=count, metavar="N", help="requests at once to each copy; others wait with their callers")
    work.add_argument("--seed", type=flag_type(parse_int), default=0, metavar="N", help="what the traffic is drawn from [0]")
    gate = parser.add_argument_group("Admission")
    gate.add_argument("--max-num-queued-reqs", type=count, metavar="N", help="unfinished requests of a copy; further ones are refused")
    gate.add_argument("--max-num-queued-tokens", type=count, metavar="N", help="prompt tokens that may wait; then requests are refused")
    out = parser.add_argument_group("Answer")
    out.add_argument("--goodput", default="", metavar="ttft:MS,tpot:MS", help="what a good answer takes at most")
    out.add_argument("--json", action="store_true", help="print the figures as JSON")
    out.add_argument("--html", metavar="FILE", help="write a report with charts that opens with no network")
    return parser
