"""How a deployment's memory is shared out, and how many sequences of which length it holds at once.

The formulas of memory.py over a ModelShape and a Device; memory.py itself stays what an engine calls when it starts. Where a
model has one kind of layer the counts are its blocks, exactly. Where it has several (windows, state) a sequence is charged
what each kind keeps of it, in whole blocks, and one block of all layers is left out as the null block.

Two entries of the ledger are estimates on a GPU and can be given instead: activations (below) and the reserve of the runtime
and its captured graphs (devices.toml). The seeds' worked numbers take both as nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from octavo.errors import ConfigError
from octavo.planner.catalogue import Device
from octavo.planner.formats import KVFormat, WeightFormat
from octavo.planner.memory import (
    CPU_MAX_NUM_BATCHED_TOKENS,
    CPU_MAX_NUM_SEQS,
    CPU_UTILIZATION,
    max_concurrency,
    requested_bytes,
)
from octavo.planner.shape import ModelShape
from octavo.planner.split import shard
from octavo.units import GiB, cdiv

GPU_UTILIZATION = 0.92
CONTEXTS = tuple(1024 * k for k in (2, 4, 8, 16, 32, 64, 128))


@dataclass(frozen=True)
class Deployment:
    """What is to be sized: a model in its formats on `tp * pp * dp` devices. None: the default that `size` derives."""

    shape: ModelShape
    device: Device
    weights: WeightFormat
    kv: KVFormat
    tp: int = 1
    pp: int = 1
    dp: int = 1
    utilization: float | None = None
    block_size: int = 16
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    throughput: bool = False  # doubles the defaults of the two above
    weight_bytes: int | None = None  # of the whole model
    activation_bytes: int | None = None  # of one device, as the two below
    reserve_bytes: int | None = None
    kv_cache_memory_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.kv.latent_only and not self.is_latent:
            raise ConfigError(f"KV format {self.kv.name} is one of latent attention (MLA); {self.shape.name} has none. Take fp8")
        for name in ("dp", "block_size", "max_model_len", "max_num_seqs", "max_num_batched_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} is {value}; it must be at least 1")
        for name in ("weight_bytes", "activation_bytes", "reserve_bytes", "kv_cache_memory_bytes"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise ConfigError(f"{name} is {value}; it must be at least 0")
        if self.utilization is not None and not 0 < self.utilization <= 1:
            raise ConfigError(f"utilization is {self.utilization:g}; it must be more than 0 and at most 1")

    @property
    def is_latent(self) -> bool:
        return any(group.num_kv_heads == 1 and len(set(group.vector_dims)) == 2 for group in self.shape.groups)

    @property
    def num_devices(self) -> int:
        return self.tp * self.pp * self.dp

    @property
    def rank(self) -> ModelShape:
        """The part of the model on the fullest device."""
        return shard(self.shape, self.tp, self.pp)

    @property
    def model_len(self) -> int:
        return self.max_model_len or self.shape.max_position


@dataclass(frozen=True)
class Concurrency:
    """How many sequences of `context` tokens the deployment holds at once, all its copies together."""

    context: int
    sequences: int


@dataclass(frozen=True)
class Sizing:
    """The ledger of the fullest device, in bytes, and what the whole deployment holds.

    `available_bytes` is negative when the weights alone do not fit; `num_blocks` is then 0. `tokens` are the pool's over all
    copies, counted without blocks; `longest_context` is what one sequence may grow to, the model's own limit left aside;
    `max_model_len` is the largest that start-up would accept. `max_concurrency` and `logged_tokens` are those of the engine's
    log line at `model_len` for one copy. On a CPU, as Octavo's start-up has it, the pool is no larger than max_num_seqs requests
    could use, and a length that nobody asked for is lowered to what fits.
    """

    total_bytes: int
    requested_bytes: int
    weight_bytes: int
    activation_bytes: int
    reserve_bytes: int
    available_bytes: int
    bytes_per_token: float
    bytes_per_block: float
    num_blocks: int
    tokens: int
    longest_context: int
    max_model_len: int
    model_len: int
    fits: bool
    max_concurrency: float
    logged_tokens: int
    max_num_seqs: int
    max_num_batched_tokens: int
    concurrency: tuple[Concurrency, ...]


def size(deployment: Deployment) -> Sizing:
    """Return what the deployment holds. Raises ConfigError for a split that the model does not allow."""
    d, rank = deployment, deployment.rank
    batched_tokens, seqs = resolve_batch(d.device, d.model_len, d.max_num_batched_tokens, d.max_num_seqs, throughput=d.throughput)
    requested = requested_bytes(d.device.memory_bytes, utilization_of(d))
    weight_bytes = _weight_bytes(d)
    activations = d.activation_bytes if d.activation_bytes is not None else estimate_activations(rank, batched_tokens, seqs)
    reserve = d.reserve_bytes if d.reserve_bytes is not None else d.device.reserve_bytes
    per_token = rank.bytes_per_token(d.kv)
    per_block = per_token * d.block_size
    available = d.kv_cache_memory_bytes or requested - weight_bytes - activations - reserve
    if d.device.kind == "cpu" and not d.kv_cache_memory_bytes:
        available = min(available, math.ceil((seqs * cdiv(d.model_len, d.block_size) + 1) * per_block))

    num_blocks = max(0, math.floor(available / per_block)) if per_block else 0
    longest = longest_context(d, available)
    fits = longest >= d.model_len
    model_len = d.model_len
    if d.device.kind == "cpu" and d.max_model_len is None and 0 < longest < model_len:
        model_len = longest
    if is_uniform(rank):
        concurrency = max_concurrency(num_blocks, model_len, d.block_size)
    else:
        concurrency = max(0.0, available / rank.sequence_bytes(d.kv, model_len, d.block_size))
    return Sizing(
        total_bytes=d.device.memory_bytes,
        requested_bytes=requested,
        weight_bytes=weight_bytes,
        activation_bytes=activations,
        reserve_bytes=reserve,
        available_bytes=available,
        bytes_per_token=per_token,
        bytes_per_block=per_block,
        num_blocks=num_blocks,
        tokens=d.dp * max(0, math.floor(available / per_token)) if per_token else 0,
        longest_context=longest,
        max_model_len=min(longest, d.shape.max_position),
        model_len=model_len,
        fits=fits,
        max_concurrency=concurrency,
        logged_tokens=int(concurrency * model_len),
        max_num_seqs=seqs,
        max_num_batched_tokens=batched_tokens,
        concurrency=tuple(Concurrency(context, sequences(d, available, context)) for context in CONTEXTS),
    )


def utilization_of(deployment: Deployment) -> float:
    """Return the share of the device's memory that the deployment uses."""
    return deployment.utilization or (CPU_UTILIZATION if deployment.device.kind == "cpu" else GPU_UTILIZATION)


