"""What tokens cost: time on own machines against a price list for tokens.

A request needs a share of a copy's time: its prefill alone, and its output tokens at the pace of a full batch.

    device seconds of a request = prefill + output * step(batch) / batch
    cost of a request           = devices * $/h / 3600 * device seconds / utilization
    API price of a request      = new input * $in + cached input * $cached + output * $out
    break-even utilization      = cost at utilization 1 / API price
    idle cost of a month        = devices * $/h * 24 * 30
    residence of a request      = batch * prefill + output * step(batch)          for a place in a full batch

A fleet is large enough when requests find a place in time: Erlang C (queueing.py) over copies * batch places.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import msgspec

from octavo.errors import ConfigError
from octavo.planner.catalogue import ApiRate, Workload
from octavo.planner.floors import decode_floor, prefill_floor
from octavo.planner.queueing import erlang_c, mean_wait_s, wait_quantile_s
from octavo.planner.sizing import Deployment, sequences, size

HOURS_A_MONTH = 24 * 30
MAX_COPIES = 100_000


@dataclass(frozen=True)
class ServingCost:
    """Of one copy of a deployment on one workload. Dollars for a request and for a million output tokens at full utilization.

    `fits` says whether the batch has room in the KV pool; the floors are those of `batch` all the same."""

    workload: str
    batch: int
    context: int
    fits: bool
    most_that_fit: int
    efficiency: float
    step_s: float
    prefill_s: float
    device_s: float
    output_tokens_per_s: float
    requests_per_s: float
    usd_per_hour: float
    usd_per_request: float
    usd_per_million_output: float
    idle_usd_per_month: float


@dataclass(frozen=True)
class Comparison:
    """Own machines against an API on one workload. `break_even`: the utilization at which they cost the same; above 1 the API
    is cheaper however busy the machines are. `premium`: API price over own cost at full utilization; None where that is nothing."""

    api: str
    api_usd_per_request: float
    api_usd_per_million_output: float
    own_usd_per_million_output: float
    break_even: float
    premium: float | None

    def verdict(self, utilization: float) -> str:
        """Return 'self-host' or 'API', whichever is cheaper at that utilization."""
        return "self-host" if utilization >= self.break_even else "API"


@dataclass(frozen=True)
class Fleet:
    """Copies for an arrival rate. Waits and times in seconds; `ttft_s` and `wait_s` at `quantile`. Dollars: None without a price."""

    arrivals_per_s: float
    copies: int
    devices: int
    batch: int
    utilization: float
    waiting_share: float
    mean_wait_s: float
    quantile: float
    wait_s: float
    ttft_s: float
    itl_s: float
    usd_per_month: float | None
    usd_per_million_output: float | None


@dataclass(frozen=True)
class Verdict:
    """A fleet against an API on the same requests, in dollars a month. `choice`: self-host | API."""

    api: str
    own_usd_per_month: float
    api_usd_per_month: float
    choice: str


def serving_cost(deployment: Deployment, workload: Workload, usd_per_hour: float, *, efficiency: float = 1.0) -> ServingCost:
    """Return what the workload costs on one copy (`usd_per_hour` of one device); `efficiency` divides every floor."""
    if not 0 < efficiency <= 1 or usd_per_hour < 0:
        raise ConfigError(f"efficiency {efficiency:g} must be more than 0 and at most 1, dollars an hour {usd_per_hour:g} at least 0")
    copy = replace(deployment, dp=1)
    step_s = decode_floor(copy, workload.batch, workload.mean_context).step_s / efficiency
    prefill_s = prefill_floor(copy, workload.new_input, workload.cached_input).seconds / efficiency if workload.new_input else 0.0
    device_s = prefill_s + workload.output * step_s / workload.batch
    per_hour = copy.num_devices * usd_per_hour
    per_request = per_hour / 3600 * device_s
    held = sequences(copy, size(copy).available_bytes, workload.mean_context)
    return ServingCost(
        workload=workload.name,
        batch=workload.batch,
        context=workload.mean_context,
        fits=held >= workload.batch,
        most_that_fit=held,
        efficiency=efficiency,
        step_s=step_s,
        prefill_s=prefill_s,
        device_s=device_s,
        output_tokens_per_s=workload.output / device_s,
        requests_per_s=1 / device_s,
        usd_per_hour=per_hour,
        usd_per_request=per_request,
        usd_per_million_output=per_request / workload.output * 1e6,
        idle_usd_per_month=per_hour * HOURS_A_MONTH,
    )


def fitting(deployment: Deployment, workload: Workload) -> Workload | None:
    """Return the workload with its batch lowered to what one copy holds; None when it holds not one sequence."""
    copy = replace(deployment, dp=1)
    held = sequences(copy, size(copy).available_bytes, workload.mean_context)
    return msgspec.structs.replace(workload, batch=min(workload.batch, held)) if held else None


def api_price(workload: Workload, rate: ApiRate) -> float:
    """Return the dollars of one request."""
    return (workload.new_input * rate.input + workload.cached_input * rate.cached_input + workload.output * rate.output) / 1e6


def compare(own: ServingCost, workload: Workload, rate: ApiRate) -> Comparison:
    price = api_price(workload, rate)
    return Comparison(
        api=rate.name,
        api_usd_per_request=price,
        api_usd_per_million_output=price / workload.output * 1e6,
        own_usd_per_million_output=own.usd_per_million_output,
        break_even=own.usd_per_request / price,
        premium=price / own.usd_per_request if own.usd_per_request else None,
    )


def judge(fleet: Fleet, workload: Workload, rate: ApiRate) -> Verdict:
    """Return which of the two is cheaper for the fleet's arrivals, idle time of the machines included. The fleet has a price."""
    if fleet.usd_per_month is None:
        raise ConfigError("a fleet without a price cannot be weighed against an API; give the dollars of a device an hour")
    api = api_price(workload, rate) * fleet.arrivals_per_s * 3600 * HOURS_A_MONTH
    return Verdict(rate.name, fleet.usd_per_month, api, "self-host" if fleet.usd_per_month <= api else "API")


