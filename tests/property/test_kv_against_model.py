"""KVManager and BlockPool against a slow, obvious model: plain lists and dicts, whole token prefixes in place of hashes."""

import hashlib

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.fakes.pool_checks import check_pool

from octavo.kv.groups import Groups
from octavo.kv.hashing import HashScheme
from octavo.kv.manager import KVManager
from octavo.kv.pool import BlockPool
from octavo.specs.kv import FULL_ATTENTION, AttentionSpan
from octavo.units import cdiv

SIZE = 2
MAX_STEP = 14
TOKENS = st.lists(st.integers(0, 1), min_size=1, max_size=14)
SPANS = st.sampled_from(
    [
        (FULL_ATTENTION,),
        (FULL_ATTENTION,),
        (AttentionSpan("sliding", 3),),
        (FULL_ATTENTION, AttentionSpan("sliding", 5)),
        (AttentionSpan("sliding", 1), FULL_ATTENTION, AttentionSpan("chunked", 6)),
        (AttentionSpan("chunked", 3), AttentionSpan("sliding", 4)),
    ]
)


def collides(data: bytes) -> bytes:
    """A hash with four values: every index entry is shared, and only the token compare keeps contents apart."""
    return bytes([hashlib.sha256(data).digest()[0] % 4])


class Live:
    def __init__(self, table, tokens, salt):
        self.table, self.tokens, self.salt = table, tokens, salt
        self.computed = 0


class KVMachine(RuleBasedStateMachine):
    """Model: `free` is the order of taking, `content` maps a block to (group, salt, every token up to its end)."""

    @initialize(num_blocks=st.integers(2, 24), spans=SPANS, digest=st.sampled_from([lambda data: hashlib.sha256(data).digest(), collides]))
    def start(self, num_blocks, spans, digest):
        self.spans = spans
        scheme = HashScheme(digest, b"root", is_cbor=False)
        self.kv = KVManager(num_blocks, SIZE, groups=Groups(SIZE, spans, MAX_STEP), scheme=scheme)
        self.free = list(range(1, num_blocks))
        self.holders = dict.fromkeys(self.free, 0)
        self.content = {}
        self.live: list[Live] = []

    def prefix(self, one, group, count):
        return group, one.salt, tuple(one.tokens[: count * SIZE])

    def take(self, count):
        taken, self.free = self.free[:count], self.free[count:]
        for block_id in taken:
            self.content.pop(block_id, None)
            self.holders[block_id] = 1
        return taken

    def give_back(self, block_ids):
        for block_id in reversed([block_id for block_id in block_ids if block_id]):
            self.holders[block_id] -= 1
            if self.holders[block_id] == 0:
                self.free = [*self.free, block_id] if block_id in self.content else [block_id, *self.free]

    def runs(self, block_ids):
        count = len(self.spans)
        return [block_ids[start : start + count] for start in range(0, len(block_ids), count)]

    def commit(self, one, computed):
        """New full blocks get content, then what no later token sees is given back."""
        self.kv.commit(one.table, one.tokens, computed)
        for index in range(one.computed // SIZE, computed // SIZE):
            for group, block_id in enumerate(one.model_runs[index]):
                if block_id:
                    self.content.setdefault(block_id, self.prefix(one, group, index + 1))
        one.computed = computed
        for group, span in enumerate(self.spans):
            gone = [run[group] for run in one.model_runs[: span.first_seen(computed) // SIZE]]
            self.give_back(gone)
            for run in one.model_runs[: span.first_seen(computed) // SIZE]:
                run[group] = 0
        assert self.runs(one.table.block_ids) == one.model_runs

    def cached(self, one, group, run):
        return self.prefix(one, group, run + 1) in self.content.values()

    def longest_hit(self, one):
        for length in range((len(one.tokens) - 1) // SIZE, 0, -1):
            if all(
                self.cached(one, group, run)
                for group, span in enumerate(self.spans)
                for run in range(span.first_seen(length * SIZE) // SIZE, length)
            ):
                return length
        return 0

    def most_blocks(self, num_tokens):
        runs = cdiv(num_tokens, SIZE)
        return sum(runs if span.size is None else min(runs, cdiv(span.size - 1 + MAX_STEP, SIZE) + 2) for span in self.spans)

    @rule(tokens=TOKENS, salt=st.sampled_from(["", "a", "b"]), spare=st.integers(0, 3), chunk=st.integers(1, 14))
    def admit(self, tokens, salt, spare, chunk):
        table = self.kv.open(cache_salt=salt)
        one = Live(table, tokens, salt)
        hit = self.kv.lookup(table, tokens)

        longest = self.longest_hit(one)
        assert hit.num_tokens == longest * SIZE
        for index, run in enumerate(self.runs(hit.block_ids)):
            for group, (block_id, span) in enumerate(zip(run, self.spans, strict=True)):
                if index >= span.first_seen(longest * SIZE) // SIZE:
                    assert self.content[block_id] == self.prefix(one, group, index + 1)
                else:
                    assert block_id == 0

        covered = min(len(tokens), longest * SIZE + chunk)
        found = [block_id for block_id in hit.block_ids if block_id]
        new = (cdiv(covered, SIZE) - longest) * len(self.spans)
        needed = max(new, self.most_blocks(len(tokens)) - len(found)) + sum(1 for block_id in found if not self.holders[block_id])
        admitted = self.kv.try_admit(table, hit, covered, len(tokens), spare)
        assert admitted == (needed + spare <= len(self.free))
        if not admitted:
            assert table.block_ids == []
            return
        for block_id in found:
            if self.holders[block_id] == 0:
                self.free.remove(block_id)
            self.holders[block_id] += 1
        assert table.block_ids == [*hit.block_ids, *self.take(new)]
        assert table.capacity == cdiv(covered, SIZE) * SIZE
        one.computed = longest * SIZE
        one.model_runs = self.runs(list(table.block_ids))
        self.live.append(one)
        self.commit(one, covered)

    @precondition(lambda self: self.live)
    @rule(data=st.data(), more=st.lists(st.integers(0, 1), max_size=5))
    def grow(self, data, more):
        """The next chunk of the prompt, or new tokens once it is computed."""
        one = data.draw(st.sampled_from(self.live))
        if one.computed == len(one.tokens):
            one.tokens = one.tokens + more
        count = max(0, cdiv(len(one.tokens), SIZE) - len(one.model_runs)) * len(self.spans)
        before = list(one.table.block_ids)
        added = self.kv.try_extend(one.table, len(one.tokens))
        if count > len(self.free):
            assert added is None
            assert one.table.block_ids == before
            return
        assert added == self.take(count)
        one.model_runs += self.runs(added)
        self.commit(one, len(one.tokens))

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
        held = any(holders for holders in self.holders.values())
        assert self.kv.reset_prefix_cache() == (not held)
        if not held:
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


KVMachine.TestCase.settings = settings(max_examples=120, stateful_step_count=40, deadline=None, derandomize=True)
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
