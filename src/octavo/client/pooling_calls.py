"""What `LLM` does with models that give vectors or scores: many texts in, one output each, in order."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from octavo.client.pooling import PoolChoice, PooledEvent, PoolFront, PoolPrompt, values_of
from octavo.errors import InvalidRequest
from octavo.messages.wire import EngineRequest, PoolRequest, PoolTask, StepOutputs

if TYPE_CHECKING:
    from octavo.client.vectors import FloatArray

Text = str | Sequence[int]
TextPair = tuple[str, str]


class PoolingOutput(msgspec.Struct, frozen=True):
    """`data`: one vector [D], a vector a token [tokens, D], or scores [labels], float32."""

    data: FloatArray


class EmbeddingOutput(msgspec.Struct, frozen=True):
    embedding: list[float]


class ClassificationOutput(msgspec.Struct, frozen=True):
    """`probs`: of the labels in the model's order; `label` the most likely one's name."""

    probs: list[float]
    label: str


class ScoringOutput(msgspec.Struct, frozen=True):
    score: float


class PooledAnswer(msgspec.Struct, frozen=True):
    """One text and its answer. A score of two texts that an embedding model read apart has the ids of both, one behind the other."""

    request_id: str
    prompt_token_ids: list[int]
    outputs: PoolingOutput | EmbeddingOutput | ClassificationOutput | ScoringOutput
    finished: bool = True
    num_cached_tokens: int = 0


class OfflineEngine(Protocol):
    """What the calls ask of the engine in this process."""

    @property
    def has_work(self) -> bool: ...
    def add(self, request: EngineRequest) -> None: ...
    def abort(self, request_ids: list[str]) -> None: ...
    def step(self) -> StepOutputs | None: ...


class PoolingCalls:
    def __init__(self, front: PoolFront, engine: OfflineEngine) -> None:
        self._front = front
        self._engine = engine
        self._num_requests = 0

    def encode(self, texts: Sequence[Text], task: PoolTask, truncate: int | None, *, activate: bool = True) -> list[PooledAnswer]:
        """Return each text's answer to `task` as an array."""
        prompts = [self._front.read(text, truncate=truncate, param="prompt") for text in texts]
        return [
            PooledAnswer(request_id, prompt.token_ids, PoolingOutput(values))
            for prompt, (request_id, values) in zip(prompts, self._run(prompts, task, activate), strict=True)
        ]

    def embed(self, texts: Sequence[Text], truncate: int | None) -> list[PooledAnswer]:
        """Return each text's vector."""
        prompts = [self._front.read(text, truncate=truncate, param="prompt") for text in texts]
        return [
            PooledAnswer(request_id, prompt.token_ids, EmbeddingOutput(values.tolist()))
            for prompt, (request_id, values) in zip(prompts, self._run(prompts, "embed", True), strict=True)
        ]

    def classify(self, texts: Sequence[Text], truncate: int | None) -> list[PooledAnswer]:
        """Return each text's probabilities of the model's labels."""
        prompts = [self._front.read(text, truncate=truncate, param="prompt") for text in texts]
        labels = self._front.spec.labels
        return [
            PooledAnswer(request_id, prompt.token_ids, ClassificationOutput(values.tolist(), labels[int(values.argmax())]))
            for prompt, (request_id, values) in zip(prompts, self._run(prompts, "classify", True), strict=True)
        ]

    def score(self, pairs: Sequence[TextPair], truncate: int | None) -> list[PooledAnswer]:
        """Return how well the texts of each pair go together: a cross-encoder's score, or the cosine of two vectors."""
        if self._front.reads_pairs:
            prompts = [self._front.read_pair(*pair, truncate=truncate, param="prompt") for pair in pairs]
            return [
                PooledAnswer(request_id, prompt.token_ids, ScoringOutput(float(values[0])))
                for prompt, (request_id, values) in zip(prompts, self._run(prompts, "classify", True), strict=True)
            ]
        texts = list(dict.fromkeys(text for pair in pairs for text in pair))
        vectors = dict(zip(texts, self.encode(texts, "embed", truncate), strict=True))
        return [_compare(vectors[first], vectors[second]) for first, second in pairs]

    def _run(self, prompts: Sequence[PoolPrompt], task: PoolTask, activate: bool) -> list[tuple[str, FloatArray]]:
        """Return (request id, answer) of each prompt. Raises InvalidRequest and RequestFailed; nothing is left in the engine then."""
        self._front.check_task(task)
        choices: dict[str, PoolChoice] = {}
        for prompt in prompts:
            self._num_requests += 1
            request = PoolRequest(
                request_id=str(self._num_requests),
                prompt_token_ids=prompt.token_ids,
                task=task,
                second_start=prompt.second_start,
                arrival_s=time.monotonic(),
                activate=activate,
            )
            choices[request.request_id] = PoolChoice(request)
        events: dict[str, PooledEvent] = {}
        try:
            for choice in choices.values():
                self._engine.add(choice.request)
            while len(events) < len(choices):
                outputs = self._engine.step()
                for delta in outputs.deltas if outputs is not None else ():
                    events[delta.request_id] = choices[delta.request_id].feed(delta)
            return [(request_id, values_of(events[request_id])) for request_id in choices]
        except BaseException:
            self._engine.abort(list(choices))
            while self._engine.has_work:
                self._engine.step()
            raise


def pair_up(first: str | Sequence[str], second: str | Sequence[str]) -> list[TextPair]:
    """Return the pairs that a call scores: one text with each of several, or two lists text by text. Raises InvalidRequest."""
    lefts = [first] if isinstance(first, str) else list(first)
    rights = [second] if isinstance(second, str) else list(second)
    if len(lefts) == 1:
        lefts *= len(rights)
    if not lefts or len(lefts) != len(rights):
        raise InvalidRequest(f"{len(lefts)} texts cannot be paired with {len(rights)}; give one and several, or as many of both")
    return list(zip(lefts, rights, strict=True))


def _compare(first: PooledAnswer, second: PooledAnswer) -> PooledAnswer:
    a, b = (answer.outputs.data for answer in (first, second) if isinstance(answer.outputs, PoolingOutput))
    ids = first.prompt_token_ids + second.prompt_token_ids
    from octavo.client.vectors import cosine

    return PooledAnswer(f"{first.request_id}_{second.request_id}", ids, ScoringOutput(cosine(a, b)))
