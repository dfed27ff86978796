"""An engine without a model: the same surface as AsyncEngine, words that depend on nothing but the request.

Answer i of a prompt says "<last prompt character><i> one two three ..." a word a token. It can be held, made to fail and
asked what was aborted.
"""

import asyncio
from collections import deque

from msgspec import structs

from octavo.client.outputs import Logprob, PositionLogprobs, RequestOutput
from octavo.errors import ContextLengthExceeded, EngineDead, InvalidRequest
from octavo.messages.stats import StepStats
from octavo.messages.wire import ControlReply, EngineReady
from octavo.specs.text import GenerationDefaults
from octavo.text.chat import validate_messages

WORDS = ["", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"][1:]
MAX_MODEL_LEN = 512
VOCAB_SIZE = 256


class ByteTokenizer:
    """Token ids are bytes."""

    vocab_size = VOCAB_SIZE
    bos_token_id = None
    eos_token_ids = (3,)
    control_tokens = {"<eos>": 3}

    def with_special_tokens(self, ids):
        return [2, *ids]

    def token_text(self, token_id):
        return chr(token_id)

    def token_bytes(self, token_id):
        return bytes([token_id])

    def is_special(self, token_id):
        return token_id < 4

    def encode(self, text, *, add_special_tokens=True, parse_special=False):
        return list(text.encode("utf-8", "replace"))

    def decode(self, ids, *, skip_special_tokens=True):
        return bytes(ids).decode("utf-8", "replace")

    def min_tokens(self, text):
        return len(text) // 4


class PlainChat:
    """role: text lines. The checks are the real ones."""

    variables = frozenset({"enable_thinking"})
    source = '{"name": <function-name>, "arguments": <args-json-object>} in <tool_call></tool_call>'

    def render(self, messages, *, add_generation_prompt, continue_final_message, tools, documents, template_kwargs, max_prompt_tokens):
        clean = validate_messages(messages)
        for name in template_kwargs or {}:
            if name not in self.variables:
                raise InvalidRequest("the template takes no such variable", code="unknown_parameter", param="chat_template_kwargs")
        lines = [f"document: {document}" for document in documents or ()]
        lines += [f"tools: {' '.join(tool['function']['name'] for tool in tools)}"] if tools else []
        for message in clean:
            lines.append(f"{message['role']}: {message['content']}")
            lines += [f"call: {call['function']['name']}{call['function']['arguments']}" for call in message.get("tool_calls", ())]
        text = "\n".join(lines) + ("\nassistant:" if add_generation_prompt else "")
        if (template_kwargs or {}).get("enable_thinking"):
            text += "<think>\n"
        if max_prompt_tokens is not None and len(text) // 4 > max_prompt_tokens:
            raise ContextLengthExceeded("the messages are too long", param="messages")
        return list(text.encode("utf-8", "replace"))


class FakeGeneration:
    def __init__(self, engine, request_id, outputs):
        self._engine = engine
        self._request_id = request_id
        self._outputs = deque(outputs)
        self._unfinished = sum(output.finish_reason is not None for output in outputs)
        engine.num_unfinished += self._unfinished

    def __aiter__(self):
        return self

    async def __anext__(self):
        if not self._outputs:
            raise StopAsyncIteration
        if self._engine.stall_at is not None and self._outputs[0].num_output_tokens > self._engine.stall_at:
            self._engine.running.clear()
        await self._engine.running.wait()
        await asyncio.sleep(0)
        output = self._outputs.popleft()
        if output.finish_reason is not None:
            self._unfinished -= 1
            self._engine.num_unfinished -= 1
        return output

    async def aclose(self):
        if self._unfinished:
            self._engine.aborted.append(self._request_id)
            self._engine.num_unfinished -= self._unfinished
            self._unfinished = 0
        self._outputs.clear()


class FakeEngine:
    generates = True

    def __init__(self):
        self.ready = EngineReady(
            max_model_len=MAX_MODEL_LEN,
            num_blocks=64,
            block_size=16,
            kv_cache_tokens=1008,
            max_concurrency=2.0,
            vocab_size=VOCAB_SIZE,
            max_num_seqs=8,
            max_num_batched_tokens=64,
            weight_bytes=1000,
            kv_bytes_per_token=64.0,
            startup_lines=[],
        )
        self.tokenizer = ByteTokenizer()
        if self.generates:
            self.chat = PlainChat()
        self.generation = GenerationDefaults(temperature=0.6)
        self.model_names = ("tiny", "tiny-alias")
        self.is_alive = True
        self.last_error = None
        self.num_unfinished = 0
        self.num_queued_tokens = 0
        self.priorities = []
        self.requests = []  # (prompt ids, params, request id, salt)
        self.aborted = []
        self.says = None  # the pieces of text of every answer, instead of words
        self.stop_reason = None  # of every answer
        self.fail_at = None  # the token at which every request ends with an error
        self.error_code = None  # of that error
        self.abort_at = None  # the token at which every request is aborted
        self.stall_at = None  # the token before which every answer waits for `running` to be set anew
        self.running = asyncio.Event()
        self.running.set()
        self.controls = []
        self.is_paused = False
        self._listeners = []

    async def control(self, kind):
        self.controls.append(kind)
        return ControlReply(1, ok=self.num_unfinished == 0)

    async def pause(self, mode, *, clear_cache):
        self.controls.append(("pause", mode, clear_cache))
        self.is_paused = True

    async def resume(self):
        self.is_paused = False

    @property
    def pool_front(self):
        raise InvalidRequest("this model generates text", code="unsupported_task")

    def add_stats_listener(self, listener):
        self._listeners.append(listener)

    def step(self, **counts):
        """Report one engine step to the listeners."""
        fields = {field.name: 0 for field in structs.fields(StepStats) if field.required} | counts
        for listener in self._listeners:
            listener(StepStats(**fields))

    def generate(self, prompt_token_ids, params, *, request_id, cache_salt="", tenant="", priority=0):
        if self.last_error is not None:
            raise EngineDead("the engine is not running")
        for name, ids in (("logit_bias", params.logit_bias), ("stop_token_ids", params.stop_token_ids)):
            if any(token_id >= VOCAB_SIZE for token_id in ids):
                raise InvalidRequest(f"{name} names a token id outside the vocabulary", param=name)
        self.priorities.append(priority)
        self.requests.append((prompt_token_ids, params, request_id, cache_salt))
        by_choice = [self._answer(prompt_token_ids, params, request_id, index) for index in range(params.n)]
        interleaved = [output for turn in range(1024) for answer in by_choice for output in answer[turn : turn + 1]]
        return FakeGeneration(self, request_id, interleaved)

    def _answer(self, prompt, params, request_id, index):
        first = self.tokenizer.decode(prompt[-1:])
        words = self.says or [f"{first}{index}"] + [f" {word}" for word in WORDS]
        num_tokens = min(len(words), params.max_tokens or len(words))
        outputs = []
        if params.prompt_logprobs is not None:  # in two parts, as a chunked prefill gives them
            scored = [position(chr(byte), params.prompt_logprobs, byte) for byte in prompt[1:]]
            for part in (scored[: len(scored) // 2], scored[len(scored) // 2 :]):
                outputs.append(RequestOutput(request_id, index, "", [], None, None, None, len(prompt), 0, 0, prompt_logprobs=part))
        for place, word in enumerate(words[:num_tokens]):
            is_last = place == num_tokens - 1
            reason = ("length" if num_tokens < len(words) else "stop") if is_last else None
            failed, aborted = self.fail_at == place, self.abort_at == place
            outputs.append(
                RequestOutput(
                    request_id=request_id,
                    index=index,
                    text="" if failed else word,
                    token_ids=[] if failed else [place],
                    finish_reason="error" if failed else "abort" if aborted else reason,
                    stop_reason=self.stop_reason if is_last else None,
                    logprobs=None if params.logprobs is None or failed else [position(word, params.logprobs)],
                    num_prompt_tokens=len(prompt),
                    num_output_tokens=place + 1,
                    num_cached_tokens=len(prompt) // 16 * 16,
                    error="the logits hold NaN" if failed else None,
                    error_code=self.error_code if failed else None,
                )
            )
            if failed or aborted:
                break
        return outputs


def position(word, width, token_id=0):
    top = tuple(Logprob(rank, f"{word}{rank}", f"{word}{rank}".encode(), -float(rank), rank) for rank in range(1, width + 1))
    return PositionLogprobs(Logprob(token_id, word, word.encode(), -0.25, 1), top)
