"""Do the tests of a room test anything? Change its code in one small place at a time, and see whether a test notices.

    python benchmarks/mutation.py kv scheduler --sample 300 --report mutants.md

A mutant is one change of the syntax tree: a comparison shifted or turned round, a sum made a difference, a number one larger,
a condition negated, a call or an assignment left out. Texts of errors, reprs and annotations are left alone. Each mutant runs in a
forked process that imports the changed module in place of the real one, and is killed when a test fails or time runs out.
The judge is the unit and property tests of the room, the quickest first; hypothesis neither shrinks nor remembers.
"""

import argparse
import ast
import difflib
import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from pathlib import Path

ROOT = Path(__file__).parent.parent
SRC = ROOT / "src"
HISTORIES = "tests/property/test_simulated_histories.py"
JUDGES = {
    "kv": [
        "tests/unit/kv",
        HISTORIES,
        "tests/property/test_kv_against_model.py",
        "tests/property/test_tier_against_model.py",
    ],
    "scheduler": ["tests/unit/scheduler", HISTORIES],
}
SECOND_JUDGES = ["tests/property/test_scheduler_histories.py"]  # slow: for those that survive the first
SWAPPED: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.And: ast.Or,
    ast.Or: ast.And,
}


@dataclass(frozen=True)
class Mutant:
    """`place`: number of the node in the order of ast.walk. `kind`: what is done to it."""

    path: Path
    place: int
    kind: str
    line: int


def find_mutants(path: Path) -> list[Mutant]:
    tree = ast.parse(path.read_text())
    skipped = set(_skipped(tree))
    nodes = [(place, node) for place, node in enumerate(ast.walk(tree)) if node not in skipped]
    return [Mutant(path, place, kind, getattr(node, "lineno", 0)) for place, node in nodes for kind in _kinds(node)]


def mutated(mutant: Mutant) -> ast.Module:
    tree = ast.parse(mutant.path.read_text())
    _mutate(list(ast.walk(tree))[mutant.place], mutant.kind)
    return ast.fix_missing_locations(tree)


def _kinds(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in SWAPPED:
        yield "compare"
    elif isinstance(node, ast.BinOp | ast.BoolOp | ast.AugAssign) and type(node.op) in SWAPPED:
        yield "operator"
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "no not"
    elif isinstance(node, ast.Constant) and type(node.value) in (int, bool):
        yield "constant"
    elif isinstance(node, ast.If | ast.While | ast.IfExp):
        yield "negate"
    if isinstance(node, ast.AugAssign) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)) or isinstance(node, ast.Raise):
        yield "leave out"
    elif isinstance(node, ast.Continue | ast.Break):
        yield "go on"


def _mutate(node: ast.AST, kind: str) -> None:
    match node, kind:
        case ast.Compare(), "compare":
            node.ops = [SWAPPED[type(node.ops[0])]()]  # type: ignore[list-item]
        case ((ast.BinOp() | ast.BoolOp() | ast.AugAssign()), "operator"):
            node.op = SWAPPED[type(node.op)]()  # type: ignore[assignment]
        case ast.UnaryOp(), "no not":
            node.op = ast.UAdd()
            node.operand = ast.Call(ast.Name("bool", ast.Load()), [node.operand], [])
        case ast.Constant(), "constant":
            node.value = not node.value if isinstance(node.value, bool) else node.value + 1  # type: ignore[operator]
        case ((ast.If() | ast.While() | ast.IfExp()), "negate"):
            node.test = ast.UnaryOp(ast.Not(), node.test)
        case _:
            _become_pass(node)


def _become_pass(node: ast.AST) -> None:
    kept = {name: getattr(node, name) for name in ("lineno", "col_offset", "end_lineno", "end_col_offset")}
    node.__dict__.clear()
    node.__dict__.update(kept)
    node.__class__ = ast.Pass  # type: ignore[assignment]


