"""The engine's settings, frozen, one struct a room. (The server's: server_schema.py.)

None means "decide for this device": engine/startup.py turns it into a number and reports it in EngineReady; derived
numbers are never written back here. flags.py maps command-line flags onto these fields, resolve.py remembers where each
value came from. Field names are vLLM's where vLLM has the field.
"""

from __future__ import annotations

import msgspec

from octavo.errors import ConfigError
from octavo.specs.kv import FP8_DS_MLA, KV_DTYPES

DEFAULT_MODEL = "smollm2-135m-instruct"
_LOCAL_ENDPOINTS = ("ipc://", "inproc://", "tcp://127.0.0.1:", "tcp://localhost:", "tcp://[::1]:")
HASH_ALGOS = ("sha256", "sha256_cbor", "xxhash", "xxhash_cbor")
# Names of --kv-cache-dtype, vLLM's among them, and what they mean.
KV_DTYPE_NAMES = {
    **{dtype: dtype for dtype in KV_DTYPES},
    "float16": "f16",
    "bfloat16": "bf16",
    "fp8": "fp8_e4m3",
    "int8": "int8_per_token_head",
    FP8_DS_MLA: FP8_DS_MLA,
}


class ModelConfig(msgspec.Struct, frozen=True):
    """`model`: a catalogue name, hf:ORG/REPO[@REV], a .gguf file or a safetensors folder."""

    model: str = DEFAULT_MODEL
    served_model_name: tuple[str, ...] = ()
    max_model_len: int | None = None
    chat_template: str | None = None  # path of a Jinja file that replaces the model's own
    generation_config: str = "auto"  # auto: sampling defaults from the model's files; octavo: none
    logprobs_mode: str = "raw_logprobs"  # of the model's own logits | processed_logprobs: of what a token was drawn from
    runner: str = "auto"  # auto: what the model does | generate: text | pooling: vectors and scores
    seed: int | None = None  # makes unseeded requests reproducible, in order of arrival

    def __post_init__(self) -> None:
        if self.max_model_len is not None and self.max_model_len < 1:
            raise ConfigError(f"max_model_len is {self.max_model_len}; it must be at least 1")
        if "" in self.served_model_name:
            raise ConfigError("served_model_name holds an empty name; clients could not ask for it")
        one_of("logprobs_mode", self.logprobs_mode, ("raw_logprobs", "processed_logprobs"))
        one_of("generation_config", self.generation_config, ("auto", "octavo"))
        one_of("runner", self.runner, ("auto", "generate", "pooling"))


class KVEventsConfig(msgspec.Struct, frozen=True):
    """News of the prefix cache over ZeroMQ; names and defaults are vLLM's, but for the endpoint, which stays on this machine.

    `allow_remote`: let the endpoints be reached from other machines; whoever reaches them sees the token ids of all prompts.
    """

    enable_kv_cache_events: bool = True
    publisher: str = "zmq"  # zmq | null
    endpoint: str = "tcp://127.0.0.1:5557"
    replay_endpoint: str | None = None
    buffer_steps: int = 10_000  # batches that a replay can go back
    hwm: int = 100_000  # messages queued for a slow subscriber before it loses some
    max_queue_size: int = 100_000  # changes queued before some are lost
    topic: str = ""
    allow_remote: bool = False

    def __post_init__(self) -> None:
        one_of("kv_events_config: publisher", self.publisher, ("zmq", "null"))
        for name in ("buffer_steps", "hwm", "max_queue_size"):
            if getattr(self, name) < 1:
                raise ConfigError(f"kv_events_config: {name} is {getattr(self, name)}; it must be at least 1")
        for endpoint in (self.endpoint, self.replay_endpoint or self.endpoint):
            if not self.allow_remote and not endpoint.startswith(_LOCAL_ENDPOINTS):
                raise ConfigError(
                    f"kv_events_config: {endpoint} can be reached from other machines, and what it sends holds the token ids of "
                    'prompts; use ipc:// or tcp://127.0.0.1, or set "allow_remote": true'
                )

    @property
    def is_on(self) -> bool:
        return self.enable_kv_cache_events and self.publisher == "zmq"


