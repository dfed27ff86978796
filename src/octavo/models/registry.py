"""Model families by name: which wiring each has. Decoders have a ModelSpec, encoders an EncoderSpec."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from octavo.errors import ModelError
from octavo.models.decoder import Decoder
from octavo.models.deepseek import bind_deepseek
from octavo.models.encoder import bind_encoder
from octavo.models.weights import LayerWeights, bind_weights, fill
from octavo.ops.interface import Backend, Model
from octavo.specs import EncoderSpec, ModelSpec, RawTensor

Builder = Callable[[ModelSpec, Mapping[str, RawTensor], Backend], Model]


def _decoder(spec: ModelSpec, tensors: Mapping[str, RawTensor], backend: Backend) -> Model:
    return Decoder(spec, bind_weights(lambda parts: fill(LayerWeights, parts), spec, tensors.items(), backend))


FAMILIES: dict[str, Builder] = {
    **dict.fromkeys(("llama", "mistral", "qwen2", "qwen3"), _decoder),
    **dict.fromkeys(("deepseek_v2", "deepseek_v3"), bind_deepseek),
}


def bind(spec: ModelSpec | EncoderSpec, tensors: Mapping[str, RawTensor], backend: Backend) -> Model:
    """Return the model of `spec` with its weights loaded by `backend`. Raises ModelError for an unknown family."""
    if isinstance(spec, EncoderSpec):
        return bind_encoder(spec, tensors, backend)
    builder = FAMILIES.get(spec.family)
    if builder is None:
        raise ModelError(f"model family {spec.family!r} is not supported; known families: {', '.join(sorted(FAMILIES))}")
    return builder(spec, tensors, backend)
