"""How long blocks stay, told by a clock that only the test moves."""

from random import Random

from octavo.kv.block import HashedBlock
from octavo.kv.manager import KVManager
from octavo.kv.residency import ResidencyMeter


class Clock:
    s = 100.0

    def __call__(self):
        return self.s


def measured_kv(num_blocks=3, sample=1.0):
    clock = Clock()
    return KVManager(num_blocks, 4, meter=ResidencyMeter(sample, clock=clock, rng=Random(0))), clock


def test_a_life_ends_when_the_block_is_taken_again_and_is_idle_since_its_last_use():
    kv, clock = measured_kv()
    pool = kv.pool
    (block,) = pool.take(1)
    pool.publish(block, HashedBlock(b"hash", None, b"", b""))
    clock.s += 2
    pool.share([block])
    clock.s += 3
    pool.share([block])
    pool.release([block] * 3)
    clock.s += 5
    pool.take(2)
    seen = kv.take_residency()
    assert (seen.lifetimes_s, seen.idles_s, seen.reuse_gaps_s) == ([10], [5], [2, 3])


def test_what_was_seen_is_told_once():
    kv, _ = measured_kv()
    kv.pool.release(kv.pool.take(1))
    kv.pool.take(1)
    assert len(kv.take_residency().lifetimes_s) == 1
    assert kv.take_residency().lifetimes_s == []


def test_a_reset_ends_no_life():
    kv, _ = measured_kv()
    kv.pool.release(kv.pool.take(2))
    assert kv.reset_prefix_cache()
    kv.pool.take(2)
    assert kv.take_residency().lifetimes_s == []


def test_the_sample_is_a_share_of_lives():
    kv, _ = measured_kv(num_blocks=10_001, sample=0.1)
    kv.pool.release(kv.pool.take(10_000))
    kv.pool.take(10_000)
    assert 850 < len(kv.take_residency().lifetimes_s) < 1_150


def test_nothing_is_measured_unless_asked():
    assert KVManager(3, 4).take_residency() is None
