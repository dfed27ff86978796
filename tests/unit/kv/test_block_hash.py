import hashlib

import cbor2
import pytest
import xxhash

from octavo.config import env
from octavo.engine.prefix_cache import hash_scheme
from octavo.errors import ConfigError
from octavo.kv import cbor
from octavo.kv.block import BlockTable
from octavo.kv.hashing import BlockHasher, cbor_scheme, extra_keys, secret_scheme

ALGOS = ("sha256", "sha256_cbor", "xxhash", "xxhash_cbor")


def hashes(tokens, *, scheme=None, size=4, adapter=None, salt=""):
    table = BlockTable(*extra_keys(adapter, salt))
    BlockHasher(size, scheme or secret_scheme(root=b"r" * 32)).extend(table, tokens, len(tokens) // size)
    return [block.block_hash for block in table.hashed]


@pytest.mark.parametrize(("algo", "size"), [("sha256", 32), ("sha256_cbor", 32), ("xxhash", 16), ("xxhash_cbor", 16)])
def test_only_full_blocks_are_hashed_with_the_named_algorithm(algo, size):
    found = hashes(list(range(11)), scheme=hash_scheme(algo))
    assert [len(block_hash) for block_hash in found] == [size, size]


def test_a_hash_stands_for_everything_before_it():
    one, other = hashes([1, 2, 3, 4, 5, 6, 7, 8]), hashes([9, 2, 3, 4, 5, 6, 7, 8])
    assert one[0] != other[0]
    assert one[1] != other[1]


@pytest.mark.parametrize("algo", ALGOS)
def test_hashing_in_pieces_gives_the_same_chain(algo):
    scheme = hash_scheme(algo)
    hasher, table = BlockHasher(4, scheme), BlockTable(*extra_keys(None, "s"))
    tokens = list(range(20))
    for count in (0, 1, 1, 3, 5):
        hasher.extend(table, tokens, count)
    assert [block.block_hash for block in table.hashed] == hashes(tokens, scheme=scheme, salt="s")
    assert table.hashed[0].parent is None
    assert all(block.parent is before for before, block in zip(table.hashed, table.hashed[1:], strict=False))


@pytest.mark.parametrize("scheme", [secret_scheme(root=b"r" * 32), cbor_scheme(seed="0")], ids=["bytes", "cbor"])
def test_salt_adapter_and_root_each_keep_chains_apart(scheme):
    tokens = list(range(8))
    chains = [
        hashes(tokens, scheme=scheme),
        hashes(tokens, scheme=scheme, salt="a"),
        hashes(tokens, scheme=scheme, adapter="a"),
        hashes(tokens, scheme=scheme, adapter="a", salt="a"),
        hashes(tokens, scheme=secret_scheme()),
        hashes(tokens, scheme=cbor_scheme(seed="1")),
        hashes(tokens, scheme=scheme, salt="b"),
    ]
    for depth in range(2):
        assert len({chain[depth] for chain in chains}) == len(chains)


def test_adapter_and_salt_cannot_be_shifted_into_each_other():
    assert hashes(range(4), adapter="ab", salt="c") != hashes(range(4), adapter="a", salt="bc")


@pytest.mark.parametrize("algo", ["sha256", "xxhash"])
def test_the_root_is_a_secret_of_this_start(algo):
    assert hashes(range(4), scheme=hash_scheme(algo)) != hashes(range(4), scheme=hash_scheme(algo))


@pytest.mark.parametrize(
    ("algo", "digest"), [("sha256_cbor", lambda data: hashlib.sha256(data).digest()), ("xxhash_cbor", xxhash.xxh3_128_digest)]
)
def test_cbor_hashes_are_those_that_anyone_computes_from_the_same_seed(monkeypatch, algo, digest):
    """As vLLM does: H(canonical CBOR of (parent, token ids, extra keys)), from H(CBOR of the seed) on."""
    monkeypatch.setattr(env, "hash_seed", lambda: "42")
    tokens = [0, 23, 24, 255, 256, 65_535, 65_536, 151_935]
    root = digest(cbor2.dumps("42", canonical=True))
    first = digest(cbor2.dumps((root, tuple(tokens[:4]), ("salt",)), canonical=True))
    second = digest(cbor2.dumps((first, tuple(tokens[4:]), None), canonical=True))
    assert hashes(tokens, scheme=hash_scheme(algo), salt="salt") == [first, second]


def test_cbor_hashes_do_not_change_between_versions():
    root = hashlib.sha256(b"\x610").digest()  # the text "0"
    assert hashes(list(range(16)), scheme=cbor_scheme(seed="0"), size=16) == [
        hashlib.sha256(b"\x83\x58\x20" + root + b"\x90" + bytes(range(16)) + b"\xf6").digest()
    ]


@pytest.mark.parametrize(
    "value", [None, 0, 23, 24, 1 << 32, (1 << 64) - 1, b"", b"x" * 300, "", "ä" * 30, [], [1, [b"a", "b", None]], list(range(70_000))]
)
def test_cbor_is_what_another_encoder_writes(value):
    assert cbor.encode(value) == cbor2.dumps(value, canonical=True)


@pytest.mark.parametrize(("given", "seed"), [("", "0"), ("random", "0"), ("0", "0"), ("42", "42")])
def test_the_seed_of_reproducible_hashes_comes_from_the_environment(monkeypatch, given, seed):
    monkeypatch.setenv("PYTHONHASHSEED", given)
    assert env.hash_seed() == seed


def test_xxhash_without_its_package_is_refused_with_the_way_out(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "xxhash", None)
    with pytest.raises(ConfigError, match=r"octavo\[xxhash\].*sha256"):
        hash_scheme("xxhash_cbor")
