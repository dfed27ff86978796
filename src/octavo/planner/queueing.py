"""Waiting in line: Erlang's formulas for c places and Poisson arrivals (M/M/c).

    a = arrivals * service time                        offered load, in places
    B(0) = 1;  B(k) = a B(k-1) / (k + a B(k-1))        Erlang B, stable for any c
    C = B(c) / (1 - (1 - B(c)) a / c)                  Erlang C: the share of requests that wait, for a < c
    P(wait > t) = C exp(-(c - a) t / service time)

Answers of language models vary less than the exponential service times assumed here, so waits come out on the safe side.

Source: Erlang 1917; Cooper, Introduction to Queueing Theory, section 3.
"""

from __future__ import annotations

import math

from octavo.errors import ConfigError


def erlang_b(places: int, load: float) -> float:
    """Return the share of requests that find all places taken when nobody waits."""
    blocked = 1.0
    for k in range(1, places + 1):
        blocked = load * blocked / (k + load * blocked)
    return blocked


def erlang_c(places: int, load: float) -> float:
    """Return the share of requests that must wait; 1 when the load is as much as the places."""
    if places < 1 or load < 0:
        raise ConfigError(f"places {places} must be at least 1 and load {load:g} at least 0")
    if load >= places:
        return 1.0
    blocked = erlang_b(places, load)
    return blocked / (1 - (1 - blocked) * load / places)


def mean_wait_s(places: int, load: float, service_s: float) -> float:
    """Return the mean wait; infinite when the load is as much as the places."""
    return erlang_c(places, load) * service_s / (places - load) if load < places else math.inf


def wait_quantile_s(places: int, load: float, service_s: float, quantile: float) -> float:
    """Return the wait that a share `quantile` of requests stays within."""
    if load >= places:
        return math.inf
    waiting = erlang_c(places, load)
    beyond = 1 - quantile
    return math.log(waiting / beyond) * service_s / (places - load) if waiting > beyond else 0.0
