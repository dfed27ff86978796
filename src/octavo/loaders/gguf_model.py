"""What the metadata of a GGUF file says of a model: shapes, text, sampling.

Source: ggml's docs/gguf.md for the keys. Mistral models carry the architecture name `llama`. Llama files keep the rows
of q and k permuted, so that rotary pairs stand next to each other (RopeSpec.interleaved); qwen files do not.
"""

from __future__ import annotations

import math

from octavo.errors import ModelError
from octavo.loaders.endings import check_sampling, turn_end_ids, unique_ids
from octavo.loaders.fields import Fields
from octavo.loaders.gguf import GGUFFile, StringArray, Value
from octavo.specs.model import ModelSpec, RopeSpec
from octavo.specs.tensors import Format, RawTensor
from octavo.specs.text import GenerationDefaults, GGUFVocabulary, TextAssets

MAX_VOCABULARY = 1_000_000
MAX_MERGES = 2_000_000

_FAMILIES = {"llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}
_ROPE_KINDS = {"none": "none", "linear": "linear", "yarn": "yarn"}
_VOCABULARIES = {"gpt2": "gpt2", "llama": "llama"}
_LLAMA3_PRES = ("llama3", "llama-v3", "llama-bpe")
_NORMAL, _CONTROL = 1, 3


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


def read_gguf_text(file: GGUFFile) -> TextAssets:
    """Return the vocabulary, the chat template and the special ids. Raises ModelError."""
    metadata = Fields(file.name, file.metadata)
    vocabulary = _vocabulary(file, metadata)
    defaults = read_gguf_generation(file)
    adds_bos = vocabulary.model == "llama" or vocabulary.pre in _LLAMA3_PRES
    return TextAssets(
        tokenizer_json=None,
        gguf_vocabulary=vocabulary,
        chat_template=metadata.text("tokenizer.chat_template", None),
        bos_token_id=defaults.bos_token_id,
        eos_token_ids=defaults.eos_token_ids,
        add_bos=defaults.bos_token_id is not None and metadata.boolean("tokenizer.ggml.add_bos_token", adds_bos),
        add_eos=bool(defaults.eos_token_ids) and metadata.boolean("tokenizer.ggml.add_eos_token", False),
    )


def read_gguf_generation(file: GGUFFile) -> GenerationDefaults:
    """Return where answers end and the sampling defaults of general.sampling.*. Raises ModelError."""
    metadata = Fields(file.name, file.metadata)
    metadata.require("tokenizer.ggml.tokens")
    tokens = _string_array(file, "tokenizer.ggml.tokens", MAX_VOCABULARY)
    size = len(tokens)
    control_ids = {token_id for token_id, kind in enumerate(_token_types(file, size)) if kind == _CONTROL}
    control = {token: token_id for token_id, token in tokens.pick(control_ids).items()}
    named = [token_id for name in ("eos", "eot", "eom") if (token_id := _token_id(metadata, name, size)) is not None]
    sampling = {
        "temperature": metadata.number("general.sampling.temp", None),
        "top_k": metadata.integer("general.sampling.top_k", None),
        "top_p": metadata.number("general.sampling.top_p", None),
        "min_p": metadata.number("general.sampling.min_p", None),
        "repetition_penalty": metadata.number("general.sampling.penalty_repeat", None),
    }
    return GenerationDefaults(
        bos_token_id=_token_id(metadata, "bos", size),
        eos_token_ids=unique_ids(named, turn_end_ids(metadata.text("tokenizer.chat_template", None), control)),
        **check_sampling(metadata.source, sampling),
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


def _vocabulary(file: GGUFFile, metadata: Fields) -> GGUFVocabulary:
    metadata.require("tokenizer.ggml.model", "tokenizer.ggml.tokens")
    tokens = _string_array(file, "tokenizer.ggml.tokens", MAX_VOCABULARY).decode()
    merges = _string_array(file, "tokenizer.ggml.merges", MAX_MERGES).decode() if "tokenizer.ggml.merges" in file.metadata else ()
    return GGUFVocabulary(
        model=metadata.choice("tokenizer.ggml.model", "", _VOCABULARIES),
        pre=metadata.text("tokenizer.ggml.pre", "default"),
        tokens=tokens,
        scores=_numbers(file, "tokenizer.ggml.scores", "f", len(tokens)) or (0.0,) * len(tokens),
        token_types=_token_types(file, len(tokens)),
        merges=merges,
        unknown_token_id=_token_id(metadata, "unknown", len(tokens)),
        add_space_prefix=metadata.boolean("tokenizer.ggml.add_space_prefix", True),
    )


def _token_types(file: GGUFFile, count: int) -> tuple[int, ...]:
    return _numbers(file, "tokenizer.ggml.token_type", "i", count) or (_NORMAL,) * count


def _string_array(file: GGUFFile, key: str, limit: int) -> StringArray:
    value = file.metadata[key]
    if not isinstance(value, StringArray) or len(value) > limit:
        raise ModelError(f"{file.name}: {key} must be an array of at most {limit:,} strings")
    return value


def _numbers(file: GGUFFile, key: str, letter: str, count: int) -> tuple[int, ...]:
    """Return an array of `count` numbers of type `letter`; () when it is absent."""
    value = file.metadata.get(key)
    if value is None:
        return ()
    if not isinstance(value, memoryview) or value.format != letter or len(value) != count:
        raise ModelError(f"{file.name}: {key} must be an array of {count:,} {'float32' if letter == 'f' else 'int32'} values, one a token")
    return tuple(value)


def _token_id(metadata: Fields, name: str, vocab_size: int) -> int | None:
    token_id = metadata.integer(f"tokenizer.ggml.{name}_token_id", None)
    if token_id is not None and not 0 <= token_id < vocab_size:
        raise ModelError(f"{metadata.source}: tokenizer.ggml.{name}_token_id is {token_id:,}; the vocabulary has {vocab_size:,} tokens")
    return token_id
