import pytest
from tests.fakes.history_worker import make_request

from octavo.scheduler.stop import StopRule

EOS, STOP = 2, 7


def rule(max_model_len=100, **params):
    return StopRule(make_request("r", [1] * 10, eos=(EOS,), **params), max_model_len)


@pytest.mark.parametrize(
    ("params", "token_id", "num_tokens", "ending"),
    [
        ({}, EOS, 11, ("stop", None)),
        ({"ignore_eos": True}, EOS, 11, None),
        ({"stop_token_ids": (STOP,)}, STOP, 11, ("stop", STOP)),
        ({"stop_token_ids": (EOS,), "ignore_eos": True}, EOS, 11, ("stop", EOS)),
        ({"stop_token_ids": (EOS,)}, EOS, 11, ("stop", None)),  # end-of-sequence is looked at first
        ({"min_tokens": 3}, EOS, 12, None),
        ({"min_tokens": 3}, EOS, 13, ("stop", None)),
        ({"max_tokens": 5}, 1, 14, None),
        ({"max_tokens": 5}, 1, 15, ("length", None)),
        ({"max_tokens": 5}, EOS, 15, ("stop", None)),
        ({"max_tokens": None}, 1, 99, None),
        ({"max_tokens": None}, 1, 100, ("length", None)),
        ({"max_tokens": 95, "min_tokens": 95}, 1, 100, ("length", None)),  # the context ends even before min_tokens
    ],
)
def test_the_first_rule_that_holds_ends_the_answer(params, token_id, num_tokens, ending):
    assert rule(**params).check(token_id, num_tokens) == ending
