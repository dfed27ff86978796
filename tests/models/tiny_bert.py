"""Tiny random encoders: their numbers, their tensors, and the folder that transformers would have written."""

import json
from pathlib import Path

import numpy as np

from octavo.loaders.encoder_model import SAFETENSORS_NAMES, encoder_shapes
from octavo.loaders.tensor_names import file_name
from octavo.specs.model import EncoderSpec
from octavo.specs.tensors import Format, RawTensor

VOCAB_SIZE = 60


def spec(**changes) -> EncoderSpec:
    numbers = {
        "family": "bert",
        "num_layers": 2,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_heads": 4,
        "vocab_size": VOCAB_SIZE,
        "max_position": 40,
        "num_positions": 40,
        "num_token_types": 2,
        "norm_eps": 1e-12,
        "activation": "gelu",
        "pooling": "mean",
        "normalize": True,
    }
    return EncoderSpec(**(numbers | changes))


def values(wanted: EncoderSpec, seed: int = 0) -> dict[str, np.ndarray]:
    """Return random float32 tensors by canonical name."""
    random = np.random.default_rng(seed)
    return {
        name: (random.standard_normal(shape) * 0.3 + (1 if name.endswith("norm") else 0)).astype(np.float32)
        for name, shape in encoder_shapes(wanted).items()
    }


def tensors(wanted: EncoderSpec, seed: int = 0) -> dict[str, RawTensor]:
    return {name: RawTensor(name, array.shape, Format.F32, memoryview(array.tobytes())) for name, array in values(wanted, seed).items()}


def write_folder(folder: Path, wanted: EncoderSpec, *, prefix: str = "", seed: int = 0) -> Path:
    """Write config.json and model.safetensors, an integer buffer and an unused pooler among the tensors."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "architectures": ["BertForSequenceClassification" if wanted.labels else "BertModel"],
        "model_type": "bert",
        "vocab_size": wanted.vocab_size,
        "hidden_size": wanted.hidden_size,
        "intermediate_size": wanted.intermediate_size,
        "num_hidden_layers": wanted.num_layers,
        "num_attention_heads": wanted.num_heads,
        "max_position_embeddings": wanted.num_positions,
        "type_vocab_size": wanted.num_token_types,
        "layer_norm_eps": wanted.norm_eps,
        "hidden_act": {"gelu": "gelu", "gelu_tanh": "gelu_new", "relu": "relu"}[wanted.activation],
    }
    if wanted.labels:
        config["id2label"] = {str(index): label for index, label in enumerate(wanted.labels)}
        if wanted.is_multi_label:
            config["problem_type"] = "multi_label_classification"
    (folder / "config.json").write_text(json.dumps(config))
    names = {canonical: name if name.startswith("classifier") else prefix + name for canonical, name in SAFETENSORS_NAMES.items()}
    arrays = {file_name(name, names): array for name, array in values(wanted, seed).items()}
    arrays[prefix + "embeddings.position_ids"] = np.arange(wanted.num_positions, dtype=np.int64)[None]
    if not wanted.labels:
        arrays[prefix + "pooler.dense.bias"] = np.zeros(wanted.hidden_size, np.float32)
    write_safetensors(folder / "model.safetensors", arrays)
    return folder


def write_safetensors(path: Path, arrays: dict[str, np.ndarray]) -> None:
    header, data = {}, b""
    for name, array in arrays.items():
        kind = {"float32": "F32", "int64": "I64"}[str(array.dtype)]
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [len(data), len(data) + array.nbytes]}
        data += array.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def write_modules(folder: Path, *, modes: dict[str, bool], normalize: bool = True, longest: int | None = None) -> None:
    """Write what sentence-transformers adds to a folder."""
    kinds = [("", "Transformer"), ("1_Pooling", "Pooling")] + [("2_Normalize", "Normalize")] * normalize
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"} for i, (path, kind) in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 32} | modes))
    if longest is not None:
        (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": longest, "do_lower_case": False}))
