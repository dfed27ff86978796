"""Hugging Face repositories as folders: safetensors, settings, tokenizer and template, and nothing that can run.

Which files are fetched is decided here from the repository's list, name by name. The settings come first and are
read, so that an unsupported model is refused before its weights are downloaded. The hub's client is imported only here
and only for a pull.
"""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from octavo.errors import ModelError
from octavo.loaders.catalogue import PLAIN_NAME
from octavo.loaders.load import open_weights, read_generation_defaults, read_spec, read_text
from octavo.loaders.progress import OnProgress, PullProgress, folder_bytes, watching
from octavo.units import format_bytes

PREFIX = "hf:"
_SETTINGS = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
_WEIGHTS = re.compile(r"model(-\d{5}-of-\d{5})?\.safetensors(\.index\.json)?")


class HubRepository(msgspec.Struct, frozen=True):
    """A repository at a branch, tag or commit. Its three parts are plain names, so `folder_name` is one as well."""

    owner: str
    name: str
    revision: str

    @property
    def folder_name(self) -> str:
        return f"{self.owner}--{self.name}@{self.revision}"

    def __str__(self) -> str:
        return f"{PREFIX}{self.owner}/{self.name}" + ("" if self.revision == "main" else f"@{self.revision}")


def parse_repository(text: str) -> HubRepository:
    """Return what `hf:OWNER/NAME` or `hf:OWNER/NAME@REVISION` names. Raises ModelError."""
    path, _, revision = text.removeprefix(PREFIX).partition("@")
    owner, _, name = path.partition("/")
    parts = (owner, name, revision or "main")
    if not all(PLAIN_NAME.fullmatch(part) for part in parts):
        raise ModelError(f"{text[:200]!r} names no Hugging Face repository; write hf:OWNER/NAME or hf:OWNER/NAME@REVISION")
    return HubRepository(*parts)


def parse_folder_name(folder_name: str) -> HubRepository:
    """Return the repository whose `folder_name` this is."""
    owner_and_name, _, revision = folder_name.rpartition("@")
    owner, _, name = owner_and_name.partition("--")
    return HubRepository(owner, name, revision)


def fetch_repository(repository: HubRepository, work: Path, target: Path, on_progress: OnProgress) -> None:
    """Put the repository's files at the folder `target`, through `work` beside it, which keeps what has come if interrupted."""
    import shutil  # no pull, no need

    sizes, commit = _list_files(repository)
    settings = [name for name in _SETTINGS if name in sizes]
    weights = [name for name in sizes if _WEIGHTS.fullmatch(name)]
    if not weights:
        raise ModelError(f"{repository}: holds no model.safetensors; pickled weights are never fetched, and .gguf files are taken as files")
    total = sum(sizes[name] for name in (*settings, *weights))
    work.mkdir(parents=True, exist_ok=True)
    needed, free = total - folder_bytes(work), shutil.disk_usage(work).free
    if free < needed:
        raise ModelError(f"{repository}: pulling it takes {format_bytes(needed)} of disk, {format_bytes(free)} are free in the model cache")
    with watching(work, lambda size: on_progress(PullProgress("downloading", min(size, total), total))):
        _download(repository, commit, settings, work)
        read_spec(work), read_text(work), read_generation_defaults(work)
        _download(repository, commit, weights, work)
    open_weights(work)
    shutil.rmtree(work / ".cache", ignore_errors=True)  # the client's notes on etags
    if target.exists():
        shutil.rmtree(target)
    work.replace(target)


def _list_files(repository: HubRepository) -> tuple[dict[str, int], str]:
    """Return the size of each top-level file and the commit that the revision stands for."""
    import huggingface_hub

    try:
        info = huggingface_hub.HfApi().model_info(
            f"{repository.owner}/{repository.name}", revision=repository.revision, files_metadata=True, timeout=30
        )
    except Exception as error:  # the client lets errors of its own, of its HTTP library and of sockets through
        raise _unreachable(repository, error) from error
    files = {file.rfilename: file.size or 0 for file in info.siblings or [] if "/" not in file.rfilename}
    return files, info.sha or repository.revision


def _download(repository: HubRepository, commit: str, names: list[str], work: Path) -> None:
    import huggingface_hub
    from huggingface_hub.utils import disable_progress_bars  # type: ignore[attr-defined]

    disable_progress_bars()
    try:
        huggingface_hub.snapshot_download(
            f"{repository.owner}/{repository.name}", revision=commit, local_dir=work, allow_patterns=names, max_workers=4
        )
    except Exception as error:  # as above
        raise _unreachable(repository, error) from error


def _unreachable(repository: HubRepository, error: Exception) -> ModelError:
    reason = (str(error).strip().splitlines() or [""])[0][:200]
    return ModelError(
        f"{repository}: the Hugging Face Hub does not give it ({type(error).__name__}: {reason}). "
        "Check the name, the network (HF_ENDPOINT, proxy) and, for gated models, HF_TOKEN; a new pull goes on from here"
    )
