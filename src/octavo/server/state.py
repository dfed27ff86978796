"""What the handlers share: the engine (None while it loads), the settings, the keys, the metrics, a pool for tokenising."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from octavo import __version__
from octavo.client.outputs import RequestOutput
from octavo.client.pooling import PoolFront, PoolPrompt
from octavo.config.schema import CacheConfig
from octavo.config.server_schema import ServerConfig
from octavo.errors import EngineDead
from octavo.grammar.sandbox import GrammarSandbox
from octavo.kv.block_files import derive_secret
from octavo.messages.stats import StepStats
from octavo.messages.wire import ControlReply, EngineReady, PauseMode, Phase, PoolTask
from octavo.metrics.recorder import MetricsRecorder
from octavo.params import SamplingParams
from octavo.server.answer_format import AnswerFormat, choose_format
from octavo.server.auth import KeyRing
from octavo.server.drain_rate import DrainRate
from octavo.server.errors import draining, model_loading, overloaded
from octavo.server.share import Share, alone
from octavo.server.stats_line import StatsLine
from octavo.server.tenant_turns import TenantTurns
from octavo.specs.text import GenerationDefaults
from octavo.text.chat import ChatTemplate
from octavo.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from octavo.client.vectors import FloatArray

T = TypeVar("T")


class Generation(Protocol):
    """The events of one request; closing it aborts what is unfinished."""

    def __aiter__(self) -> AsyncIterator[RequestOutput]: ...
    async def __anext__(self) -> RequestOutput: ...
    async def aclose(self) -> None: ...


class Engine(Protocol):
    """What the server asks of client.async_engine.AsyncEngine."""

    ready: EngineReady

    @property
    def last_error(self) -> str | None: ...
    @property
    def generates(self) -> bool: ...
    @property
    def tokenizer(self) -> Tokenizer: ...
    @property
    def chat(self) -> ChatTemplate | None: ...
    @property
    def generation(self) -> GenerationDefaults: ...
    @property
    def model_names(self) -> tuple[str, ...]: ...
    @property
    def is_alive(self) -> bool: ...
    @property
    def num_unfinished(self) -> int: ...
    @property
    def num_queued_tokens(self) -> int: ...
    def generate(
        self, prompt_token_ids: list[int], params: SamplingParams, *, request_id: str, cache_salt: str, tenant: str, priority: int
    ) -> Generation: ...
    async def control(self, kind: Literal["ping", "reset_prefix_cache"]) -> ControlReply: ...
    @property
    def is_paused(self) -> bool: ...
    async def pause(self, mode: PauseMode, *, clear_cache: bool) -> None: ...
    async def resume(self) -> None: ...
    @property
    def pool_front(self) -> PoolFront: ...
    async def pool(self, prompt: PoolPrompt, task: PoolTask, *, activate: bool = True, priority: int = 0) -> FloatArray: ...
    def add_stats_listener(self, listener: Callable[[StepStats], None]) -> None: ...


class ServerState:
    """Made before the model is loaded; `attach` gives it the engine once, `drain` ends the taking of new requests."""

    def __init__(self, config: ServerConfig, share: Share | None = None) -> None:
        self.config = config
        self.share = share or alone(config.response_store_bytes)
        self.keys = KeyRing(config.api_key)
        if self.share.secret is not None:
            self.keys.keep_salts(self.share.secret)
        self._metrics: MetricsRecorder | None = None
        self.system_fingerprint = ""
        self.answer_format = AnswerFormat()
        self.responses = self.share.responses
        self.stats_line = StatsLine()
        self._engine: Engine | None = None
        self.phases: Sequence[Phase] = ()
        self.drained_answers = DrainRate()
        self.drained_tokens = DrainRate()
        self._is_draining = False
        self._text_pool = ThreadPoolExecutor(max_workers=2, thread_name_prefix="text")
        self.sandbox = GrammarSandbox()
        self._grammar_turns = TenantTurns(num_threads=4, name="grammar")

    def attach(self, engine: Engine, cache: CacheConfig | None = None, phases: Sequence[Phase] = ()) -> None:
        """Serve with `engine`. `phases`: of this process' start."""
        ready = engine.ready
        metrics = MetricsRecorder(
            self.config.metrics_prefix,
            engine.model_names[0],
            ready,
            cache or CacheConfig(),
            self.share.figures,
            lambda: self.share.load.process_ids,
        )
        engine.add_stats_listener(metrics.record_step)
        engine.add_stats_listener(self.stats_line.record_step)
        if cache is not None and cache.kv_offload_dir is not None:
            self.keys.keep_salts(derive_secret(Path(cache.kv_offload_dir), b"tenant salts"))
        self._metrics = metrics
        identity = f"{__version__} {engine.model_names[0]} {ready.max_model_len} {ready.vocab_size}"
        self.system_fingerprint = f"fp_{hashlib.sha256(identity.encode()).hexdigest()[:12]}"
        self.answer_format = choose_format(self.config, engine.chat.source if engine.generates and engine.chat is not None else "")
        self.phases = phases
        self._engine = engine

    def drain(self) -> None:
        self._is_draining = True

    @property
    def engine(self) -> Engine:
        """The engine. Raises CapacityError while it loads or after `drain`, EngineDead when it is gone for good."""
        if self._engine is None:
            raise model_loading()
        if self._is_draining:
            raise draining()
        if self._engine.last_error is not None:
            raise EngineDead("the engine is gone; the server's log says why")
        return self._engine

    @property
    def model_names(self) -> tuple[str, ...]:
        """The names under which the model is served; none while it loads."""
        return () if self._engine is None else self._engine.model_names

    @property
    def tasks(self) -> set[str] | None:
        """What the model does, in the words of Endpoint.task; None while it loads."""
        engine = self._engine
        if engine is None:
            return None
        if engine.generates:
            return {"generate"}
        front = engine.pool_front
        return {"pool", *front.tasks, *(("score",) if front.scores_pairs else ())}

    @property
    def metrics(self) -> MetricsRecorder:
        """Raises CapacityError while the engine loads."""
        if self._metrics is None:
            raise model_loading()
        return self._metrics

    def render_metrics(self) -> bytes:
        """Return the metrics as Prometheus reads them. Raises CapacityError while the engine loads."""
        return self.metrics.render(is_idle=self._engine is None or self._engine.num_unfinished == 0)

    def check_health(self) -> None:
        """Raise what `engine` raises, and EngineDead while the engine process is being replaced."""
        if not self.engine.is_alive:
            raise EngineDead("the engine is being restarted")

    def admit(self, num_choices: int = 1) -> Engine:
        """Return the engine for a request of so many choices. Raises what `engine` raises, and CapacityError when too many
        are unfinished, or too many prompt tokens wait: the request that crosses that limit is itself still taken."""
        engine, config = self.engine, self.config
        limit = config.max_num_queued_reqs
        if limit is not None and engine.num_unfinished + num_choices > limit:
            self.metrics.count("requests_refused", 1)
            seconds = self.drained_answers.seconds_for(engine.num_unfinished + num_choices - limit)
            raise overloaded(f"{engine.num_unfinished:,} requests are unfinished", f"{limit:,} (max_num_queued_reqs)", seconds)
        limit = config.max_num_queued_tokens
        if limit is not None and engine.num_queued_tokens >= limit:
            self.metrics.count("requests_refused", 1)
            seconds = self.drained_tokens.seconds_for(engine.num_queued_tokens - limit + 1)
            raise overloaded(f"{engine.num_queued_tokens:,} prompt tokens wait", f"{limit:,} (max_num_queued_tokens)", seconds)
        return engine

    async def in_grammar_pool(self, tenant: str, work: Callable[..., T], *args: Any) -> T:
        """Return work(*args), done where it holds up neither the event loop nor tokenising nor other tenants: it may wait for the sandbox.
        Raises CapacityError when too many of the tenant's requests wait there."""
        return await self._grammar_turns.run(tenant, work, *args)

    async def in_text_pool(self, work: Callable[..., T], *args: Any) -> T:
        """Return work(*args), done off the event loop: tokenising a long text takes time."""
        return await asyncio.get_running_loop().run_in_executor(self._text_pool, work, *args)
