"""DRY ("don't repeat yourself"): what it takes from the logits of tokens that would go on with a repetition.

Where the last n tokens stand in the text once before, the token that followed there is lowered by

    multiplier * base ^ (n - allowed_length)        if n >= allowed_length, and at most MAX_PENALTY

n reaches back at most to a breaker, to the last MAX_MATCH tokens, and to the last `penalty_last_n` of the text (-1: all).
Source: p-e-w, "DRY: A modern repetition penalty that reliably prevents looping" (text-generation-webui #5677).
"""

from __future__ import annotations

from collections.abc import Sequence

from octavo.params import SamplingParams

MAX_MATCH = 64
MAX_PENALTY = 1e4  # logits must stay finite


class DryPenalty:
    """Follows one request's text. Costs O(earlier places of its last token) a step."""

    def __init__(self, params: SamplingParams, token_ids: Sequence[int]) -> None:
        self._multiplier = params.dry_multiplier
        self._base = params.dry_base
        self._allowed_length = params.dry_allowed_length
        self._last_n = params.dry_penalty_last_n
        self._breakers = frozenset(params.dry_breaker_ids)
        self._token_ids: list[int] = []
        self._places: dict[int, list[int]] = {}  # of each token, rising
        for token_id in token_ids:
            self.append(token_id)

    def append(self, token_id: int) -> None:
        self._places.setdefault(token_id, []).append(len(self._token_ids))
        self._token_ids.append(token_id)

    def penalties(self) -> dict[int, float]:
        """Return what is to be taken from the logits: token id -> amount."""
        longest: dict[int, int] = {}
        end = len(self._token_ids) - 1
        first = 0 if self._last_n < 0 else max(0, end + 1 - self._last_n)
        if end < first or self._token_ids[end] in self._breakers:
            return {}
        for place in reversed(self._places[self._token_ids[end]][:-1]):
            if place < first:
                break
            follower = self._token_ids[place + 1]
            if follower not in self._breakers:
                longest[follower] = max(longest.get(follower, 0), self._match(place, end, first))
        return {token_id: self._penalty(length) for token_id, length in longest.items() if length >= self._allowed_length}

    def _match(self, place: int, end: int, first: int) -> int:
        """Return how many tokens up to `place` equal those up to `end`."""
        ids = self._token_ids
        length = 1
        while length < min(MAX_MATCH, place - first + 1) and ids[place - length] == ids[end - length] not in self._breakers:
            length += 1
        return length

    def _penalty(self, length: int) -> float:
        return min(MAX_PENALTY, self._multiplier * self._base ** (length - self._allowed_length))
