"""`BlockFiles`: a tier in a directory that outlives the process. One file a block, named by what it holds.

    DIR        mode 0700, of this user, used by one engine at a time (`lock`)
    DIR/key    32 secret bytes, mode 0600: of the files' checksums, and of what others derive from it (the root of block
               hashes, tenants' salts)
    DIR/MMMMMMMM-HASH-GROUP.kv    mode 0600; M: of the model's fingerprint

A file is a header (magic, version, group, hash, fingerprint, number of bytes, checksum) and the block's bytes. The checksum
is BLAKE2b (RFC 7693) under the key, over all of it. A file that is torn, changed, of another version, model, dtype or
directory is dropped with a line in the log and never served. Files appear whole (written aside, then renamed); the least
recently used go when the directory is full, and the order survives in their times of change. Nothing is ever written
to or read through a link. A file holds KV, not text, but KV tells of its text: so keep the directory as safe as the prompts.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import os
import re
import secrets
import stat
import struct
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Iterable
from pathlib import Path

from octavo.errors import StartupError
from octavo.kv.block import BlockKey
from octavo.messages.stats import LossReason

log = logging.getLogger(__name__)

VERSION = 1
KEY_BYTES = 32
CHECKSUM_BYTES = 32
LOCK_WAIT_S = 5.0  # for an engine that is just being ended
_MAGIC = b"OCTAVOKV"
_HEADER = struct.Struct("<8sII32s32sQ")  # magic, version, group, block hash, fingerprint, bytes that follow the checksum
_NAME = re.compile(r"([0-9a-f]{8})-([0-9a-f]{64})-(\d{1,3})\.kv")
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class KVDirectory:
    """A private directory, held by this process until it is let go, and its key."""

    def __init__(self, path: Path) -> None:
        """Make it if there is none. Raises StartupError when it is not private, not ours, or another engine has it."""
        self.path = path
        try:
            path.mkdir(mode=0o700, exist_ok=True)
            found = path.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
                raise StartupError(
                    "kv_offload_dir must be a directory of this user with mode 0700: it holds what prompts said; run chmod 700"
                )
            self._lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            _wait_for_lock(self._lock)
            self.key = _make_or_read_key(path / "key")
        except OSError as error:
            raise StartupError(f"kv_offload_dir cannot be used ({error.strerror}); give a directory that this user may write") from error

    def derive_secret(self, purpose: bytes) -> bytes:
        """Return 32 bytes for `purpose` (16 bytes at most); see derive_secret below."""
        return _derive(self.key, purpose)

    def close(self) -> None:
        os.close(self._lock)


class BlockFiles:
    """See `octavo.kv.tier.BlockStore`."""

    def __init__(self, directory: KVDirectory, fingerprint: bytes, block_bytes: int, capacity_bytes: int) -> None:
        """`fingerprint`, 32 bytes: of all that the meaning of a block's bytes depends on. Takes stock of the directory."""
        self._directory = directory
        self._path = directory.path
        self._fingerprint = fingerprint
        self._block_bytes = block_bytes
        self._file_bytes = _HEADER.size + CHECKSUM_BYTES + block_bytes
        self._most = capacity_bytes // self._file_bytes
        self.losses: Counter[LossReason] = Counter()
        self._mutex = threading.Lock()
        self._has_failed = False
        self._keys: OrderedDict[BlockKey, None] = OrderedDict.fromkeys(self._take_stock())  # the least recently used first
        self._shrink()

    def __len__(self) -> int:
        return len(self._keys)

    def has(self, key: BlockKey) -> bool:
        return key in self._keys

    def get(self, key: BlockKey) -> bytes | None:
        """Return a block's bytes, checked; None when it is not there or no good."""
        if key not in self._keys:
            return None
        path = self._path_of(key)
        try:
            content = _read_file(path, self._file_bytes)
            data = self._checked(key, content)
            os.utime(path, follow_symlinks=False)
        except (OSError, ValueError) as error:
            log.warning("dropped a KV file: %s", error.strerror if isinstance(error, OSError) else error)
            self.losses["damaged"] += 1
            self.forget([key])
            return None
        with self._mutex:
            if key in self._keys:
                self._keys.move_to_end(key)
        return data

    def put(self, key: BlockKey, data: bytes) -> None:
        """Write a block. A failure (a full disk) is logged once and costs only the block."""
        header = self._header(key, len(data))
        aside = self._path / f".{secrets.token_hex(8)}.tmp"
        try:
            with os.fdopen(os.open(aside, _CREATE, 0o600), "wb") as file:
                file.write(header + self._checksum(header, data))
                file.write(data)
            aside.rename(self._path_of(key))
        except OSError as error:
            if not self._has_failed:
                log.warning("a KV file cannot be written (%s); blocks that do not fit are computed again", error.strerror)
            self._has_failed = True
            self.losses["unwritable"] += 1
            aside.unlink(missing_ok=True)
            return
        with self._mutex:
            self._keys[key] = None
            self._keys.move_to_end(key)
        self._shrink()

    def forget(self, keys: Iterable[BlockKey]) -> None:
        for key in keys:
            with self._mutex:
                self._keys.pop(key, None)
            self._path_of(key).unlink(missing_ok=True)

    def clear(self) -> None:
        self.forget(list(self._keys))

    def close(self) -> None:
        self._directory.close()

    def _shrink(self) -> None:
        while len(self._keys) > self._most:
            with self._mutex:
                key, _ = self._keys.popitem(last=False)
            self.losses["evicted"] += 1
            self._path_of(key).unlink(missing_ok=True)

    def _path_of(self, key: BlockKey) -> Path:
        return self._path / f"{self._fingerprint[:4].hex()}-{key.block_hash.hex()}-{key.group}.kv"

    def _header(self, key: BlockKey, num_bytes: int) -> bytes:
        return _HEADER.pack(_MAGIC, VERSION, key.group, key.block_hash, self._fingerprint, num_bytes)

    def _checksum(self, header: bytes, data: bytes) -> bytes:
        state = hashlib.blake2b(header, key=self._directory.key, digest_size=CHECKSUM_BYTES)
        state.update(data)
        return state.digest()

    def _checked(self, key: BlockKey, content: bytes) -> bytes:
        """Return the block in a file's content; raises ValueError, which says what is wrong."""
        header, checksum = content[: _HEADER.size], content[_HEADER.size : _HEADER.size + CHECKSUM_BYTES]
        data = content[_HEADER.size + CHECKSUM_BYTES :]
        if header != self._header(key, self._block_bytes):
            raise ValueError("it is of another version, model or block")
        if not secrets.compare_digest(checksum, self._checksum(header, data)):
            raise ValueError("its checksum is wrong")
        return data

    def _take_stock(self) -> list[BlockKey]:
        """Return the blocks that are there, the least recently used first; drop what no engine of this model can use."""
        found: list[tuple[int, BlockKey]] = []
        num_dropped = 0
        for entry in os.scandir(self._path):
            if not entry.name.endswith((".kv", ".tmp")):
                continue
            status = entry.stat(follow_symlinks=False)
            name = _NAME.fullmatch(entry.name)
            is_ours = name is not None and name[1] == self._fingerprint[:4].hex()
            if name is not None and is_ours and stat.S_ISREG(status.st_mode) and status.st_size == self._file_bytes:
                found.append((status.st_mtime_ns, BlockKey(bytes.fromhex(name[2]), int(name[3]))))
            elif not entry.is_dir(follow_symlinks=False):
                Path(entry.path).unlink(missing_ok=True)
                num_dropped += 1
        if num_dropped:
            log.warning("dropped %d KV files of another model, version or size", num_dropped)
        return [key for _, key in sorted(found)]


