"""The `native` backend: the C++ library. Holds the device (threads and an instruction set); models and sampling run on it.

`ops` are its verbs one by one, as the eager path calls them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from octavo.backends.native import _native
from octavo.backends.native.lowering import lower
from octavo.backends.native.ops import NativeOps, arrays_of
from octavo.backends.native.sample import sample
from octavo.backends.native.tensors import NativeKVCache, NativeWeight, kv_shape, memory_of
from octavo.errors import ConfigError, ModelError
from octavo.ops.interface import Batch, Forward, KVCache, Model, Sampled, SamplingBatch
from octavo.ops.recording import record
from octavo.specs.kv import KVSpec
from octavo.specs.tensors import RawTensor

FloatArray = npt.NDArray[np.float32]


class NativeForward:
    """A compiled forward pass: one call of C++ a step. While traced, it writes down where its time goes."""

    def __init__(self, program: _native.Program) -> None:
        self._program = program

    def __call__(self, batch: Batch) -> FloatArray:
        return self._program.run(*arrays_of(batch), batch.token_types)

    def set_tracing(self, on: bool) -> None:
        self._program.set_tracing(on)

    def take_trace(self) -> list[tuple[int, str, int, int, int]]:
        """Return (thread, what a region does, begin, end, waited) since the last call, in time.monotonic_ns(), those of a thread in
        order. `waited`: for pieces that other threads had in hand."""
        names = self._program.region_names
        return [(thread, names[region], begin, end, waited) for thread, region, begin, end, waited in self._program.take_trace()]


def best_isa(isas: Sequence[str], few_rows: bool) -> str:
    """Return the widest of `isas` (ascending), for steps of few rows the widest without tiles."""
    return [isa for isa in isas if not (few_rows and isa == "amx")][-1]


class NativeBackend:
    """See `octavo.ops.interface.Backend`. Raises ConfigError for an ISA that this CPU does not have.

    `threads` None: the CPUs that this process may use. `isa` None: the widest that this CPU has, but where `few_rows` not one
    that works in tiles of 16 rows (docs/decisions/linear_panels.md)."""

    name = "native"

    def __init__(self, threads: int | None = None, isa: str | None = None, *, few_rows: bool = False) -> None:
        isas = _native.available_isas()
        if isa is not None and isa not in isas:
            raise ConfigError(f"isa is {isa!r}; this CPU has {', '.join(isas)}")
        self._device = _native.Device(threads or _native.usable_cpus(), isa or best_isa(isas, few_rows))
        self._sampler = _native.Sampler(self._device)
        self.ops = NativeOps(self._device)
        self.threads: int = self._device.threads
        self.isa: str | None = self._device.isa
        self.kv_dtype = "bf16" if self._device.isa == "amx" else "f16"  # tiles take bf16 as it lies; registers widen either
        self._lowered: tuple[Model, KVSpec, tuple[_native.ProgramBuilder, int]] | None = None

    @property
    def numerics(self) -> str:
        return f"native, {self._device.isa}"

    def describe(self) -> str:
        return f"native: {self._device.isa}, {self._device.threads} threads"

    def load_matrix(self, raw: RawTensor) -> NativeWeight:
        if len(raw.shape) != 2:
            raise ModelError(f"tensor {raw.name} has shape {raw.shape}; a matrix is needed here")
        return NativeWeight(self._pack(raw, *raw.shape), raw.format)

    def load_vector(self, raw: RawTensor) -> FloatArray:
        if len(raw.shape) != 1:
            raise ModelError(f"tensor {raw.name} has shape {raw.shape}; a vector is needed here")
        values = np.empty((1, raw.shape[0]), np.float32)
        self._device.embed(self._pack(raw, 1, raw.shape[0]), np.zeros(1, np.int32), values)  # the one row, as numbers
        return values.reshape(-1)

    def _pack(self, raw: RawTensor, n: int, k: int) -> _native.Matrix:
        try:
            return self._device.pack(raw.format.label, n, k, np.frombuffer(raw.data, np.uint8))
        except ValueError as error:
            raise ModelError(f"tensor {raw.name} {raw.shape}, {raw.format.label}: {error}") from error

    def make_kv_cache(self, spec: KVSpec, num_blocks: int) -> NativeKVCache:
        return NativeKVCache(spec, num_blocks)

    def eager(self, model: Model, kv: KVCache) -> Forward:
        def forward(batch: Batch) -> FloatArray:
            logits: FloatArray = model.forward(self.ops, batch, kv)
            return logits

        return forward

    def compile(self, model: Model, kv: KVCache, max_tokens: int, max_rows: int) -> Forward:
        builder, output = self._lower(model, kv.spec)
        self._lowered = None
        return NativeForward(builder.build(self._device, memory_of(kv), output, max_tokens, max_rows))

    def activation_bytes(self, model: Model, kv_spec: KVSpec, max_tokens: int, max_rows: int) -> int:
        builder, output = self._lower(model, kv_spec)
        return builder.measure(self._device, kv_shape(kv_spec, 1), output, max_tokens, max_rows)

    def _lower(self, model: Model, kv_spec: KVSpec) -> tuple[_native.ProgramBuilder, int]:
        """Return the model's program. It is kept until it is compiled: an engine measures it first, for it sizes its memory by that."""
        if self._lowered is None or self._lowered[0] is not model or self._lowered[1] != kv_spec:
            self._lowered = (model, kv_spec, lower(record(model, kv_spec), kv_spec))
        return self._lowered[2]

    def peak_operations(self, kind: str) -> float:
        """Return the most f32, bf16 or int8 operations a second that this device's instruction set does, measured; 0: it has none."""
        return self._device.peak_operations(kind)

    def peak_read(self, num_bytes: int) -> float:
        """Return the bytes a second at which so large a piece of memory is read, measured."""
        return self._device.peak_read(num_bytes)

    def sample(self, logits: FloatArray, how: SamplingBatch) -> Sampled:
        return sample(self._sampler, logits, how)
