"""From a load to devices: what is proposed really holds it, and one device fewer does not."""

from dataclasses import replace

import pytest

from octavo.errors import ConfigError
from octavo.planner.catalogue import devices, find_device, find_model_shape
from octavo.planner.fit import LoadPart, count_copies, find_fits, parse_load
from octavo.planner.formats import kv_format, weight_format
from octavo.planner.sizing import Deployment, sequences, size

QWEN = Deployment(find_model_shape("qwen3-32b"), find_device("H100-80G"), weight_format("bf16"), kv_format("bf16"))


def test_loads_are_read_with_the_units_of_the_flags():
    assert parse_load("34 x 10k") == (LoadPart(34, 10_000),)
    assert parse_load("34 x 10k + 2x128K") == (LoadPart(2, 131_072), LoadPart(34, 10_000))


@pytest.mark.parametrize("text", ["34", "x 10k", "0 x 10k", "3 x 0", "2m x 5", "a x b", "3 x 5 +"])
def test_what_is_no_load_is_refused(text):
    with pytest.raises(ConfigError):
        parse_load(text)


def test_copies_are_filled_with_the_largest_first():
    assert count_copies(10.0, [6.0, 3.0], [2, 2]) == 2
    assert count_copies(10.0, [6.0, 3.0], [2, 3]) == 3
    assert count_copies(10.0, [1.0], [1_000_000]) == 100_000


def test_each_way_holds_the_load_and_one_copy_fewer_does_not():
    load = parse_load("34 x 10k")
    ways = find_fits(QWEN, load, devices())
    assert {way.device for way in ways} >= {"H100-80G", "A100-80G", "H200-141G", "L40S-48G"}
    for way in ways:
        built = replace(
            QWEN,
            device=find_device(way.device),
            weights=weight_format(way.weights),
            kv=kv_format(way.kv),
            tp=way.tp,
            dp=way.dp,
            max_model_len=10_000,
        )
        held = sequences(built, size(built).available_bytes, 10_000)
        assert held >= 34
        assert held // way.dp * (way.dp - 1) < 34
        assert way.devices == way.tp * way.dp


def test_ways_are_ordered_by_memory_and_no_device_is_wasted_on_precision():
    ways = find_fits(QWEN, parse_load("34 x 10k"), devices())
    assert [way.memory_bytes for way in ways] == sorted(way.memory_bytes for way in ways)
    h200 = next(way for way in ways if way.device == "H200-141G")
    assert (h200.devices, h200.weights, h200.kv) == (1, "bf16", "fp8")  # bf16 KV would need two


def test_a_time_between_tokens_rules_slow_ways_out():
    load = parse_load("34 x 10k")
    free = find_fits(QWEN, load, [find_device("H100-80G")])[0]
    fast = find_fits(QWEN, load, [find_device("H100-80G")], itl_s=0.015)[0]
    assert fast.per_sequence >= 1 / 0.015 > free.per_sequence
    assert fast.devices > free.devices
    assert find_fits(QWEN, load, [find_device("T4-16G")], itl_s=0.001) == ()


def test_what_no_device_holds_gives_nothing():
    assert find_fits(QWEN, (LoadPart(1, 100_000_000),), devices()) == ()


def test_prices_are_of_all_devices_where_one_is_known():
    way = find_fits(QWEN, parse_load("200 x 10k"), [find_device("H100-80G")], usd_per_hour={"H100-80G": 3.49})[0]
    assert way.usd_per_hour == pytest.approx(3.49 * way.devices)
