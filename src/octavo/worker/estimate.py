"""`StepEstimator`: what a step has to do at least, counted off the recorded forward pass: whatever the family, it is what runs.

    operations   2 * (out * in) for each row that a matrix is applied to, of experts those that a row picks; for each
                 (query, key) pair of an attention 4 * q_width, of a latent one 2 * rotary width more
    read         every matrix once (of a layer's experts as many as one row picks), an embedding's row for each token, the KV that
                 a row's tokens see once a layer
    written      the KV of each token

Norms, activations and the traffic of intermediate results are left out: next to these they are small, and caches hold them.
"""

from __future__ import annotations

from collections import Counter

from octavo.messages.stats import StepEstimate
from octavo.messages.step import StepPlan
from octavo.ops.program import Attention, Embed, Experts, HeadLinear, LatentAttention, Linear, Program
from octavo.specs.kv import FULL_ATTENTION, AttentionSpan, KVSpec


class StepEstimator:
    def __init__(self, program: Program, kv_spec: KVSpec) -> None:
        steps = program.instructions
        products = [step for step in steps if isinstance(step, Linear | HeadLinear | Experts)]
        attentions = [_attention(step) for step in steps if isinstance(step, Attention | LatentAttention)]
        rows = [step.weight for step in steps if isinstance(step, Embed)]
        self._token_operations = sum(_operations(step) for step in products if step.out.rows == "T")
        self._logit_operations = sum(_operations(step) for step in products if step.out.rows == "S")
        matrices = {id(step.weight): step.weight for step in products if not isinstance(step, Experts)}
        self._matrix_bytes = sum(weight.num_bytes for weight in matrices.values())
        self._matrix_bytes += sum(_picked_bytes(step) for step in products if isinstance(step, Experts))
        self._token_read_bytes = sum(weight.num_bytes // weight.shape[0] for weight in rows)
        self._layer_bytes = kv_spec.bytes_per_token // kv_spec.num_layers  # of one position
        self._token_written_bytes = len(attentions) * self._layer_bytes
        self._num_layers = Counter(span for span, _ in attentions)
        self._pair_operations: Counter[AttentionSpan] = Counter()  # of all layers of a span
        for span, operations in attentions:
            self._pair_operations[span] += operations

    def estimate(self, plan: StepPlan) -> StepEstimate:
        tokens = plan.num_tokens
        operations = tokens * self._token_operations + plan.num_logits * self._logit_operations
        read = self._matrix_bytes + tokens * self._token_read_bytes
        for row in plan.rows:
            end = row.start + row.num_tokens
            for span, layers in self._num_layers.items():
                operations += (_pairs(span, end) - _pairs(span, row.start)) * self._pair_operations[span]
                read += (end - span.first_seen(row.start)) * layers * self._layer_bytes
        return StepEstimate(operations, read, tokens * self._token_written_bytes)


def _attention(step: Attention | LatentAttention) -> tuple[AttentionSpan, int]:
    """Return what the layer sees, and the operations of one (query, key) pair."""
    if isinstance(step, LatentAttention):
        return FULL_ATTENTION, 4 * step.q.width + 2 * step.q_rotary.width
    return step.span, 4 * step.q.width


def _operations(step: Linear | HeadLinear | Experts) -> int:
    """Return the operations of one row."""
    if isinstance(step, Experts):
        return 2 * 3 * step.x.width * step.experts.intermediate_size * step.experts.per_token
    rows, columns = step.weight.shape
    return 2 * rows * columns


def _picked_bytes(step: Experts) -> int:
    held = sum(weight.num_bytes for weight in (step.gate, step.up, step.down))
    return held * step.experts.per_token // step.experts.count


def _pairs(span: AttentionSpan, num_tokens: int) -> int:
    """Return how many (query, key) pairs the first `num_tokens` positions have."""
    if span.size is None or num_tokens <= span.size:
        return _triangle(num_tokens)
    if span.kind == "sliding":
        return _triangle(span.size) + (num_tokens - span.size) * span.size
    return num_tokens // span.size * _triangle(span.size) + _triangle(num_tokens % span.size)


def _triangle(count: int) -> int:
    return count * (count + 1) // 2
