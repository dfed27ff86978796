"""Per-row sampling state, and the arrays of a step made from it."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.errors import InvalidRequest
from octavo.params import SamplingParams
from octavo.sampling.plan import GivenToken, SamplingBatches, SamplingRow, SeenTokens, build_sampling_batch

VOCAB = 100


def row(tokens=(1, 2, 3), num_prompt=3, eos=(2,), **params) -> SamplingRow:
    return SamplingRow(SamplingParams(**{"seed": 1, **params}), eos, np.array(tokens, np.int32), num_prompt, VOCAB)


def csr(start, values) -> list[list]:
    return [values[a:b].tolist() for a, b in itertools.pairwise(start)]


def test_parameters_become_one_entry_a_row():
    batch = build_sampling_batch([row(temperature=0.5, top_k=7, top_p=0.25, min_p=0.125), row(logprobs=4, seed=9)])
    assert batch.temperature.tolist() == [0.5, 1.0]
    assert batch.top_k.tolist() == [7, 0]
    assert batch.top_p.tolist() == [0.25, 1.0]
    assert batch.min_p.tolist() == [0.125, 0.0]
    assert batch.num_logprobs.tolist() == [-1, 4]
    assert batch.seed.tolist() == [1, 9]
    assert batch.seed.dtype == np.uint64 and batch.temperature.dtype == np.float32 and batch.top_k.dtype == np.int32


def test_a_negative_seed_wraps_to_64_bits():
    assert build_sampling_batch([row(seed=-1)]).seed.tolist() == [2**64 - 1]


def test_the_position_is_that_of_the_token_to_be_drawn():
    state = row(tokens=(5, 6, 7, 8), num_prompt=2)
    assert build_sampling_batch([state]).position.tolist() == [4]
    state.append(9)
    assert build_sampling_batch([state]).position.tolist() == [5]


def test_ending_ids_are_banned_until_min_tokens_are_out():
    state = row(min_tokens=2, stop_token_ids=(50,))
    plain = row()
    for expected in ([2, 50], [2, 50], []):
        batch = build_sampling_batch([plain, state])
        assert csr(batch.banned_start, batch.banned_ids) == [[], expected]
        state.append(4)


def test_min_tokens_counts_output_from_before_a_preemption():
    assert row(tokens=(1, 2, 3, 4, 5), num_prompt=3, min_tokens=2).banned_ids.tolist() == []
    assert row(tokens=(1, 2, 3, 4), num_prompt=3, min_tokens=2).banned_ids.tolist() == [2]


def test_eos_is_not_banned_when_it_ends_nothing():
    assert row(min_tokens=1, ignore_eos=True, stop_token_ids=(50,)).banned_ids.tolist() == [50]


def test_ending_ids_that_the_model_does_not_have_are_left_out():
    assert row(min_tokens=1, eos=(2, 100), stop_token_ids=(5000,)).banned_ids.tolist() == [2]


def test_logit_bias_goes_into_its_row():
    batch = build_sampling_batch([row(), row(logit_bias={3: -100.0, 99: 2.5})])
    assert csr(batch.bias_start, batch.bias_ids) == [[], [3, 99]]
    assert csr(batch.bias_start, batch.bias_values) == [[], [-100.0, 2.5]]


def test_a_bias_for_an_id_past_the_vocabulary_is_refused():
    with pytest.raises(InvalidRequest, match=r"token id 100; this model's ids are 0..99") as caught:
        row(logit_bias={100: 1.0})
    assert caught.value.param == "logit_bias"


def test_a_row_without_a_seed_is_refused():
    with pytest.raises(InvalidRequest, match="seed"):
        row(seed=None)


def test_seen_ids_are_kept_only_for_rows_with_penalties():
    batch = build_sampling_batch([row(), row(tokens=(7, 8, 7, 9, 9), num_prompt=3, presence_penalty=0.5)])
    assert csr(batch.seen_start, batch.seen_ids) == [[], [7, 8, 9]]
    assert csr(batch.seen_start, batch.seen_counts) == [[], [0, 0, 2]]


@given(prompt=st.lists(st.integers(0, 600), min_size=1, max_size=400), output=st.lists(st.integers(0, 600), max_size=400))
def test_seen_counts_kept_step_by_step_equal_those_counted_at_once(prompt, output):
    seen = SeenTokens(np.array(prompt, np.int32))
    for token in output:
        seen.append(token)
    counted = {token: output.count(token) for token in {*prompt, *output}}
    assert dict(zip(seen.ids.tolist(), seen.counts.tolist(), strict=True)) == counted
    assert len(seen.ids) == len(counted)


def test_only_allowed_ids_may_be_drawn():
    assert row(allowed_token_ids=(4, 7)).banned_ids.tolist() == [token for token in range(VOCAB) if token not in (4, 7)]


def test_bans_of_every_kind_add_up():
    state = row(bad_word_ids=((8,), (4, 5)), min_tokens=2)
    assert sorted(state.banned_ids.tolist()) == [2, 8]
    state.append(4)
    assert sorted(state.banned_ids.tolist()) == [2, 5, 8]


def test_dry_lowers_what_logit_bias_has_raised():
    state = row(tokens=(1, 2, 3, 1, 2), num_prompt=3, dry_multiplier=2.0, dry_base=1.0, logit_bias={3: 5.0})
    assert state.biases == {3: 3.0}


@pytest.mark.parametrize("params", [{"logit_bias": {100: 1.0}}, {"allowed_token_ids": (100,)}, {"bad_word_ids": ((100,),)}])
def test_an_id_beyond_the_vocabulary_is_refused_by_name(params):
    with pytest.raises(InvalidRequest) as refused:
        row(**params)
    assert refused.value.param == next(iter(params))


def test_a_given_token_stands_among_rows_that_draw():
    batch = build_sampling_batch([row(logprobs=1), GivenToken(9, 4)])
    assert batch.given.tolist() == [-1, 9]
    assert batch.num_logprobs.tolist() == [1, 4]


def test_what_is_kept_of_a_batch_is_what_would_be_made_anew():
    steady = [row(temperature=0.5, seed=3), row(logprobs=2, logit_bias={4: 1.0})]
    changing = [row(min_tokens=2), row(presence_penalty=0.5), row(bad_word_ids=((1, 2),)), row(dry_multiplier=0.8)]
    batches = SamplingBatches()
    for rows in (steady, steady, steady[::-1], steady[:1], steady + changing, steady + changing, [*steady, GivenToken(9, 4)], steady):
        kept, fresh = batches.build(rows), build_sampling_batch(rows)
        for name in fresh.__struct_fields__:
            assert np.array_equal(getattr(kept, name), getattr(fresh, name)), name
            assert getattr(getattr(kept, name), "dtype", None) == getattr(getattr(fresh, name), "dtype", None), name
        for one in rows:
            if isinstance(one, SamplingRow):
                one.append(1)


def test_a_row_becomes_steady_when_its_least_length_is_reached():
    one = row(min_tokens=2)
    assert [one.is_steady, one.append(1), one.is_steady, one.append(1), one.is_steady] == [False, None, False, None, True]
