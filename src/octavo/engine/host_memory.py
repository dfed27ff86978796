"""How much memory this process may still take, from the kernel's own files. Linux; measures, decides nothing.

MemAvailable counts page cache that can be dropped. A container's limit is read from its control group, version 2 or 1,
and from every group above it; the group's inactive page cache counts as free there too.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from octavo.errors import StartupError


def free_memory_bytes(root: Path = Path("/")) -> int:
    """Return the bytes that can be taken without swapping or passing a control group's limit. `root` is for tests."""
    free = _available_bytes(root / "proc/meminfo")
    for group in _control_groups(root):
        room = _group_room(group)
        if room is not None:
            free = min(free, room)
    return free


def _available_bytes(meminfo: Path) -> int:
    for line in meminfo.read_text().splitlines():
        name, _, rest = line.partition(":")
        if name == "MemAvailable":
            return int(rest.split()[0]) * 1024
    raise StartupError("the kernel does not tell MemAvailable; give the KV pool's size with --kv-cache-memory-bytes")


def _control_groups(root: Path) -> Iterator[Path]:
    """Yield the folders of this process's memory groups, innermost first. A container often sees its own group as the root."""
    listing = root / "proc/self/cgroup"
    if not listing.exists():
        return
    for line in listing.read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            base = root / "sys/fs/cgroup"
        elif "memory" in controllers.split(","):
            base = root / "sys/fs/cgroup/memory"
        else:
            continue
        group = base / path.lstrip("/")
        while group != base:
            yield group
            group = group.parent
        yield base


def _group_room(group: Path) -> int | None:
    """Return limit - usage + inactive page cache, or None where the group has no limit."""
    for limit_name, usage_name, inactive_name in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        try:
            limit = (group / limit_name).read_text().strip()
            if limit == "max":
                return None
            usage = int((group / usage_name).read_text())
            stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        except OSError:
            continue
        return max(0, int(limit) - usage + int(stat.get(inactive_name, 0)))
    return None
