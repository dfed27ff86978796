"""Which device `octavo plan` and `octavo simulate` are asked about: one of the planner's catalogue, or this machine, measured."""

from __future__ import annotations

from octavo.planner.catalogue import Device, find_device

NAMES_OF_THIS = ("this", "cpu")


def is_this_machine(name: str | None) -> bool:
    return name is None or name.lower() in NAMES_OF_THIS


def find_planned_device(name: str | None) -> Device:
    """Return the device. Raises ConfigError for a name that is not known."""
    if name is None or is_this_machine(name):
        from octavo.bench.machine import measure_machine

        return measure_machine()
    return find_device(name)
