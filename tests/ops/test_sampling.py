"""Sampling on `native` against its definition in `reference`, and what it must be whatever the backend."""

import bounds
import cases
import numpy as np
import pytest
from msgspec.structs import replace


def logits_of(num_rows, vocab_size, seed):
    """Rows of three kinds: peaked, flat, and with many ties."""
    logits = cases.floats(num_rows, vocab_size, seed=seed)
    logits[0::3] *= 4
    logits[2::3] = np.round(logits[2::3])
    return logits


@pytest.mark.parametrize(("vocab_size", "seed"), [(1, 0), (2, 1), (61, 2), (257, 3), (257, 4), (5000, 5), (5000, 6), (49152, 7)])
def test_tokens_and_logprobs_are_those_of_the_definition(native, reference, vocab_size, seed):
    logits, how = logits_of(48, vocab_size, seed), cases.sampling(48, vocab_size, seed)
    actual, expected = native.sample(logits, how), reference.sample(logits, how)
    np.testing.assert_array_equal(actual.token_ids, expected.token_ids)
    np.testing.assert_array_equal(actual.is_nan, expected.is_nan)
    np.testing.assert_array_equal(actual.rank, expected.rank)
    np.testing.assert_array_equal(actual.top_ids, expected.top_ids)
    for a, e in ((actual.logprob, expected.logprob), (actual.top_logprobs, expected.top_logprobs)):
        np.testing.assert_allclose(a, e, rtol=bounds.LOGPROB, atol=bounds.LOGPROB)


def test_a_row_with_nan_or_infinity_is_reported_and_its_mates_are_not(native):
    logits, how = logits_of(5, 131, 1), cases.sampling(5, 131, 1)
    clean = native.sample(logits, how)
    logits[1, 130] = np.nan
    logits[3, 0] = np.inf
    logits[4] = -np.inf
    result = native.sample(logits, how)
    assert result.is_nan.tolist() == [False, True, False, True, True]
    np.testing.assert_array_equal(result.token_ids[[0, 2]], clean.token_ids[[0, 2]])


def test_ids_at_minus_infinity_are_no_nan(native):
    logits, how = np.full((1, 100), -np.inf, np.float32), cases.sampling(1, 100, 0)
    logits[0, 42] = 1
    how = replace(how, banned_start=np.zeros(2, np.int32), banned_ids=np.zeros(0, np.int32))
    assert not native.sample(logits, how).is_nan[0]


def test_a_row_samples_the_same_alone_as_in_a_batch(native):
    logits, how = logits_of(24, 997, 3), cases.sampling(24, 997, 3)
    together = native.sample(logits, how)
    for row in range(24):
        alone = native.sample(logits[row : row + 1].copy(), only_row(how, row))
        assert alone.token_ids[0] == together.token_ids[row]


def test_draws_follow_the_probabilities(native):
    probabilities = np.array([0.5, 0.25, 0.15, 0.1])
    count = 6_000
    logits = np.tile(np.log(probabilities).astype(np.float32), (count, 1))
    how = cases.sampling(count, 4, 0)
    neutral = {name: np.full(count, value, getattr(how, name).dtype) for name, value in NEUTRAL.items()}
    none = {name: np.zeros(count + 1 if name.endswith("start") else 0, getattr(how, name).dtype) for name in LISTS}
    how = replace(how, **neutral, **none)
    shares = np.bincount(native.sample(logits, how).token_ids, minlength=4) / count
    assert np.abs(shares - probabilities).max() < 0.026  # four standard deviations


def test_logits_are_left_as_they_were(native):
    logits, how = logits_of(12, 300, 2), cases.sampling(12, 300, 2)
    before = logits.copy()
    native.sample(logits, how)
    np.testing.assert_array_equal(logits, before)


@pytest.mark.parametrize("field", ["banned_ids", "bias_ids", "seen_ids"])
def test_an_id_beyond_the_vocabulary_is_refused(native, field):
    how = cases.sampling(8, 50, 1)
    ids = getattr(how, field).copy()
    ids[-1] = 50
    with pytest.raises(ValueError, match="token id 50"):
        native.sample(logits_of(8, 50, 1), replace(how, **{field: ids}))


def test_of_a_mask_the_allowed_ids_are_drawn_and_no_others(native, reference):
    num_ids, rows = 77, 24
    allowed = np.zeros((2, 3), np.int32)
    allowed[0, 2] = (1 << 4) | (1 << 12)  # 68 and 76
    how = replace(cases.sampling(rows, num_ids, 3), allowed=allowed, allowed_row=np.resize([0, 1, -1], rows).astype(np.int32))
    none = np.zeros(rows + 1, np.int32)
    how = replace(how, given=np.full(rows, -1, np.int32), banned_start=none, banned_ids=np.zeros(0, np.int32))
    for backend in (native, reference):
        drawn = backend.sample(logits_of(rows, num_ids, 4), how).token_ids
        assert set(drawn[0::3].tolist()) <= {68, 76}
        assert set(drawn[1::3].tolist()) == {0}  # nothing is left
        assert set(drawn[2::3].tolist()) - {0, 68, 76}


