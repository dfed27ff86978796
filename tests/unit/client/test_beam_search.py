"""Beam search over a model that is a table: wide beams find what trying everything finds."""

import itertools
import math

import numpy as np
import pytest

from octavo.client.answers import TokenLogprob
from octavo.client.beam_search import MAX_BEAM_WIDTH, BeamSearch, BeamSearchParams, search
from octavo.errors import InvalidRequest

EOS = 2
VOCAB = 3


def table(seed):
    """Return log P(next | last token), a row a token."""
    probs = np.random.default_rng(seed).dirichlet(np.ones(VOCAB), VOCAB)
    return np.log(probs)


def run(logprobs, params, prompt=(0,), eos=(EOS,)):
    def next_candidates(sequences, one_token):
        assert one_token.max_tokens == 1
        return [{token: TokenLogprob(logprobs[ids[-1]][token], 1, "") for token in range(VOCAB)} for ids in sequences]

    one = BeamSearch(prompt, params, eos)
    search([one], params, next_candidates)
    return one.output(lambda ids: " ".join(map(str, ids))).sequences


def every_answer(logprobs, length, prompt=0):
    """Return {answer: log P} of all answers that end, or are cut at `length`."""
    answers = {}
    for tokens in itertools.product(range(VOCAB), repeat=length):
        cut = tokens[: tokens.index(EOS) + 1] if EOS in tokens else tokens
        path = (prompt, *cut)
        answers[cut] = sum(logprobs[a][b] for a, b in itertools.pairwise(path))
    return answers


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("penalty", [0.0, 1.0])
def test_a_wide_beam_finds_the_best_of_all_answers(seed, penalty):
    logprobs = table(seed)
    found = run(logprobs, BeamSearchParams(beam_width=MAX_BEAM_WIDTH, max_tokens=3, length_penalty=penalty))
    best = max(every_answer(logprobs, 3).items(), key=lambda item: item[1] / len(item[0]) ** penalty)
    assert tuple(found[0].tokens[1:]) == best[0]
    assert found[0].cum_logprob == pytest.approx(best[1])


def test_answers_come_best_first_and_no_more_than_asked_for():
    found = run(table(3), BeamSearchParams(beam_width=2, max_tokens=5))
    assert len(found) == 2
    assert found[0].score >= found[1].score
    assert all(one.score == pytest.approx(one.cum_logprob / (len(one.tokens) - 1)) for one in found)


def test_an_end_token_ends_unless_it_is_ignored():
    logprobs = np.log(np.array([[0.1, 0.1, 0.8]] * VOCAB))
    (stopped,) = run(logprobs, BeamSearchParams(beam_width=1, max_tokens=4))
    assert (stopped.tokens, stopped.finish_reason) == ([0, EOS], "stop")
    (ignoring,) = run(logprobs, BeamSearchParams(beam_width=1, max_tokens=4, ignore_eos=True))
    assert (ignoring.tokens, ignoring.finish_reason) == ([0, EOS, EOS, EOS, EOS], "length")
    assert ignoring.cum_logprob == pytest.approx(4 * math.log(0.8))
    assert ignoring.text == "0 2 2 2 2"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("beam_width", value) for value in (0, MAX_BEAM_WIDTH + 1, True)),
        *(("max_tokens", value) for value in (0, 1.5)),
        *(("length_penalty", value) for value in (math.nan, 1e9, "1")),
    ],
)
def test_a_parameter_out_of_bounds_is_refused_by_name(name, value):
    with pytest.raises(InvalidRequest, match=name) as raised:
        BeamSearchParams(**({"beam_width": 2, "max_tokens": 4} | {name: value}))
    assert raised.value.param == name
