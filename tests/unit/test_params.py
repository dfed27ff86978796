"""SamplingParams: what a Python program may write, and what it is told when it may not."""

import math

import msgspec
import pytest

from octavo.errors import InvalidRequest
from octavo.params import SamplingParams


def test_one_stop_string_is_one_stop_string():
    assert SamplingParams(stop="END").stop == ("END",)
    assert SamplingParams(stop=["a", "b"], stop_token_ids=[1]) == SamplingParams(stop=("a", "b"), stop_token_ids=(1,))


def test_none_stands_for_nothing():
    assert SamplingParams(stop=None, stop_token_ids=None, logit_bias=None) == SamplingParams()


def test_what_is_made_whole_stays_so_on_the_wire():
    params = SamplingParams(stop="END", stop_token_ids=[1], logit_bias={5: 1.5})
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(params), type=SamplingParams) == params


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("stop", 1),
        ("stop", (1,)),
        ("stop", ("",)),
        ("stop_token_ids", 1),
        ("stop_token_ids", ("1",)),
        ("logit_bias", [1]),
        ("logit_bias", {"5": 1.0}),
        ("logit_bias", {5: "x"}),
        ("logit_bias", {5: math.nan}),
        ("logit_bias", {-1: 0.0}),
        ("ignore_eos", "no"),
        ("include_stop_str_in_output", 1),
        ("skip_special_tokens", None),
        ("temperature", math.inf),
        ("temperature", "hot"),
        ("top_k", 1 << 31),
        ("repetition_penalty", 0.0),
        ("repetition_penalty", 1e-50),
        ("n", True),
    ],
)
def test_a_value_that_no_field_takes_is_refused_by_the_fields_name(field, value):
    with pytest.raises(InvalidRequest) as raised:
        SamplingParams(**{field: value})
    assert raised.value.param == field
