"""The directory of KV files: what survives, what is refused, and what is never served."""

import hashlib
import os
import stat

import pytest

from octavo.errors import StartupError
from octavo.kv import block_files
from octavo.kv.block import BlockKey
from octavo.kv.block_files import BlockFiles, KVDirectory

SIZE = 100
MODEL = hashlib.sha256(b"model").digest()
GIB = 1 << 30


def key(name, group=0):
    return BlockKey(hashlib.sha256(name.encode()).digest(), group)


def data(name):
    return (name.encode() * SIZE)[:SIZE]


def open_files(path, *, model=MODEL, block_bytes=SIZE, capacity=GIB):
    return BlockFiles(KVDirectory(path), model, block_bytes, capacity)


def kv_files(path):
    return sorted(path.glob("*.kv"))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "kv"


def test_blocks_survive_a_restart_each_under_its_own_key(path):
    files = open_files(path)
    for name in "abc":
        files.put(key(name), data(name))
    files.put(key("a", group=1), data("other layers"))
    files.close()
    again = open_files(path)
    assert [again.get(key(name)) for name in "abc"] == [data(name) for name in "abc"]
    assert again.get(key("a", group=1)) == data("other layers")
    assert again.get(key("d")) is None
    assert len(again) == 4


def test_the_directory_and_its_files_are_for_this_user_only(path):
    open_files(path).put(key("a"), data("a"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in path.iterdir()} == {0o600}
    assert not [file for file in path.iterdir() if data("a") in file.name.encode()]


@pytest.mark.parametrize("mode", [0o755, 0o750, 0o701])
def test_a_directory_that_others_may_enter_is_refused(path, mode):
    path.mkdir()
    path.chmod(mode)
    with pytest.raises(StartupError, match="0700"):
        KVDirectory(path)


def test_a_link_is_no_directory(path, tmp_path):
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StartupError):
        KVDirectory(path)


def test_a_key_that_others_may_read_is_refused(path):
    open_files(path).close()
    (path / "key").chmod(0o644)
    with pytest.raises(StartupError, match="key"):
        KVDirectory(path)


def test_one_engine_at_a_time(path, monkeypatch):
    monkeypatch.setattr(block_files, "LOCK_WAIT_S", 0.0)
    first = KVDirectory(path)
    with pytest.raises(StartupError, match="another engine"):
        KVDirectory(path)
    first.close()
    KVDirectory(path).close()


@pytest.mark.parametrize("where", [0, 8, 20, 50, 90, 120, 170, -1])
def test_a_changed_byte_anywhere_makes_the_file_worthless(path, where, caplog):
    files = open_files(path)
    files.put(key("a"), data("a"))
    (file,) = kv_files(path)
    content = bytearray(file.read_bytes())
    content[where] ^= 1
    file.write_bytes(content)
    assert files.get(key("a")) is None
    assert "dropped a KV file" in caplog.text
    assert str(path) not in caplog.text
    assert not kv_files(path)
    assert not files.has(key("a"))


@pytest.mark.parametrize("length", [0, 10, SIZE])
def test_a_torn_or_grown_file_is_dropped_also_at_the_start(path, length):
    files = open_files(path)
    files.put(key("a"), data("a"))
    (file,) = kv_files(path)
    file.write_bytes((file.read_bytes() * 2)[:length])
    assert files.get(key("a")) is None
    file.write_bytes(bytes(length))
    files.close()
    assert len(open_files(path)) == 0
    assert not kv_files(path)


def test_a_file_under_another_blocks_name_is_not_served(path):
    files = open_files(path)
    files.put(key("a"), data("a"))
    files.put(key("b"), data("b"))
    one, other = kv_files(path)
    other.write_bytes(one.read_bytes())
    assert {files.get(key("a")), files.get(key("b"))} == {None, data("a")} or {files.get(key("a")), files.get(key("b"))} == {
        None,
        data("b"),
    }


def test_a_file_made_with_another_key_is_not_served(path, tmp_path):
    theirs = tmp_path / "theirs"
    open_files(theirs).put(key("a"), data("evil"))
    files = open_files(path)
    files.put(key("a"), data("a"))
    kv_files(path)[0].write_bytes(kv_files(theirs)[0].read_bytes())
    assert files.get(key("a")) is None


def test_files_of_another_model_or_size_are_dropped_and_strangers_left_alone(path, caplog):
    files = open_files(path)
    files.put(key("a"), data("a"))
    files.close()
    (path / "notes.txt").write_text("mine")
    (path / "x.kv").write_bytes(b"?")
    (path / "left.tmp").write_bytes(b"half")
    other = open_files(path, model=hashlib.sha256(b"other model").digest())
    assert len(other) == 0
    assert "dropped 3 KV files" in caplog.text
    assert sorted(file.name for file in path.iterdir()) == ["key", "lock", "notes.txt"]
    other.put(key("a"), data("a"))
    other.close()
    assert len(open_files(path, model=hashlib.sha256(b"other model").digest(), block_bytes=SIZE + 1)) == 0


def test_a_link_in_place_of_a_file_is_not_followed(path, tmp_path):
    files = open_files(path)
    files.put(key("a"), data("a"))
    (file,) = kv_files(path)
    kept = tmp_path / "kept"
    file.rename(kept)
    file.symlink_to(kept)
    assert files.get(key("a")) is None
    assert kept.exists()


