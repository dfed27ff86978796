"""What an engine works on, as its client remembers it: counted, delivered once, and told to an engine that takes over."""

import pytest

from octavo.client.events import Events
from octavo.client.in_flight import InFlight
from octavo.client.load import Load
from octavo.client.pooling import PoolChoice
from octavo.messages.wire import ControlRequest, PoolRequest, TokenDelta
from octavo.metrics.figures import Figures


@pytest.fixture
def load():
    return Load(Figures())


@pytest.fixture
def in_flight(load):
    return InFlight(load)


def take_on(in_flight, engine_id, *, is_held=False):
    stream = Events(1, lambda: None)
    request = PoolRequest(request_id=engine_id, prompt_token_ids=[1, 2, 3], task="embed", second_start=3, arrival_s=0.0)
    in_flight.take_on(PoolChoice(request), stream, is_held=is_held)
    return stream


def counts(load):
    return load.unfinished.value, load.queued_tokens.value


def test_what_is_taken_on_is_counted_until_its_final_event(in_flight, load):
    take_on(in_flight, "a")
    take_on(in_flight, "b")
    assert counts(load) == (2, 6)
    in_flight.deliver(TokenDelta("a", [], finish_reason="stop"))
    assert counts(load) == (1, 3)
    assert in_flight.drop(["a", "b", "never"]) == ["b"]
    assert counts(load) == (0, 0)
    assert not in_flight.deliver(TokenDelta("b", [], finish_reason="stop"))  # the engine had not heard yet


def told(in_flight, pause):
    return ["pause" if isinstance(message, ControlRequest) else message.request_id for message in in_flight.resumed(pause)]


def test_a_new_engine_is_told_of_a_pause_behind_what_had_begun_and_before_what_is_held(in_flight):
    take_on(in_flight, "begun")
    take_on(in_flight, "held", is_held=True)
    take_on(in_flight, "later", is_held=True)
    assert in_flight.begun_ids == ["begun"]
    assert told(in_flight, "wait") == ["begun", "pause", "held", "later"]
    assert told(in_flight, "keep") == ["pause", "begun", "held", "later"]
    in_flight.release_held()
    assert told(in_flight, None) == ["begun", "held", "later"]


def test_two_crashes_fail_a_request_and_one_does_not(in_flight, load):
    take_on(in_flight, "old")
    in_flight.count_crash()
    take_on(in_flight, "new")
    in_flight.count_crash()
    assert told(in_flight, None) == ["new"]
    assert counts(load) == (1, 3)
