"""The flags of `octavo bench serve` and `octavo bench sweep`: the server, the work, the load, and what becomes of the figures."""

from __future__ import annotations

import math

from octavo.bench.datasets import DATASETS
from octavo.cli.flag_types import integer, number, rate
from octavo.config.flag_parser import FlagParser, flag_type
from octavo.config.schema import DEFAULT_MODEL
from octavo.units import parse_int

MAX_PROMPTS = 1_000_000


def load_test_parser(kind: str, about: str) -> FlagParser:
    parser = FlagParser(f"octavo bench {kind}", about, usage=f"octavo bench {kind} [FLAGS]")
    whole, count = integer(0, MAX_PROMPTS), integer(1, MAX_PROMPTS)
    server = parser.add_argument_group("Server")
    server.add_argument("--backend", choices=("openai", "openai-chat"), default="openai", help="completions or chat completions [openai]")
    server.add_argument("--base-url", metavar="URL", help="the server's root, instead of --host and --port")
    server.add_argument("--host", default="127.0.0.1", help="[127.0.0.1]")
    server.add_argument("--port", type=flag_type(parse_int), default=8000, help="[8000]")
    server.add_argument("--model", metavar="NAME", help="the model to ask for [the server's first]")
    server.add_argument(
        "--tokenizer",
        metavar="MODEL",
        help=f"the model that prompts are counted with [the one asked for, where it is on this disk, else {DEFAULT_MODEL}]",
    )
    server.add_argument("--header", action="append", metavar="NAME=VALUE", help="a header of every request; repeatable")
    server.add_argument("--extra-body", metavar="JSON", help="fields merged into every request")
    server.add_argument("--ready-check-timeout-sec", type=number(least=0), default=0.0, metavar="S", help="wait so long for the server [0]")
    work = parser.add_argument_group("Workload")
    kinds = "; ".join(f"{name}: {text}" for name, text in DATASETS.items()).replace("%", "%%")
    work.add_argument("--dataset-name", choices=tuple(DATASETS), default="random", help=f"{kinds} [random]")
    work.add_argument("--dataset-path", metavar="FILE", help="the file of custom, sharegpt and timed_trace")
    work.add_argument("--num-prompts", type=count, default=1000, metavar="N", help="sessions in all [1000]")
    work.add_argument("--random-input-len", type=count, default=1024, metavar="N", help="tokens of a prompt [1024]")
    work.add_argument("--random-output-len", type=count, default=128, metavar="N", help="tokens of an answer [128]")
    work.add_argument(
        "--random-range-ratio", type=number(least=0, below=1), default=0.0, metavar="X", help="lengths vary by this share [0]"
    )
    work.add_argument("--random-prefix-len", type=whole, default=0, metavar="N", help="tokens that all prompts share [0]")
    work.add_argument("--prefix-repetition-prefix-len", type=count, default=256, metavar="N", help="tokens of a prefix [256]")
    work.add_argument("--prefix-repetition-num-prefixes", type=count, default=10, metavar="N", help="different prefixes [10]")
    work.add_argument("--num-turns", type=count, default=4, metavar="N", help="questions of a multi_turn user [4]")
    work.add_argument("--seed", type=flag_type(parse_int), default=0, metavar="N", help="what prompts and arrivals are drawn from [0]")
    work.add_argument("--no-ignore-eos", dest="ignore_eos", action="store_false", help="let the model end an answer early")
    work.add_argument(
        "--prefix-cache", choices=("keep", "reset"), default="keep", help="what to do with the server's before the run [keep]"
    )
    load = parser.add_argument_group("Load")
    load.add_argument(
        "--request-rate", type=flag_type(rate), default=math.inf, metavar="RPS", help="sessions a second; inf: all at once [inf]"
    )
    load.add_argument("--burstiness", type=number(above=0), default=1.0, metavar="X", help="1: Poisson; less: burstier; more: steadier [1]")
    load.add_argument("--max-concurrency", type=count, metavar="N", help="sessions at once (closed loop) [no limit]")
    load.add_argument("--ramp-up-strategy", choices=("linear", "exponential"), help="raise the rate over the run")
    load.add_argument("--ramp-up-start-rps", type=number(above=0), metavar="RPS", help="rate at the start of a ramp")
    load.add_argument("--ramp-up-end-rps", type=number(above=0), metavar="RPS", help="rate at the end of a ramp")
    load.add_argument("--num-warmups", type=whole, default=0, metavar="N", help="requests sent before, not counted [0]")
    out = parser.add_argument_group("Result")
    out.add_argument("--goodput", nargs="+", metavar="NAME:MS", help="what a good answer takes at most: ttft:200 tpot:50 e2el:5000")
    out.add_argument("--percentile-metrics", default="ttft,tpot,itl", metavar="NAMES", help="times to print [ttft,tpot,itl]; also e2el")
    out.add_argument("--metric-percentiles", default="99", metavar="P,P", help="percentiles to print and save [99]")
    out.add_argument("--save-result", action="store_true", help="save the figures as JSON")
    out.add_argument("--save-detailed", action="store_true", help="save those of every request too")
    out.add_argument("--append-result", action="store_true", help="append to the file instead of replacing it")
    out.add_argument("--result-dir", default=".", metavar="DIR", help="[.]")
    out.add_argument("--result-filename", metavar="FILE", help="[made from backend, model and date]")
    out.add_argument("--html", metavar="FILE", help="write a report with charts that opens with no network")
    out.add_argument("--label", metavar="TEXT", help="a name for this run in the result")
    out.add_argument("--metadata", action="append", metavar="KEY=VALUE", help="a field to add to the result; repeatable")
    return parser