def test_the_least_recently_used_go_first_and_the_order_survives_a_restart(path):
    files = open_files(path)
    for number, name in enumerate("abc"):
        files.put(key(name), data(name))
        os.utime(kv_files(path)[0], ns=(number, number))
    for number, name in enumerate("abc"):  # times that a file system can tell apart
        os.utime(files._path_of(key(name)), ns=(number, number))
    files.get(key("a"))
    files.close()
    room = (len(kv_files(path)[0].read_bytes())) * 2
    again = open_files(path, capacity=room)
    assert [again.has(key(name)) for name in "abc"] == [True, False, True]
    again.put(key("d"), data("d"))
    assert [again.has(key(name)) for name in "abcd"] == [True, False, False, True]
    assert len(kv_files(path)) == 2


def test_a_disk_that_refuses_costs_the_block_and_one_line(path, monkeypatch, caplog):
    files = open_files(path)

    def refuse(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(block_files.os, "fdopen", refuse)
    files.put(key("a"), data("a"))
    files.put(key("b"), data("b"))
    files.put(key("c"), data("c"))
    assert caplog.text.count("No space left") == 1
    assert files.losses == {"unwritable": 3}
    assert not files.has(key("a"))
    monkeypatch.undo()
    files.put(key("c"), data("c"))
    assert files.get(key("c")) == data("c")


def test_what_is_forgotten_is_gone_from_the_disk(path):
    files = open_files(path)
    for name in "abc":
        files.put(key(name), data(name))
    files.forget([key("a"), key("unknown")])
    assert files.get(key("a")) is None
    files.clear()
    assert not kv_files(path)
    assert len(files) == 0


def test_a_file_is_a_header_a_checksum_of_32_bytes_and_the_block(path):
    files = open_files(path)
    files.put(key("a"), data("a"))
    (file,) = kv_files(path)
    assert file.stat().st_size == block_files._HEADER.size + 32 + SIZE
    assert file.read_bytes()[-SIZE:] == data("a")


def test_a_file_that_somebody_has_deleted_is_no_error_when_its_turn_to_go_comes(path):
    files = open_files(path, capacity=2 * (block_files._HEADER.size + 32 + SIZE))
    files.put(key("a"), data("a"))
    kv_files(path)[0].unlink()
    files.put(key("b"), data("b"))
    files.put(key("c"), data("c"))
    assert [files.get(key(name)) for name in "abc"] == [None, data("b"), data("c")]


def test_an_engine_that_is_just_being_ended_is_waited_for(path, monkeypatch):
    first = KVDirectory(path)
    monkeypatch.setattr(block_files.time, "sleep", lambda _: first.close())
    KVDirectory(path).close()


def test_reading_a_block_and_writing_it_again_count_as_uses(path):
    open_files(path).put(key("a"), data("a"))
    room = 2 * len(kv_files(path)[0].read_bytes())
    files = open_files(path.with_name("other"), capacity=room)
    for name in "ab":
        files.put(key(name), data(name))
    files.get(key("a"))
    files.put(key("c"), data("c"))
    assert [files.has(key(name)) for name in "abc"] == [True, False, True]
    files.put(key("a"), data("a"))
    files.put(key("d"), data("d"))
    assert [files.has(key(name)) for name in "acd"] == [True, False, True]
    assert files.losses == {"evicted": 2}


def test_a_place_where_no_directory_can_be_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StartupError, match="cannot be used"):
        KVDirectory(tmp_path / "file" / "kv")


def test_a_key_that_cannot_be_read_is_refused(path):
    KVDirectory(path).close()
    (path / "key").unlink()
    (path / "key").mkdir()
    with pytest.raises(StartupError, match="key"):
        KVDirectory(path)


def test_a_key_of_another_length_is_refused(path):
    KVDirectory(path).close()
    assert len((path / "key").read_bytes()) == 32
    (path / "key").write_bytes(b"x" * 33)
    with pytest.raises(StartupError, match="32 bytes"):
        KVDirectory(path)


def test_secrets_derived_from_the_key_have_32_bytes_and_differ_by_purpose(path):
    directory = KVDirectory(path)
    one, two = directory.derive_secret(b"one"), directory.derive_secret(b"two")
    assert len(one) == len(two) == 32 and one != two
    assert block_files.derive_secret(path, b"one") == one


def test_a_write_that_fails_halfway_leaves_nothing_behind(path, monkeypatch):
    files = open_files(path)

    def refuse(*_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(block_files.Path, "rename", refuse)
    files.put(key("a"), data("a"))
    assert {file.name for file in path.iterdir()} == {"key", "lock"}


def test_links_that_look_like_blocks_are_removed_at_the_start_and_what_they_point_to_is_not(path, tmp_path):
    files = open_files(path)
    files.put(key("a"), data("a"))
    files.close()
    (file,) = kv_files(path)
    kept, folder = tmp_path / "kept", tmp_path / "folder"
    file.rename(kept)
    file.symlink_to(kept)
    folder.mkdir()
    (path / "folder.kv").symlink_to(folder)
    assert len(open_files(path)) == 0
    assert kv_files(path) == []
    assert kept.exists() and folder.exists()
