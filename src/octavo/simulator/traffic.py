"""Who sends what and when: requests drawn from distributions, or read from a trace. Pure functions of a seed.

Prompts are random token ids, so only the prefixes that the traffic asks for are shared.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from octavo.errors import ConfigError
from octavo.messages.wire import GenerateRequest
from octavo.params import SamplingParams
from octavo.simulator.arrivals import Ramp, arrival_times
from octavo.simulator.simulation import Arrival

VOCAB_SIZE = 1 << 16  # two random bytes a token
MAX_TRACE_LINES = 1_000_000


@dataclass(frozen=True)
class Traffic:
    """`num_requests` at `rate` a second (arrivals.py). Lengths are drawn from length * (1 - ratio) .. length * (1 + ratio), and
    each prompt comes behind one of `num_prefixes` prefixes of `prefix_len` tokens."""

    num_requests: int
    rate: float | Ramp
    input_len: int
    output_len: int
    burstiness: float = 1.0
    range_ratio: float = 0.0
    prefix_len: int = 0
    num_prefixes: int = 1


class TraceLine(msgspec.Struct, frozen=True):
    """One request of a trace: seconds, tokens, tokens."""

    timestamp: float
    input_length: int
    output_length: int


def draw_traffic(traffic: Traffic, seed: int) -> list[Arrival]:
    rng = random.Random(seed)
    times = arrival_times(traffic.num_requests, traffic.rate, traffic.burstiness, rng)
    prefixes = [_tokens(traffic.prefix_len, rng) for _ in range(traffic.num_prefixes)]
    return [
        _arrival(number, at_s, rng.choice(prefixes) + _tokens(_around(traffic.input_len, traffic.range_ratio, rng), rng), output_len)
        for number, at_s in enumerate(times)
        for output_len in (_around(traffic.output_len, traffic.range_ratio, rng),)
    ]


def read_trace(lines: Iterable[bytes]) -> list[TraceLine]:
    """Return the requests of a JSON Lines trace, by time, the first at 0. Raises ConfigError."""
    trace: list[TraceLine] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            asked = msgspec.json.decode(line, type=TraceLine)
        except msgspec.MsgspecError as error:
            raise ConfigError(f'line {number} of the trace needs "timestamp", "input_length" and "output_length": {error}') from None
        if asked.timestamp < 0 or asked.input_length < 1 or asked.output_length < 1 or number > MAX_TRACE_LINES:
            raise ConfigError(f"line {number} of the trace: times are at least 0, lengths at least 1, lines at most {MAX_TRACE_LINES:,}")
        trace.append(asked)
    trace.sort(key=lambda asked: asked.timestamp)
    return [msgspec.structs.replace(asked, timestamp=asked.timestamp - trace[0].timestamp) for asked in trace]


def trace_traffic(trace: Sequence[TraceLine], seed: int) -> list[Arrival]:
    rng = random.Random(seed)
    return [_arrival(number, asked.timestamp, _tokens(asked.input_length, rng), asked.output_length) for number, asked in enumerate(trace)]


def _arrival(number: int, at_s: float, prompt: list[int], output_len: int) -> Arrival:
    params = SamplingParams(max_tokens=output_len, ignore_eos=True, seed=number)
    return Arrival(at_s, GenerateRequest(request_id=f"r{number}", prompt_token_ids=prompt, params=params, arrival_s=at_s))


def _tokens(count: int, rng: random.Random) -> list[int]:
    return array("H", rng.randbytes(2 * count)).tolist()


def _around(length: int, ratio: float, rng: random.Random) -> int:
    return max(1, rng.randint(int(length * (1 - ratio)), round(length * (1 + ratio))))
