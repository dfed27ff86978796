"""Numbers as people write them."""

import math

import pytest

from octavo.errors import ConfigError
from octavo.units import parse_number, parse_positive


def test_numbers_are_read_as_written():
    assert [parse_number(text) for text in ("0.5", "-3", "1e3", "inf")] == [0.5, -3.0, 1000.0, math.inf]
    assert [parse_positive(text) for text in ("0.5", "inf")] == [0.5, math.inf]


@pytest.mark.parametrize("text", ["", "one", "1k", "nan"])
def test_what_is_no_number_is_told(text):
    for parse in (parse_number, parse_positive):
        with pytest.raises(ConfigError, match="is not a number"):
            parse(text)


@pytest.mark.parametrize("text", ["0", "-0.1", "-inf"])
def test_what_must_be_positive_is(text):
    with pytest.raises(ConfigError, match="more than 0"):
        parse_positive(text)
