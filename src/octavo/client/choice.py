"""One choice of one request, on the caller's side: token deltas in, text events out.

The engine knows ids only. Text, stop strings and the candidates' names are made here, the same way for the server, for
`AsyncEngine` and for the offline `LLM`.
"""

from __future__ import annotations

import msgspec

from octavo.client.outputs import Logprob, PositionLogprobs, RequestOutput
from octavo.messages.wire import GenerateRequest, TokenDelta, TokenLogprobs
from octavo.text.detokenizer import Detokenizer
from octavo.text.tokenizer import Tokenizer


class Choice:
    """Folds the deltas of `request` (choice `index` of the caller's `request_id`) into events.

    After an event with a finish_reason there is no other. `ended_by_stop_string` then tells that the engine has not
    heard of the end yet and must be told to abort.
    """

    def __init__(self, request_id: str, index: int, request: GenerateRequest, tokenizer: Tokenizer) -> None:
        params = request.params
        self.request = request
        self.output_token_ids: list[int] = []
        self.num_scored_tokens = 0  # of the prompt
        self.ended_by_stop_string = False
        self.request_id = request_id
        self._index = index
        self._tokenizer = tokenizer
        self._ending_ids = frozenset((*request.eos_token_ids, *params.stop_token_ids))  # a grammar may end an answer without one
        self._detokenizer = Detokenizer(
            tokenizer,
            skip_special_tokens=params.skip_special_tokens,
            stop=params.stop,
            include_stop_str_in_output=params.include_stop_str_in_output,
            min_tokens=params.min_tokens,
            continues_text=True,
        )

    def resumed(self) -> GenerateRequest:
        """Return the request to give to a new engine: it goes on behind the tokens that have come."""
        sent = {"resume_token_ids": list(self.output_token_ids), "num_scored_tokens": self.num_scored_tokens}
        return msgspec.structs.replace(self.request, **sent)

    def feed(self, delta: TokenDelta) -> RequestOutput:
        """Return the event of one delta."""
        self.output_token_ids += delta.token_ids
        finish_reason, stop_reason = delta.finish_reason, delta.stop_reason
        shown = delta.token_ids
        if finish_reason == "stop" and shown and shown[-1] in self._ending_ids and not self.request.params.include_stop_str_in_output:
            shown = shown[:-1]  # the token that ended the answer is an output token but no text
        piece = self._detokenizer.push(shown)
        text = piece.text
        reason: str | int | None = stop_reason
        if piece.stop_string is not None:
            self.ended_by_stop_string = finish_reason is None
            finish_reason, reason = "stop", piece.stop_string
        elif finish_reason is not None:
            text += self._detokenizer.finish()
        return RequestOutput(
            request_id=self.request_id,
            index=self._index,
            text=text,
            token_ids=delta.token_ids,
            finish_reason=finish_reason,
            stop_reason=reason,
            logprobs=None if delta.logprobs is None else self._named(delta.token_ids, delta.logprobs),
            num_prompt_tokens=len(self.request.prompt_token_ids),
            num_output_tokens=len(self.output_token_ids),
            num_cached_tokens=delta.num_cached_tokens,
            error=delta.error,
            prompt_logprobs=None if delta.prompt_logprobs is None else self._scored(delta.prompt_logprobs),
            begun_s=delta.begun_s,
            num_preemptions=delta.num_preemptions,
            error_code=delta.error_code,
            num_loaded_tokens=delta.num_loaded_tokens,
        )

    def _scored(self, logprobs: list[TokenLogprobs]) -> list[PositionLogprobs]:
        """Return the next prompt tokens' log-probabilities; the first token has none."""
        first = 1 + self.num_scored_tokens
        self.num_scored_tokens += len(logprobs)
        return self._named(self.request.prompt_token_ids[first : first + len(logprobs)], logprobs)

    def _named(self, token_ids: list[int], logprobs: list[TokenLogprobs]) -> list[PositionLogprobs]:
        return [
            PositionLogprobs(
                sampled=self._candidate(token_id, position.logprob, position.rank),
                top=tuple(
                    self._candidate(top_id, logprob, rank)
                    for rank, (top_id, logprob) in enumerate(zip(position.top_ids, position.top_logprobs, strict=True), start=1)
                ),
            )
            for token_id, position in zip(token_ids, logprobs, strict=True)
        ]

    def _candidate(self, token_id: int, logprob: float, rank: int) -> Logprob:
        token_bytes = self._tokenizer.token_bytes(token_id)
        return Logprob(token_id, token_bytes.decode(errors="replace"), token_bytes, logprob, rank)
