"""The `reference` backend: NumPy float32, the definition of every op. Needs nothing but NumPy; meant for tests and for
reading, far too slow to serve.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from octavo.backends.reference.dequantize import dequantize
from octavo.backends.reference.ops import ReferenceKVCache, ReferenceOps, ReferenceWeight
from octavo.backends.reference.sample import sample
from octavo.errors import ModelError
from octavo.ops.interface import Batch, Forward, KVCache, Model, Sampled, SamplingBatch
from octavo.ops.program import StoreKV, StoreLatent, inputs_of, last_uses
from octavo.ops.recording import record
from octavo.specs.kv import KVSpec
from octavo.specs.tensors import RawTensor

FloatArray = npt.NDArray[np.float32]


class ReferenceBackend:
    """See `octavo.ops.interface.Backend`."""

    name = "reference"
    threads = 1
    isa: str | None = None
    kv_dtype = "f32"

    @property
    def numerics(self) -> str:
        return f"reference, NumPy {np.__version__}"

    def describe(self) -> str:
        return f"reference: NumPy {np.__version__}, float32"

    def load_matrix(self, raw: RawTensor) -> ReferenceWeight:
        if len(raw.shape) != 2:
            raise ModelError(f"tensor {raw.name} has shape {raw.shape}; a matrix is needed here")
        return ReferenceWeight(dequantize(raw), raw.format)

    def load_vector(self, raw: RawTensor) -> FloatArray:
        if len(raw.shape) != 1:
            raise ModelError(f"tensor {raw.name} has shape {raw.shape}; a vector is needed here")
        return dequantize(raw)

    def make_kv_cache(self, spec: KVSpec, num_blocks: int) -> ReferenceKVCache:
        return ReferenceKVCache(spec, num_blocks)

    def eager(self, model: Model, kv: KVCache) -> Forward:
        ops = ReferenceOps()

        def forward(batch: Batch) -> FloatArray:
            logits: FloatArray = model.forward(ops, batch, kv)
            return logits

        return forward

    def compile(self, model: Model, kv: KVCache, max_tokens: int, max_rows: int) -> Forward:
        return self.eager(model, kv)

    def activation_bytes(self, model: Model, kv_spec: KVSpec, max_tokens: int, max_rows: int) -> int:
        """Return the most bytes of tensors that are alive at once; scratch inside an op is not counted."""
        program = record(model, kv_spec)
        last = last_uses(program)
        rows = {"T": max_tokens, "S": max_rows}
        alive: dict[int, int] = {}
        most = 0
        for index, step in enumerate(program.instructions):
            if not isinstance(step, StoreKV | StoreLatent):
                alive[step.out.id] = rows[step.out.rows] * step.out.width * 4
            most = max(most, sum(alive.values()))
            for tensor in inputs_of(step):
                if last[tensor.id] == index:
                    alive.pop(tensor.id, None)
        return most

    def sample(self, logits: FloatArray, how: SamplingBatch) -> Sampled:
        return sample(logits, how)
