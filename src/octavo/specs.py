"""What a model is, as numbers: its shapes, its rotary embedding, its KV memory, its tensors on disk.

Pure values, no array library: a `RawTensor` holds bytes of the file (a memoryview of its mmap), and only a
backend gives them meaning as numbers. Everything here is whole when made and never changed.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from octavo.errors import ConfigError, ModelError
from octavo.units import cdiv


class Format(enum.Enum):
    """How a tensor's numbers lie in memory: (values per block, bytes per block).

    Block formats are those of GGUF (ggml-common.h gives the layouts): a row of K values is K / block blocks.
    """

    F32 = ("f32", 1, 4)
    F16 = ("f16", 1, 2)
    BF16 = ("bf16", 1, 2)
    Q4_0 = ("q4_0", 32, 18)
    Q4_1 = ("q4_1", 32, 20)
    Q5_0 = ("q5_0", 32, 22)
    Q5_1 = ("q5_1", 32, 24)
    Q8_0 = ("q8_0", 32, 34)
    Q4_K = ("q4_k", 256, 144)
    Q5_K = ("q5_k", 256, 176)
    Q6_K = ("q6_k", 256, 210)

    def __init__(self, label: str, block_values: int, block_bytes: int) -> None:
        self.label = label
        self.block_values = block_values
        self.block_bytes = block_bytes

    def num_bytes(self, num_values: int) -> int:
        """Return the bytes that `num_values` values take; raises ModelError when they fill no whole block."""
        if num_values % self.block_values:
            raise ModelError(f"{num_values:,} values are no multiple of the {self.label} block of {self.block_values}")
        return num_values // self.block_values * self.block_bytes


class RawTensor(Struct, frozen=True):
    """One tensor of a model file. `shape` is (out_features, in_features) for matrices, row-major; `data` is read-only."""

    name: str
    shape: tuple[int, ...]
    format: Format
    data: memoryview

    def __repr__(self) -> str:
        return f"RawTensor({self.name!r}, {self.shape}, {self.format.label})"


class RopeSpec(Struct, frozen=True):
    """Rotary position embedding. `kind`: none | linear | llama3 | yarn.

    `interleaved` pairs dimensions (2i, 2i + 1), as GGUF's llama files store q and k; otherwise (i, i + dim / 2).
    `frequency_factors` divide each frequency (GGUF's rope_freqs.weight); empty when there are none.
    Sources: RoFormer (Su 2021) sec. 3.4; YaRN (Peng 2023) sec. 3; Llama 3.1 model card.
    """

    dim: int
    theta: float = 10_000.0
    interleaved: bool = False
    kind: str = "none"
    factor: float = 1.0
    original_max_position: int = 0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None  # None: YaRN's 0.1 ln(factor) + 1
    frequency_factors: tuple[float, ...] = ()


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


class LatentSpec(Struct, frozen=True):
    """Latent attention (MLA): K and V of all heads are made of one latent of `kv_lora_rank` numbers a token.

    A head's query and key have `qk_nope_head_dim` numbers without a position and `qk_rope_head_dim` that are turned by it; the
    rotary key is one for all heads. `q_lora_rank`: of the query's own latent, None where there is none. `score_factor`: on the
    scores beside 1 / sqrt(head_dim), where YaRN has stretched the positions.
    Source: DeepSeek-V2 (2024), section 2.1.
    """

    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int
    q_lora_rank: int | None = None
    score_factor: float = 1.0

    def __post_init__(self) -> None:
        limits = {"kv_lora_rank": 512, "qk_nope_head_dim": 4096, "qk_rope_head_dim": 128, "v_head_dim": 4096, "q_lora_rank": 1 << 20}
        for name, most in limits.items():
            value = getattr(self, name)
            if value is not None and not 1 <= value <= most:
                raise ModelError(f"model config: {name} is {value:,}; it must lie in 1..{most:,}")
        if self.kv_lora_rank % 16 or self.v_head_dim % 16:  # a head's channels fill whole panels of weights
            raise ModelError(f"model config: kv_lora_rank {self.kv_lora_rank} and v_head_dim {self.v_head_dim} must be multiples of 16")


class ExpertsSpec(Struct, frozen=True):
    """A mixture of experts in the layers from `first_layer` on: a router picks `per_token` of `count` MLPs for each token.

    `scoring`: softmax | sigmoid of the router's logits. The choice is made among the `groups_kept` best of `num_groups` equal groups,
    a group being worth its best score (`group_worth` best) or the sum of its two best (two_best), by scores with a bias where the
    model `has_bias`. Weights are the scores themselves, of a token's picks divided by their sum where `normalize`, times `scaling`.
    `shared_size`: the inner size of the MLP that every token passes beside them; 0: there is none.
    Sources: DeepSeekMoE (2024), section 3; DeepSeek-V3 (2024), section 2.1.2.
    """

    first_layer: int
    count: int
    per_token: int
    intermediate_size: int  # of one expert
    shared_size: int = 0
    scoring: Literal["softmax", "sigmoid"] = "softmax"
    num_groups: int = 1
    groups_kept: int = 1
    group_worth: Literal["best", "two_best"] = "best"
    normalize: bool = False
    scaling: float = 1.0
    has_bias: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.per_token <= self.count <= 4096:
            raise ModelError(f"model config: {self.per_token:,} of {self.count:,} experts a token; at least 1, and at most 4,096 in all")
        if self.num_groups < 1 or self.count % self.num_groups or not 1 <= self.groups_kept <= self.num_groups:
            raise ModelError(f"model config: {self.count:,} experts in {self.num_groups:,} groups, of which {self.groups_kept:,} are kept")
        if self.group_worth == "two_best" and self.count // self.num_groups < 2:
            raise ModelError(f"model config: {self.count:,} experts in {self.num_groups:,} groups; a group must have two to be judged by")
        if self.per_token > self.count // self.num_groups * self.groups_kept:
            raise ModelError(f"model config: {self.per_token:,} experts a token, but {self.groups_kept:,} groups hold fewer")
        if self.intermediate_size < 16 or self.intermediate_size % 16:  # an expert's channels fill whole panels of weights
            raise ModelError(f"model config: the inner size of an expert is {self.intermediate_size:,}; it must be a multiple of 16")


class ModelSpec(Struct, frozen=True):
    """The numbers of a decoder-only language model. Wiring lives in models/, numbers here.

    With `latent` attention, head_dim is that of queries and keys, and num_kv_heads is 1.
    """

    family: str  # llama | mistral | qwen2 | qwen3 | deepseek_v2 | deepseek_v3
    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    max_position: int
    norm_eps: float
    rope: RopeSpec
    tie_embeddings: bool = False
    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    sliding_window: int | None = None  # of every layer, where layer_spans does not say otherwise
    activation: str = "silu"
    layer_spans: tuple[AttentionSpan, ...] = ()  # what each layer sees, when they differ
    latent: LatentSpec | None = None
    experts: ExpertsSpec | None = None

    def __post_init__(self) -> None:
        for name in (
            "num_layers",
            "hidden_size",
            "intermediate_size",
            "num_heads",
            "num_kv_heads",
            "head_dim",
            "vocab_size",
            "max_position",
        ):
            value = getattr(self, name)
            if not 1 <= value <= 1 << 31:
                raise ModelError(f"model config: {name} is {value:,}; it must lie in 1..2^31")
        if self.num_heads % self.num_kv_heads:
            raise ModelError(f"model config: {self.num_heads} query heads are no multiple of {self.num_kv_heads} KV heads")
        if self.rope.dim % 2 or not 2 <= self.rope.dim <= self.head_dim:
            raise ModelError(f"model config: rotary dimension {self.rope.dim} must be even and lie in 2..head_dim ({self.head_dim})")
        if self.layer_spans and len(self.layer_spans) != self.num_layers:
            raise ModelError(f"model config: {len(self.layer_spans)} kinds of attention for {self.num_layers} layers")
        if self.experts is not None and self.hidden_size % 16:
            raise ModelError(f"model config: hidden_size is {self.hidden_size:,}; with experts it must be a multiple of 16")
        if not 0 < self.norm_eps < 1:
            raise ModelError(f"model config: norm_eps is {self.norm_eps:g}; it must be more than 0 and less than 1")

    def has_experts(self, layer: int) -> bool:
        return self.experts is not None and layer >= self.experts.first_layer

    def span(self, layer: int) -> AttentionSpan:
        """Return what a layer sees."""
        if self.layer_spans:
            return self.layer_spans[layer]
        return AttentionSpan("sliding", self.sliding_window) if self.sliding_window is not None else FULL_ATTENTION

    def kv_spec(self, dtype: str = "f16", block_size: int = 16) -> KVSpec:
        if self.latent is not None:
            return KVSpec(self.num_layers, 1, self.latent.kv_lora_rank, dtype, block_size, rotary_dim=self.latent.qk_rope_head_dim)
        spans = [self.span(layer) for layer in range(self.num_layers)]
        if set(spans) == {FULL_ATTENTION}:
            return KVSpec(self.num_layers, self.num_kv_heads, self.head_dim, dtype, block_size)
        groups = group_layers(spans)
        return KVSpec(len(groups[0].layers), self.num_kv_heads, self.head_dim, dtype, block_size, groups)


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


class EncoderSpec(Struct, frozen=True):
    """The numbers of a bidirectional encoder (BERT family): a whole text in, one vector or scores of classes out.

    `max_position`: tokens of the longest text that it was made for, at most num_positions. `pooling`: mean | cls | last, how
    the tokens' vectors become one; `normalize`: that one is scaled to length 1. `labels`: of its classification head, in the
    order of the scores; empty where it has none. `is_multi_label`: each score stands for itself (sigmoid, not softmax).
    """

    family: str  # bert
    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    vocab_size: int
    max_position: int
    num_positions: int
    num_token_types: int
    norm_eps: float
    activation: str
    pooling: str
    normalize: bool
    labels: tuple[str, ...] = ()
    is_multi_label: bool = False

    def __post_init__(self) -> None:
        for name in ("num_layers", "hidden_size", "intermediate_size", "num_heads", "vocab_size", "max_position", "num_token_types"):
            value = getattr(self, name)
            if not 1 <= value <= 1 << 31:
                raise ModelError(f"model config: {name} is {value:,}; it must lie in 1..2^31")
        if self.hidden_size % self.num_heads:
            raise ModelError(f"model config: hidden_size {self.hidden_size:,} is no multiple of {self.num_heads} heads")
        if self.max_position > self.num_positions:
            raise ModelError(f"model config: texts of {self.max_position:,} tokens, but positions for {self.num_positions:,}")
        if not 0 < self.norm_eps < 1:
            raise ModelError(f"model config: norm_eps is {self.norm_eps:g}; it must be more than 0 and less than 1")

    @property
    def head_dim(self) -> int:
        return self.hidden_size // self.num_heads

    def kv_spec(self) -> KVSpec:
        """Return KV memory of no layers: an encoder sees a whole text at once and keeps nothing."""
        return KVSpec(0, self.num_heads, self.head_dim)


class GenerationDefaults(Struct, frozen=True):
    """What the model's own files say of sampling and of where an answer ends."""

    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None


class GGUFVocabulary(Struct, frozen=True):
    """The tokenizer as GGUF metadata tells it (tokenizer.ggml.*). `model`: gpt2 (byte-level BPE) | llama (SentencePiece).

    `token_types`: 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte. `pre` names the pre-tokenizer of gpt2.
    """

    model: str
    pre: str
    tokens: tuple[str, ...]
    scores: tuple[float, ...]
    token_types: tuple[int, ...]
    merges: tuple[str, ...]
    unknown_token_id: int | None = None
    add_space_prefix: bool = True


class TextAssets(Struct, frozen=True):
    """What turns text into token ids: tokenizer.json's bytes or a GGUF vocabulary (one of the two), and the chat template.

    `add_bos` / `add_eos`: put around plain prompts (not around a rendered chat template, which brings its own).
    """

    tokenizer_json: bytes | None
    gguf_vocabulary: GGUFVocabulary | None
    chat_template: str | None
    bos_token_id: int | None
    eos_token_ids: tuple[int, ...]
    add_bos: bool
    add_eos: bool = False