def cost_by_utilization(own: ServingCost, steps: int = 20) -> tuple[tuple[float, float], ...]:
    """Return (utilization, dollars for a million output tokens), the curve that a flat API price crosses at break-even."""
    return tuple((i / steps, own.usd_per_million_output * steps / i) for i in range(1, steps + 1))


def size_fleet(
    deployment: Deployment,
    workload: Workload,
    usd_per_hour: float | None,
    arrivals_per_s: float,
    *,
    ttft_s: float | None = None,
    itl_s: float | None = None,
    quantile: float = 0.99,
    efficiency: float = 1.0,
) -> Fleet:
    """Return the smallest fleet that keeps up and, where they are given, holds the TTFT at `quantile` and the mean ITL.

    The batch is the workload's, lowered to what fits in memory and to the ITL. Raises ConfigError when no fleet can."""
    if arrivals_per_s <= 0 or not 0 < quantile < 1:
        raise ConfigError(f"arrivals {arrivals_per_s:g} must be more than 0 a second, the quantile {quantile:g} between 0 and 1")
    own = serving_cost(deployment, workload, 0.0, efficiency=efficiency)
    batch = _batch_within(deployment, workload, min(workload.batch, own.most_that_fit), itl_s, efficiency)
    own = serving_cost(deployment, msgspec.structs.replace(workload, batch=batch), 0.0, efficiency=efficiency)
    if ttft_s is not None and own.prefill_s > ttft_s:
        raise ConfigError(
            f"prefill alone takes {own.prefill_s:.2f} s, more than the TTFT of {ttft_s:g} s: more tensor parallelism is needed"
        )
    residence_s = batch * own.prefill_s + workload.output * own.step_s
    load = arrivals_per_s * residence_s

    def holds(copies: int) -> bool:
        places = copies * batch
        if load >= places:
            return False
        return ttft_s is None or wait_quantile_s(places, load, residence_s, quantile) + own.prefill_s <= ttft_s

    copies = _smallest(holds, int(load // batch) + 1)
    places = copies * batch
    wait_s = wait_quantile_s(places, load, residence_s, quantile)
    devices = copies * replace(deployment, dp=1).num_devices
    month = None if usd_per_hour is None else devices * usd_per_hour * HOURS_A_MONTH
    tokens_a_month = arrivals_per_s * workload.output * 3600 * HOURS_A_MONTH
    return Fleet(
        arrivals_per_s=arrivals_per_s,
        copies=copies,
        devices=devices,
        batch=batch,
        utilization=load / places,
        waiting_share=erlang_c(places, load),
        mean_wait_s=mean_wait_s(places, load, residence_s),
        quantile=quantile,
        wait_s=wait_s,
        ttft_s=wait_s + own.prefill_s,
        itl_s=own.step_s + batch * own.prefill_s / workload.output,
        usd_per_month=month,
        usd_per_million_output=None if month is None else month / tokens_a_month * 1e6,
    )


def _batch_within(deployment: Deployment, workload: Workload, most: int, itl_s: float | None, efficiency: float) -> int:
    """Return the largest batch up to `most` whose mean time between tokens, prefills of others included, is within `itl_s`."""
    if most < 1:
        raise ConfigError(f"not one sequence of {workload.mean_context:,} tokens fits: smaller formats or more devices are needed")
    if itl_s is None:
        return most
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        own = serving_cost(deployment, msgspec.structs.replace(workload, batch=middle), 0.0, efficiency=efficiency)
        if own.step_s + middle * own.prefill_s / workload.output <= itl_s:
            low = middle
        else:
            high = middle - 1
    if low == 0:
        raise ConfigError(f"one sequence alone takes longer than {itl_s * 1e3:g} ms a token: faster or more devices are needed")
    return low


def _smallest(holds: Callable[[int], bool], least: int) -> int:
    """Return the smallest number from `least` on that holds; what holds for one number holds for all larger ones."""
    high = max(1, least)
    while not holds(high):
        if high >= MAX_COPIES:
            raise ConfigError(f"more than {MAX_COPIES:,} copies would be needed")
        high *= 2
    low = max(1, least)
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low
