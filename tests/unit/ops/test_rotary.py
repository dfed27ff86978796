"""Rotary frequencies of every kind. Comparison with transformers: tests/models."""

import math

import numpy as np
import pytest

from octavo.errors import ModelError
from octavo.ops.rotary import attention_factor, cos_sin, rope_frequencies, yarn_mscale
from octavo.specs.model import RopeSpec


def test_plain_frequencies_fall_geometrically_from_one():
    assert rope_frequencies(RopeSpec(dim=8, theta=10_000.0)) == pytest.approx([1, 0.1, 0.01, 0.001])


def test_linear_scaling_divides_every_frequency():
    plain = rope_frequencies(RopeSpec(dim=8))
    assert rope_frequencies(RopeSpec(dim=8, kind="linear", factor=4.0)) == pytest.approx(plain / 4)


def test_llama3_keeps_short_waves_divides_long_ones_and_blends_between():
    rope = RopeSpec(dim=64, theta=500_000.0, kind="llama3", factor=8.0, original_max_position=8192)
    plain = rope_frequencies(RopeSpec(dim=64, theta=500_000.0))
    ratio = plain / rope_frequencies(rope)
    wavelength = 2 * math.pi / plain
    assert ratio[wavelength < 8192 / 4] == pytest.approx(1)
    assert ratio[wavelength > 8192] == pytest.approx(8)
    between = ratio[(wavelength > 8192 / 4) & (wavelength < 8192)]
    assert len(between) and ((between > 1) & (between < 8)).all()


def test_yarn_keeps_fast_pairs_divides_slow_ones_and_scales_cos_and_sin():
    rope = RopeSpec(dim=64, kind="yarn", factor=4.0, original_max_position=4096)
    ratio = rope_frequencies(RopeSpec(dim=64)) / rope_frequencies(rope)
    assert ratio[0] == pytest.approx(1) and ratio[-1] == pytest.approx(4)
    assert (np.diff(ratio) >= -1e-12).all()
    cos, _ = cos_sin(rope, np.zeros(1, np.int32))
    assert cos[0] == pytest.approx(0.1 * math.log(4) + 1)


def test_a_yarn_attention_factor_of_the_config_wins():
    assert attention_factor(RopeSpec(dim=8, kind="yarn", factor=4.0, original_max_position=64, attention_factor=0.7)) == 0.7


def test_yarn_mscale_is_one_where_nothing_is_stretched():
    assert yarn_mscale(1.0, 0.5) == 1.0
    assert yarn_mscale(40.0, 0.707) == pytest.approx(0.1 * 0.707 * math.log(40) + 1)


def test_frequency_factors_divide_pair_by_pair():
    rope = RopeSpec(dim=4, frequency_factors=(1.0, 8.0))
    assert rope_frequencies(rope) == pytest.approx([1, 0.01 / 8])


def test_frequency_factors_of_the_wrong_number_are_refused():
    with pytest.raises(ModelError, match="3 rope frequency factors for 2 pairs"):
        rope_frequencies(RopeSpec(dim=4, frequency_factors=(1.0, 1.0, 1.0)))


def test_an_unknown_kind_is_refused_by_name():
    with pytest.raises(ModelError, match=r"'longrope'.*none, linear, llama3, yarn"):
        rope_frequencies(RopeSpec(dim=4, kind="longrope"))
