import pytest

from octavo.engine.host_memory import free_memory_bytes
from octavo.errors import StartupError

GIB = 1 << 30


def machine(root, *, available_kib=8 << 20, cgroup="", files=()):
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/meminfo").write_text(f"MemTotal: 99999999 kB\nMemAvailable: {available_kib} kB\n")
    (root / "proc/self/cgroup").write_text(cgroup)
    for name, text in files:
        path = root / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(str(text))
    return root


def test_without_a_limit_it_is_what_the_kernel_calls_available(tmp_path):
    assert free_memory_bytes(machine(tmp_path)) == 8 * GIB


def test_a_version_2_group_limits_and_its_inactive_cache_counts_as_free(tmp_path):
    files = [("memory.max", 3 * GIB), ("memory.current", 2 * GIB), ("memory.stat", f"anon 5\ninactive_file {GIB}\n")]
    assert free_memory_bytes(machine(tmp_path, cgroup="0::/\n", files=files)) == 2 * GIB


def test_the_tightest_group_on_the_way_up_counts(tmp_path):
    files = [
        ("a/b/memory.max", "max"),
        ("a/memory.max", GIB),
        ("a/memory.current", 0),
        ("a/memory.stat", "inactive_file 0\n"),
    ]
    assert free_memory_bytes(machine(tmp_path, cgroup="0::/a/b\n", files=files)) == GIB


def test_a_version_1_group_limits(tmp_path):
    files = [
        ("memory/job/memory.limit_in_bytes", 4 * GIB),
        ("memory/job/memory.usage_in_bytes", 3 * GIB),
        ("memory/job/memory.stat", "cache 1\ntotal_inactive_file 0\n"),
    ]
    assert free_memory_bytes(machine(tmp_path, cgroup="9:name=systemd:/\n4:memory:/job\n0::/\n", files=files)) == GIB


def test_a_group_over_its_limit_leaves_nothing(tmp_path):
    files = [("memory.max", GIB), ("memory.current", 2 * GIB), ("memory.stat", "inactive_file 0\n")]
    assert free_memory_bytes(machine(tmp_path, cgroup="0::/\n", files=files)) == 0


def test_a_kernel_that_does_not_tell_is_an_error_with_a_way_out(tmp_path):
    machine(tmp_path)
    (tmp_path / "proc/meminfo").write_text("MemTotal: 1 kB\n")
    with pytest.raises(StartupError, match="kv-cache-memory-bytes"):
        free_memory_bytes(tmp_path)