@pytest.mark.parametrize("changed", [{"allowed_row": np.full(8, 3, np.int32)}, {"allowed": np.zeros((2, 1), np.int32)}, {"allowed": None}])
def test_masks_that_do_not_fit_are_refused(native, changed):
    how = replace(cases.sampling(8, 50, 1), allowed=np.zeros((2, 2), np.int32), allowed_row=np.zeros(8, np.int32))
    with pytest.raises(ValueError, match="allowed"):
        native.sample(logits_of(8, 50, 1), replace(how, **changed))


NEUTRAL = {
    "temperature": 1, "top_p": 1, "min_p": 0, "repetition_penalty": 1, "presence_penalty": 0, "frequency_penalty": 0,
    "typical_p": 1, "top_n_sigma": 0, "xtc_probability": 0, "xtc_threshold": 0.1, "num_logprobs": -1, "top_k": 0, "given": -1,
    "allowed_row": -1,
}  # fmt: skip
LISTS = ("banned_start", "banned_ids", "bias_start", "bias_ids", "bias_values", "seen_start", "seen_ids", "seen_counts")


def only_row(how, row):
    fields = {}
    for name in (
        "temperature",
        "top_k",
        "top_p",
        "min_p",
        "repetition_penalty",
        "presence_penalty",
        "frequency_penalty",
        "seed",
        "position",
        "num_logprobs",
        "typical_p",
        "top_n_sigma",
        "xtc_probability",
        "xtc_threshold",
        "wants_processed",
        "given",
        "allowed_row",
    ):
        fields[name] = getattr(how, name)[row : row + 1]
    for name, values in (("banned", ["banned_ids"]), ("bias", ["bias_ids", "bias_values"]), ("seen", ["seen_ids", "seen_counts"])):
        begin, end = getattr(how, f"{name}_start")[row : row + 2]
        fields[f"{name}_start"] = np.array([0, end - begin], np.int32)
        for value in values:
            fields[value] = getattr(how, value)[begin:end]
    return replace(how, **fields)


def test_a_given_token_is_scored_and_not_drawn(native):
    logits = logits_of(6, 300, 9)
    how = replace(cases.sampling(6, 300, 9), given=np.arange(6, dtype=np.int32), num_logprobs=np.full(6, 2, np.int32))
    scored = native.sample(logits, how)
    exact = logits.astype(np.float64) - np.log(np.exp(logits.astype(np.float64)).sum(axis=1, keepdims=True))
    assert scored.token_ids.tolist() == [0, 1, 2, 3, 4, 5]
    np.testing.assert_allclose(scored.logprob, exact[np.arange(6), np.arange(6)], rtol=bounds.LOGPROB, atol=bounds.LOGPROB)


def one_row(native, probabilities, **fields):
    """Return how often each id is drawn from `probabilities` over many positions."""
    count = 4_000
    logits = np.tile(np.log(np.array(probabilities)).astype(np.float32), (count, 1))
    how = cases.sampling(count, len(probabilities), 0)
    none = {name: np.zeros(count + 1 if name.endswith("start") else 0, getattr(how, name).dtype) for name in LISTS}
    values = NEUTRAL | {"wants_processed": False} | fields
    how = replace(how, **none, **{name: np.full(count, value, getattr(how, name).dtype) for name, value in values.items()})
    return np.bincount(native.sample(logits, how).token_ids, minlength=len(probabilities)) / count


def test_xtc_leaves_only_the_least_likely_of_the_likely_ones_as_often_as_it_is_asked_to(native):
    shares = one_row(native, [0.4, 0.3, 0.2, 0.1], xtc_probability=0.5, xtc_threshold=0.15)
    np.testing.assert_allclose(shares, [0.2, 0.15, 0.1 + 0.5 * 2 / 3, 0.05 + 0.5 / 3], atol=0.04)


def test_typical_p_prefers_what_is_as_surprising_as_usual(native):
    assert np.flatnonzero(one_row(native, [0.6, 0.2, 0.1, 0.05, 0.05], typical_p=0.15)).tolist() == [1]  # entropy 1.17, log 5 = 1.6


def test_top_n_sigma_keeps_what_is_near_the_best(native):
    assert np.flatnonzero(one_row(native, [0.5, 0.4, 0.05, 0.03, 0.02], top_n_sigma=0.5)).tolist() == [0, 1]


def test_processed_logprobs_are_of_what_was_left_to_draw_from(native):
    logits = np.log(np.array([[0.5, 0.3, 0.2]], np.float32))
    how = cases.sampling(1, 3, 0)
    none = {name: np.zeros(2 if name.endswith("start") else 0, getattr(how, name).dtype) for name in LISTS}
    values = NEUTRAL | {"wants_processed": True, "top_k": 2, "num_logprobs": 3}
    how = replace(how, **none, **{name: np.full(1, value, getattr(how, name).dtype) for name, value in values.items()})
    left = native.sample(logits, how)
    assert left.top_ids[0].tolist() == [0, 1, -1]
    np.testing.assert_allclose(np.exp(left.top_logprobs[0]), [0.625, 0.375, 0], atol=1e-6)
