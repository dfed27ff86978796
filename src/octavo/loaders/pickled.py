"""Weights that are refused unread, since opening them can run code."""

from __future__ import annotations

from pathlib import Path

from octavo.errors import ModelError

_PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".npz")


def refuse_pickled(path: Path) -> None:
    """Raise ModelError when `path` is, or as a folder holds, weights in a format that can run code or hide what it is."""
    names = [path.name] if path.is_file() else sorted(entry.name for entry in path.iterdir())
    refused = [name for name in names if name.endswith(_PICKLED)]
    if refused:
        raise ModelError(
            f"{refused[0]}: pickled weights ({', '.join(_PICKLED)}) can run code when opened and are not read; "
            "convert the model to safetensors or GGUF, or take a repository that has them"
        )
