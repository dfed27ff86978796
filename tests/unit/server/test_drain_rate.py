import pytest

from octavo.server import drain_rate
from octavo.server.drain_rate import DrainRate


class Now:
    s = 1000.0


@pytest.fixture
def now(monkeypatch):
    now = Now()
    monkeypatch.setattr(drain_rate.time, "monotonic", lambda: now.s)
    return now


def test_the_wait_is_what_is_too_much_over_the_pace(now):
    rate = DrainRate()
    for _ in range(10):
        rate.count(2)
        now.s += 1
    assert rate.seconds_for(20) == pytest.approx(10)
    assert rate.seconds_for(40) == pytest.approx(20)


def test_nothing_known_is_one_second_and_nobody_waits_longer_than_a_minute(now):
    rate = DrainRate()
    assert rate.seconds_for(5) == 1
    rate.count(1)
    now.s += 20
    assert rate.seconds_for(10_000) == 60
    assert rate.seconds_for(1) == 20


def test_the_pace_of_long_ago_is_forgotten(now):
    rate = DrainRate()
    rate.count(1)
    now.s += 31
    assert rate.seconds_for(50) == 1


def test_a_thousand_departures_a_second_are_no_reason_to_wait_long(now):
    rate = DrainRate()
    for _ in range(5000):
        rate.count(1)
        now.s += 0.001
    assert rate.seconds_for(3000) == pytest.approx(3, rel=0.01)
