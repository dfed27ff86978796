"""The numbers of a model: shapes, rotary positions, experts. Its wiring lives in models/."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from octavo.errors import ModelError
from octavo.specs.kv import FULL_ATTENTION, AttentionSpan, KVSpec, group_layers


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
