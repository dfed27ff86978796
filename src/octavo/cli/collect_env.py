"""`octavo collect-env`: what a bug report needs of this machine. No secrets, no names, no paths."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from octavo import __version__
from octavo.config.flag_parser import FlagParser
from octavo.units import format_bytes

PACKAGES = ("numpy", "tokenizers", "msgspec", "pyzmq", "starlette", "uvicorn", "httptools", "pydantic", "orjson", "jinja2")
VECTOR_FLAGS = ("avx", "f16c", "fma", "avx2", "avx512f", "avx512bw", "avx512vl", "avx512_vnni", "avx512_bf16", "amx_tile", "asimd", "sve")


def collect_env_main(argv: Sequence[str]) -> int:
    FlagParser("octavo collect-env", "Print what this machine is, for a bug report: no secrets, no names, no paths.").parse(argv)
    for name, value in facts():
        print(f"{name:<18} {value}")
    return 0


def facts() -> list[tuple[str, str]]:
    """Return (name, value) lines."""
    cpu = _first_fields(Path("/proc/cpuinfo"))
    memory = _first_fields(Path("/proc/meminfo"))
    present = set((cpu.get("flags") or cpu.get("Features") or "").split())
    return [
        ("octavo", __version__),
        ("python", platform.python_version()),
        ("system", f"{platform.system()} {platform.release()} {platform.machine()}"),
        ("libc", " ".join(platform.libc_ver()).strip() or "unknown"),
        ("cpu", cpu.get("model name", platform.processor() or "unknown")),
        ("cpus usable", f"{len(os.sched_getaffinity(0))} of {os.cpu_count()}"),
        ("vector units", " ".join(flag for flag in VECTOR_FLAGS if flag in present) or "none known"),
        ("memory", _kilobytes(memory.get("MemTotal"))),
        ("memory free", _kilobytes(memory.get("MemAvailable"))),
        ("native library", _native()),
        *((name, _version(name)) for name in PACKAGES),
    ]


def _first_fields(path: Path) -> dict[str, str]:
    """Return the first value of each `name: value` line, {} when there is no such file."""
    fields: dict[str, str] = {}
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return fields
    for line in lines:
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    return fields


def _kilobytes(text: str | None) -> str:
    return format_bytes(int(text.split()[0]) * 1024) if text else "unknown"


def _native() -> str:
    from octavo.backends.registry import open_backend
    from octavo.errors import OctavoError

    try:
        return open_backend("native", threads=1, isa=None).describe()
    except (OctavoError, ImportError) as error:
        return f"not usable ({type(error).__name__})"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "missing"
