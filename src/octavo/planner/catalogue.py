"""The planner's own tables: devices, prices and model shapes, read from planner/data. Every entry names its source and day."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from octavo.errors import ConfigError, ModelError, did_you_mean
from octavo.planner.hf_shape import shape_from_config
from octavo.planner.shape import ModelShape
from octavo.units import GiB

_DATA = Path(__file__).with_name("data")


class Device(msgspec.Struct, frozen=True):
    """Memory in bytes, bandwidth and link in bytes a second, dense products in operations a second. `kind`: gpu | cpu."""

    name: str
    kind: str
    memory_bytes: int
    bandwidth: float
    bf16_flops: float
    fp8_flops: float
    int8_flops: float
    link: float
    reserve_bytes: int
    source: str
    date: str

    def flops(self, compute: str) -> float:
        """Return the rate of products in `compute`: bf16 | fp8 | int8; that of bf16 where there are no faster ones."""
        return max(self.bf16_flops, {"fp8": self.fp8_flops, "int8": self.int8_flops}.get(compute, 0.0))


class MachineRate(msgspec.Struct, frozen=True):
    name: str
    device: str
    usd_per_hour: float
    source: str
    date: str


class ApiRate(msgspec.Struct, frozen=True):
    """Dollars for a million tokens."""

    name: str
    input: float
    cached_input: float
    output: float
    source: str
    date: str


class Workload(msgspec.Struct, frozen=True):
    """Tokens of one request. `context`: mean tokens behind a decode step (0: input and half the output)."""

    name: str
    new_input: int
    cached_input: int
    output: int
    batch: int
    about: str = ""
    context: int = 0

    @property
    def mean_context(self) -> int:
        return self.context or self.new_input + self.cached_input + self.output // 2


class _DeviceEntry(msgspec.Struct):
    name: str
    memory_gib: float
    bandwidth_gbs: float
    bf16_tflops: float
    link_gbs: float
    source: str
    date: str
    aliases: tuple[str, ...] = ()
    kind: str = "gpu"
    fp8_tflops: float = 0.0
    int8_tflops: float = 0.0
    reserve_gib: float = 1.0

    def device(self) -> Device:
        return Device(
            name=self.name,
            kind=self.kind,
            memory_bytes=round(self.memory_gib * GiB),
            bandwidth=self.bandwidth_gbs * 1e9,
            bf16_flops=self.bf16_tflops * 1e12,
            fp8_flops=self.fp8_tflops * 1e12,
            int8_flops=self.int8_tflops * 1e12,
            link=self.link_gbs * 1e9,
            reserve_bytes=round(self.reserve_gib * GiB),
            source=self.source,
            date=self.date,
        )


class _Devices(msgspec.Struct):
    device: tuple[_DeviceEntry, ...]


class _Rates(msgspec.Struct):
    machine: tuple[MachineRate, ...]
    api: tuple[ApiRate, ...]
    workload: tuple[Workload, ...]


class ModelEntry(msgspec.Struct, frozen=True):
    """An architecture: the settings of its published config.json that decide sizes, and how many weights it was published with."""

    name: str
    source: str
    date: str
    parameters: int
    config: dict[str, Any]


def devices() -> tuple[Device, ...]:
    return tuple(entry.device() for entry in _device_entries())


def find_device(name: str) -> Device:
    """Return the device of that name or alias, upper and lower case alike. Raises ConfigError."""
    named = {alias.lower(): entry for entry in _device_entries() for alias in (entry.name, *entry.aliases)}
    entry = named.get(name.lower())
    if entry is None:
        known = [entry.name for entry in _device_entries()]
        raise ConfigError(
            f"there is no device {name[:64]!r}{did_you_mean(name, known, most=2)}; known are {', '.join(known)}, or `this` machine"
        )
    return entry.device()


def machine_rates() -> tuple[MachineRate, ...]:
    return _rates().machine


def usd_per_hour(device: str) -> float | None:
    """Return the price of the device of that name, None where rates.toml has none."""
    return next((rate.usd_per_hour for rate in machine_rates() if rate.device == device), None)


def api_rates() -> tuple[ApiRate, ...]:
    return _rates().api


def workloads() -> tuple[Workload, ...]:
    return _rates().workload


def find_api(name: str) -> ApiRate:
    return _find(name, _rates().api, lambda rate: rate.name, "API price")


def find_workload(name: str) -> Workload:
    return _find(name, _rates().workload, lambda mix: mix.name, "workload")


def model_names() -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in (_DATA / "models").glob("*.json")))


def find_model_entry(name: str) -> ModelEntry:
    """Return the architecture of that name, upper and lower case alike; an owner before a slash is passed over. Raises ModelError."""
    key = name.rsplit("/", 1)[-1].lower()
    known = model_names()
    if key not in known:
        key = next((short for short in known if key in (f"{short}-instruct", f"{short}-it", f"{short}-base")), key)
    if key not in known:
        raise ModelError(f"there is no model {name[:128]!r}{did_you_mean(key, known, most=2)}; known are {', '.join(known)}")
    return msgspec.json.decode((_DATA / "models" / f"{key}.json").read_bytes(), type=ModelEntry)


def find_model_shape(name: str) -> ModelShape:
    entry = find_model_entry(name)
    return shape_from_config(entry.config, entry.name)


@functools.cache
def _device_entries() -> tuple[_DeviceEntry, ...]:
    return msgspec.convert(_read("devices.toml"), _Devices).device


@functools.cache
def _rates() -> _Rates:
    return msgspec.convert(_read("rates.toml"), _Rates)


def _read(file: str) -> dict[str, Any]:
    return tomllib.loads((_DATA / file).read_text(encoding="utf-8"))


Entry = TypeVar("Entry")


def _find(name: str, entries: Iterable[Entry], name_of: Callable[[Entry], str], what: str) -> Entry:
    named = {name_of(entry): entry for entry in entries}
    if name.lower() not in named:
        raise ConfigError(f"there is no {what} {name[:64]!r}{did_you_mean(name, named, most=2)}; there are {', '.join(named)}")
    return named[name.lower()]
