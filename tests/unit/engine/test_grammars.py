"""Requests that wait for their grammar: nobody waits with them, each ends once, and what is kept is bounded and each tenant's own."""

import threading

import pytest
from tests.fakes.grammars import vocabulary
from tests.fakes.history_worker import HistoryWorker, make_request
from tests.fakes.vocabularies import byte_level_tokenizer

from octavo.constraints import StructuredOutputsParams
from octavo.engine import grammars as grammars_module
from octavo.engine.core import EngineCore
from octavo.engine.executor import InlineExecutor
from octavo.engine.grammars import GrammarCompiler
from octavo.errors import InvalidRequest
from octavo.kv.manager import KVManager
from octavo.messages.wire import ControlRequest
from octavo.scheduler.admission import Limits
from octavo.scheduler.scheduler import Scheduler

WORDS = vocabulary(byte_level_tokenizer())
VOCAB = 500


@pytest.fixture
def gate():
    """What the vocabulary waits for."""
    event = threading.Event()
    yield event
    event.set()


def slow(gate):
    def open_vocabulary():
        gate.wait(20)
        return WORDS

    return open_vocabulary


def unchecked(constraint):
    pass


def make_core(compiler):
    limits = Limits(max_model_len=60, max_num_seqs=8, max_num_batched_tokens=32, vocab_size=VOCAB)
    return EngineCore(
        Scheduler(limits, KVManager(60, 4)),
        InlineExecutor(HistoryWorker(60, 4, VOCAB)),
        make_compiler=None if compiler is None else lambda: compiler,
    )


def ask(request_id, tenant="", **constraint):
    params = StructuredOutputsParams(**(constraint or {"regex": "a"}))
    return make_request(request_id, [1, 2], max_tokens=3, tenant=tenant, structured_outputs=params)


def drain(core, finals):
    while core.has_work:
        outputs = core.step()
        for delta in outputs.deltas if outputs is not None else ():
            assert delta.request_id not in finals
            if delta.finish_reason is not None:
                finals[delta.request_id] = delta


def test_others_go_on_while_a_grammar_is_compiled(gate):
    core, finals = make_core(GrammarCompiler(slow(gate), unchecked)), {}
    core.add(ask("slow"))
    core.add(make_request("quick", [1, 2, 3], max_tokens=5))
    for _ in range(12):
        outputs = core.step()
        if outputs is not None:
            finals |= {delta.request_id: delta for delta in outputs.deltas if delta.finish_reason}
            if outputs.stats is not None:
                assert outputs.stats.num_waiting == 1
    assert finals["quick"].finish_reason == "length" and "slow" not in finals
    assert core.has_work and core.num_awaiting_grammar == 1
    gate.set()
    drain(core, finals)
    assert finals["slow"].finish_reason == "length"  # this worker looks at no grammar


def test_one_that_waits_can_be_aborted_and_ends_once(gate):
    core, finals = make_core(GrammarCompiler(slow(gate), unchecked)), {}
    for name in ("a", "b"):
        core.add(ask(name))
    core.abort(["a"])
    core.abort(["a"])
    outputs = core.step()
    assert [(delta.request_id, delta.finish_reason) for delta in outputs.deltas] == [("a", "abort")]
    core.control(ControlRequest(1, "pause", mode="abort"))
    outputs = core.step()
    assert [(delta.request_id, delta.finish_reason) for delta in outputs.deltas] == [("b", "abort")]
    gate.set()
    drain(core, finals)
    assert not finals


def test_a_grammar_that_takes_too_long_ends_its_request_alone(gate):
    core, finals = make_core(GrammarCompiler(slow(gate), unchecked, limit_s=0.02)), {}
    core.add(ask("late"))
    drain(core, finals)
    assert finals["late"].finish_reason == "error" and "0.02 s" in finals["late"].error


@pytest.mark.parametrize("fault", [InvalidRequest("no such thing"), ImportError("llguidance"), RuntimeError("secret path")])
def test_a_vocabulary_that_cannot_be_read_fails_the_request_and_not_the_engine(fault):
    def open_vocabulary():
        raise fault

    core, finals = make_core(GrammarCompiler(open_vocabulary, unchecked)), {}
    core.add(ask("a"))
    core.add(make_request("b", [1, 2, 3], max_tokens=2))
    drain(core, finals)
    assert finals["a"].finish_reason == "error" and finals["a"].error and "secret" not in finals["a"].error
    assert finals["b"].finish_reason == "length"


def test_a_grammar_that_does_not_compile_says_so():
    core, finals = make_core(GrammarCompiler(lambda: WORDS, unchecked)), {}
    core.add(ask("a", json={"type": "nope"}))
    drain(core, finals)
    assert "structured_outputs.json cannot be held to" in finals["a"].error


def test_an_engine_without_a_compiler_refuses():
    core, finals = make_core(None), {}
    core.add(ask("a"))
    drain(core, finals)
    assert finals["a"].finish_reason == "error"


def compile_all(compiler, *requests):
    for request in requests:
        compiler.begin(request)
    done = []
    while compiler.num_waiting:
        compiler.wait(1)
        done += compiler.take_compiled()
    return done


def test_what_was_compiled_serves_its_tenant_again_and_nobody_else():
    compiler = GrammarCompiler(lambda: WORDS, unchecked)
    first, again = compile_all(compiler, ask("a", "x"), ask("b", "x"))
    (later,) = compile_all(compiler, ask("c", "x"))
    (other,) = compile_all(compiler, ask("d", "y"))
    assert first.grammar is again.grammar is later.grammar
    assert other.grammar is not first.grammar


def test_what_is_kept_is_bounded_in_number_and_in_size(monkeypatch):
    monkeypatch.setattr(grammars_module, "MAX_KEPT", 5)
    monkeypatch.setattr(grammars_module, "MAX_KEPT_BYTES", 400)
    compiler = GrammarCompiler(lambda: WORDS, unchecked)
    for number in range(12):
        (done,) = compile_all(compiler, ask(str(number), regex="a" * (number + 1)))
        assert done.grammar is not None
        assert len(compiler._kept) <= 5
    (large,) = compile_all(compiler, ask("large", regex="a" * 600))
    assert large.grammar is not None  # it is used, and not kept
    assert compiler._kept_bytes <= 400
    assert compiler._kept_bytes == sum(len(source) for _, source in compiler._kept)
