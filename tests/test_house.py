"""The rules of the house, read from the source: arrows point down, and nothing that runs code from data."""

import ast
from pathlib import Path

import pytest

SRC = Path(__file__).parent.parent / "src" / "octavo"
FILES = sorted(SRC.rglob("*.py"))

STOREYS = [
    {"constraints", "errors", "messages", "params", "specs", "units"},
    {"config", "planner", "metrics", "parsers"},
    {"ops", "scheduler", "kv"},
    {"models", "loaders", "sampling", "grammar", "text", "simulator"},
    {"worker"},
    {"engine"},
    {"client"},
    {"server"},
    {"cli", "bench", "doctor", "tune"},
]
STOREY = {room: number for number, rooms in enumerate(STOREYS) for room in rooms}
PURE = {"parsers", "scheduler", "kv", "planner", "messages", "params", "specs", "config", "constraints", "errors", "units"}
PURE_IMPORTS = {"msgspec", "octavo"}
FORBIDDEN_MODULES = {"pickle", "cloudpickle", "dill", "marshal", "shelve", "joblib", "torch", "triton"}
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__"}


def room_of(path: Path) -> str:
    return path.relative_to(SRC).parts[0].removesuffix(".py")


def imports_of(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    return names


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SRC)))
def test_a_file_imports_only_from_its_own_storey_or_below(path):
    room = room_of(path)
    for name in imports_of(path):
        parts = name.split(".")
        if parts[0] != "octavo" or len(parts) < 2 or room == "__init__":
            continue
        other = parts[1]
        if room == "backends":
            assert other in STOREYS[0] | {"ops", "backends"}, f"a backend imports {name}"
        elif other == "backends":
            assert parts[2:3] == ["registry"], f"{name}: backends are found through the registry"
            assert STOREY[room] >= STOREY["worker"], f"{name}: only the worker and above open a backend"
        else:
            assert STOREY[other] <= STOREY[room], f"{name} is upstairs of {room}"


@pytest.mark.parametrize("path", [path for path in FILES if room_of(path) in PURE], ids=lambda path: str(path.relative_to(SRC)))
def test_policy_and_values_use_the_standard_library_and_the_codec_only(path):
    import sys

    for name in imports_of(path):
        top = name.split(".")[0]
        assert top in PURE_IMPORTS or top in sys.stdlib_module_names, f"{name} in a pure room"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SRC)))
def test_nothing_runs_code_from_data_and_validation_is_no_assert(path):
    assert not {name.split(".")[0] for name in imports_of(path)} & FORBIDDEN_MODULES
    for node in ast.walk(ast.parse(path.read_text())):
        assert not isinstance(node, ast.Assert), f"line {node.lineno}: assert vanishes under python -O"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in FORBIDDEN_CALLS, f"line {node.lineno}: {node.func.id}()"


def test_the_environment_is_read_in_one_file_only():
    readers = set()
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv"):
                readers.add(str(path.relative_to(SRC)))
    assert readers <= {"config/env.py"}


def test_only_the_native_backend_names_the_native_module():
    for path in FILES:
        if any(name.endswith("_native") for name in imports_of(path)):
            assert path.relative_to(SRC).parts[:2] == ("backends", "native")