class CacheConfig(msgspec.Struct, frozen=True):
    block_size: int = 16
    gpu_memory_utilization: float | None = None  # share of the device's free memory for weights + activations + KV
    kv_cache_memory_bytes: int | None = None  # exact size of the KV pool; overrides the share
    kv_cache_dtype: str = "auto"  # auto (the backend's own) or one of KV_DTYPE_NAMES
    num_gpu_blocks_override: int | None = None
    enable_prefix_caching: bool = True
    prefix_caching_hash_algo: str = "sha256"  # sha256 | sha256_cbor | xxhash | xxhash_cbor
    kv_events: KVEventsConfig | None = None
    kv_offload_gib: float | None = None  # size of the tier beyond the pool; None: none, or 4 GiB where there is a directory
    kv_offload_dir: str | None = None  # where the tier is kept, also across restarts; None: in host memory
    preemption_mode: str = "auto"  # auto | recompute | swap
    kv_cache_metrics: bool = False  # measure how long blocks stay in the pool
    kv_cache_metrics_sample: float = 0.01  # of that share of them

    def __post_init__(self) -> None:
        if self.block_size not in (16, 32, 64, 128):
            raise ConfigError(f"block_size is {self.block_size}; choose 16, 32, 64 or 128")
        share = self.gpu_memory_utilization
        if share is not None and not 0 < share <= 1:
            raise ConfigError(f"gpu_memory_utilization is {share:g}; it must be more than 0 and at most 1")
        if self.kv_cache_memory_bytes is not None and self.kv_cache_memory_bytes < 1:
            raise ConfigError(f"kv_cache_memory_bytes is {self.kv_cache_memory_bytes}; it must be at least 1")
        if self.num_gpu_blocks_override is not None and self.num_gpu_blocks_override < 2:
            raise ConfigError(
                f"num_gpu_blocks_override is {self.num_gpu_blocks_override}; it must be at least 2 (block 0 is the null block)"
            )
        if not 0 < self.kv_cache_metrics_sample <= 1:
            raise ConfigError(f"kv_cache_metrics_sample is {self.kv_cache_metrics_sample:g}; it must be more than 0 and at most 1")
        one_of("kv_cache_dtype", self.kv_cache_dtype, ("auto", *KV_DTYPE_NAMES))
        one_of("prefix_caching_hash_algo", self.prefix_caching_hash_algo, HASH_ALGOS)
        one_of("preemption_mode", self.preemption_mode, ("auto", "recompute", "swap"))
        if self.kv_offload_gib is not None and not 0 < self.kv_offload_gib <= 1 << 20:
            raise ConfigError(f"kv_offload_gib is {self.kv_offload_gib:g}; it must be more than 0 and at most 1,048,576")
        if self.preemption_mode == "swap" and not self.has_tier:
            raise ConfigError("preemption_mode is swap, but there is nowhere to swap to: give kv_offload_gib or kv_offload_dir")
        if self.has_tier and not self.enable_prefix_caching:
            raise ConfigError(
                "kv_offload_gib and kv_offload_dir keep cached blocks, but prefix caching is off: turn it on or leave them out"
            )
        if self.has_tier and not self.prefix_caching_hash_algo.startswith("sha256"):
            raise ConfigError(
                f"prefix_caching_hash_algo is {self.prefix_caching_hash_algo}; blocks kept beyond the pool are known by their hash alone, "
                "so it must be sha256 or sha256_cbor"
            )

    @property
    def has_tier(self) -> bool:
        return self.kv_offload_gib is not None or self.kv_offload_dir is not None


MAX_WAIT_S = 86_400.0  # a day


