"""Beam search: the most likely continuations of a prompt, found by keeping the best few at every token.

It asks the engine for one token of every beam at a time, with the log-probabilities of the candidates; that the beams begin
alike costs nothing, for they find each other's blocks in the prefix cache. Scores are log P(answer) / length^length_penalty,
the end token counted. A candidate that ends the answer is kept as a hypothesis if it is among the `beam_width` best of its
step, and the search ends when no running beam can beat the worst of `beam_width` hypotheses by going on at its present
average, the rule of Hugging Face transformers (early_stopping False), whose answers are the reference.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from octavo.client.answers import Candidates
from octavo.errors import InvalidRequest
from octavo.params import MAX_LOGPROBS, SamplingParams

MAX_BEAM_WIDTH = MAX_LOGPROBS // 2  # two candidates a beam: half of them may end


class BeamSearchParams(msgspec.Struct, frozen=True, kw_only=True):
    """`length_penalty` above 1 favours longer answers, below 1 shorter ones. Raises InvalidRequest."""

    beam_width: int
    max_tokens: int
    ignore_eos: bool = False
    length_penalty: float = 1.0

    def __post_init__(self) -> None:
        _check_int("beam_width", self.beam_width, MAX_BEAM_WIDTH)
        _check_int("max_tokens", self.max_tokens, 1 << 31)
        if isinstance(self.length_penalty, bool) or not isinstance(self.length_penalty, int | float) or not abs(self.length_penalty) <= 100:
            raise InvalidRequest("length_penalty must be a number in -100..100", param="length_penalty")


@dataclass(frozen=True)
class BeamSearchSequence:
    """One answer: `tokens` are the prompt's and its own, the end token included; `text` is all of them. `cum_logprob`: log P of
    the answer; `score`: what it was ranked by."""

    tokens: list[int]
    text: str
    cum_logprob: float
    score: float
    finish_reason: str


@dataclass(frozen=True)
class BeamSearchOutput:
    """The best answers to one prompt, best first, `beam_width` of them at most."""

    sequences: list[BeamSearchSequence]


@dataclass(frozen=True)
class _Beam:
    tokens: tuple[int, ...]  # of the answer
    logprob: float


# For several sequences of token ids, the candidates for the token behind each.
NextCandidates = Callable[[list[list[int]], SamplingParams], list[Candidates]]


class BeamSearch:
    """One prompt's search. `running` are the beams that go on; it `is_done` when there are none."""

    def __init__(self, prompt: Sequence[int], params: BeamSearchParams, eos_token_ids: Sequence[int]) -> None:
        self.running = [_Beam((), 0.0)]
        self._prompt = list(prompt)
        self._params = params
        self._eos = frozenset(() if params.ignore_eos else eos_token_ids)
        self._ended: list[tuple[_Beam, str]] = []  # best first

    @property
    def is_done(self) -> bool:
        return not self.running

    @property
    def sequences(self) -> list[list[int]]:
        """The token ids whose continuations `advance` wants."""
        return [[*self._prompt, *beam.tokens] for beam in self.running]

    def advance(self, candidates: Sequence[Candidates]) -> None:
        """Go one token further. `candidates`: those of each sequence, two of the best for each beam at least."""
        width = self._params.beam_width
        grown = [
            _Beam((*beam.tokens, token_id), beam.logprob + one.logprob)
            for beam, nexts in zip(self.running, candidates, strict=True)
            for token_id, one in nexts.items()
        ]
        best = sorted(grown, key=lambda beam: -beam.logprob)[: 2 * width]
        for beam in best[:width]:
            if beam.tokens[-1] in self._eos:
                self._end(beam, "stop")
        self.running = [beam for beam in best if beam.tokens[-1] not in self._eos][:width]
        length = len(best[0].tokens)
        if length >= self._params.max_tokens:
            for beam in self.running:
                self._end(beam, "length")
            self.running = []
        elif self.running and len(self._ended) == width and self._score(self.running[0]) <= self._score(self._ended[-1][0]):
            self.running = []

    def output(self, decode: Callable[[list[int]], str]) -> BeamSearchOutput:
        return BeamSearchOutput(
            [
                BeamSearchSequence(
                    [*self._prompt, *beam.tokens], decode([*self._prompt, *beam.tokens]), beam.logprob, self._score(beam), reason
                )
                for beam, reason in self._ended
            ]
        )

    def _score(self, beam: _Beam) -> float:
        return float(beam.logprob / len(beam.tokens) ** self._params.length_penalty)

    def _end(self, beam: _Beam, reason: str) -> None:
        self._ended = sorted([*self._ended, (beam, reason)], key=lambda ended: -self._score(ended[0]))[: self._params.beam_width]


def search(searches: Sequence[BeamSearch], params: BeamSearchParams, next_candidates: NextCandidates) -> None:
    """Carry all searches to their end, token by token together."""
    one_token = SamplingParams(
        max_tokens=1, temperature=0, ignore_eos=True, logprobs=2 * params.beam_width, logprobs_mode="raw", skip_special_tokens=False
    )
    while unfinished := [one for one in searches if not one.is_done]:
        sequences = [sequence for one in unfinished for sequence in one.sequences]
        candidates = iter(next_candidates(sequences, one_token))
        for one in unfinished:
            one.advance([next(candidates) for _ in one.running])


def _check_int(name: str, value: object, limit: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= limit:
        raise InvalidRequest(f"{name} must be an integer in 1..{limit:,}", param=name)
