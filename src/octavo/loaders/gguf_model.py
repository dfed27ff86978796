"""What the metadata of a GGUF file says of a model's shapes.

Source: ggml's docs/gguf.md for the keys. Mistral models carry the architecture name `llama`. Llama files keep the rows
of q and k permuted, so that rotary pairs stand next to each other (RopeSpec.interleaved); qwen files do not.
"""

from __future__ import annotations

import math

from octavo.errors import ModelError
from octavo.loaders.fields import Fields
from octavo.loaders.gguf import GGUFFile, StringArray, Value
from octavo.specs.model import ModelSpec, RopeSpec
from octavo.specs.tensors import Format, RawTensor

_FAMILIES = {"llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}
_ROPE_KINDS = {"none": "none", "linear": "linear", "yarn": "yarn"}


def read_gguf_spec(file: GGUFFile) -> ModelSpec:
    """Return the shapes that metadata and tensors give. Raises ModelError."""
    metadata = Fields(file.name, file.metadata)
    metadata.require("general.architecture")
    family = metadata.choice("general.architecture", "", _FAMILIES)
    model = Fields(file.name, _section(file, family))
    model.require("block_count", "context_length", "embedding_length", "feed_forward_length", "attention.head_count")
    model.require("attention.layer_norm_rms_epsilon")
    if experts := model.integer("expert_count", 0):
        raise ModelError(f"{file.name}: has {experts} experts; mixture-of-experts models are not supported")
    hidden, heads = model.integer("embedding_length", 0), _same_in_all_layers(model, "attention.head_count")
    if heads is None or heads < 1:
        raise ModelError(f"{file.name}: attention.head_count is {heads}; it must be at least 1")
    head_dim = model.integer("attention.key_length", hidden // heads)
    if (value_dim := model.integer("attention.value_length", head_dim)) != head_dim:
        raise ModelError(f"{file.name}: keys of {head_dim} and values of {value_dim} dimensions are not supported; they must be equal")
    max_position = model.integer("context_length", 0)
    window = model.integer("attention.sliding_window", 0)
    return ModelSpec(
        family=family,
        num_layers=model.integer("block_count", 0),
        hidden_size=hidden,
        intermediate_size=_same_in_all_layers(model, "feed_forward_length") or 0,
        num_heads=heads,
        num_kv_heads=_same_in_all_layers(model, "attention.head_count_kv") or heads,
        head_dim=head_dim,
        vocab_size=_vocab_size(file),
        max_position=max_position,
        norm_eps=model.number("attention.layer_norm_rms_epsilon", 0.0),
        rope=_rope(file, model, head_dim, max_position, interleaved=family == "llama"),
        tie_embeddings="output.weight" not in file.tensors,
        qkv_bias="blk.0.attn_q.bias" in file.tensors,
        o_bias="blk.0.attn_output.bias" in file.tensors,
        mlp_bias="blk.0.ffn_gate.bias" in file.tensors,
        qk_norm=family == "qwen3",
        sliding_window=window if 0 < window < max_position else None,
    )


def _section(file: GGUFFile, family: str) -> dict[str, Value]:
    prefix = f"{family}."
    return {key.removeprefix(prefix): value for key, value in file.metadata.items() if key.startswith(prefix)}


def _same_in_all_layers(model: Fields, name: str) -> int | None:
    """Return an integer that may also be given layer by layer."""
    value = model.values.get(name)
    if isinstance(value, memoryview) and value.format in ("B", "b", "H", "h", "I", "i", "Q", "q"):
        different = set(value[:4096])
        if len(different) != 1 or len(value) != model.integer("block_count", 0):
            raise ModelError(f"{model.source}: {name} differs between layers ({sorted(different)[:4]}); only equal layers are supported")
        return int(value[0])
    return model.integer(name, None)


def _vocab_size(file: GGUFFile) -> int:
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise ModelError(f"{file.name}: holds no token_embd.weight of two dimensions")
    tokens = file.metadata.get("tokenizer.ggml.tokens")
    if isinstance(tokens, StringArray) and len(tokens) > embedding.shape[0]:
        raise ModelError(f"{file.name}: the vocabulary has {len(tokens):,} tokens, but the embedding only {embedding.shape[0]:,} rows")
    return embedding.shape[0]


def _rope(file: GGUFFile, model: Fields, head_dim: int, max_position: int, *, interleaved: bool) -> RopeSpec:
    # Files older than rope.scaling.* give a linear factor as rope.scale_linear.
    factor = model.number("rope.scaling.factor", model.number("rope.scale_linear", 1.0))
    kind = model.choice("rope.scaling.type", "linear" if factor not in (0.0, 1.0) else "none", _ROPE_KINDS)
    theta = model.number("rope.freq_base", 10_000.0)
    if theta <= 1 or (kind != "none" and factor < 1):
        raise ModelError(f"{file.name}: rope.freq_base {theta:g} must be more than 1, rope.scaling.factor {factor:g} at least 1")
    dim = model.integer("rope.dimension_count", head_dim)
    factors = _frequency_factors(file, dim)
    if kind == "none":
        return RopeSpec(dim=dim, theta=theta, interleaved=interleaved, frequency_factors=factors)
    if model.number("rope.scaling.yarn_ext_factor", 1.0) != 1.0:
        raise ModelError(f"{file.name}: rope.scaling.yarn_ext_factor other than 1 is not supported")
    original = model.integer("rope.scaling.original_context_length", max_position)
    if original < 1:
        raise ModelError(f"{file.name}: rope.scaling.original_context_length is {original}; it must be at least 1")
    # ggml multiplies yarn's usual factor by this one.
    scale = model.number("rope.scaling.attn_factor", 1.0) * model.number("rope.scaling.yarn_attn_factor", 1.0)
    return RopeSpec(
        dim=dim,
        theta=theta,
        interleaved=interleaved,
        kind=kind,
        factor=factor,
        original_max_position=original,
        beta_fast=model.number("rope.scaling.yarn_beta_fast", 32.0),
        beta_slow=model.number("rope.scaling.yarn_beta_slow", 1.0),
        attention_factor=scale * (0.1 * math.log(factor) + 1) if kind == "yarn" and scale != 1.0 else None,
        frequency_factors=factors,
    )


def _frequency_factors(file: GGUFFile, dim: int) -> tuple[float, ...]:
    tensor: RawTensor | None = file.tensors.get("rope_freqs.weight")
    if tensor is None:
        return ()
    if tensor.format is not Format.F32 or tensor.shape != (dim // 2,):
        raise ModelError(f"{file.name}: rope_freqs.weight is {tensor.shape} of {tensor.format.name}; it must be ({dim // 2},) of F32")
    factors = tuple(tensor.data.cast("f"))
    if not all(math.isfinite(factor) and factor > 0 for factor in factors):
        raise ModelError(f"{file.name}: rope_freqs.weight holds a factor that is not a positive number")
    return factors
