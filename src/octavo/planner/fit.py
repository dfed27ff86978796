"""The other way round: from a load to the devices, splits and formats that serve it.

A load is how many sequences of which length are held at once: `34 x 10k`, or several joined by `+`. For each device the
smallest number of them is found that holds the load, and of those the formats that quantise least. Devices are ordered by
their memory in all, the nearest thing to a price that is known for every one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from octavo.errors import ConfigError
from octavo.planner.catalogue import Device
from octavo.planner.floors import decode_floor
from octavo.planner.formats import KVFormat, WeightFormat, kv_choices, weight_choices
from octavo.planner.sizing import Deployment, size
from octavo.units import parse_int

MAX_SEQUENCES = 1_000_000
MAX_COPIES = 4096
TENSOR_PARALLEL = (1, 2, 4, 8)
_PART = re.compile(r"\s*(\S+)\s*[x×]\s*(\S+)\s*")


@dataclass(frozen=True)
class LoadPart:
    sequences: int
    context: int


@dataclass(frozen=True)
class Fit:
    """One way to serve the load: `devices` = tp * dp. `per_sequence` is the floor in tokens/s of a copy that is full."""

    device: str
    devices: int
    tp: int
    dp: int
    weights: str
    kv: str
    memory_bytes: int
    used_share: float
    per_sequence: float
    usd_per_hour: float | None


def parse_load(text: str) -> tuple[LoadPart, ...]:
    """Return the parts of `34 x 10k + 2 x 128K`. Raises ConfigError."""
    parts = []
    for piece in text.split("+"):
        match = _PART.fullmatch(piece)
        if match is None:
            raise ConfigError(
                f"{piece.strip()[:64]!r} is no load; write how many x how many tokens, as in '34 x 10k' or '34 x 10k + 2 x 128K'"
            )
        part = LoadPart(parse_int(match[1]), parse_int(match[2]))
        if not (1 <= part.sequences <= MAX_SEQUENCES and part.context >= 1):
            raise ConfigError(f"{piece.strip()[:64]!r}: sequences must lie in 1..{MAX_SEQUENCES:,}, tokens be at least 1")
        parts.append(part)
    return tuple(sorted(parts, key=lambda part: -part.context))


def find_fits(
    deployment: Deployment,
    load: Sequence[LoadPart],
    devices: Iterable[Device],
    *,
    weights: Sequence[WeightFormat] | None = None,
    kvs: Sequence[KVFormat] | None = None,
    itl_s: float | None = None,
    usd_per_hour: Mapping[str, float] | None = None,
) -> tuple[Fit, ...]:
    """Return the best way on each device that has one, the cheapest in memory first.

    `deployment` gives the model and every other setting. Formats are preferred in the order given; None: the deployment's own
    weights, then what is smaller on that kind of device. `itl_s` refuses ways whose floor is slower."""
    ways = []
    for device in devices:
        found = [
            way
            for weight in weights or _as_given_or_smaller(deployment.weights, device.kind)
            for kv in kvs or kv_choices(device.kind)
            for tp in TENSOR_PARALLEL
            if deployment.shape.num_heads % tp == 0 and (tp == 1 or device.kind == "gpu")
            if (way := _fit(deployment, load, device, weight, kv, tp, itl_s, (usd_per_hour or {}).get(device.name)))
        ]
        if found:
            ways.append(min(found, key=lambda way: way.devices))  # the first of equals: least quantised, smallest tp
    return tuple(sorted(ways, key=lambda way: (way.memory_bytes, way.devices)))


def _as_given_or_smaller(own: WeightFormat, kind: str) -> tuple[WeightFormat, ...]:
    return (own, *(weight for weight in weight_choices(kind) if weight.linear < own.linear))


def _fit(
    deployment: Deployment,
    load: Sequence[LoadPart],
    device: Device,
    weights: WeightFormat,
    kv: KVFormat,
    tp: int,
    itl_s: float | None,
    price: float | None,
) -> Fit | None:
    longest = load[0].context
    one = replace(deployment, device=device, weights=weights, kv=kv, tp=tp, pp=1, dp=1, max_model_len=longest)
    sizing = size(one)
    usable = sizing.available_bytes - sizing.bytes_per_block
    sizes = [one.rank.sequence_bytes(kv, part.context, one.block_size) for part in load]
    if usable < sizes[0]:
        return None
    copies = count_copies(usable, sizes, [part.sequences for part in load])
    if copies > MAX_COPIES:
        return None
    total = sum(part.sequences for part in load)
    mean = sum(part.sequences * part.context for part in load) // total
    step = decode_floor(one, -(-total // copies), mean)
    if itl_s is not None and step.step_s > itl_s:
        return None
    needed = sum(size_ * part.sequences for size_, part in zip(sizes, load, strict=True))
    count = copies * tp
    return Fit(
        device=device.name,
        devices=count,
        tp=tp,
        dp=copies,
        weights=weights.name,
        kv=kv.name,
        memory_bytes=count * device.memory_bytes,
        used_share=needed / (copies * usable),
        per_sequence=step.per_sequence,
        usd_per_hour=None if price is None else price * count,
    )


def count_copies(usable: float, sizes: Sequence[float], counts: Sequence[int]) -> int:
    """Return how many pools of `usable` bytes hold the sequences, filled with the largest first; each size fits one pool."""
    left = list(counts)
    copies = 0
    while any(left):
        room = usable
        taken = [0] * len(left)
        for index, size_ in enumerate(sizes):
            taken[index] = min(left[index], int(room // size_))
            room -= taken[index] * size_
        # As many pools as take the same filling are filled at once.
        same = min(left[index] // take for index, take in enumerate(taken) if take)
        copies += same
        left = [count - same * take for count, take in zip(left, taken, strict=True)]
    return copies
