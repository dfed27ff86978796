"""`Ops`: the closed set of operations that models are written against, and `Backend`, which provides them.

A model file calls these verbs and nothing else, so quantisation and device never leak into it. `reference` (NumPy,
float32) is the definition of every verb; other backends agree with it within the bounds of tests/ops/bounds.py.

Shapes: T tokens in the step, R rows (requests), S rows that sample, D width. Activations are float32 [rows, width].
A `Tensor` is opaque to the caller: an array, or a name in a recorded program. Results are fresh; inputs are not changed.

Promise of every backend: a row of a result depends on that row's inputs alone, bit for bit, whatever rows share the
batch, however the prompt was cut into steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from octavo.specs.kv import FULL_ATTENTION, AttentionSpan, KVSpec
from octavo.specs.model import ExpertsSpec, RopeSpec
from octavo.specs.tensors import Format, RawTensor

Tensor = Any  # [rows, width] float32, or a recorded reference to one
IntArray = npt.NDArray[np.int32]


class Batch(Struct, frozen=True):
    """One step as arrays. Row r owns tokens query_start[r] .. query_start[r + 1] - 1.

    token_ids [T], positions [T] (0-based in the request), query_start [R + 1], context_len [R] (tokens of the row once
    this step is done), block_table [R, B] (block ids; entries past the row's blocks are 0), slot_mapping [T] (block id *
    block_size + offset: where each token's K and V go), sample_rows [S] (indices into T), token_types [T] (the segment that a
    token belongs to, for models that tell segments apart). All int32, slot_mapping int64.
    For G layer groups block_table is [R, G * B] and slot_mapping [G * T], those of one group after those of another.
    """

    token_ids: IntArray
    positions: IntArray
    query_start: IntArray
    context_len: IntArray
    block_table: IntArray
    slot_mapping: npt.NDArray[np.int64]
    sample_rows: IntArray
    token_types: IntArray | None = None

    def of_group(self, group: int, num_groups: int) -> tuple[IntArray, npt.NDArray[np.int64]]:
        """Return the block_table [R, B] and the slot_mapping [T] of one layer group."""
        if num_groups == 1:
            return self.block_table, self.slot_mapping
        width, count = self.block_table.shape[1] // num_groups, len(self.token_ids)
        return self.block_table[:, group * width : (group + 1) * width], self.slot_mapping[group * count : (group + 1) * count]


class Weight(Protocol):
    """A matrix [out_features, in_features] as a backend keeps it (packed panels, quantised or not)."""

    @property
    def shape(self) -> tuple[int, int]: ...

    @property
    def format(self) -> Format: ...

    @property
    def num_bytes(self) -> int: ...


class KVCache(Protocol):
    """The block pool's memory for all layers, owned by a backend. Block 0 is the null block: never written for a request."""

    @property
    def spec(self) -> KVSpec: ...

    @property
    def num_blocks(self) -> int: ...


class KVMemory(KVCache, Protocol):
    """A KVCache with its bytes: blocks can be taken out whole and put back."""

    def read_block(self, block_id: int) -> bytes:
        """Return what a block holds in all layers, spec.bytes_per_block bytes in the backend's own layout. Raises ValueError."""
        ...

    def write_block(self, block_id: int, data: bytes) -> None:
        """Put back what read_block of this backend with this spec returned. Raises ValueError."""
        ...


