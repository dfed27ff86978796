from math import inf

import pytest

from octavo.errors import ConfigError
from octavo.simulator.traffic import VOCAB_SIZE, TraceLine, Traffic, draw_traffic, read_trace, trace_traffic


def test_traffic_is_a_function_of_its_seed():
    traffic = Traffic(50, 5.0, 100, 20, range_ratio=0.5, prefix_len=8, num_prefixes=3)
    assert draw_traffic(traffic, 1) == draw_traffic(traffic, 1) != draw_traffic(traffic, 2)


def test_lengths_stay_within_their_range_and_prefixes_are_shared():
    arrivals = draw_traffic(Traffic(300, inf, 100, 20, range_ratio=0.5, prefix_len=8, num_prefixes=3), 1)
    lengths = [len(arrival.request.prompt_token_ids) - 8 for arrival in arrivals]
    assert (min(lengths), max(lengths)) == (50, 150)
    assert {arrival.request.params.max_tokens for arrival in arrivals} == set(range(10, 31))
    assert len({tuple(arrival.request.prompt_token_ids[:8]) for arrival in arrivals}) == 3
    assert all(0 <= token_id < VOCAB_SIZE for arrival in arrivals for token_id in arrival.request.prompt_token_ids)
    assert {arrival.at_s for arrival in arrivals} == {0.0}


def test_a_trace_is_sorted_and_begins_at_zero():
    lines = [
        b'{"timestamp": 12.5, "input_length": 7, "output_length": 2}',
        b"",
        b'{"timestamp": 10, "input_length": 5, "output_length": 1}',
    ]
    trace = read_trace(lines)
    assert trace == [TraceLine(0.0, 5, 1), TraceLine(2.5, 7, 2)]
    arrivals = trace_traffic(trace, seed=0)
    assert [(arrival.at_s, len(arrival.request.prompt_token_ids), arrival.request.params.max_tokens) for arrival in arrivals] == [
        (0.0, 5, 1),
        (2.5, 7, 2),
    ]


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b'{"timestamp": 1}',
        b'{"timestamp": -1, "input_length": 5, "output_length": 1}',
        b'{"timestamp": 1, "input_length": 0, "output_length": 1}',
    ],
)
def test_a_bad_line_of_a_trace_is_named(line):
    with pytest.raises(ConfigError, match="line 2"):
        read_trace([b'{"timestamp": 10, "input_length": 5, "output_length": 1}', line])
