"""Model families by name: which wiring each has. A family's file is imported when a model of it is bound: a process serves one."""

from __future__ import annotations

from collections.abc import Mapping

from octavo.errors import ModelError
from octavo.ops.interface import Backend, Model
from octavo.specs.model import EncoderSpec, ModelSpec
from octavo.specs.tensors import RawTensor

LLAMA = ("llama", "mistral", "qwen2", "qwen3")
DEEPSEEK = ("deepseek_v2", "deepseek_v3")


def bind(spec: ModelSpec | EncoderSpec, tensors: Mapping[str, RawTensor], backend: Backend) -> Model:
    """Return the model of `spec` with its weights loaded by `backend`. Raises ModelError for an unknown family."""
    if isinstance(spec, EncoderSpec):
        from octavo.models.encoder import bind_encoder

        return bind_encoder(spec, tensors, backend)
    if spec.family in LLAMA:
        from octavo.models.llama import bind_llama

        return bind_llama(spec, tensors, backend)
    if spec.family in DEEPSEEK:
        from octavo.models.deepseek import bind_deepseek

        return bind_deepseek(spec, tensors, backend)
    raise ModelError(f"model family {spec.family!r} is not supported; known families: {', '.join(sorted(LLAMA + DEEPSEEK))}")
