"""Which model `octavo plan` is asked about: a file, a folder, a name on this disk or in the planner's catalogue, or numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import msgspec

from octavo.errors import ConfigError, ModelError
from octavo.planner.catalogue import find_model_shape, model_names
from octavo.planner.formats import WeightFormat, weight_format
from octavo.planner.gguf_shape import shape_from_gguf
from octavo.planner.hf_shape import shape_from_config
from octavo.planner.shape import ModelShape

MAX_CONFIG_BYTES = 16 << 20


@dataclass(frozen=True)
class PlannedModel:
    """`path`: where its file or folder lies, None when there is none here. `weights`: the format of its files."""

    shape: ModelShape
    weights: WeightFormat
    path: Path | None


def find_planned_model(name: str, weights: str | None) -> PlannedModel:
    """Return the model; `weights` names a format that takes the place of the files' own. Raises ModelError and ConfigError."""
    path = _on_disk(name)
    if path is None:
        shape = find_model_shape(name)
        return PlannedModel(shape, _format(shape, weights), None)
    if path.suffix == ".gguf":
        shape, own = _read_gguf(path)
        return PlannedModel(shape, weight_format(weights) if weights else own, path)
    if path.suffix == ".json":
        shape = shape_from_config(_read_json(path), path.stem)
        return PlannedModel(shape, _format(shape, weights), None)
    shape = shape_from_config(_read_json(path / "config.json"), path.name)
    return PlannedModel(shape, _format(shape, weights or _dtype_of_files(path)), path)


def _on_disk(name: str) -> Path | None:
    """Return the file or folder that `name` is the path of, or that the store holds under it."""
    path = Path(name).expanduser()
    if path.is_dir() and not (path / "config.json").exists():
        files = sorted(path.glob("*.gguf"))
        if not files:
            raise ModelError(f"{name}: holds neither config.json nor a .gguf file")
        return files[0]
    if path.exists():
        return path
    from octavo.loaders.catalogue import find_model
    from octavo.loaders.store import resolve_model

    if find_model(name) or name.startswith("hf:"):
        try:
            return resolve_model(name)
        except ModelError:
            return None  # not pulled; the planner may know its numbers
    if path.suffix in (".gguf", ".json") or name.startswith((".", "/", "~")):
        raise ModelError(f"{name[:200]}: there is no such file or folder")
    return None


def _read_gguf(path: Path) -> tuple[ModelShape, WeightFormat]:
    from octavo.loaders.gguf import read_gguf

    file = read_gguf(path)
    tensors = {name: (math.prod(tensor.shape), len(tensor.data)) for name, tensor in file.tensors.items()}
    return shape_from_gguf(file.metadata, tensors, path.stem)


def _dtype_of_files(folder: Path) -> str | None:
    """Return f32 or bf16, whichever most bytes of the safetensors files are in; None where there are none that are read here."""
    from octavo.loaders.safetensors import read_folder

    try:
        tensors = read_folder(folder).values()
    except ModelError:
        return None
    in_float32 = sum(len(tensor.data) for tensor in tensors if tensor.format.label == "f32")
    return "f32" if 2 * in_float32 > sum(len(tensor.data) for tensor in tensors) else "bf16"


def _read_json(path: Path) -> dict[str, object]:
    try:
        if path.stat().st_size > MAX_CONFIG_BYTES:
            raise ModelError(f"{path.name}: is larger than 16 MiB, which no config.json is")
        return msgspec.json.decode(path.read_bytes(), type=dict[str, object])
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ModelError(f"{path.name}: is no JSON object that can be read ({type(error).__name__})") from error


def _format(shape: ModelShape, weights: str | None) -> WeightFormat:
    if weights is not None:
        return weight_format(weights)
    if shape.default_weights is None:
        raise ConfigError(f"{shape.name}: its quantisation is not known here; name the format with --weights")
    return weight_format(shape.default_weights)


def no_model() -> ConfigError:
    return ConfigError(
        "name a model: a config.json, a .gguf file, a folder, one of "
        f"{', '.join(model_names())}; or give --layers, --kv-heads, --head-dim and --params"
    )
