"""The stages of sampling, one at a time and in their order."""

import numpy as np
import pytest
from msgspec.structs import replace

from octavo.backends.reference.sample import sample
from octavo.ops.interface import SamplingBatch, concat_start

VOCAB = 8


def how(rows=1, *, banned=(), bias=None, seen=None, **values) -> SamplingBatch:
    """Return a neutral batch of equal rows, changed by what is given; lists belong to row 0."""
    fields = {
        "temperature": 1.0,
        "top_k": 0,
        "top_p": 1.0,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "seed": 0,
        "position": 0,
        "num_logprobs": -1,
        "typical_p": 1.0,
        "top_n_sigma": 0.0,
        "xtc_probability": 0.0,
        "xtc_threshold": 0.1,
        "wants_processed": False,
        "given": -1,
    } | values
    kinds = {
        "top_k": np.int32,
        "num_logprobs": np.int32,
        "seed": np.uint64,
        "position": np.uint64,
        "given": np.int32,
        "wants_processed": np.bool_,
    }
    arrays = {name: np.broadcast_to(np.array(value, kinds.get(name, np.float32)), rows).copy() for name, value in fields.items()}
    bias, seen = bias or {}, seen or {}
    starts = {name: concat_start([len(ids)] + [0] * (rows - 1)) for name, ids in (("banned", banned), ("bias", bias), ("seen", seen))}
    return SamplingBatch(
        **arrays,
        banned_start=starts["banned"],
        banned_ids=np.array(list(banned), np.int32),
        bias_start=starts["bias"],
        bias_ids=np.array(list(bias), np.int32),
        bias_values=np.array(list(bias.values()), np.float32),
        seen_start=starts["seen"],
        seen_ids=np.array(list(seen), np.int32),
        seen_counts=np.array(list(seen.values()), np.int32),
    )


def logits(*values):
    return np.array([values], np.float32)


def drawn_ids(row, draws=4000, **values) -> set[int]:
    """Return the ids that come up in many draws from one row."""
    batch = how(draws, position=np.arange(draws), **values)
    return set(sample(np.repeat(row, draws, axis=0), batch).token_ids.tolist())


def greedy(row, **values) -> int:
    return int(sample(row, how(temperature=0.0, **values)).token_ids[0])


def test_greedy_takes_the_most_likely_and_the_lowest_id_on_ties():
    assert greedy(logits(1, 3, 3, 2)) == 1


def test_a_temperature_just_below_the_border_is_greedy():
    assert drawn_ids(logits(0, 0, 0.001), temperature=0.9e-5) == {2}


def test_draws_follow_the_probabilities():
    draws = 20_000
    row = np.log(np.array([[0.1, 0.2, 0.3, 0.4]], np.float32))
    ids = sample(np.repeat(row, draws, axis=0), how(draws, position=np.arange(draws))).token_ids
    assert np.bincount(ids, minlength=4) / draws == pytest.approx([0.1, 0.2, 0.3, 0.4], abs=0.02)


def test_temperature_sharpens():
    draws = 20_000
    row = np.log(np.array([[1, 2]], np.float32))
    ids = sample(np.repeat(row, draws, axis=0), how(draws, position=np.arange(draws), temperature=0.5)).token_ids
    assert ids.mean() == pytest.approx(4 / 5, abs=0.02)


def test_the_draw_is_the_first_id_in_id_order_whose_cumulative_mass_exceeds_u():
    from octavo.ops.rng import uniform

    positions = np.arange(200, dtype=np.uint64)
    u = uniform(np.full(200, 9, np.uint64), positions)
    ids = sample(np.zeros((200, 4), np.float32), how(200, seed=9, position=positions)).token_ids
    assert ids.tolist() == np.floor(u * 4).astype(int).tolist()


def test_a_row_draws_the_same_alone_and_in_a_batch():
    rows = np.random.RandomState(0).standard_normal((6, VOCAB)).astype(np.float32)
    batch = how(6, seed=np.arange(6), position=np.arange(6), top_p=0.9)
    together = sample(rows, batch).token_ids
    alone = [sample(rows[i : i + 1], how(seed=i, position=i, top_p=0.9)).token_ids[0] for i in range(6)]
    assert together.tolist() == alone


def test_top_k_keeps_lower_ids_on_a_tie_at_its_border():
    assert drawn_ids(logits(0, 1, 1, 1, 2), top_k=3) == {1, 2, 4}


def test_top_k_of_zero_or_less_keeps_all():
    assert drawn_ids(logits(0, 0, 0), top_k=-1) == {0, 1, 2}


