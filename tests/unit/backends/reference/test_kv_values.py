"""How vectors of K and V are rounded: the formats' own values, nearest ones, borders."""

import numpy as np
import pytest

from octavo.backends.reference.kv_values import decode, encode
from octavo.specs.kv import KV_DTYPES, KVSpec

FP8 = decode(np.arange(256, dtype=np.uint8), "fp8_e4m3")


def kept(values, dtype):
    return decode(encode(np.array(values, np.float32), dtype), dtype)


def test_the_codes_of_e4m3_are_those_of_the_ocp_table():
    named = {0x00: 0, 0x01: 2.0**-9, 0x07: 0.875 * 2.0**-6, 0x08: 2.0**-6, 0x38: 1, 0x39: 1.125, 0x7E: 448, 0xB8: -1, 0xFE: -448}
    assert {code: FP8[code] for code in named} == named
    assert np.isnan(FP8[[0x7F, 0xFF]]).all()
    assert np.signbit(FP8[0x80])
    assert np.isfinite(FP8).sum() == 254


def test_fp8_takes_the_nearest_value_and_the_even_one_between_two():
    finite = FP8[:127]
    x = np.concatenate([np.random.default_rng(0).uniform(-460, 460, 2000), np.random.default_rng(1).normal(0, 0.02, 2000)])
    nearest = finite[np.abs(np.abs(x)[:, None] - finite).argmin(axis=1)]
    np.testing.assert_array_equal(kept(x, "fp8_e4m3"), np.copysign(nearest, x))
    ties = (finite[:-1] + finite[1:]) / 2
    codes = encode(ties, "fp8_e4m3")
    np.testing.assert_array_equal(codes, np.arange(126) + np.arange(126) % 2)
    np.testing.assert_array_equal(encode(finite, "fp8_e4m3"), np.arange(127))


def test_fp8_saturates_and_keeps_nan_and_signs():
    assert kept([448, 464, 465, 1e30, np.inf, -449, -np.inf], "fp8_e4m3").tolist() == [448] * 5 + [-448] * 2
    assert np.isnan(kept([np.nan, -np.nan], "fp8_e4m3")).all()
    assert encode(np.array([0.0, -0.0, 1e-9, -1e-9], np.float32), "fp8_e4m3").tolist() == [0, 0x80, 0, 0x80]


def test_int8_is_within_half_a_step_of_each_vectors_own_scale():
    x = np.random.default_rng(0).standard_normal((50, 3, 64), dtype=np.float32) * np.float32(10) ** np.arange(-20, 30)[:, None, None]
    step = np.abs(x).max(axis=-1, keepdims=True) / 127
    assert (np.abs(kept(x, "int8_per_token_head") - x) <= step * 0.5001).all()


def test_int8_of_zeros_of_the_tiniest_and_of_the_largest():
    assert not kept(np.zeros((2, 8)), "int8_per_token_head").any()
    assert kept([[3.4e38, -3.4e38, 0]], "int8_per_token_head")[0] == pytest.approx([3.4e38, -3.4e38, 0])
    assert not kept([[1e-45, -1e-45]], "int8_per_token_head").any()  # a scale below the least float32 is 0
    assert kept([[1e-43, 0]], "int8_per_token_head").tolist() == [[np.float32(1e-43), 0]]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_int8_of_a_vector_that_is_not_finite_is_nan_and_no_other_vector_is(bad):
    vectors = kept([[1, bad, 2], [1, 0, 2]], "int8_per_token_head")
    assert np.isnan(vectors[0]).all()
    assert vectors[1] == pytest.approx([1, 0, 2], abs=0.01)


@pytest.mark.parametrize("dtype", KV_DTYPES)
def test_a_kept_vector_takes_the_bytes_that_the_spec_counts(dtype):
    assert encode(np.ones((5, 2, 64), np.float32), dtype).shape == (5, 2, KVSpec(1, 1, 64, dtype).vector_bytes)
