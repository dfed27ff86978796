"""The flags of `octavo plan`."""

from __future__ import annotations

from octavo.cli.plan_csv import TABLES
from octavo.config.flag_parser import FlagParser, flag_type
from octavo.errors import ConfigError
from octavo.planner.plan import CONVERSATION
from octavo.units import parse_int, parse_number


def plan_parser() -> FlagParser:
    parser = FlagParser(
        "octavo plan",
        "Size a model on paper: memory, concurrency, floors of speed, cost.",
        usage="octavo plan MODEL [--device NAME] [FLAGS]",
    )
    whole, number = flag_type(parse_int), flag_type(parse_number)
    parser.add_argument("model", nargs="?", metavar="MODEL", help="config.json, .gguf file, folder, or a name (--list)")
    parser.add_argument("--list", action="store_true", help="list the models, devices, formats, workloads and prices known here")

    place = parser.add_argument_group("Where and how")
    place.add_argument("--device", metavar="NAME", help="a device of --list, or this: measure this machine [this; --fit: all]")
    place.add_argument("--weights", metavar="FORMAT", help="format of the weights [that of the files]")
    place.add_argument("--kv-cache-dtype", default="auto", metavar="FORMAT", help="format of the KV memory [bf16; CPU: f16, as large]")
    place.add_argument("--tensor-parallel-size", "-tp", type=whole, default=1, metavar="N", help="ranks that share each layer [1]")
    place.add_argument("--pipeline-parallel-size", "-pp", type=whole, default=1, metavar="N", help="stages of layers [1]")
    place.add_argument("--data-parallel-size", "-dp", type=whole, default=1, metavar="N", help="whole copies [1]")
    place.add_argument("--gpu-memory-utilization", type=number, metavar="0..1", help="share of the memory to use [0.92; 0.5 on a CPU]")
    place.add_argument("--kv-cache-memory-bytes", type=whole, metavar="BYTES", help="exact size of the KV pool; overrides the share")
    place.add_argument("--block-size", type=whole, default=16, metavar="N", help="tokens a KV block [16]")
    place.add_argument("--max-model-len", type=whole, metavar="N", help="longest request [the model's own]")
    place.add_argument("--max-num-seqs", type=whole, metavar="N", help="most requests in a step [the device's default]")
    place.add_argument("--max-num-batched-tokens", type=whole, metavar="N", help="most tokens in a step [the device's default]")
    place.add_argument(
        "--performance-mode", type=flag_type(_mode), default="balanced", metavar="MODE", help="throughput doubles both defaults"
    )
    place.add_argument("--weight-bytes", type=whole, metavar="BYTES", help="size of the weights, instead of counting them")
    place.add_argument("--activation-bytes", type=whole, metavar="BYTES", help="measured peak of activations, instead of the estimate")
    place.add_argument("--reserve-bytes", type=whole, metavar="BYTES", help="memory of runtime and graphs, instead of the assumption")

    speed = parser.add_argument_group("Speed")
    speed.add_argument("--conversation", type=whole, default=CONVERSATION, metavar="N", help="tokens of the tables' conversation [10240]")
    speed.add_argument("--bench", metavar="FILE", help="JSON of octavo bench throughput or serve: measured efficiency beside the floors")
    speed.add_argument("--efficiency", type=number, metavar="0..1", help="measured share of the floor, where there is no such file")
    speed.add_argument("--num-speculative-tokens", type=whole, metavar="K", help="drafts a step")
    speed.add_argument("--acceptance", type=number, default=0.7, metavar="0..1", help="how likely a draft is accepted [0.7]")

    cost = parser.add_argument_group("Cost")
    cost.add_argument("--usd-per-hour", type=number, metavar="USD", help="price of one device [rates.toml, where it has one]")
    cost.add_argument("--workload", action="append", metavar="NAME", help="interactive, agentic or batch; repeatable [all]")
    cost.add_argument("--utilization", type=number, metavar="0..1", help="share of the time that the machines will work: the verdict at it")
    cost.add_argument("--arrivals", type=number, metavar="N", help="requests a second: size a fleet for the (first) workload")
    cost.add_argument("--slo", default="", metavar="ttft=2s,itl=50ms", help="what the fleet promises: TTFT at p99, mean ITL")

    other = parser.add_argument_group("A model by numbers")
    for name, text in (
        ("layers", "layers"),
        ("kv-heads", "KV heads"),
        ("head-dim", "dimensions of a head"),
        ("params", "weights in all"),
        ("heads", "query heads [as many as KV heads]"),
        ("hidden", "hidden size [heads x head-dim]"),
        ("vocab", "vocabulary"),
        ("intermediate", "width of the MLP [4 x hidden]"),
        ("max-position", "longest position [131072]"),
        ("window", "tokens kept by layers with a sliding window"),
        ("window-layers", "how many layers have one"),
    ):
        other.add_argument(f"--{name}", type=whole, metavar="N", help=text)

    out = parser.add_argument_group("Answer")
    out.add_argument("--fit", metavar="LOAD", help="search devices, counts and formats that hold a load: '34 x 10k + 2 x 128K'")
    out.add_argument("--explain", action="store_true", help="each number with its formula and the values put in")
    out.add_argument("--chart", action="store_true", help="charts between the tables")
    out.add_argument("--web", action="store_true", help="serve the planner as a page on loopback, beginning with these flags")
    out.add_argument("--port", type=whole, metavar="N", help="port of --web; 0: any free one [8010]")
    out.add_argument("--open", action="store_true", help="open the page of --web in the browser")
    out.add_argument("--json", action="store_true", help="everything as JSON")
    out.add_argument("--csv", type=flag_type(_table), metavar="TABLE", help="one table as CSV: " + ", ".join(TABLES))
    return parser


def _mode(text: str) -> str:
    if text not in ("balanced", "throughput"):
        raise ConfigError(f"{text!r} is no mode; there are balanced and throughput")
    return text


def _table(text: str) -> str:
    if text not in TABLES:
        raise ConfigError(f"{text!r} is no table; there are {', '.join(TABLES)}")
    return text
