"""Erlang's formulas against textbook values, and fleets that hold their promises."""

import math
from dataclasses import replace

import pytest

from octavo.errors import ConfigError
from octavo.planner.catalogue import Workload, find_api, find_device, find_model_shape
from octavo.planner.cost import api_price, compare, cost_by_utilization, serving_cost, size_fleet
from octavo.planner.floors import decode_floor, prefill_floor
from octavo.planner.formats import kv_format, weight_format
from octavo.planner.queueing import erlang_b, erlang_c, mean_wait_s, wait_quantile_s
from octavo.planner.sizing import Deployment

DEPLOYMENT = Deployment(find_model_shape("llama-3.1-8b"), find_device("H100-80G"), weight_format("bf16"), kv_format("bf16"))
CHAT = Workload("chat", new_input=1000, cached_input=1000, output=200, batch=64)


def test_erlang_b_and_c_are_those_of_the_textbooks():
    assert erlang_b(1, 1.0) == 0.5
    assert erlang_b(5, 3.0) == pytest.approx(0.11005, abs=1e-5)
    assert erlang_c(1, 0.8) == pytest.approx(0.8)  # one place: the share of time that it is taken
    assert erlang_c(10, 7.5) == pytest.approx(0.3066, abs=2e-4)
    assert erlang_c(5, 5.0) == 1.0


def test_erlang_c_equals_its_defining_sum():
    places, load = 7, 4.2
    last = load**places / math.factorial(places) * places / (places - load)
    assert erlang_c(places, load) == pytest.approx(last / (sum(load**k / math.factorial(k) for k in range(places)) + last))


def test_one_place_waits_as_m_m_1_does():
    assert mean_wait_s(1, 0.5, 2.0) == pytest.approx(2.0)  # rho / (1 - rho) * service
    assert wait_quantile_s(1, 0.5, 2.0, 0.99) == pytest.approx(math.log(0.5 / 0.01) * 4.0)
    assert wait_quantile_s(100, 1.0, 2.0, 0.99) == 0.0
    assert mean_wait_s(2, 2.0, 1.0) == math.inf


def test_waiting_falls_as_places_are_added():
    waits = [erlang_c(places, 50.0) for places in range(51, 80)]
    assert waits == sorted(waits, reverse=True)


def test_a_request_costs_its_prefill_and_its_share_of_the_batch():
    own = serving_cost(DEPLOYMENT, CHAT, 3.60)
    step = decode_floor(DEPLOYMENT, 64, 2100).step_s
    prefill = prefill_floor(DEPLOYMENT, 1000, 1000).seconds
    assert own.device_s == pytest.approx(prefill + 200 * step / 64)
    assert own.usd_per_request == pytest.approx(own.device_s * 3.60 / 3600)
    assert own.usd_per_million_output == pytest.approx(own.usd_per_request / 200 * 1e6)


def test_copies_do_not_change_what_a_token_costs_and_ranks_are_all_paid():
    own = serving_cost(DEPLOYMENT, CHAT, 3.60)
    assert serving_cost(replace(DEPLOYMENT, dp=3), CHAT, 3.60) == own
    assert serving_cost(replace(DEPLOYMENT, tp=2), CHAT, 3.60).usd_per_hour == 7.20


def test_an_api_bills_three_kinds_of_tokens():
    assert api_price(CHAT, find_api("gpt-6-sol")) == pytest.approx((1000 * 2 + 1000 * 0.2 + 200 * 10) / 1e6)


def test_the_curve_crosses_the_api_price_at_break_even():
    own = serving_cost(DEPLOYMENT, CHAT, 3.60)
    against = compare(own, CHAT, find_api("gpt-6-sol"))
    for utilization, dollars in cost_by_utilization(own, 100):
        assert (dollars <= against.api_usd_per_million_output) == (against.verdict(utilization) == "self-host")


def test_a_fleet_is_the_smallest_that_holds():
    fleet = size_fleet(DEPLOYMENT, CHAT, 3.60, arrivals_per_s=100, ttft_s=0.5, itl_s=0.05)
    assert fleet.ttft_s <= 0.5
    assert fleet.itl_s <= 0.05
    assert fleet.utilization < 1
    places = (fleet.copies - 1) * fleet.batch
    load = fleet.utilization * fleet.copies * fleet.batch
    own = serving_cost(DEPLOYMENT, Workload("chat", 1000, 1000, 200, fleet.batch), 3.60)
    residence = fleet.batch * own.prefill_s + 200 * own.step_s
    assert wait_quantile_s(places, load, residence, 0.99) + own.prefill_s > 0.5


def test_a_tighter_time_between_tokens_narrows_the_batch_and_needs_more_copies():
    loose = size_fleet(DEPLOYMENT, CHAT, 3.60, arrivals_per_s=100)
    tight = size_fleet(DEPLOYMENT, CHAT, 3.60, arrivals_per_s=100, itl_s=0.008)
    assert loose.batch == 64
    assert tight.batch < loose.batch
    assert tight.copies > loose.copies
    assert tight.itl_s <= 0.008


def test_promises_that_no_fleet_can_hold_are_refused_with_the_reason():
    with pytest.raises(ConfigError, match="prefill alone takes"):
        size_fleet(DEPLOYMENT, CHAT, 3.60, 1, ttft_s=0.001)
    with pytest.raises(ConfigError, match="one sequence alone takes longer"):
        size_fleet(DEPLOYMENT, CHAT, 3.60, 1, itl_s=0.001)
    with pytest.raises(ConfigError, match="not one sequence"):
        size_fleet(replace(DEPLOYMENT, device=find_device("L4-24G"), utilization=0.6), CHAT, 1, 1)
