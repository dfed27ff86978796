"""`LLM`: the offline API. Prompts in, finished answers out, the engine in this very process: no server, no socket."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from octavo.client.answers import Answer, Candidates
from octavo.client.beam_search import BeamSearch, BeamSearchOutput, BeamSearchParams, search
from octavo.client.conversations import Conversations, render_conversations
from octavo.client.front import check_generates, default_sampling_params
from octavo.client.inline import InlineEngine, Submitted
from octavo.client.pooling import PoolFront
from octavo.client.pooling_calls import PooledAnswer, PoolingCalls, pair_up
from octavo.client.prompts import Prompt, ReadPrompt, list_prompts, read_prompt, text_or_ids
from octavo.client.settings import engine_config
from octavo.config.schema import DEFAULT_MODEL
from octavo.errors import ContextLengthExceeded, InvalidRequest
from octavo.messages.wire import PoolTask
from octavo.metrics.snapshot import Snapshot
from octavo.params import SamplingParams
from octavo.text.tokenizer import Tokenizer

Params = SamplingParams | Sequence[SamplingParams] | None
Value = TypeVar("Value")


class LLM:
    """A model, loaded. Keyword arguments are the fields of ModelConfig, CacheConfig, SchedulerConfig and RuntimeConfig.

    Raises StartupError. Not thread-safe: one call at a time.
    """

    def __init__(self, model: str | Path = DEFAULT_MODEL, **settings: Any) -> None:
        self._engine = InlineEngine(engine_config({"model": model, **settings}))
        self._front = self._engine.front
        self._enqueued: list[Submitted] = []

    def get_tokenizer(self) -> Tokenizer:
        return self._front.tokenizer

    def get_default_sampling_params(self) -> SamplingParams:
        """Return the sampling defaults of the model's own files, which generate() and chat() use when given none."""
        return default_sampling_params(self._front.generation)

    def get_metrics(self) -> Snapshot:
        """Return the counters, gauges and histograms that a server of this model shows at /metrics."""
        return self._engine.metrics.snapshot(is_idle=not self._engine.core.has_work)

    def generate(
        self,
        prompts: Prompt | Iterable[Prompt],
        sampling_params: Params = None,
        *,
        use_tqdm: bool = True,
        priority: Sequence[int] | None = None,
    ) -> list[Answer]:
        """Return one Answer a prompt, in order. A prompt is text, token ids or a dict of either (client/prompts.py); parameters
        are shared or one a prompt; `priority` is one a prompt, lower is sooner.

        Raises RequestError for a bad prompt or parameter before anything runs, RequestFailed when the engine fails one.
        """
        return self._engine.finish(self._submit(self._read(prompts), sampling_params, priority), use_tqdm=use_tqdm)

    def chat(
        self,
        messages: Conversations,
        sampling_params: Params = None,
        *,
        chat_template: str | None = None,
        add_generation_prompt: bool | None = None,
        continue_final_message: bool = False,
        tools: list[dict[str, Any]] | None = None,
        chat_template_kwargs: dict[str, Any] | None = None,
        use_tqdm: bool = True,
    ) -> list[Answer]:
        """Return one Answer a conversation (one conversation, or a list of them). Raises as generate does.

        The model is told of `tools`, in OpenAI's shape; calls of them stand in the answer's text as it writes them.
        `chat_template`: the text of one to use in place of the model's own. The generation prompt is added unless the final
        message is continued.
        """
        prompts = render_conversations(
            self._front,
            self._engine.path,
            messages,
            chat_template=chat_template,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            tools=tools,
            chat_template_kwargs=chat_template_kwargs,
        )
        return self._engine.finish(self._submit(prompts, sampling_params, None), use_tqdm=use_tqdm)

    def enqueue(
        self, prompts: Prompt | Iterable[Prompt], sampling_params: Params = None, *, priority: Sequence[int] | None = None
    ) -> list[str]:
        """Give the engine prompts and return their request ids at once; wait_for_completion() answers them. Raises RequestError."""
        submitted = self._submit(self._read(prompts), sampling_params, priority)
        self._enqueued += submitted
        return [run.builder.request_id for run in submitted]

    def enqueue_chat(self, messages: Conversations, sampling_params: Params = None, **template: Any) -> list[str]:
        """Do for conversations as enqueue(); `template` are the arguments of chat() that make the prompt. Raises RequestError."""
        submitted = self._submit(render_conversations(self._front, self._engine.path, messages, **template), sampling_params, None)
        self._enqueued += submitted
        return [run.builder.request_id for run in submitted]

    def wait_for_completion(self, *, use_tqdm: bool = True) -> list[Answer]:
        """Return the answers to all that was enqueued, in that order. Raises RequestFailed when the engine fails one."""
        runs, self._enqueued = self._enqueued, []
        return self._engine.finish(runs, use_tqdm=use_tqdm)

    def beam_search(self, prompts: Prompt | Iterable[Prompt], params: BeamSearchParams) -> list[BeamSearchOutput]:
        """Return the most likely answers to each prompt, best first. Raises RequestError before anything runs, and RequestFailed."""
        check_generates(self._front)
        read = self._read(prompts)
        limit = self._engine.ready.max_model_len
        for prompt in read:
            if len(prompt.token_ids) + params.max_tokens > limit:
                raise ContextLengthExceeded(
                    f"the prompt has {len(prompt.token_ids):,} tokens and max_tokens is {params.max_tokens:,}; "
                    f"this model takes {limit:,} together (max_model_len)",
                    param="max_tokens",
                )
        searches = [BeamSearch(prompt.token_ids, params, self._front.generation.eos_token_ids) for prompt in read]
        search(searches, params, self._next_candidates)
        return [one.output(self._front.tokenizer.decode) for one in searches]

    def embed(self, prompts: Prompt | Iterable[Prompt], *, truncate_prompt_tokens: int | None = None) -> list[PooledAnswer]:
        """Return each prompt's vector (`.outputs.embedding`), in order. `truncate_prompt_tokens`: cut longer prompts there, -1
        where the model ends; None refuses them.

        Raises RequestError, also for a model that does not do it, before anything runs, and RequestFailed."""
        return self._pooling().embed(_texts(prompts), truncate_prompt_tokens)

    def encode(
        self,
        prompts: Prompt | Iterable[Prompt],
        *,
        pooling_task: PoolTask = "token_embed",
        use_activation: bool = True,
        truncate_prompt_tokens: int | None = None,
    ) -> list[PooledAnswer]:
        """Return each prompt's array (`.outputs.data`): embed one vector, token_embed one a token, classify the scores of the
        classes. Without `use_activation` vectors keep their length and scores are no probabilities. Raises as embed does."""
        return self._pooling().encode(_texts(prompts), pooling_task, truncate_prompt_tokens, activate=use_activation)

    def classify(self, prompts: Prompt | Iterable[Prompt], *, truncate_prompt_tokens: int | None = None) -> list[PooledAnswer]:
        """Return each prompt's probabilities of the model's labels (`.outputs.probs`). Raises as embed does."""
        return self._pooling().classify(_texts(prompts), truncate_prompt_tokens)

    def score(
        self, data_1: str | Sequence[str], data_2: str | Sequence[str], *, truncate_prompt_tokens: int | None = None
    ) -> list[PooledAnswer]:
        """Return how well two texts go together (`.outputs.score`): one with each of several, or two lists text by text. A
        cross-encoder's score, or the cosine of an embedding model's vectors. Raises as embed does."""
        return self._pooling().score(pair_up(data_1, data_2), truncate_prompt_tokens)

    def reset_prefix_cache(self, reset_running_requests: bool = False) -> bool:
        """Forget every cached prefix; return False while requests run, unless they are to be reset (they start over, same answer)."""
        return self._engine.core.reset_prefix_cache(reset_running_requests)

    def sleep(self, level: int = 1) -> NoReturn:
        """Raise InvalidRequest: weights and KV memory of this engine stay where they are until the LLM is gone."""
        raise _no_sleep("sleep")

    def wake_up(self, tags: list[str] | None = None) -> NoReturn:
        """Raise InvalidRequest, as sleep does."""
        raise _no_sleep("wake_up")

    def _pooling(self) -> PoolingCalls:
        return PoolingCalls(PoolFront(self._front, self._engine.ready.max_model_len), self._engine.core)

    def _read(self, prompts: Prompt | Iterable[Prompt]) -> list[ReadPrompt]:
        return [read_prompt(prompt, self._front.tokenizer) for prompt in list_prompts(prompts)]

    def _submit(self, prompts: list[ReadPrompt], sampling_params: Params, priority: Sequence[int] | None) -> list[Submitted]:
        params = self.get_default_sampling_params() if sampling_params is None else sampling_params
        return self._engine.submit(
            prompts,
            _one_each("sampling_params", params, SamplingParams, len(prompts)),
            _one_each("priority", 0 if priority is None else priority, int, len(prompts)),
        )

    def _next_candidates(self, sequences: list[list[int]], params: SamplingParams) -> list[Candidates]:
        runs = self._submit([ReadPrompt(None, sequence) for sequence in sequences], params, None)
        return [answer.outputs[0].logprobs[0] for answer in self._engine.finish(runs, use_tqdm=False) if answer.outputs[0].logprobs]


def _one_each(name: str, values: Value | Sequence[Value], kind: type[Value], count: int) -> list[Value]:
    """Return one value for all prompts, or a list of one each, as a list. Raises InvalidRequest."""
    if isinstance(values, kind):
        return [values] * count
    if not isinstance(values, Sequence) or not all(isinstance(one, kind) for one in values):
        raise InvalidRequest(
            f"{name} must be {kind.__name__} or a list of them, not {type(values).__name__}", code="invalid_type", param=name
        )
    if len(values) != count:
        raise InvalidRequest(f"{count} prompts but {len(values)} {name}; give one for all or one each", param=name)
    return list(values)


def _texts(prompts: Prompt | Iterable[Prompt]) -> list[str | list[int]]:
    return [text_or_ids(prompt) for prompt in list_prompts(prompts)]


def _no_sleep(name: str) -> InvalidRequest:
    return InvalidRequest(
        f"{name}: this engine has no sleep mode; to free its memory let go of the LLM, and make it again (it loads in about a second)",
        code="unsupported_operation",
    )
