"""DRY: what it takes from tokens that would go on with a repetition."""

import pytest

from octavo.params import SamplingParams
from octavo.sampling.dry import MAX_PENALTY, DryPenalty


def penalties(tokens, **params):
    given = {"dry_multiplier": 1.0, "dry_base": 2.0, "dry_allowed_length": 2} | params
    return DryPenalty(SamplingParams(seed=0, **given), tokens).penalties()


def test_the_token_that_followed_an_earlier_match_pays_by_the_length_of_the_match():
    assert penalties([1, 2, 9, 1, 2]) == {9: 1.0}
    assert penalties([5, 1, 2, 9, 5, 1, 2]) == {9: 2.0}
    assert penalties([6, 5, 1, 2, 9, 6, 5, 1, 2]) == {9: 4.0}


def test_a_match_shorter_than_allowed_costs_nothing():
    assert penalties([2, 9, 1, 2]) == {}
    assert penalties([2, 9, 1, 2], dry_allowed_length=1) == {9: 1.0}


def test_of_two_matches_the_longer_one_counts():
    assert penalties([1, 2, 9, 7, 1, 2, 9, 7, 3, 1, 2]) == {9: 1.0}
    assert penalties([3, 1, 2, 9, 4, 1, 2, 9, 3, 1, 2]) == {9: 2.0}


def test_a_breaker_ends_a_match_and_is_never_lowered_itself():
    assert penalties([5, 1, 2, 9, 5, 1, 2], dry_breaker_ids=(1,)) == {}
    assert penalties([5, 1, 2, 9, 5, 1, 2], dry_breaker_ids=(5,)) == {9: 1.0}
    assert penalties([1, 2, 9, 1, 2], dry_breaker_ids=(9,)) == {}
    assert penalties([1, 2, 9, 1, 2], dry_breaker_ids=(2,)) == {}


def test_only_the_last_n_tokens_are_looked_at():
    assert penalties([1, 2, 9, 1, 2], dry_penalty_last_n=5) == {9: 1.0}
    assert penalties([1, 2, 9, 1, 2], dry_penalty_last_n=4) == {}
    assert penalties([1, 2, 9, 1, 2], dry_penalty_last_n=0) == {}


def test_a_penalty_stays_finite():
    assert max(penalties([1] * 500, dry_base=100.0).values()) == MAX_PENALTY


@pytest.mark.parametrize("cut", range(1, 12))
def test_a_row_made_anew_is_the_row_that_grew(cut):
    tokens = [3, 1, 2, 9, 4, 1, 2, 9, 3, 1, 2, 9]
    params = SamplingParams(seed=0, dry_multiplier=1.0)
    grown = DryPenalty(params, tokens[:cut])
    for token in tokens[cut:]:
        grown.append(token)
    assert grown.penalties() == DryPenalty(params, tokens).penalties()
