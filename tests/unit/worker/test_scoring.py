"""Scores of given text."""

import math

import numpy as np
import pytest

from octavo.errors import InvalidRequest
from octavo.params import SamplingParams
from octavo.worker.scoring import Scorer


@pytest.fixture
def scorer(loaded):
    return Scorer(loaded, loaded.spec.kv_spec("bf16"), 40)


def test_the_logits_at_a_position_are_those_that_generation_sees(scorer, driver):
    tokens = np.random.RandomState(1).randint(0, 50, 33).tolist()
    output = driver.generate("a", tokens, SamplingParams(temperature=0.0, seed=0), 6)
    logits = scorer.logits(tokens + output[:-1])
    assert logits.shape == (38, 50)
    assert logits[32:].argmax(axis=1).tolist() == output


def test_perplexity_is_of_each_window_by_itself(scorer):
    tokens = np.random.RandomState(2).randint(0, 50, 45).tolist()
    losses = []
    for window in (tokens[:20], tokens[20:40], tokens[40:]):
        logits = scorer.logits(window).astype(np.float64)
        likelihood = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        losses += [-math.log(likelihood[i, token]) for i, token in enumerate(window[1:])]
    assert scorer.perplexity(tokens, 20) == pytest.approx(math.exp(np.mean(losses)), rel=1e-9)


@pytest.mark.parametrize(("tokens", "message"), [([], "0 tokens"), ([1] * 41, r"41 tokens; this scorer takes 1\.\.40"), ([3, 50], "3..50")])
def test_text_that_cannot_be_scored_is_refused(scorer, tokens, message):
    with pytest.raises(InvalidRequest, match=message):
        scorer.logits(tokens)


@pytest.mark.parametrize(("tokens", "window"), [([1], 10), ([1, 2, 3], 1), ([], 10)])
def test_perplexity_of_nothing_is_refused(scorer, tokens, window):
    with pytest.raises(InvalidRequest, match="at least two in a window"):
        scorer.perplexity(tokens, window)
