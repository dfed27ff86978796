"""The engine core of encoders: order and size of steps, and exactly one final answer whatever happens."""

import numpy as np
import pytest

from octavo.engine.pooling_core import NOT_FINITE, PoolingCore, PoolingLimits
from octavo.errors import EngineError
from octavo.messages.wire import GenerateRequest, PoolRequest
from octavo.params import SamplingParams


class FakeWorker:
    """Answers with the number of tokens; fails on token 9, gives NaN for token 8."""

    def __init__(self):
        self.steps = []

    def execute(self, requests):
        self.steps.append([request.request_id for request in requests])
        if any(9 in request.prompt_token_ids for request in requests):
            raise ValueError("nine")
        return [np.array([np.nan if 8 in request.prompt_token_ids else len(request.prompt_token_ids)], np.float32) for request in requests]


@pytest.fixture
def worker():
    return FakeWorker()


@pytest.fixture
def core(worker):
    return PoolingCore(worker, PoolingLimits(max_model_len=6, max_num_seqs=3, max_num_batched_tokens=10, vocab_size=10))


def text(name, length=1, *, token=1, priority=0, arrival_s=0.0):
    return PoolRequest(
        request_id=name, prompt_token_ids=[token] * length, task="embed", second_start=length, arrival_s=arrival_s, priority=priority
    )


def run(core):
    """Return all deltas until there is nothing to do."""
    deltas = []
    while core.has_work:
        deltas += core.step().deltas
    return deltas


def test_a_step_takes_texts_by_priority_and_arrival_as_far_as_tokens_and_rows_reach(core, worker):
    core.add(text("late", 5, arrival_s=2.0))
    core.add(text("early", 5, arrival_s=1.0))
    core.add(text("urgent", 5, priority=-1, arrival_s=3.0))
    for name in "abcd":
        core.add(text(name, arrival_s=4.0))
    run(core)
    assert worker.steps == [["urgent", "early"], ["late", "a", "b"], ["c", "d"]]


def test_every_text_gets_its_own_answer_once(core):
    for length in range(1, 6):
        core.add(text(str(length), length))
    answers = {delta.request_id: (delta.finish_reason, np.frombuffer(delta.pooled, np.float32).tolist()) for delta in run(core)}
    assert answers == {str(length): ("stop", [float(length)]) for length in range(1, 6)}
    assert core.step() is None


def test_a_step_that_fails_costs_only_the_text_that_fails_alone(core, worker):
    for name, token in (("a", 1), ("bad", 9), ("b", 2)):
        core.add(text(name, token=token))
    reasons = {delta.request_id: delta.finish_reason for delta in run(core)}
    assert reasons == {"a": "stop", "bad": "error", "b": "stop"}
    assert worker.steps == [["a", "bad", "b"], ["a"], ["bad"], ["b"]]


def test_values_that_are_not_finite_are_an_error_and_counted(core):
    core.add(text("odd", token=8))
    outputs = core.step()
    assert [(delta.finish_reason, delta.error) for delta in outputs.deltas] == [("error", NOT_FINITE)]
    assert outputs.stats.num_nan_rows == 1


def test_an_aborted_text_ends_once_and_is_not_read(core, worker):
    core.add(text("a"))
    core.add(text("b"))
    core.abort(["a", "unknown"])
    assert [(delta.request_id, delta.finish_reason) for delta in run(core)] == [("a", "abort"), ("b", "stop")]
    assert worker.steps == [["b"]]
    core.abort(["a", "b"])
    assert not core.has_work


@pytest.mark.parametrize("bad", [text("x", 0), text("x", 7), text("x", token=10), text("x", token=-1)])
def test_a_text_that_can_never_run_is_answered_with_an_error(core, bad):
    core.add(bad)
    assert [(delta.request_id, delta.finish_reason) for delta in run(core)] == [("x", "error")]


def test_a_request_to_generate_is_answered_with_an_error(core):
    core.add(GenerateRequest(request_id="x", prompt_token_ids=[1], params=SamplingParams(seed=0), arrival_s=0.0))
    (delta,) = run(core)
    assert delta.finish_reason == "error"
    assert "does not generate" in delta.error


def test_an_id_may_not_be_used_twice_at_once(core):
    core.add(text("a"))
    with pytest.raises(EngineError, match="twice"):
        core.add(text("a"))
    assert len(run(core)) == 1