class SamplingBatch(Struct, frozen=True):
    """How each of the S sampled rows chooses its token; arrays are [S] unless said. Neutral values switch a stage off.

    Order of the stages: NaN check -> raw log-probabilities (for logprobs) -> allowed and banned ids -> bias -> repetition, then
    frequency and presence penalties -> greedy (temperature < 1e-5: argmax, lowest id on ties) or: divide by temperature
    -> top_n_sigma -> min_p -> top_k -> typical_p -> top_p -> XTC -> draw. A row with a `given` id draws nothing: that id is
    its token, and only its log-probabilities are wanted.

    Lists of different lengths are CSR: `*_start` [S + 1] cuts the flat arrays into rows.
    allowed [M, ceil(V / 32)]: bit i % 32 of word i // 32 says whether id i may be drawn, for the rows of the step whose allowed_row
    is that row of it; -1, and None for all rows: every id may.
    banned: ids that may not be drawn (sampling/plan.py says whose). bias: distinct ids and what is added to their logits.
    seen: distinct ids of prompt and output, with how often each stands in the output (0: in the prompt only). Repetition
    penalty r: logit / r if logit > 0 else logit * r, for every seen id. Frequency f: - f * count; presence p: - p if count > 0.
    top_n_sigma n (0: off) keeps logits >= max - n * (their standard deviation; banned ones do not count) (Tang 2024).
    min_p keeps p >= min_p * max p. top_k <= 0 keeps all; on a tie at the border lower ids win. typical_p (1: off) keeps the
    smallest set of ids by |-log p - entropy|, smallest first (ties: the more likely, then the lower id), whose mass reaches
    typical_p (Meister 2022, section 4); at least one. top_p keeps the smallest set of most likely ids (ties: lower id first)
    whose mass reaches top_p. XTC: when a second number uniform(seed, position, stream 1) < xtc_probability, of the ids with
    p >= xtc_threshold all but the least likely go (pew 2024). In typical_p and XTC p is renormalised over what is left.
    Draw: u = uniform(seed, position) in [0, 1); the first kept id, in id order, whose cumulative mass exceeds u * total.
    `num_logprobs` -1: none. A row of which nothing is left gets id 0.
    """

    temperature: npt.NDArray[np.float32]
    top_k: IntArray
    top_p: npt.NDArray[np.float32]
    min_p: npt.NDArray[np.float32]
    repetition_penalty: npt.NDArray[np.float32]
    presence_penalty: npt.NDArray[np.float32]
    frequency_penalty: npt.NDArray[np.float32]
    seed: npt.NDArray[np.uint64]
    position: npt.NDArray[np.uint64]  # index of the token that is drawn: the counter of the random stream
    num_logprobs: IntArray
    typical_p: npt.NDArray[np.float32]
    top_n_sigma: npt.NDArray[np.float32]
    xtc_probability: npt.NDArray[np.float32]
    xtc_threshold: npt.NDArray[np.float32]
    wants_processed: npt.NDArray[np.bool_]  # log-probabilities of what the token is drawn from, not of the raw logits
    given: IntArray  # -1: draw one
    banned_start: IntArray
    banned_ids: IntArray
    bias_start: IntArray
    bias_ids: IntArray
    bias_values: npt.NDArray[np.float32]
    seen_start: IntArray
    seen_ids: IntArray
    seen_counts: IntArray
    allowed_row: IntArray | None = None
    allowed: IntArray | None = None


class Sampled(Struct, frozen=True):
    """token_ids [S] int32, is_nan [S] bool: a logit is NaN or the largest is not finite (token id then 0 and meaningless).

    Log-probabilities are natural, float32: of the raw logits, or, for rows that want them processed, of those that are left
    for the draw (greedy: of the logits after penalties; ids that went have none). For rows that ask for them: logprob [S] and
    rank [S] int32 (1 + the number of larger logits) of the token; other rows mean nothing there. Per row the `num_logprobs`
    most likely ids in top_ids / top_logprobs [S, K], K the largest asked; unused places hold -1 and -inf."""

    token_ids: IntArray
    is_nan: npt.NDArray[np.bool_]
    logprob: npt.NDArray[np.float32]
    rank: IntArray
    top_ids: IntArray
    top_logprobs: npt.NDArray[np.float32]


