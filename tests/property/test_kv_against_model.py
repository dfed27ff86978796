"""KVManager and BlockPool against a slow, obvious model: plain lists and dicts, whole token prefixes in place of hashes."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.fakes.pool_checks import check_pool

from octavo.kv.manager import KVManager
from octavo.kv.pool import BlockPool
from octavo.units import cdiv

SIZE = 2
TOKENS = st.lists(st.integers(0, 1), min_size=1, max_size=14)


class Live:
    def __init__(self, table, tokens, salt):
        self.table, self.tokens, self.salt = table, tokens, salt
        self.computed = 0


class KVMachine(RuleBasedStateMachine):
    """Model: `free` is the order of taking, `content` maps a block to (salt, every token up to its end)."""

    @initialize(num_blocks=st.integers(2, 12))
    def start(self, num_blocks):
        self.kv = KVManager(num_blocks, SIZE, hash_key=b"test")
        self.free = list(range(1, num_blocks))
        self.holders = dict.fromkeys(self.free, 0)
        self.content = {}
        self.live: list[Live] = []

    def prefix(self, one, count):
        return one.salt, tuple(one.tokens[: count * SIZE])

    def take(self, count):
        taken, self.free = self.free[:count], self.free[count:]
        for block_id in taken:
            self.content.pop(block_id, None)
            self.holders[block_id] = 1
        return taken

    def give_back(self, block_ids):
        for block_id in reversed(block_ids):
            self.holders[block_id] -= 1
            if self.holders[block_id] == 0:
                self.free = [*self.free, block_id] if block_id in self.content else [block_id, *self.free]

    def new_full_blocks_get_content(self, one, computed):
        for index in range(one.computed // SIZE, computed // SIZE):
            self.content.setdefault(one.table.block_ids[index], self.prefix(one, index + 1))
        one.computed = computed

    @rule(tokens=TOKENS, salt=st.sampled_from(["", "a", "b"]), spare=st.integers(0, 3), chunk=st.integers(1, 14))
    def admit(self, tokens, salt, spare, chunk):
        table = self.kv.open(cache_salt=salt)
        one = Live(table, tokens, salt)
        found = self.kv.lookup(table, tokens)

        longest = 0
        while (longest + 1) * SIZE < len(tokens) and self.prefix(one, longest + 1) in self.content.values():
            longest += 1
        assert len(found) == longest
        assert all(self.content[block_id] == self.prefix(one, index + 1) for index, block_id in enumerate(found))

        covered = min(len(tokens), longest * SIZE + chunk)
        needed = cdiv(len(tokens), SIZE) - sum(1 for block_id in found if self.holders[block_id])
        admitted = self.kv.try_admit(table, found, covered, len(tokens), spare)
        assert admitted == (needed + spare <= len(self.free))
        if not admitted:
            assert table.block_ids == []
            return
        for block_id in found:
            if self.holders[block_id] == 0:
                self.free.remove(block_id)
            self.holders[block_id] += 1
        assert table.block_ids == [*found, *self.take(cdiv(covered, SIZE) - longest)]
        one.computed = longest * SIZE
        self.live.append(one)
        self.kv.commit(table, tokens, covered)
        self.new_full_blocks_get_content(one, covered)

    @precondition(lambda self: self.live)
    @rule(data=st.data(), more=st.lists(st.integers(0, 1), max_size=5))
    def grow(self, data, more):
        """The next chunk of the prompt, or new tokens once it is computed."""
        one = data.draw(st.sampled_from(self.live))
        if one.computed == len(one.tokens):
            one.tokens = one.tokens + more
        count = cdiv(len(one.tokens), SIZE) - len(one.table.block_ids)
        before = list(one.table.block_ids)
        added = self.kv.try_extend(one.table, len(one.tokens))
        if count > len(self.free):
            assert added is None
            assert one.table.block_ids == before
            return
        assert added == self.take(max(count, 0))
        self.kv.commit(one.table, one.tokens, len(one.tokens))
        self.new_full_blocks_get_content(one, len(one.tokens))

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def release(self, data):
        one = data.draw(st.sampled_from(self.live))
        self.live.remove(one)
        self.give_back(one.table.block_ids)
        self.kv.release(one.table)
        self.kv.release(one.table)  # an empty table is no error

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def discard(self, data):
        one = data.draw(st.sampled_from(self.live))
        self.live.remove(one)
        for block_id in one.table.block_ids:
            self.content.pop(block_id, None)
        self.give_back(one.table.block_ids)
        self.kv.discard(one.table)

    @rule()
    def reset(self):
        done = self.kv.reset_prefix_cache()
        assert done == (not self.live)
        if done:
            self.content.clear()

    @invariant()
    def pool_equals_model(self):
        pool = self.kv.pool
        assert pool.free_ids() == self.free
        assert {block_id: pool.ref_count(block_id) for block_id in self.holders} == self.holders
        assert {block_id for block_id in self.holders if pool.content(block_id)} == set(self.content)
        assert pool.usage == 1 - len(self.free) / (pool.num_blocks - 1)
        check_pool(pool, [one.table for one in self.live])

    def teardown(self):
        for one in self.live:
            self.kv.release(one.table)
        assert self.kv.pool.num_free == self.kv.pool.num_usable


KVMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None, derandomize=True)
TestKVAgainstModel = KVMachine.TestCase


class PoolMachine(RuleBasedStateMachine):
    """Misuse: whatever is released twice, shared empty or taken too much raises, and changes nothing."""

    @initialize(num_blocks=st.integers(2, 6))
    def start(self, num_blocks):
        self.pool = BlockPool(num_blocks)

    @rule(action=st.sampled_from(["take", "release", "share"]), block_ids=st.lists(st.integers(0, 5), min_size=1, max_size=3, unique=True))
    def act(self, action, block_ids):
        pool = self.pool
        block_ids = [block_id for block_id in block_ids if block_id < pool.num_blocks]
        before = pool.free_ids(), [pool.ref_count(block_id) for block_id in range(pool.num_blocks)]
        legal = {
            "take": len(block_ids) <= pool.num_free,
            "release": all(pool.ref_count(block_id) > 0 and block_id for block_id in block_ids),
            "share": not block_ids,  # nothing was published
        }[action]
        try:
            if action == "take":
                pool.take(len(block_ids))
            elif action == "release":
                pool.release(block_ids)
            else:
                pool.share(block_ids)
        except Exception as error:
            assert type(error).__name__ == "EngineError"
            assert not legal
            assert before == (pool.free_ids(), [pool.ref_count(block_id) for block_id in range(pool.num_blocks)])
        else:
            assert legal


PoolMachine.TestCase.settings = settings(max_examples=40, deadline=None, derandomize=True)
TestPoolMisuse = PoolMachine.TestCase
