"""Numbers between limits, as flags of commands take them."""

import argparse

import pytest

from octavo.cli.flag_types import integer, number


@pytest.mark.parametrize(
    ("read", "text", "allowed"),
    [
        (integer(1), "0", "0 must be at least 1"),
        (integer(0, 4000), "5k", "5k must lie in 0..4,000"),
        (integer(1), "many", "not an integer"),
        (number(above=0), "0", "0 must be more than 0"),
        (number(above=0), "inf", "more than 0, and finite"),
        (number(least=0, below=1), "1", "1 must be at least 0 and less than 1"),
        (number(above=0, most=1), "1.1", "1.1 must be more than 0 and at most 1"),
    ],
)
def test_what_lies_outside_is_told_with_the_limits(read, text, allowed):
    with pytest.raises(argparse.ArgumentTypeError, match=allowed):
        read(text)


def test_the_limits_themselves_are_inside():
    assert (integer(0, 4000)("4k"), number(least=0, below=1)("0"), number(above=0, most=1)("1")) == (4000, 0.0, 1.0)
