"""What sizing needs of a model: which layers keep what for a token, and how many weights there are of which kind.

A model is a few groups of equal layers, since that is what its KV memory depends on:

    grouped-query attention   K and V of head_dim a KV head; all tokens, or the last `window`, or those of one chunk
    latent attention (MLA)    one latent and one rotary vector a layer, whatever the number of heads
    recurrent layers          a state of fixed size a sequence, nothing a token

Pure values: made from config.json (hf_shape.py), a GGUF header (gguf_shape.py), the catalogue or plain numbers.

Sources: GQA (Ainslie 2023), MLA (DeepSeek-V2 2024, section 2.1), sliding window (Mistral 7B 2023), chunked attention (Llama 4
model card), Mamba (Gu 2023) and gated delta networks (Yang 2024) for recurrent state.
"""

from __future__ import annotations

from dataclasses import dataclass

from octavo.errors import ModelError
from octavo.planner.formats import KVFormat, WeightFormat
from octavo.units import cdiv


@dataclass(frozen=True)
class LayerGroup:
    """Layers that keep the same: `vector_dims` are the vectors that one KV head stores for a token (K and V; latent and rotary).

    `window`: the most tokens kept, None for all; `chunked`: they are those since the last multiple of the window.
    `most_read`: the most tokens that one step reads, where attention is sparse. `token_bytes`: further bytes a token and
    layer that no KV format changes. `state_bytes`: bytes a sequence and layer.
    `flops_per_position`: multiplications and additions of one query token and one kept token in one layer; `prompt_flops`: the
    same in a prefill, where latent attention is cheaper expanded (0: no different).
    """

    name: str
    num_layers: int
    num_kv_heads: int = 0
    vector_dims: tuple[int, ...] = ()
    window: int | None = None
    chunked: bool = False
    most_read: int | None = None
    token_bytes: int = 0
    state_bytes: int = 0
    flops_per_position: int = 0
    prompt_flops: int = 0

    def bytes_per_token(self, kv: KVFormat) -> float:
        """Return the bytes that all layers of the group keep for one token."""
        return self.num_layers * (self.num_kv_heads * kv.bytes_of(self.vector_dims) + self.token_bytes)

    def tokens_kept(self, tokens: int) -> int:
        return tokens if self.window is None else min(tokens, self.window)

    def tokens_read(self, tokens: int) -> int:
        kept = self.tokens_kept(tokens)
        return kept if self.most_read is None else min(kept, self.most_read)

    def blocks(self, tokens: int, block_size: int) -> int:
        """Return the blocks that a sequence of `tokens` holds; a sliding window that lies across block borders needs one more."""
        if self.window is None or tokens <= self.window:
            return cdiv(tokens, block_size)
        return cdiv(self.window, block_size) + (0 if self.chunked else 1)

    def sequence_bytes(self, kv: KVFormat, tokens: int, block_size: int) -> float:
        """Return the bytes that one sequence of `tokens` takes, in whole blocks."""
        state = self.num_layers * self.state_bytes
        return state + self.bytes_per_token(kv) * block_size * self.blocks(tokens, block_size)


@dataclass(frozen=True)
class WeightCounts:
    """Numbers of weights by what quantisation does to them. `head` is 0 where it is the embedding itself."""

    embedding: int
    head: int
    linear: int  # attention, dense MLP, shared experts
    experts: int  # all routed experts of all layers
    other: int  # norms, biases, routers, convolutions

    @property
    def total(self) -> int:
        return self.embedding + self.head + self.linear + self.experts + self.other


@dataclass(frozen=True)
class ModelShape:
    """A model as numbers. `default_weights`: name of the format of its files; None: one that is not known here."""

    name: str
    family: str
    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    intermediate_size: int  # of what one token passes in one layer, all its experts together
    vocab_size: int
    max_position: int
    groups: tuple[LayerGroup, ...]
    counts: WeightCounts
    num_experts: int = 0
    experts_per_token: int = 0
    default_weights: str | None = "bf16"

    def __post_init__(self) -> None:
        for group in self.groups:
            if group.vector_dims and not (group.num_kv_heads >= 1 and min(group.vector_dims) >= 1):
                raise ModelError(f"{self.name}: {group.num_kv_heads} KV heads of {group.vector_dims} values keep nothing of a token")
            if group.state_bytes < 0 or (group.window is not None and group.window < 1):
                raise ModelError(f"{self.name}: a state of {group.state_bytes} bytes or a window of {group.window} tokens makes no sense")
        if not any(group.vector_dims for group in self.groups):
            raise ModelError(f"{self.name}: no layer keeps anything of a token; models without attention have no KV memory to size")
        if not 0 <= self.experts_per_token <= self.num_experts:
            raise ModelError(f"{self.name}: {self.experts_per_token} experts a token of {self.num_experts} make no sense")

    def bytes_per_token(self, kv: KVFormat) -> float:
        """Return the bytes that one more token takes while every window is still open."""
        return sum(group.bytes_per_token(kv) for group in self.groups)

    def sequence_bytes(self, kv: KVFormat, tokens: int, block_size: int = 16) -> float:
        return sum(group.sequence_bytes(kv, tokens, block_size) for group in self.groups)

    def state_bytes(self) -> int:
        return sum(group.num_layers * group.state_bytes for group in self.groups)

    def read_bytes(self, kv: KVFormat, context: int) -> float:
        """Return what one decode step reads of one sequence of `context` tokens; recurrent state is read and written."""
        read = sum(group.bytes_per_token(kv) * group.tokens_read(context) for group in self.groups)
        return read + 2 * self.state_bytes()

    def weight_bytes(self, weights: WeightFormat) -> float:
        counts = self.counts
        bits = (
            counts.embedding * weights.embedding
            + counts.head * weights.head
            + counts.linear * weights.linear
            + counts.experts * weights.experts
            + counts.other * weights.other
        )
        return bits / 8

    @property
    def active_weights(self) -> int:
        """Weights that one token is multiplied with: all but the embedding table (unless it is the head) and idle experts."""
        counts = self.counts
        routed = counts.experts * self.experts_per_token // self.num_experts if self.num_experts else 0
        head = counts.head or counts.embedding
        return head + counts.linear + counts.other + routed

    def streamed_bytes(self, weights: WeightFormat, batch: int) -> float:
        """Return the weight bytes that a step of `batch` tokens reads: experts that no token chose, and rows of an untied
        embedding, stay where they are. Experts are taken as chosen evenly: E (1 - (1 - k/E)^batch) of E are touched."""
        counts = self.counts
        whole = self.weight_bytes(weights)
        if counts.head:
            whole -= counts.embedding * weights.embedding / 8
        if self.num_experts:
            idle = (1 - self.experts_per_token / self.num_experts) ** batch
            whole -= idle * counts.experts * weights.experts / 8
        return whole