def _read_file(path: Path, num_bytes: int) -> bytes:
    with os.fdopen(os.open(path, _READ), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError("it is no file")
        content = file.read(num_bytes + 1)
    if len(content) != num_bytes:
        raise ValueError(f"it has {len(content):,} bytes in place of {num_bytes:,}")
    return content


def derive_secret(directory: Path, purpose: bytes) -> bytes:
    """Return 32 bytes for `purpose` (16 bytes at most) that only those know who may read the directory's key. Raises StartupError."""
    return _derive(_read_key(directory / "key"), purpose)


def _derive(key: bytes, purpose: bytes) -> bytes:
    return hashlib.blake2b(key=key, person=purpose, digest_size=32).digest()


def _make_or_read_key(path: Path) -> bytes:
    with contextlib.suppress(FileExistsError), os.fdopen(os.open(path, _CREATE, 0o600), "wb") as file:
        file.write(secrets.token_bytes(KEY_BYTES))
    return _read_key(path)


def _read_key(path: Path) -> bytes:
    """Return the directory's key. One that others may read is refused (StartupError)."""
    try:
        with os.fdopen(os.open(path, _READ), "rb") as file:
            status = os.fstat(file.fileno())
            key = file.read(KEY_BYTES + 1)
    except OSError as error:
        raise StartupError(f"the key in kv_offload_dir cannot be read ({error.strerror})") from error
    if len(key) != KEY_BYTES or stat.S_IMODE(status.st_mode) & 0o077 or status.st_uid != os.geteuid():
        raise StartupError("the key in kv_offload_dir is not 32 bytes of mode 0600; empty the directory to begin anew")
    return key


def _wait_for_lock(descriptor: int) -> None:
    give_up = time.monotonic() + LOCK_WAIT_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > give_up:
                raise StartupError("kv_offload_dir is in use by another engine; give each its own") from None
            time.sleep(0.05)
