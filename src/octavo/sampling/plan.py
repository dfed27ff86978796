"""How each row of a step chooses its token, as arrays: `build_sampling_batch` turns per-row state into a SamplingBatch.

A `SamplingRow` is one request's state: its parameters as numbers, and, only if it asks for what needs them, the ids seen so
far with their counts, DRY's view of the text, the words it may not write. The state is made whole from the request's
tokens, grows by `append`, and is thrown away with its row. A `GivenToken` draws nothing: its log-probability is asked for.

A row whose answer must match a grammar has a `Matcher`, which says what may come next.

Banned ids come from four sources: ids outside allowed_token_ids, ending ids before min_tokens, bad words about to be
completed. Biases come from logit_bias and from DRY.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from octavo.errors import InvalidRequest
from octavo.ops.interface import IntArray, SamplingBatch, concat_start
from octavo.params import SamplingParams
from octavo.sampling.bad_words import BadWords
from octavo.sampling.dry import DryPenalty

if TYPE_CHECKING:
    from octavo.grammar.matcher import Matcher

_NO_IDS = np.zeros(0, np.int32)


class SeenTokens:
    """The distinct ids of a prompt and its output, in order of appearance, and how often each stands in the output."""

    def __init__(self, prompt_token_ids: IntArray) -> None:
        distinct = dict.fromkeys(prompt_token_ids.tolist())
        self._index = {token: index for index, token in enumerate(distinct)}
        self._table = np.zeros((2, max(256, 2 * len(distinct))), np.int32)  # ids, counts; room to grow
        self._table[0, : len(distinct)] = list(distinct)

    def append(self, token_id: int) -> None:
        """Count one more output token."""
        index = self._index.setdefault(token_id, len(self._index))
        if index == self._table.shape[1]:
            self._table = np.concatenate((self._table, np.zeros_like(self._table)), axis=1)
        self._table[0, index] = token_id
        self._table[1, index] += 1

    @property
    def ids(self) -> IntArray:
        return self._table[0, : len(self._index)]

    @property
    def counts(self) -> IntArray:
        return self._table[1, : len(self._index)]


class Scalars(NamedTuple):
    """The parameters that are one number a row, in SamplingBatch's words; the defaults ask for nothing."""

    temperature: Any = 0.0
    top_k: Any = 0
    top_p: Any = 1.0
    min_p: Any = 0.0
    repetition_penalty: Any = 1.0
    presence_penalty: Any = 0.0
    frequency_penalty: Any = 0.0
    seed: Any = 0
    num_logprobs: Any = -1
    typical_p: Any = 1.0
    top_n_sigma: Any = 0.0
    xtc_probability: Any = 0.0
    xtc_threshold: Any = 0.1
    wants_processed: Any = False
    given: Any = -1


_SCALAR_TYPES = (
    *(np.float32, np.int32, np.float32, np.float32, np.float32, np.float32, np.float32, np.uint64, np.int32),
    *(np.float32, np.float32, np.float32, np.float32, np.bool_, np.int32),
)


class SamplingRow:
    """One request's sampling state. `num_tokens` counts prompt and output: the position of the token that comes next."""

    def __init__(
        self,
        params: SamplingParams,
        eos_token_ids: Sequence[int],
        token_ids: IntArray,
        num_prompt_tokens: int,
        vocab_size: int,
        matcher: Matcher | None = None,
    ) -> None:
        """`token_ids` are prompt + output known so far, `matcher` that of the answer's grammar, if it has one.

        Raises InvalidRequest when there is no seed to draw by, or when
        a parameter names an id that the model does not have."""
        if params.seed is None:
            raise InvalidRequest("a request must have a seed by the time it is sampled", param="seed")
        check_ids(params, vocab_size)
        self.params = params
        self.matcher = matcher
        self.num_tokens = len(token_ids)
        self._first_free = num_prompt_tokens + params.min_tokens  # from this position on, ending ids may be drawn
        ending = {*params.stop_token_ids, *(() if params.ignore_eos else eos_token_ids)}
        self._ending_ids = np.array(sorted(token for token in ending if token < vocab_size), np.int32)
        self._always_banned = _NO_IDS
        if params.allowed_token_ids:
            self._always_banned = np.setdiff1d(np.arange(vocab_size, dtype=np.int32), np.array(params.allowed_token_ids, np.int32))
        output = token_ids[num_prompt_tokens:].tolist()
        self._bad_words = BadWords(params.bad_word_ids, output) if params.bad_word_ids else None
        self._dry = DryPenalty(params, token_ids.tolist()) if params.dry_multiplier > 0 else None
        self.seen: SeenTokens | None = None
        if params.repetition_penalty != 1 or params.presence_penalty != 0 or params.frequency_penalty != 0:
            self.seen = SeenTokens(token_ids[:num_prompt_tokens])
            for token in output:
                self.seen.append(token)
        self.scalars = Scalars(
            temperature=params.temperature,
            top_k=params.top_k,
            top_p=params.top_p,
            min_p=params.min_p,
            repetition_penalty=params.repetition_penalty,
            presence_penalty=params.presence_penalty,
            frequency_penalty=params.frequency_penalty,
            seed=params.seed % (1 << 64),
            num_logprobs=-1 if params.logprobs is None else params.logprobs,
            typical_p=params.typical_p,
            top_n_sigma=params.top_n_sigma,
            xtc_probability=params.xtc_probability,
            xtc_threshold=params.xtc_threshold,
            wants_processed=params.logprobs_mode == "processed",
        )

    @property
    def banned_ids(self) -> IntArray:
        if self._bad_words is None and self.num_tokens >= self._first_free:
            return self._always_banned
        banned = [self._always_banned]
        if self.num_tokens < self._first_free:
            banned.append(self._ending_ids)
        if self._bad_words is not None:
            banned.append(np.array(self._bad_words.banned(), np.int32))
        return np.concatenate(banned)

    @property
    def biases(self) -> dict[int, float]:
        """What is added to the logits of which ids."""
        if self._dry is None:
            return self.params.logit_bias
        biases = dict(self.params.logit_bias)
        for token_id, penalty in self._dry.penalties().items():
            biases[token_id] = biases.get(token_id, 0.0) - penalty
        return biases

    @property
    def is_steady(self) -> bool:
        """Whether all but the position stays as it is from here on."""
        return (
            self.matcher is None
            and self._bad_words is None
            and self._dry is None
            and self.seen is None
            and self.num_tokens >= self._first_free
        )

    def append(self, token_id: int) -> None:
        """Take note of the token that was drawn."""
        self.num_tokens += 1
        for memory in (self.seen, self._bad_words, self._dry):
            if memory is not None:
                memory.append(token_id)
        if self.matcher is not None:
            self.matcher.accept(token_id)


