"""What a Hugging Face folder says of an encoder: its shapes, how it pools, its labels, its tensors.

Beside config.json a sentence-transformers folder tells what follows the encoder (modules.json), how tokens are pooled (the
folder of the Pooling module) and the longest text (sentence_bert_config.json). A step that Octavo does not compute is
refused by name. Without these files the first token's vector, scaled to length 1, is the text's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from octavo.errors import ModelError
from octavo.loaders.fields import Fields
from octavo.loaders.mapped_file import read_small_file
from octavo.loaders.safetensors import parse_json, parse_json_objects
from octavo.loaders.tensor_names import match_tensors
from octavo.specs.model import EncoderSpec
from octavo.specs.tensors import RawTensor
from octavo.units import MiB

MAX_SETTINGS_BYTES = 1 * MiB
MAX_LABELS = 10_000

BERT_DEFAULTS = {
    "vocab_size": 30_522,
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
}
_ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "relu": "relu", "silu": "silu", "swish": "silu"}
_POOLING_MODES = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls", "pooling_mode_lasttoken": "last"}
_POOLING_NAMES = {"mean": "mean", "cls": "cls", "lasttoken": "last"}
_MULTI_LABEL = {"single_label_classification": False, "multi_label_classification": True}
_MODULE_PATH = re.compile(r"[A-Za-z0-9_-]{1,64}")

# canonical name -> name in the file, behind "bert." (but the classifier's) where there is a head; {i} is the layer
SAFETENSORS_NAMES = {
    "embed": "embeddings.word_embeddings.weight",
    "position_embed": "embeddings.position_embeddings.weight",
    "type_embed": "embeddings.token_type_embeddings.weight",
    "embed_norm": "embeddings.LayerNorm.weight",
    "embed_norm_bias": "embeddings.LayerNorm.bias",
    "layers.{i}.q": "encoder.layer.{i}.attention.self.query.weight",
    "layers.{i}.q_bias": "encoder.layer.{i}.attention.self.query.bias",
    "layers.{i}.k": "encoder.layer.{i}.attention.self.key.weight",
    "layers.{i}.k_bias": "encoder.layer.{i}.attention.self.key.bias",
    "layers.{i}.v": "encoder.layer.{i}.attention.self.value.weight",
    "layers.{i}.v_bias": "encoder.layer.{i}.attention.self.value.bias",
    "layers.{i}.o": "encoder.layer.{i}.attention.output.dense.weight",
    "layers.{i}.o_bias": "encoder.layer.{i}.attention.output.dense.bias",
    "layers.{i}.attn_norm": "encoder.layer.{i}.attention.output.LayerNorm.weight",
    "layers.{i}.attn_norm_bias": "encoder.layer.{i}.attention.output.LayerNorm.bias",
    "layers.{i}.up": "encoder.layer.{i}.intermediate.dense.weight",
    "layers.{i}.up_bias": "encoder.layer.{i}.intermediate.dense.bias",
    "layers.{i}.down": "encoder.layer.{i}.output.dense.weight",
    "layers.{i}.down_bias": "encoder.layer.{i}.output.dense.bias",
    "layers.{i}.mlp_norm": "encoder.layer.{i}.output.LayerNorm.weight",
    "layers.{i}.mlp_norm_bias": "encoder.layer.{i}.output.LayerNorm.bias",
    "pooler": "pooler.dense.weight",
    "pooler_bias": "pooler.dense.bias",
    "classifier": "classifier.weight",
    "classifier_bias": "classifier.bias",
}
_UNUSED_POOLER = re.compile(r"(bert\.)?pooler\.dense\.(weight|bias)")  # of an encoder whose vectors are pooled otherwise


def read_encoder_spec(folder: Path, config: Fields) -> EncoderSpec:
    """Return the shapes that config.json gives, and what follows the encoder. Raises ModelError."""
    if (kind := config.text("position_embedding_type", "absolute")) != "absolute":
        raise ModelError(f"{config.source}: position_embedding_type is {kind[:64]!r}; only absolute is supported")
    if config.boolean("is_decoder", False):
        raise ModelError(f"{config.source}: is_decoder is true; a BERT that generates is not supported")
    settings = _settings(folder, "sentence_bert_config.json")
    if settings.boolean("do_lower_case", False):
        raise ModelError(f"{settings.source}: do_lower_case is true; only tokenizers that lower the case themselves are supported")
    num_positions = config.integer("max_position_embeddings", 0)
    longest = settings.integer("max_seq_length", num_positions)
    pooling, normalize = _pooling(folder, config.integer("hidden_size", 0))
    is_classifier = config.values.get("architectures") == ["BertForSequenceClassification"]
    return EncoderSpec(
        family="bert",
        num_layers=config.integer("num_hidden_layers", 0),
        hidden_size=config.integer("hidden_size", 0),
        intermediate_size=config.integer("intermediate_size", 0),
        num_heads=config.integer("num_attention_heads", 0),
        vocab_size=config.integer("vocab_size", 0),
        max_position=min(longest, num_positions),
        num_positions=num_positions,
        num_token_types=config.integer("type_vocab_size", 0),
        norm_eps=config.number("layer_norm_eps", 0.0),
        activation=config.choice("hidden_act", "gelu", _ACTIVATIONS),
        pooling="cls" if is_classifier else pooling,
        normalize=normalize and not is_classifier,
        labels=_labels(config) if is_classifier else (),
        is_multi_label=config.choice("problem_type", "single_label_classification", _MULTI_LABEL),
    )


def bind_encoder_tensors(spec: EncoderSpec, found: Mapping[str, RawTensor]) -> dict[str, RawTensor]:
    """Return the tensors of an encoder under their canonical names, exactly those that `spec` calls for. Raises ModelError."""
    prefix = "bert." if any(name.startswith("bert.") for name in found) else ""
    names = {canonical: name if name.startswith("classifier") else prefix + name for canonical, name in SAFETENSORS_NAMES.items()}
    return match_tensors(
        encoder_shapes(spec),
        found,
        names,
        is_ignored=lambda name: not spec.labels and _UNUSED_POOLER.fullmatch(name) is not None,
        model=f"{spec.family}, {spec.num_layers} layers",
    )


def encoder_shapes(spec: EncoderSpec) -> dict[str, tuple[int, ...]]:
    """Return the canonical name and shape, (out_features, in_features) or (width,), of every tensor of an encoder."""
    hidden, inner = spec.hidden_size, spec.intermediate_size
    shapes: dict[str, tuple[int, ...]] = {
        "embed": (spec.vocab_size, hidden),
        "position_embed": (spec.num_positions, hidden),
        "type_embed": (spec.num_token_types, hidden),
        "embed_norm": (hidden,),
        "embed_norm_bias": (hidden,),
    }
    layer: dict[str, tuple[int, ...]] = dict.fromkeys(("q", "k", "v", "o"), (hidden, hidden))
    layer |= {"up": (inner, hidden), "up_bias": (inner,), "down": (hidden, inner)}
    layer |= dict.fromkeys(("q_bias", "k_bias", "v_bias", "o_bias", "down_bias"), (hidden,))
    layer |= dict.fromkeys(("attn_norm", "attn_norm_bias", "mlp_norm", "mlp_norm_bias"), (hidden,))
    for i in range(spec.num_layers):
        shapes |= {f"layers.{i}.{name}": shape for name, shape in layer.items()}
    if spec.labels:
        shapes |= {"pooler": (hidden, hidden), "pooler_bias": (hidden,)}
        shapes |= {"classifier": (len(spec.labels), hidden), "classifier_bias": (len(spec.labels),)}
    return shapes


def _pooling(folder: Path, hidden_size: int) -> tuple[str, bool]:
    """Return how token vectors become one, and whether that one is scaled to length 1."""
    path = folder / "modules.json"
    if not path.exists():
        return "cls", True
    modules = [Fields(path.name, module) for module in parse_json_objects(read_small_file(path, MAX_SETTINGS_BYTES), path.name)]
    kinds = [module.text("type", "").rpartition(".")[2] for module in modules]
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise ModelError(f"{path.name}: the modules are {', '.join(kinds)[:200]}; supported are Transformer, Pooling and then Normalize")
    place = modules[1].text("path", "1_Pooling")
    if not _MODULE_PATH.fullmatch(place):
        raise ModelError(f"{path.name}: {place[:64]!r} is no plain name of a folder")
    return _pooling_mode(_settings(folder, f"{place}/config.json"), hidden_size), kinds[-1] == "Normalize"


def _pooling_mode(settings: Fields, hidden_size: int) -> str:
    if (width := settings.integer("word_embedding_dimension", hidden_size)) != hidden_size:
        raise ModelError(f"{settings.source}: word_embedding_dimension is {width:,}; the model's vectors have {hidden_size:,} values")
    if "pooling_mode" in settings.values:
        return settings.choice("pooling_mode", "mean", _POOLING_NAMES)
    modes = [name for name in settings.values if name.startswith("pooling_mode_") and settings.boolean(name, False)]
    if len(modes) != 1 or modes[0] not in _POOLING_MODES:
        raise ModelError(
            f"{settings.source}: pools by {', '.join(modes)[:200] or 'nothing'}; supported is one of {', '.join(_POOLING_MODES)}"
        )
    return _POOLING_MODES[modes[0]]


def _labels(config: Fields) -> tuple[str, ...]:
    """Return the names of the classes in the order of their scores."""
    named = config.section("id2label")
    count = config.integer("num_labels", None)
    if named is None:
        return tuple(f"LABEL_{index}" for index in range(2 if count is None else max(1, min(count, MAX_LABELS))))
    if not 1 <= len(named.values) <= MAX_LABELS or set(named.values) != {str(index) for index in range(len(named.values))}:
        raise ModelError(f"{named.source}: must name the classes 0, 1, 2 ..., at most {MAX_LABELS:,}")
    return tuple(named.text(str(index), "") for index in range(len(named.values)))


def _settings(folder: Path, name: str) -> Fields:
    path = folder / name
    return Fields(name, parse_json(read_small_file(path, MAX_SETTINGS_BYTES), name) if path.exists() else {})
