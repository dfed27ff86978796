"""Every case of `tests/reports/` names tests that exist, or says why it has none."""

import ast
import functools
import tomllib
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
FILES = {path.stem: tomllib.loads(path.read_text()) for path in sorted((TESTS / "reports").glob("*.toml"))}
CASES = [(case, held) for cases in FILES.values() for case, held in cases.items()]


@functools.cache
def names_in(path):
    """Return the names of a file's tests: functions, and what pytest collects from assigned machines."""
    names = set()
    for node in ast.parse((TESTS / path).read_text()).body:
        if isinstance(node, ast.FunctionDef):
            names.add(node.name)
        if isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return {name for name in names if name.startswith(("test_", "Test"))}


@pytest.mark.parametrize(("case", "held"), CASES, ids=[case for case, _ in CASES])
def test_a_case_is_held_by_tests_that_exist_or_says_why_not(case, held):
    if isinstance(held, str):
        assert len(held.split()) >= 3
        return
    assert held
    for named in held:
        path, _, name = named.partition("::")
        assert name in names_in(path), named


def test_no_case_is_left_out():
    assert list(FILES["user_reports"]) == [f"C{number}" for number in range(1, 93)]
    assert len(FILES["bad_inputs"]) == 137