class Ops(Protocol):
    """The verbs of a forward pass, in the order in which a decoder uses them (three are for latent attention, two for
    mixtures of experts); then those that only encoders need."""

    def embed(self, ids: Tensor, weight: Weight) -> Tensor:
        """Return rows `ids` [T] of weight [V, D], dequantised: [T, D]. Ids are the batch's token_ids, positions or token_types."""
        ...

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """Return x / sqrt(mean(x^2) + eps) * weight over groups of len(weight) values; [T, G * len(weight)] as x.

        One group is the usual norm; several are a norm per head (Qwen3's q and k)."""
        ...

    def linear(self, x: Tensor, weight: Weight, bias: Tensor | None = None) -> Tensor:
        """Return x [T, K] @ weight [N, K]^T (+ bias [N]): [T, N]. A backend may round x (native: see docs/numbers.md)."""
        ...

    def rope(self, x: Tensor, positions: Tensor, rope: RopeSpec, head_dim: int) -> Tensor:
        """Return x [T, H * head_dim] with the first rope.dim dimensions of each head rotated by positions [T]."""
        ...

    def store_kv(self, k: Tensor, v: Tensor, kv: KVCache, layer: int, batch: Batch) -> None:
        """Write k, v [T, kv_heads * head_dim], rounded to the cache's dtype, to batch.slot_mapping [T]."""
        ...

    def attention(self, q: Tensor, kv: KVCache, layer: int, batch: Batch, scale: float, span: AttentionSpan = FULL_ATTENTION) -> Tensor:
        """Return causal attention of q [T, H * head_dim] over the row's stored K and V: [T, H * head_dim].

        A token at position p sees positions span.first_seen(p) .. p. Query head h reads KV head h // (H / kv_heads)."""
        ...

    def head_linear(self, x: Tensor, weight: Weight, heads: int) -> Tensor:
        """Return x [T, heads * K], each head's K values times its own rows of weight [heads * N, K]: [T, heads * N].

        N must be a multiple of 16. A backend may round x, as in linear."""
        ...

    def store_latent(self, latent: Tensor, rotary: Tensor, kv: KVCache, layer: int, batch: Batch) -> None:
        """Write latent [T, head_dim] and rotary [T, rotary_dim], rounded to the dtype of this latent cache, to batch.slot_mapping [T]."""
        ...

    def latent_attention(self, q: Tensor, q_rotary: Tensor, kv: KVCache, layer: int, batch: Batch, scale: float) -> Tensor:
        """Return causal attention of all heads over the row's stored latents: [T, H * head_dim] as q.

        A head's query is its part of q [T, H * head_dim], which meets the latent, and of q_rotary [T, H * rotary_dim], which meets
        the rotary key; its result is the weighted sum of latents."""
        ...

    def gated(self, gate: Tensor, up: Tensor, activation: str) -> Tensor:
        """Return activation(gate) * up, same shape; see activate."""
        ...

    def route(self, logits: Tensor, bias: Tensor | None, experts: ExpertsSpec) -> Tensor:
        """Return the weights [T, count] of each token's experts, from the router's logits [T, count]: 0 for those that are not picked.

        See ExpertsSpec. Of equal scores the lower expert's is taken; NaN among the logits gives NaN for all picks."""
        ...

    def experts(self, x: Tensor, weights: Tensor, gate: Weight, up: Weight, down: Weight, experts: ExpertsSpec, activation: str) -> Tensor:
        """Return the sum over a token's experts e, in order, of weights[t, e] * down_e(activation(gate_e x) * up_e x): [T, D].

        weights [T, count] of route. gate, up [count * inner, D] and down [count * D, inner] hold the experts one after another."""
        ...

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        """Return x + y."""
        ...

    def take_rows(self, x: Tensor, rows: Tensor) -> Tensor:
        """Return x[rows]: [S, D]."""
        ...

    def layer_norm(self, x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
        """Return (x - mean(x)) / sqrt(variance(x) + eps) * weight + bias over each row of x [T, D]."""
        ...

    def activate(self, x: Tensor, activation: str) -> Tensor:
        """Return activation(x), same shape. `silu`: x / (1 + e^-x); `gelu`: x Phi(x); `gelu_tanh`: its tanh form; `relu`; `tanh`."""
        ...

    def whole_attention(self, q: Tensor, k: Tensor, v: Tensor, batch: Batch, head_dim: int, scale: float) -> Tensor:
        """Return attention of each token over all tokens of its row, those behind it too: [T, H * head_dim] as q, k and v.

        Nothing is kept: the step must hold whole rows, from position 0."""
        ...


class Forward(Protocol):
    """A model ready to run a step; returns logits [S, V] float32, valid until the next call."""

    def __call__(self, batch: Batch) -> npt.NDArray[np.float32]: ...


class Model(Protocol):
    """A model file's product: weights bound, wiring fixed. Called with any Ops."""

    @property
    def weight_bytes(self) -> int:
        """Bytes of its weights as its backend holds them, shared ones once."""
        ...

    def forward(self, ops: Ops, batch: Batch, kv: KVCache) -> Tensor: ...


class Backend(Protocol):
    """A device and its library. Found by name through backends/registry.py."""

    name: str
    threads: int  # that compute
    isa: str | None  # the instruction set of its kernels; None where it has no choice
    kv_dtype: str  # in which it keeps keys and values unless told otherwise, of KV_DTYPES

    @property
    def numerics(self) -> str:
        """All that the bits of its results depend on beside model and input: library and ISA, but not the number of threads."""
        ...

    def describe(self) -> str:
        """Return one line for logs: library, ISA, threads."""
        ...

    def load_matrix(self, raw: RawTensor) -> Weight:
        """Return `raw` [N, K] ready for embed and linear."""
        ...

    def load_vector(self, raw: RawTensor) -> Tensor:
        """Return `raw` [D] as float32 [D], for norms and biases."""
        ...

    def make_kv_cache(self, spec: KVSpec, num_blocks: int) -> KVMemory:
        """Return zeroed KV memory for `num_blocks` blocks (lazily backed where the system can)."""
        ...

    def eager(self, model: Model, kv: KVCache) -> Forward:
        """Return the model called verb by verb (--enforce-eager)."""
        ...

    def compile(self, model: Model, kv: KVCache, max_tokens: int, max_rows: int) -> Forward:
        """Return the model as one replayed program for steps of up to max_tokens tokens and max_rows sampled rows;
        backends that do not record return eager()."""
        ...

    def activation_bytes(self, model: Model, kv_spec: KVSpec, max_tokens: int, max_rows: int) -> int:
        """Return the bytes that a compiled forward of that size holds beside weights and KV."""
        ...

    def sample(self, logits: npt.NDArray[np.float32], how: SamplingBatch) -> Sampled:
        """Return one token per row of logits [S, V]; see SamplingBatch. Does not change logits."""
        ...


def concat_start(lengths: Sequence[int] | IntArray) -> IntArray:
    """Return the CSR row starts of lists with these lengths: [len + 1] int32."""
    start = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=start[1:])
    return start
