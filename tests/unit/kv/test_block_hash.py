from octavo.kv.block import BlockTable
from octavo.kv.hashing import HASH_BYTES, BlockHasher, extra_keys


def hashes(tokens, *, key=b"k", size=4, adapter=None, salt=""):
    table = BlockTable(*extra_keys(adapter, salt))
    BlockHasher(size, key).extend(table, tokens, len(tokens) // size)
    return [block.block_hash for block in table.hashed]


def test_only_full_blocks_are_hashed():
    assert len(hashes(range(11))) == 2
    assert all(len(block_hash) == HASH_BYTES for block_hash in hashes(range(8)))


def test_a_hash_stands_for_everything_before_it():
    one, other = hashes([1, 2, 3, 4, 5, 6, 7, 8]), hashes([9, 2, 3, 4, 5, 6, 7, 8])
    assert one[0] != other[0]
    assert one[1] != other[1]


def test_hashing_in_pieces_gives_the_same_chain():
    hasher, table = BlockHasher(4, b"k"), BlockTable(*extra_keys(None, "s"))
    tokens = list(range(20))
    for count in (0, 1, 1, 3, 5):
        hasher.extend(table, tokens, count)
    assert [block.block_hash for block in table.hashed] == hashes(tokens, salt="s")


def test_salt_adapter_and_key_each_keep_chains_apart():
    tokens = list(range(8))
    chains = [hashes(tokens), hashes(tokens, salt="a"), hashes(tokens, adapter="a"), hashes(tokens, key=b"other"), hashes(tokens, salt="b")]
    for depth in range(2):
        assert len({chain[depth] for chain in chains}) == len(chains)


def test_adapter_and_salt_cannot_be_shifted_into_each_other():
    assert hashes(range(4), adapter="ab", salt="c") != hashes(range(4), adapter="a", salt="bc")


def test_without_a_key_each_hasher_draws_its_own():
    assert hashes(range(4), key=None) != hashes(range(4), key=None)
