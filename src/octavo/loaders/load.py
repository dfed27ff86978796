"""The doors: a model file or folder as values. GGUF file or Hugging Face folder is decided here and nowhere above.
What reads the other kind is not imported.

Every function raises ModelError, and only that, whatever the files hold; none touches the network or runs their code.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from octavo.errors import ModelError
from octavo.loaders.pickled import refuse_pickled
from octavo.specs.model import EncoderSpec, ModelSpec
from octavo.specs.tensors import RawTensor
from octavo.specs.text import GenerationDefaults, TextAssets

if TYPE_CHECKING:
    from octavo.loaders.gguf import GGUFFile


class Checkpoint(msgspec.Struct, frozen=True):
    """A model's numbers and its weights by canonical name (tensor_names.py), as they lie in the mapped files."""

    spec: ModelSpec | EncoderSpec
    tensors: dict[str, RawTensor]

    @property
    def num_bytes(self) -> int:
        return sum(len(tensor.data) for tensor in self.tensors.values())


def read_spec(path: Path) -> ModelSpec | EncoderSpec:
    """Return the numbers of the model at `path`: a .gguf file (any part of a split one) or a folder."""
    with _os_errors_told(path):
        file = _open_gguf(path)
        if file is None:
            from octavo.loaders.hf_model import read_hf_spec

            return read_hf_spec(path)
        from octavo.loaders.gguf_model import read_gguf_spec

        return read_gguf_spec(file)


def read_text(path: Path) -> TextAssets:
    """Return what turns text into token ids and back, and the chat template."""
    with _os_errors_told(path):
        file = _open_gguf(path)
        if file is None:
            from octavo.loaders.hf_text import read_hf_text

            return read_hf_text(path)
        from octavo.loaders.gguf_text import read_gguf_text

        return read_gguf_text(file)


def read_generation_defaults(path: Path) -> GenerationDefaults:
    """Return what the model's files say of sampling and of where an answer ends."""
    with _os_errors_told(path):
        file = _open_gguf(path)
        if file is None:
            from octavo.loaders.hf_text import read_hf_generation

            return read_hf_generation(path)
        from octavo.loaders.gguf_text import read_gguf_generation

        return read_gguf_generation(file)


def open_weights(path: Path) -> Checkpoint:
    """Return the model's weights, mapped and checked against its numbers, not copied. The mapping ends with the last of the tensors."""
    with _os_errors_told(path):
        file = _open_gguf(path)
        _read_gguf_once.cache_clear()  # which would keep the mapping, and with it the file in memory beside what is made of it
        if file is None:
            return _open_folder(path)
        from octavo.loaders.gguf_model import read_gguf_spec
        from octavo.loaders.tensor_names import GGUF_NAMES, bind_tensors

        spec = read_gguf_spec(file)
        return Checkpoint(spec, bind_tensors(spec, file.tensors, GGUF_NAMES))


def _open_folder(path: Path) -> Checkpoint:
    from octavo.loaders.hf_model import read_hf_spec
    from octavo.loaders.safetensors import read_folder

    spec = read_hf_spec(path)
    if isinstance(spec, EncoderSpec):
        from octavo.loaders.encoder_model import bind_encoder_tensors

        return Checkpoint(spec, bind_encoder_tensors(spec, read_folder(path)))
    from octavo.loaders.tensor_names import SAFETENSORS_NAMES, bind_tensors

    return Checkpoint(spec, bind_tensors(spec, read_folder(path), SAFETENSORS_NAMES))


@contextmanager
def _os_errors_told(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ModelError(f"{path.name}: cannot be read: {error.strerror}") from error


def _open_gguf(path: Path) -> GGUFFile | None:
    """Return the GGUF file that `path` names, or None when it names a Hugging Face folder."""
    file = _find_gguf(path)
    if file is None:
        return None
    status = file.stat()
    return _read_gguf_once(file, status.st_mtime_ns, status.st_size)


@functools.lru_cache(maxsize=1)
def _read_gguf_once(file: Path, modified_ns: int, size: int) -> GGUFFile:
    """Return the file at that state: a process asks one model for its numbers, text and defaults in turn."""
    from octavo.loaders.gguf import read_gguf

    return read_gguf(file)


def _find_gguf(path: Path) -> Path | None:
    """Return the GGUF file that `path` is or, as a folder without config.json, holds; None for a Hugging Face folder."""
    if path.is_dir():
        if (path / "config.json").exists():
            return None
        files = sorted(path.glob("*.gguf"))
        if not files:
            refuse_pickled(path)
            raise ModelError(f"{path.name}: holds neither config.json nor a .gguf file")
        first_parts = [file for file in files if "-00001-of-" in file.name]
        if len(files) > 1 and len(first_parts) != 1:
            raise ModelError(f"{path.name}: holds {len(files)} .gguf files; name one of them: {', '.join(file.name for file in files[:5])}")
        return first_parts[0] if first_parts else files[0]
    if not path.exists():
        raise ModelError(f"{path.name}: there is no such file or folder")
    if path.suffix != ".gguf":
        refuse_pickled(path)
        raise ModelError(f"{path.name}: is neither a .gguf file nor a folder with config.json and .safetensors files")
    return path
