"""KV memory: which positions each layer sees, layers in groups by that, and what is kept of a position."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from octavo.errors import ConfigError, ModelError
from octavo.units import cdiv


class AttentionSpan(Struct, frozen=True):
    """Which positions a token at position p sees: `size` None all of 0 .. p, "sliding" the last `size` of them, "chunked" those
    of p's own chunk (positions are cut into chunks of `size`)."""

    kind: Literal["full", "sliding", "chunked"] = "full"
    size: int | None = None

    def __post_init__(self) -> None:
        if (self.kind == "full") != (self.size is None) or (self.size is not None and self.size < 1):
            raise ModelError(f"attention of kind {self.kind} with size {self.size}: full has none, the others one of at least 1")

    def first_seen(self, position: int) -> int:
        """Return the first position that a token at `position` sees; no later token sees one before it."""
        if self.size is None:
            return 0
        return max(0, position - self.size + 1) if self.kind == "sliding" else position // self.size * self.size

    def most_blocks(self, num_tokens: int, block_size: int, max_step_tokens: int) -> int:
        """Return the most blocks that a request of `num_tokens` tokens holds at once, when up to `max_step_tokens` are under way.

        Those that the positions still seen can touch, and one: what is out of sight is given back when a block has become full.
        """
        blocks = cdiv(num_tokens, block_size)
        return blocks if self.size is None else min(blocks, cdiv(self.size - 1 + max_step_tokens, block_size) + 2)


FULL_ATTENTION = AttentionSpan()
ENDLESS_TOKENS = 1 << 31  # where every span forgets, a request may be as long as it likes


def blocks_for_request(spans: Sequence[AttentionSpan], block_size: int, num_tokens: int, max_step_tokens: int) -> int:
    """Return the most blocks that a request of `num_tokens` tokens holds at once, in layer groups of these spans."""
    return sum(span.most_blocks(num_tokens, block_size, max_step_tokens) for span in spans)


def longest_request(spans: Sequence[AttentionSpan], block_size: int, num_blocks: int, max_step_tokens: int) -> int:
    """Return the most tokens of a request that `num_blocks` blocks can hold."""
    low, high = 0, ENDLESS_TOKENS // block_size  # in blocks of one group
    while low < high:
        middle = (low + high + 1) // 2
        fits = blocks_for_request(spans, block_size, middle * block_size, max_step_tokens) <= num_blocks
        low, high = (middle, high) if fits else (low, middle - 1)
    return low * block_size


class LayerGroup(Struct, frozen=True):
    """Layers that see the same positions and have their KV in the same blocks: layer layers[i] in place i of a block."""

    span: AttentionSpan
    layers: tuple[int, ...]


MAX_PADDING = 1.125  # places in blocks over layers: the more layers a block holds, the fewer blocks and tables, but the more may stay empty


def group_layers(spans: Sequence[AttentionSpan]) -> tuple[LayerGroup, ...]:
    """Return the layers, whose spans these are, in groups of equal size but for the last of each span; the first is the largest.

    All groups take blocks of one size in bytes, so a group that is smaller leaves places empty: the largest size is chosen that
    leaves no more than MAX_PADDING allows.
    """
    by_span: dict[AttentionSpan, list[int]] = {}
    for layer, span in enumerate(spans):
        by_span.setdefault(span, []).append(layer)

    def places(size: int) -> int:
        return sum(cdiv(len(layers), size) * size for layers in by_span.values())

    size = next(size for size in range(len(spans), 0, -1) if places(size) <= MAX_PADDING * len(spans))
    groups = [
        LayerGroup(span, tuple(layers[start : start + size])) for span, layers in by_span.items() for start in range(0, len(layers), size)
    ]
    return tuple(sorted(groups, key=lambda group: (-len(group.layers), group.layers)))