def _skipped(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield what no test should hold: what errors say, reprs, annotations, logs, protocols, and what kind of struct a value is."""
    for node in ast.walk(tree):
        hidden: list[ast.AST] = []
        if isinstance(node, ast.Raise) and node.exc is not None:
            hidden = [node.exc]
        elif isinstance(node, ast.FunctionDef):
            hidden = (
                [node] if node.name == "__repr__" else [part for part in (node.returns, *(arg.annotation for arg in _args(node))) if part]
            )
        elif isinstance(node, ast.ClassDef) and any(isinstance(base, ast.Name) and base.id == "Protocol" for base in node.bases):
            hidden = [node]
        elif isinstance(node, ast.AnnAssign):
            hidden = [node.annotation]
        elif (isinstance(node, ast.keyword) and node.arg in ("frozen", "gc")) or _is_log_line(node):
            hidden = [node]
        for part in hidden:
            yield from ast.walk(part)


def _is_log_line(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and ast.unparse(node.value.func).startswith("log.")


def _args(node: ast.FunctionDef) -> list[ast.arg]:
    return [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]


def describe(mutant: Mutant) -> str:
    """Return the changed lines, before and after."""
    before, after = (ast.unparse(tree).splitlines() for tree in (ast.parse(mutant.path.read_text()), mutated(mutant)))
    changed = [line.strip()[2:].strip() for line in difflib.ndiff(before, after) if line[0] in "+-"]
    return " -> ".join(f"`{line[:110]}`" for line in changed[:2])


class MutantLoader(MetaPathFinder, Loader):
    """Gives the changed module to whoever imports it."""

    def __init__(self, mutant: Mutant) -> None:
        self.mutant = mutant
        self.name = ".".join(mutant.path.relative_to(SRC).with_suffix("").parts)

    def find_spec(self, fullname: str, path: object, target: object = None) -> ModuleSpec | None:
        return spec_from_loader(fullname, self, origin=str(self.mutant.path)) if fullname == self.name else None

    def exec_module(self, module: object) -> None:
        code = compile(mutated(self.mutant), str(self.mutant.path), "exec")
        exec(code, module.__dict__)  # noqa: S102  our own code, changed in one place


def run_tests(mutant: Mutant | None, tests: list[str]) -> int:
    """Return pytest's exit status. Runs in the forked process."""
    import hypothesis
    import pytest

    quick = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
    hypothesis.settings.register_profile("judge", phases=quick, database=None, deadline=None)
    hypothesis.settings.load_profile("judge")
    if mutant is not None:
        sys.meta_path.insert(0, MutantLoader(mutant))
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, 1)
    os.dup2(devnull, 2)
    return int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "--no-header", *tests]))


def survives(mutant: Mutant | None, tests: list[str], limit_s: float) -> bool:
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            status = run_tests(mutant, tests)
        except BaseException:
            status = 1
        os._exit(min(status, 100))
    ends = time.monotonic() + limit_s
    while time.monotonic() < ends:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return status == 0
        time.sleep(0.02)
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rooms", nargs="+", choices=tuple(JUDGES))
    parser.add_argument("--sample", type=int, help="how many mutants, drawn by --seed [all]")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit-s", type=float, default=120.0, help="seconds after which a mutant counts as killed")
    parser.add_argument("--report", type=Path, help="write the survivors there")
    args = parser.parse_args()
    os.chdir(ROOT)
    os.environ["OCTAVO_HISTORIES"] = "120"
    sys.path[:0] = [str(ROOT), str(SRC)]

    import hypothesis.stateful  # noqa: F401  before the forks, once for all of them
    import msgspec  # noqa: F401
    import numpy  # noqa: F401
    import pytest  # noqa: F401

    mutants = [
        (room, mutant) for room in args.rooms for path in sorted((SRC / "octavo" / room).glob("*.py")) for mutant in find_mutants(path)
    ]
    for room in args.rooms:
        if not survives(None, JUDGES[room], 600):
            raise SystemExit(f"the tests of {room} fail without any mutant")
    chosen = mutants if args.sample is None else random.Random(args.seed).sample(mutants, min(args.sample, len(mutants)))
    alive = []
    for number, (room, mutant) in enumerate(chosen, 1):
        if survives(mutant, JUDGES[room], args.limit_s):
            alive.append((room, mutant))
            print(
                f"{number}/{len(chosen)} survives so far: {room}/{mutant.path.name}:{mutant.line} {mutant.kind}: {describe(mutant)}",
                flush=True,
            )
    print(f"{len(alive)} of {len(chosen)} come before the slow tests", flush=True)
    lines = [
        f"- `{room}/{mutant.path.name}:{mutant.line}` {mutant.kind}: {describe(mutant)}"
        for room, mutant in alive
        if survives(mutant, SECOND_JUDGES, args.limit_s)
    ]
    killed = len(chosen) - len(lines)
    head = f"{killed} of {len(chosen)} mutants killed ({killed / len(chosen):.1%}), drawn from {len(mutants)} with seed {args.seed}"
    print(head, *lines, sep="\n")
    if args.report:
        args.report.write_text("\n".join([head, "", *lines, ""]))


if __name__ == "__main__":
    main()