class GivenToken(msgspec.Struct, frozen=True):
    """A place whose token is known: it is looked up among the `num_logprobs` most likely ones there."""

    token_id: int
    num_logprobs: int
    num_tokens = 0
    banned_ids = _NO_IDS
    matcher = None
    seen = None
    biases: ClassVar[dict[int, float]] = {}

    is_steady = False

    @property
    def scalars(self) -> Scalars:
        return Scalars(num_logprobs=self.num_logprobs, given=self.token_id)


def check_ids(params: SamplingParams, vocab_size: int) -> None:
    """Raise InvalidRequest when a parameter that names ids names one outside 0..vocab_size - 1."""
    for name, ids in (("logit_bias", params.logit_bias), ("allowed_token_ids", params.allowed_token_ids)):
        if ids and max(ids) >= vocab_size:
            raise InvalidRequest(f"{name} names token id {max(ids)}; this model's ids are 0..{vocab_size - 1:,}", param=name)
    if any(token_id >= vocab_size for ids in params.bad_word_ids for token_id in ids):
        raise InvalidRequest(f"bad_word_ids names a token id beyond 0..{vocab_size - 1:,}", param="bad_word_ids")


class SamplingBatches:
    """The batches of a worker's steps, one after another. While the same steady rows come in the same order, the last one is kept but
    for the positions: after a forward pass Python's code is out of the caches, and making it anew took ten times what it does alone."""

    def __init__(self) -> None:
        self._rows: list[SamplingRow | GivenToken] = []
        self._batch: SamplingBatch | None = None  # of these rows, if all are steady

    def build(self, rows: list[SamplingRow | GivenToken]) -> SamplingBatch:
        """Return what `build_sampling_batch` would."""
        if self._batch is not None and rows == self._rows:
            return replace(self._batch, position=_positions(rows))
        batch = build_sampling_batch(rows)
        self._rows, self._batch = rows, batch if all(row.is_steady for row in rows) else None
        return batch


def build_sampling_batch(rows: Sequence[SamplingRow | GivenToken]) -> SamplingBatch:
    """Return how these rows choose their next token, in their order; at least one row."""
    columns = Scalars._make(
        np.array(column, dtype) for column, dtype in zip(zip(*(row.scalars for row in rows), strict=True), _SCALAR_TYPES, strict=True)
    )
    banned_start, banned_ids = _concat([row.banned_ids for row in rows], np.int32)
    biases = [row.biases for row in rows]
    allowed_row, allowed = _masks([row.matcher for row in rows])
    seen_start, seen_ids = _concat([_NO_IDS if row.seen is None else row.seen.ids for row in rows], np.int32)
    return SamplingBatch(
        **columns._asdict(),
        position=_positions(rows),
        banned_start=banned_start,
        banned_ids=banned_ids,
        bias_start=concat_start([len(bias) for bias in biases]),
        bias_ids=np.array([token_id for bias in biases for token_id in bias], np.int32),
        bias_values=np.array([value for bias in biases for value in bias.values()], np.float32),
        seen_start=seen_start,
        seen_ids=seen_ids,
        seen_counts=_concat([_NO_IDS if row.seen is None else row.seen.counts for row in rows], np.int32)[1],
        allowed_row=allowed_row,
        allowed=allowed,
    )


def _masks(matchers: Sequence[Matcher | None]) -> tuple[IntArray | None, IntArray | None]:
    """Return SamplingBatch's allowed_row and allowed; the matchers have filled their masks."""
    masks = [matcher.allowed for matcher in matchers if matcher is not None]
    if not masks:
        return None, None
    has_mask = np.array([matcher is not None for matcher in matchers])
    return np.where(has_mask, np.cumsum(has_mask) - 1, -1).astype(np.int32), np.stack(masks)


def _positions(rows: Sequence[SamplingRow | GivenToken]) -> npt.NDArray[np.uint64]:
    return np.array([row.num_tokens for row in rows], np.uint64)


def _concat(parts: list[npt.NDArray[Any]], dtype: type[Any]) -> tuple[IntArray, npt.NDArray[Any]]:
    """Return the row starts and the joined values of lists that are mostly empty."""
    lengths = [len(part) for part in parts]
    if not any(lengths):
        return np.zeros(len(parts) + 1, np.int32), np.zeros(0, dtype)
    return concat_start(lengths), np.concatenate(parts, dtype=dtype)
