"""Random numbers by counter."""

import numpy as np
import pytest

from octavo.ops.rng import philox4x32, uniform

# Known answers of the authors' library (Random123, kat_vectors): counter, key, result.
KNOWN_ANSWERS = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


def u64(*values):
    return np.array(values, np.uint64)


@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN_ANSWERS)
def test_philox_gives_the_known_answers(counter, key, answer):
    assert philox4x32(u64(*counter), u64(*key)).tolist() == list(answer)


def test_a_number_is_made_of_the_first_two_words():
    expected = ((0x6627E8D5 << 32 | 0xE169C58D) >> 11) * 2.0**-53
    assert uniform(u64(0), u64(0))[0] == expected


def test_all_64_bits_of_seed_and_position_matter():
    base = uniform(u64(5), u64(7))[0]
    for bit in (0, 31, 32, 63):
        assert uniform(u64(5 ^ 1 << bit), u64(7))[0] != base
        assert uniform(u64(5), u64(7 ^ 1 << bit))[0] != base


def test_numbers_lie_in_the_unit_interval_and_fill_it_evenly():
    draws = uniform(np.full(20_000, 3, np.uint64), np.arange(20_000, dtype=np.uint64))
    assert draws.min() >= 0 and draws.max() < 1
    counts = np.histogram(draws, bins=20, range=(0, 1))[0]
    assert np.abs(counts - 1000).max() < 150  # about five standard deviations
