"""What would kill its compiler kills the sandbox's process and nothing else."""

import subprocess
import sys
import threading
import time

import pytest
from tests.fakes.vocabularies import byte_level_tokenizer

from octavo.constraints import StructuredOutputsParams, Thoughts
from octavo.engine.grammars import GrammarCompiler
from octavo.errors import InvalidRequest, RequestFailed
from octavo.grammar.sandbox import GrammarSandbox
from octavo.grammar.vocabulary import Vocabulary


def chain(length):
    """A grammar whose rules lie so deep."""
    return "start: r0\n" + "\n".join(f"r{i}: r{i + 1}" for i in range(length)) + f'\nr{length}: "a"'


@pytest.fixture(scope="module")
def sandbox():
    sandbox = GrammarSandbox()
    yield sandbox
    sandbox.close()


def ask(sandbox, **constraint):
    sandbox.check(StructuredOutputsParams(**constraint))


SLOW = {"json": {"type": "integer", "multipleOf": 999_983}}
KILLERS = {
    "rules": {"grammar": chain(3000)},
    "terminals": {"grammar": chain(4000).replace("r", "T").replace("staTt", "start")},
    "references": {"json": {"$ref": "#/$defs/a0", "$defs": {f"a{i}": {"$ref": f"#/$defs/a{i + 1}"} for i in range(1500)} | {"a1500": {}}}},
}


@pytest.mark.parametrize("name", KILLERS)
def test_a_grammar_that_overflows_the_compilers_stack_is_refused_and_the_next_is_answered(sandbox, name):
    with pytest.raises(InvalidRequest, match="too complex"):
        ask(sandbox, **KILLERS[name])
    ask(sandbox, regex="a+")


@pytest.mark.parametrize("name", KILLERS)
def test_such_a_grammar_does_kill_what_compiles_it_unchecked(name):
    code = (
        "import sys, threading; from octavo.constraints import StructuredOutputsParams as S; from octavo.grammar.compile import check;"
        "import ast; c = S(**ast.literal_eval(sys.stdin.read())); threading.stack_size(1 << 20);"
        "t = threading.Thread(target=check, args=(c,)); t.start(); t.join()"
    )
    ended = subprocess.run([sys.executable, "-c", code], input=repr(KILLERS[name]), text=True, capture_output=True)
    assert ended.returncode < 0  # by a signal: the sandbox is needed


def test_what_is_wrong_is_said_as_the_compiler_says_it(sandbox):
    with pytest.raises(InvalidRequest, match="cannot be held to: Invalid type: nope") as raised:
        ask(sandbox, json={"type": "nope"})
    assert (raised.value.code, raised.value.param) == ("invalid_json_schema", "structured_outputs.json")


def test_time_has_an_end():
    sandbox = GrammarSandbox()
    ask(sandbox, regex="a")  # the process has begun
    sandbox._limit_s = 0.01
    began = time.monotonic()
    with pytest.raises(InvalidRequest, match=r"0\.01 s"):
        ask(sandbox, json={"type": "integer", "multipleOf": 99991})
    assert time.monotonic() - began < 1
    sandbox.close()


def test_reasoning_whose_marks_are_tokens_is_taken(sandbox):
    ask(sandbox, choice=["a"], thoughts=Thoughts(open=151_667, close=151_668, is_begun=False))


def test_what_is_known_of_a_constraint_is_asked_once(sandbox):
    ask(sandbox, regex="known")
    sandbox.close()
    ask(sandbox, regex="known")
    with pytest.raises(InvalidRequest, match="nope") as first:
        ask(sandbox, json={"type": "nope"})
    sandbox.close()
    with pytest.raises(InvalidRequest) as again:
        ask(sandbox, json={"type": "nope"})
    assert (again.value.message, again.value.code) == (first.value.message, first.value.code)
    assert all(process._running is None for process in sandbox._processes)


def test_processor_time_has_an_end_and_another_constraint_does_not_wait_for_it(sandbox):
    ends = {}

    def one(name, **constraint):
        try:
            ask(sandbox, **constraint)
        except InvalidRequest as error:
            ends[name] = error.message
        ends.setdefault(name, "")
        order.append(name)

    order = []
    ask(sandbox, regex="one")
    held = sandbox._free.get()
    ask(sandbox, regex="the other")  # both have begun
    sandbox._free.put(held)
    slow = threading.Thread(target=one, args=("slow",), kwargs=SLOW)
    slow.start()
    one("quick", regex="quick")
    slow.join()
    assert order == ["quick", "slow"] and ends["quick"] == ""
    assert "0.5 s of processor time" in ends["slow"]


def test_a_compiler_that_cannot_begin_is_no_fault_of_the_constraint(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(RequestFailed, match="cannot be started"):
        ask(GrammarSandbox(), regex="a")
    monkeypatch.setattr(sys, "executable", "/no/such/program")
    with pytest.raises(RequestFailed, match="cannot be started"):
        ask(GrammarSandbox(), regex="a")


def test_many_threads_may_ask_at_once(sandbox):
    failures = []

    def one(number):
        try:
            ask(sandbox, regex=f"x{{{number + 1}}}")
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_the_engine_asks_the_sandbox_before_it_compiles(sandbox):
    from tests.unit.engine.test_grammars import ask as request
    from tests.unit.engine.test_grammars import compile_all

    tokenizer = byte_level_tokenizer()
    compiler = GrammarCompiler(lambda: Vocabulary(tokenizer, (), tokenizer.vocab_size), sandbox.check)
    bad, good = compile_all(compiler, request("bad", grammar=chain(3000)), request("good", regex="a"))
    results = {done.request.request_id: done for done in (bad, good)}
    assert "too complex" in results["bad"].error and results["good"].grammar is not None