def is_uniform(shape: ModelShape) -> bool:
    """Whether a token takes the same bytes however long its sequence is, so that blocks alone decide."""
    return all(group.window is None and not group.state_bytes for group in shape.groups)


def sequences(deployment: Deployment, available_bytes: int, context: int) -> int:
    """Return how many sequences of `context` tokens fit at once in the pools of all copies, the null block left out."""
    d, rank = deployment, deployment.rank
    if is_uniform(rank):
        num_blocks = max(0, math.floor(available_bytes / (rank.bytes_per_token(d.kv) * d.block_size)))
        return d.dp * max(0, (num_blocks - 1) // cdiv(context, d.block_size))
    usable = available_bytes - rank.bytes_per_token(d.kv) * d.block_size
    return d.dp * max(0, math.floor(usable / rank.sequence_bytes(d.kv, context, d.block_size)))


def longest_context(deployment: Deployment, available_bytes: int) -> int:
    """Return the longest sequence that fits alone; at most 2^31 where windows bound what is kept."""
    d, rank = deployment, deployment.rank
    usable = available_bytes - rank.bytes_per_token(d.kv) * d.block_size
    low, high = 0, (1 << 31) // d.block_size
    while low < high:  # in blocks
        middle = (low + high + 1) // 2
        if rank.sequence_bytes(d.kv, middle * d.block_size, d.block_size) <= usable:
            low = middle
        else:
            high = middle - 1
    return low * d.block_size


def estimate_activations(rank: ModelShape, batched_tokens: int, seqs: int) -> int:
    """Return the bytes alive at once in a step: for each token residual, its norm and the widest layer's inputs and outputs in
    16 bits; for each sequence its logits in float32, twice."""
    return batched_tokens * 2 * (2 * rank.hidden_size + widest_layer(rank)) + seqs * rank.vocab_size * 8


def widest_layer(rank: ModelShape) -> int:
    """Return how many values a token has in its widest place: q, k, v and the mix, or gate, up and their product."""
    head_dim = max((sum(group.vector_dims) // 2 for group in rank.groups if group.vector_dims), default=0)
    return max(2 * head_dim * (rank.num_heads + rank.num_kv_heads), 3 * rank.intermediate_size)


def batch_defaults(device: Device) -> tuple[int, int]:
    """Return (max_num_batched_tokens, max_num_seqs) that a server takes by default on one device of this kind."""
    if device.kind == "cpu":
        return CPU_MAX_NUM_BATCHED_TOKENS, CPU_MAX_NUM_SEQS
    if device.memory_bytes >= 160 * GiB:
        return 16_384, 1024
    if device.memory_bytes >= 70 * GiB and not device.name.startswith(("A100", "GB10")):
        return 8192, 1024
    return 2048, 256


def resolve_batch(
    device: Device,
    max_model_len: int,
    tokens: int | None = None,
    seqs: int | None = None,
    *,
    throughput: bool = False,
    chunked: bool = True,
) -> tuple[int, int]:
    """Return (max_num_batched_tokens, max_num_seqs): the device's defaults where None, doubled for `throughput`, then capped:
    tokens <= seqs * max_model_len, seqs <= tokens; without chunked prefill tokens >= max_model_len. What is given stays."""
    default_tokens, default_seqs = batch_defaults(device)
    factor = 2 if throughput else 1
    chosen_seqs = seqs or default_seqs * factor
    if tokens is None:
        tokens = default_tokens * factor
        if not chunked:
            tokens = max(tokens, max_model_len)
        tokens = min(tokens, chosen_seqs * max_model_len)
    return tokens, chosen_seqs if seqs is not None else min(chosen_seqs, tokens)


def _weight_bytes(deployment: Deployment) -> int:
    d = deployment
    if d.weight_bytes is None:
        return math.ceil(d.rank.weight_bytes(d.weights))
    return cdiv(d.weight_bytes, d.tp * d.pp)
