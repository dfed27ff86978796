"""The directory of KV files against an ordered dict: puts, reads, restarts, damage, a full disk, in any order."""

import hashlib
import os
import shutil
import tempfile
from collections import OrderedDict
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from octavo.kv.block import BlockKey
from octavo.kv.block_files import BlockFiles, KVDirectory

BLOCK_BYTES = 40
FILE_BYTES = 88 + 32 + BLOCK_BYTES
KEYS = st.sampled_from([BlockKey(hashlib.sha256(bytes([number])).digest(), group) for number in range(4) for group in range(2)])


class BlockFilesMachine(RuleBasedStateMachine):
    """Model: `blocks`, the least recently used first. Values differ between puts, so a stale answer would show."""

    @initialize(most=st.integers(1, 6))
    def start(self, most):
        self.most = most
        self.path = Path(tempfile.mkdtemp(prefix="kv-"))
        self.blocks = OrderedDict()
        self.num_puts = self.clock = 0
        self.open()

    def open(self):
        self.files = BlockFiles(KVDirectory(self.path), hashlib.sha256(b"m").digest(), BLOCK_BYTES, self.most * FILE_BYTES + 5)

    def stamp(self, key):
        """Give a file a time of its own, since two uses may be nearer than the file system tells apart."""
        self.clock += 1
        os.utime(self.files._path_of(key), ns=(self.clock, self.clock))

    @rule(key=KEYS)
    def put(self, key):
        self.num_puts += 1
        data = self.num_puts.to_bytes(4, "big") * (BLOCK_BYTES // 4)
        self.files.put(key, data)
        self.blocks[key] = data
        self.blocks.move_to_end(key)
        while len(self.blocks) > self.most:
            self.blocks.popitem(last=False)
        self.stamp(key)

    @rule(key=KEYS)
    def get(self, key):
        assert self.files.get(key) == self.blocks.get(key)
        if key in self.blocks:
            self.blocks.move_to_end(key)
            self.stamp(key)

    @rule(key=KEYS)
    def forget(self, key):
        self.files.forget([key])
        self.blocks.pop(key, None)

    @rule(key=KEYS, where=st.integers(0, FILE_BYTES - 1), bit=st.integers(0, 7))
    def damage(self, key, where, bit):
        if key in self.blocks:
            path = self.files._path_of(key)
            content = bytearray(path.read_bytes())
            content[where] ^= 1 << bit
            path.write_bytes(content)
            assert self.files.get(key) is None
            del self.blocks[key]

    @rule()
    def restart(self):
        self.files.close()
        self.open()

    @rule()
    def clear(self):
        self.files.clear()
        self.blocks.clear()

    @invariant()
    def files_equal_model(self):
        assert {key for key in self.blocks if self.files.has(key)} == set(self.blocks)
        assert len(self.files) == len(list(self.path.glob("*.kv"))) == len(self.blocks)

    def teardown(self):
        self.files.close()
        shutil.rmtree(self.path)


BlockFilesMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=40, deadline=None, derandomize=True)
TestBlockFilesAgainstModel = BlockFilesMachine.TestCase