# How K and V may be kept: bytes of a value, bytes of the scale of a vector.
KV_DTYPES = {"f16": (2, 0), "bf16": (2, 0), "f32": (4, 0), "fp8_e4m3": (1, 0), "int8_per_token_head": (1, 4)}
FP8_DS_MLA = "fp8_ds_mla"  # of latents alone: fp8_e4m3 with a float32 scale for LATENT_GROUP numbers, the rotary key in bf16
LATENT_GROUP = 128


class KVSpec(Struct, frozen=True):
    """KV memory of one model: one K and one V vector of `head_dim` per layer, KV head and position.

    Latent attention (`rotary_dim` > 0) keeps one vector per layer and position, whatever the number of heads: all its `key_dim`
    numbers are K, the first `head_dim` are V.

    `num_layers` counts the layers that a block holds. Of a model with `groups` that is the largest group's number, and a run of
    `block_size` positions takes one block for each group; without, all layers see everything and are in one block.
    """

    num_layers: int
    num_kv_heads: int
    head_dim: int
    dtype: str = "f16"  # of KV_DTYPES, or FP8_DS_MLA
    block_size: int = 16  # positions per block
    groups: tuple[LayerGroup, ...] = ()
    rotary_dim: int = 0

    def __post_init__(self) -> None:
        if self.dtype == FP8_DS_MLA:
            if not self.is_latent:
                raise ConfigError(f"kv_cache_dtype is {self.dtype}, a type of latent attention (MLA); this model has none. Take fp8")
            if self.head_dim % LATENT_GROUP:
                raise ConfigError(
                    f"kv_cache_dtype is {self.dtype}, which scales a latent in groups of {LATENT_GROUP}; this model's has {self.head_dim} "
                    "numbers. Take fp8"
                )
        elif self.is_latent and KV_DTYPES[self.dtype][1]:
            raise ConfigError(
                f"kv_cache_dtype is {self.dtype}, one scale for a whole vector: too coarse for latent attention (MLA), whose vector holds "
                "a latent and a rotary key. Take auto, f16, bf16, f32, fp8 or fp8_ds_mla"
            )

    @property
    def is_latent(self) -> bool:
        return self.rotary_dim > 0

    @property
    def key_dim(self) -> int:
        return self.head_dim + self.rotary_dim

    @property
    def spans(self) -> tuple[AttentionSpan, ...]:
        """What each group sees."""
        return tuple(group.span for group in self.groups) or (FULL_ATTENTION,)

    def place(self, layer: int) -> tuple[int, int]:
        """Return (group, place in its blocks) of a layer of the model. Raises ModelError for one that there is not."""
        for number, group in enumerate(self.groups):
            if layer in group.layers:
                return number, group.layers.index(layer)
        if self.groups or not 0 <= layer < self.num_layers:
            raise ModelError(f"layer {layer} has no place in the KV memory")
        return 0, layer

    def blocks_for(self, num_tokens: int, max_step_tokens: int) -> int:
        """Return the most blocks that a request of `num_tokens` tokens holds at once; see AttentionSpan.most_blocks."""
        return blocks_for_request(self.spans, self.block_size, num_tokens, max_step_tokens)

    def longest_request(self, num_blocks: int, max_step_tokens: int) -> int:
        """Return the most tokens of a request that `num_blocks` blocks can hold."""
        return longest_request(self.spans, self.block_size, num_blocks, max_step_tokens)

    @property
    def vector_bytes(self) -> int:
        """Bytes of one K or V vector, or of one latent with its rotary key, scale included."""
        if self.dtype == FP8_DS_MLA:
            return self.head_dim + self.head_dim // LATENT_GROUP * 4 + self.rotary_dim * 2
        value_bytes, scale_bytes = KV_DTYPES[self.dtype]
        return self.key_dim * value_bytes + scale_bytes

    @property
    def bytes_per_token(self) -> int:
        """Bytes that one position takes in one block."""
        return self.num_layers * self.num_kv_heads * (1 if self.is_latent else 2) * self.vector_bytes

    @property
    def bytes_per_block(self) -> int:
        return self.bytes_per_token * self.block_size
