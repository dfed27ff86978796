"""A checkpoint's tensors as a backend lays them out, and the parts of a model that are made of them by name.

The names are Octavo's own (`layers.0.q`); loaders translate into them, and have checked by then that every tensor which
the spec asks for is there, in its shape, and no other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from msgspec import Struct

from octavo.ops.interface import Backend
from octavo.specs.tensors import RawTensor

Part = TypeVar("Part", bound=Struct)


class BoundTensors(Struct, frozen=True):
    """Matrices (Weight) and vectors (Tensor) by name. `num_bytes`: what the backend holds of them."""

    tensors: Mapping[str, Any]
    num_bytes: int

    def fill(self, part: type[Part], prefix: str = "", **known: Any) -> Part:
        """Return `part`, a struct, of what is known and the tensors that are called `prefix` and a field's name; None for those
        that the model does not have."""
        return part(**known, **{name: self.tensors.get(prefix + name) for name in part.__struct_fields__ if name not in known})


def bind_tensors(tensors: Iterable[tuple[str, RawTensor]], backend: Backend) -> BoundTensors:
    """Return the tensors as `backend` holds them: those of two dimensions as matrices, of one as vectors."""
    bound: dict[str, Any] = {}
    num_bytes = 0
    for name, raw in tensors:
        if len(raw.shape) == 2:
            bound[name] = matrix = backend.load_matrix(raw)
            num_bytes += matrix.num_bytes
        else:
            bound[name] = vector = backend.load_vector(raw)
            num_bytes += 4 * len(vector)
    return BoundTensors(bound, num_bytes)
