"""`PoolingCore`: the engine core of models that do not generate. Texts wait, are read whole in one step, and end with it.

A step takes texts by priority, then arrival, as many as fit its tokens and rows. There is no KV memory, so nothing is
preempted and nothing is kept. A step that raises is taken apart: each of its texts runs once more alone; the one that raises
again ends with finish_reason "error". Every request added ends in exactly one final delta.
"""

from __future__ import annotations

import heapq
import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from octavo.errors import EngineError, InvalidRequest, RequestError
from octavo.messages.stats import StepStats
from octavo.messages.wire import ControlReply, ControlRequest, EngineRequest, PoolRequest, StepOutputs, TokenDelta

log = logging.getLogger(__name__)

FloatArray = npt.NDArray[np.float32]

NOT_FINITE = "the model's answer to this text holds values that are not finite"


@dataclass(frozen=True)
class PoolingLimits:
    """`max_model_len` is at most `max_num_batched_tokens`: a text is read in one step."""

    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    vocab_size: int


class TextWorker(Protocol):
    """What the core drives: `worker.pooling.PoolingWorker`, or a fake one in tests."""

    def execute(self, requests: Sequence[PoolRequest]) -> list[FloatArray]: ...


class PoolingCore:
    def __init__(self, worker: TextWorker, limits: PoolingLimits) -> None:
        self._worker = worker
        self._limits = limits
        self._waiting: dict[str, PoolRequest] = {}
        # A heap of (priority, arrival, order of adding, id); ids that have ended are passed over.
        self._order: list[tuple[int, float, int, str]] = []
        self._num_added = 0
        self._num_steps = 0
        self._deltas: list[TokenDelta] = []  # to go out with the next step

    @property
    def has_work(self) -> bool:
        """A step would compute or report something."""
        return bool(self._deltas or self._waiting)

    def add(self, request: EngineRequest) -> None:
        """Queue `request`. One that can never run is answered by a final delta with finish_reason "error".

        Raises EngineError, changing nothing, when its id belongs to an unfinished request."""
        if request.request_id in self._waiting:
            raise EngineError(f"request {request.request_id} is added twice")
        try:
            text = self._checked(request)
        except RequestError as refusal:
            self._deltas.append(TokenDelta(request.request_id, [], "error", error=refusal.message))
            return
        self._num_added += 1
        self._waiting[text.request_id] = text
        heapq.heappush(self._order, (text.priority, text.arrival_s, self._num_added, text.request_id))

    def abort(self, request_ids: Iterable[str]) -> None:
        """End these requests with finish_reason "abort"; ids that have ended are ignored."""
        self._deltas += [TokenDelta(request_id, [], "abort") for request_id in request_ids if self._waiting.pop(request_id, None)]

    def control(self, request: ControlRequest) -> ControlReply:
        """Acknowledge an administrative verb: there is no cache to reset. There is no pausing: a text is read in one step."""
        if request.kind in ("pause", "resume"):
            return ControlReply(request.control_id, False, "an engine that reads texts in one step does not pause")
        return ControlReply(request.control_id, True)

    def reset_prefix_cache(self, reset_running_requests: bool = False) -> bool:
        """Return True: nothing is cached."""
        return True

    def step(self) -> StepOutputs | None:
        """Run one step; return its deltas, with those of refused and aborted requests, or None when there was nothing to do."""
        began = time.perf_counter()
        texts = self._take_texts()
        stats = None
        if texts:
            planned = time.perf_counter()
            self._deltas += self._run(texts)
            ended = time.perf_counter()
            stats = self._stats(texts, schedule_s=planned - began, device_s=ended - planned, step_s=ended - began)
        elif not self._deltas:
            return None
        deltas, self._deltas = self._deltas, []
        return StepOutputs(deltas, stats)

    def _checked(self, request: EngineRequest) -> PoolRequest:
        if not isinstance(request, PoolRequest):
            raise InvalidRequest("this model gives vectors or scores; it does not generate text")
        ids, limits = request.prompt_token_ids, self._limits
        if not 1 <= len(ids) <= limits.max_model_len:
            raise InvalidRequest(f"the text has {len(ids):,} tokens; this model takes 1..{limits.max_model_len:,}")
        if not 0 <= min(ids) <= max(ids) < limits.vocab_size:
            raise InvalidRequest(f"the text holds token ids {min(ids)}..{max(ids)}; this model's are 0..{limits.vocab_size - 1:,}")
        return request

    def _take_texts(self) -> list[PoolRequest]:
        """Take the next texts off the queue, as many as one step holds."""
        texts: list[PoolRequest] = []
        room = self._limits.max_num_batched_tokens
        while self._order and len(texts) < self._limits.max_num_seqs:
            request_id = self._order[0][-1]
            text = self._waiting.get(request_id)
            if text is not None and len(text.prompt_token_ids) > room:
                break
            heapq.heappop(self._order)
            if text is not None:
                room -= len(text.prompt_token_ids)
                texts.append(self._waiting.pop(request_id))
        return texts

    def _run(self, texts: Sequence[PoolRequest]) -> list[TokenDelta]:
        try:
            return [_answer(text, values) for text, values in zip(texts, self._worker.execute(texts), strict=True)]
        except Exception:
            log.exception("a step of %d texts failed; each text is tried alone", len(texts))
        return [self._run_alone(text) for text in texts]

    def _run_alone(self, text: PoolRequest) -> TokenDelta:
        try:
            return _answer(text, self._worker.execute([text])[0])
        except Exception as error:
            log.exception("request %s failed alone", text.request_id)
            return TokenDelta(text.request_id, [], "error", error=f"the engine failed on this request ({type(error).__name__})")

    def _stats(self, texts: Sequence[PoolRequest], *, schedule_s: float, device_s: float, step_s: float) -> StepStats:
        self._num_steps += 1
        num_tokens = sum(len(text.prompt_token_ids) for text in texts)
        return StepStats(
            step_id=self._num_steps,
            num_running=len(texts),
            num_waiting=len(self._waiting),
            num_scheduled_tokens=num_tokens,
            num_prompt_tokens=num_tokens,
            num_output_tokens=0,
            num_preemptions=0,
            num_nan_rows=sum(delta.error == NOT_FINITE for delta in self._deltas),
            kv_usage=0.0,
            prefix_cache_queries=0,
            prefix_cache_hits=0,
            schedule_s=schedule_s,
            device_s=device_s,
            step_s=step_s,
        )


def _answer(text: PoolRequest, values: FloatArray) -> TokenDelta:
    if not np.isfinite(values).all():
        return TokenDelta(text.request_id, [], "error", error=NOT_FINITE)
    return TokenDelta(text.request_id, [], "stop", pooled=values.tobytes())