def test_top_p_keeps_the_smallest_set_that_reaches_it():
    row = np.log(np.array([[0.5, 0.25, 0.125, 0.125]], np.float32))
    assert drawn_ids(row, top_p=0.74) == {0, 1}
    assert drawn_ids(row, top_p=0.76) == {0, 1, 2}  # lower ids first on ties
    assert drawn_ids(row, top_p=0.01) == {0}


def test_top_p_measures_the_mass_that_top_k_left():
    row = np.log(np.array([[0.4, 0.3, 0.2, 0.1]], np.float32))
    assert drawn_ids(row, top_k=2, top_p=0.55) == {0}  # 0.4 of 0.7


def test_min_p_keeps_what_is_likely_enough_beside_the_best():
    row = np.log(np.array([[0.5, 0.24, 0.26]], np.float32))
    assert drawn_ids(row, min_p=0.5) == {0, 2}


def test_banned_ids_never_come():
    assert greedy(logits(1, 5, 3), banned=[1]) == 2


def test_a_bias_is_added():
    assert greedy(logits(1, 5, 3), bias={0: 4.5}) == 0


def test_a_bias_does_not_lift_a_ban():
    assert greedy(logits(1, 5, 3), banned=[1], bias={1: 100.0}) == 2


def test_repetition_divides_positive_logits_and_multiplies_negative_ones():
    assert greedy(logits(4, 3, 0), repetition_penalty=2.0, seen={0: 0}) == 1
    assert greedy(logits(-1, -1.5, -9), repetition_penalty=2.0, seen={0: 1}) == 1


def test_frequency_counts_and_presence_does_not_and_the_prompt_is_free_of_both():
    assert greedy(logits(3, 2, 0), frequency_penalty=0.4, seen={0: 3}) == 1
    assert greedy(logits(3, 2, 0), frequency_penalty=0.4, seen={0: 2}) == 0
    assert greedy(logits(3, 2, 0), presence_penalty=0.9, seen={0: 3}) == 0
    assert greedy(logits(3, 2, 0), presence_penalty=1.1, seen={0: 1}) == 1
    assert greedy(logits(3, 2, 0), presence_penalty=2.0, frequency_penalty=2.0, seen={0: 0}) == 0


def test_log_probabilities_are_of_the_raw_logits():
    row = np.log(np.array([[0.1, 0.6, 0.3]], np.float32))
    result = sample(row, how(temperature=0.0, num_logprobs=2, bias={0: 50.0}))
    assert result.token_ids.tolist() == [0] and result.rank.tolist() == [3]
    assert result.logprob[0] == pytest.approx(np.log(0.1), rel=1e-5)
    assert result.top_ids.tolist() == [[1, 2]]
    assert result.top_logprobs[0] == pytest.approx(np.log([0.6, 0.3]), rel=1e-5)


def test_rows_that_ask_for_fewer_log_probabilities_leave_places_unused():
    rows = np.tile(logits(1, 2, 3), (3, 1))
    result = sample(rows, how(3, temperature=0.0, num_logprobs=[2, 1, -1]))
    assert result.top_ids.tolist() == [[2, 1], [2, -1], [-1, -1]]
    assert result.top_logprobs[1, 1] == -np.inf


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_row_without_a_finite_largest_logit_is_told_and_its_neighbours_are_not(bad):
    rows = np.tile(logits(1, 2, 3), (3, 1))
    rows[1, 0] = bad
    result = sample(rows, how(3, temperature=0.0))
    assert result.is_nan.tolist() == [False, True, False]
    assert result.token_ids[[0, 2]].tolist() == [2, 2]


def test_a_row_of_minus_infinities_is_told():
    assert sample(np.full((1, 3), -np.inf, np.float32), how()).is_nan.tolist() == [True]


def test_the_logits_are_left_as_they_were():
    row = logits(1, 5, 3)
    sample(row, how(banned=[1], bias={0: 1.0}, temperature=0.7, seen={2: 1}, repetition_penalty=1.5))
    assert row.tolist() == [[1, 5, 3]]


def test_one_rows_lists_do_not_touch_another_row():
    rows = np.tile(logits(1, 5, 3), (2, 1))
    batch = how(2, temperature=0.0, banned=[1], seen={2: 2}, frequency_penalty=9.0)
    assert sample(rows, batch).token_ids.tolist() == [0, 1]
    assert sample(rows[1:], replace(how(temperature=0.0))).token_ids.tolist() == [1]