class SchedulerConfig(msgspec.Struct, frozen=True):
    """None: 128 sequences and 512 tokens a step on a CPU, twice that for throughput; active and scheduled: as those two."""

    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    max_num_active_seqs: int | None = None  # most requests running; buffers keep the size of max_num_seqs
    max_num_scheduled_tokens: int | None = None  # most tokens handed out in a step
    performance_mode: str = "balanced"  # balanced | throughput | interactivity
    scheduling_policy: str = "fcfs"  # fcfs (turns between tenants) | priority
    enable_chunked_prefill: bool = True
    long_prefill_token_threshold: int = 0  # 0: half of what is left of a step
    long_prefill_token_threshold_adaptive: bool = False  # never less than an equal share of a step
    watermark: float = 0.0  # share of blocks kept free when admitting waiting requests
    mixed_step_ms: float | None = None  # prompts are cut so that a step that others wait for takes this long; 0: never; None: by mode
    max_queue_s: float | None = None  # longest wait for a first step; None: for ever
    async_scheduling: bool = True  # plan a step while the one before it computes

    def __post_init__(self) -> None:
        one_of("performance_mode", self.performance_mode, ("balanced", "throughput", "interactivity"))
        one_of("scheduling_policy", self.scheduling_policy, ("fcfs", "priority"))
        if self.max_num_seqs is not None and (self.max_num_active_seqs or 0) > self.max_num_seqs:
            raise ConfigError(
                f"max_num_active_seqs is {self.max_num_active_seqs:,}; it must be at most max_num_seqs, {self.max_num_seqs:,}"
            )
        for name in ("max_num_seqs", "max_num_batched_tokens", "max_num_active_seqs", "max_num_scheduled_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} is {value}; it must be at least 1")
        if self.max_num_seqs is not None and self.max_num_batched_tokens is not None and self.max_num_batched_tokens < self.max_num_seqs:
            raise ConfigError(
                f"max_num_batched_tokens is {self.max_num_batched_tokens:,} and max_num_seqs {self.max_num_seqs:,}: "
                "a step must be able to give each running request one token; raise the first or lower the second"
            )
        if self.long_prefill_token_threshold < 0:
            raise ConfigError(f"long_prefill_token_threshold is {self.long_prefill_token_threshold}; it must be at least 0 (0: off)")
        if self.max_queue_s is not None and not 0 < self.max_queue_s <= MAX_WAIT_S:
            raise ConfigError(f"max_queue_s is {self.max_queue_s:g}; it must be more than 0 and at most {MAX_WAIT_S:,.0f}")
        if self.mixed_step_ms is not None and not 0 <= self.mixed_step_ms <= 60_000:
            raise ConfigError(f"mixed_step_ms is {self.mixed_step_ms:g}; it must be at least 0 (0: off) and at most 60,000")
        if not 0 <= self.watermark < 1:
            raise ConfigError(f"watermark is {self.watermark:g}; it must be at least 0 and less than 1")


ISAS = ("portable", "avx2", "avxvnni", "avx512", "amx", "neon", "i8mm")


class RuntimeConfig(msgspec.Struct, frozen=True):
    backend: str = "native"
    enforce_eager: bool = False
    threads: int | None = None  # None: the CPUs that this process may use
    isa: str | None = None  # of ISAS; None: the best that this CPU has
    enable_mfu_metrics: bool = False  # count what steps have to do at least: operations, bytes

    def __post_init__(self) -> None:
        one_of("backend", self.backend, ("native", "reference"))
        if self.threads is not None and not 1 <= self.threads <= 1024:
            raise ConfigError(f"threads is {self.threads}; it must lie in 1..1024")
        if self.isa is not None:
            one_of("isa", self.isa, ISAS)


class EngineConfig(msgspec.Struct, frozen=True):
    """All that an engine process needs to start."""

    model: ModelConfig = msgspec.field(default_factory=ModelConfig)
    cache: CacheConfig = msgspec.field(default_factory=CacheConfig)
    scheduler: SchedulerConfig = msgspec.field(default_factory=SchedulerConfig)
    runtime: RuntimeConfig = msgspec.field(default_factory=RuntimeConfig)


def one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    """Raise ConfigError unless `value` is among `allowed`."""
    if value not in allowed:
        raise ConfigError(f"{name} is {value!r}; choose one of {', '.join(allowed)}")
