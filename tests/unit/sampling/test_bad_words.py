"""Words that may not be written: the token that would complete one is banned, at that place only."""

import pytest

from octavo.sampling.bad_words import BadWords


@pytest.mark.parametrize(
    ("output", "banned"),
    [([], [7]), ([1], [7, 2]), ([1, 2], [7, 3]), ([2], [7]), ([9, 1, 2], [7, 3]), ([1, 2, 4], [7]), ([1, 1], [7, 2])],
)
def test_the_last_token_is_banned_behind_all_the_others(output, banned):
    assert BadWords([(7,), (1, 2), (1, 2, 3)], output).banned() == banned


def test_single_tokens_alone_are_always_banned():
    words = BadWords([(7,), (8,)], [1, 2])
    words.append(3)
    assert words.banned() == [7, 8]


def test_output_that_comes_token_by_token_is_output_that_was_there():
    words = BadWords([(1, 2, 3)], [])
    for token in (5, 1, 2):
        words.append(token)
    assert words.banned() == BadWords([(1, 2, 3)], [5, 1, 2]).banned() == [3]
