"""The pure parts of benchmarks/suite.py: what is made of values that were measured."""

import sys
from pathlib import Path

import pytest

from octavo.bench.peaks import Peaks

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
import contexts
import engines
import loads
import memory
import roofline
import suite
import table

sys.path.pop(0)

PEAKS = Peaks(threads=2, read=30e9, f32=200e9, bf16=400e9, int8=900e9)


def result(figures, limits=None, busy=0.0, left_out=(), points=()):
    return {
        "date": "2026-11-30",
        "command": "python benchmarks/suite.py",
        "seconds": 60.0,
        "machine": {"cores": "2"},
        "peaks": {"read": 30e9, "f32": 2e11, "bf16": 4e11, "int8": 9e11},
        "busy": busy,
        "rounds": 3,
        "left_out": list(left_out),
        "models": {
            "m": {
                "engines": {"octavo": "Q4_1", "peer": "Q4_0"},
                "figures": figures,
                "limits": limits or {},
                "contexts": list(points),
                "kv_mib_for_1024": 22.5,
            }
        },
    }


def row_of(markdown, figure):
    return [cell.strip() for cell in next(line for line in markdown.splitlines() if line.startswith(f"| {figure} ")).split("|")[1:-1]]


def test_a_row_has_medians_with_ranges_the_ratio_to_the_best_peer_and_the_share_of_the_limit():
    text = table.as_markdown(result({"decode b1": {"octavo": [90.0, 110.0, 100.0], "peer": [50.0]}}, {"decode b1": 400.0}))
    assert row_of(text, "decode b1") == ["decode b1", "100 (90-110)", "50", "2.00x", "400", "25%"]


def test_where_less_is_better_the_ratio_turns_round_and_the_best_peer_is_the_lowest():
    text = table.as_markdown(result({"start, s": {"octavo": [0.5], "peer": [1.0], "slow": [70.0]}}))
    assert row_of(text, "start, s")[3] == "2.00x"


def test_a_busy_machine_and_what_was_left_out_are_told_in_the_table_and_on_the_page():
    measured = result({"decode b1": {"octavo": [1.0]}}, busy=0.5, left_out=["m: peer http, round 3"])
    for text in (table.as_markdown(measured), table.as_page(measured)):
        assert "up to 50% of the CPUs" in text and "m: peer http, round 3" in text


def test_the_page_draws_the_lines_of_long_contexts():
    points = [
        {"context": n, "ttft_s": n * 1e-3, "token_s": 0.01, "peak_rss_mib": 300, "ttft_limit_s": 0.1, "token_limit_s": 0.005}
        for n in (976, 2000, 4048)
    ]
    page = table.as_page(result({}, points=points))
    assert page.count("straight line") == 3 and "4,048" in page
    assert "of which K and V are 22.5 MiB" in page


def test_a_line_through_points_of_a_line_is_that_line_and_a_curve_is_off_it():
    xs = [1000.0, 2000.0, 4000.0, 8000.0]
    line = contexts.Line.through(xs, [5 + 0.01 * x for x in xs])
    assert (line.base, line.slope) == (pytest.approx(5), pytest.approx(0.01))
    assert line.worst(xs, [5 + 0.01 * x for x in xs]) < 1e-9
    squares = [x * x for x in xs]
    assert contexts.Line.through(xs, squares).worst(xs, squares) > 0.2


def test_lengths_leave_room_for_the_answer_and_end_at_the_longest_allowed():
    assert contexts.contexts_up_to(8192) == [976, 2000, 4048, 8144]
    assert contexts.contexts_up_to(1000) == []


def test_limits_are_memory_at_one_stream_and_products_at_many():
    limits = roofline.Roofline("llama-3.1-8b", PEAKS)
    assert limits.decode(1, 128) == pytest.approx(30e9 / 16.06e9, rel=0.1), "one token for each reading of 16 GB in bf16"
    assert limits.decode(64, 128) < 64 * limits.decode(1, 128)
    assert limits.prefill(512) == pytest.approx(400e9 / (2 * 7e9), rel=0.1)


def test_kv_memory_is_k_and_v_of_all_layers_in_16_bits():
    assert roofline.Roofline("llama-3.1-8b", PEAKS).kv_mib_for_1024 == 2 * 32 * 8 * 128 * 2 / 1024


def test_a_load_is_slower_than_its_decode_and_a_shared_prefix_is_read_once_and_not_computed():
    limits = roofline.Roofline("llama-3.1-8b", PEAKS)
    plain, cached = loads.Load("c8", 8, 8, 1088, 64), loads.Load("prefix c8", 8, 8, 64, 64, prefix_len=1024)
    assert limits.http(plain) < limits.decode(8, 1088)
    assert limits.http(plain) < limits.http(cached) < limits.decode(8, 64)


def test_memory_counts_a_tree_of_processes_and_takes_the_largest_anonymous_mapping_for_kv(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "PROC", tmp_path)
    mapped = "7f00-7f01 r--p 00000000 08:01 7 /model.gguf\nSize: 9000000 kB\nPss: 1024 kB\n"
    pool = "7f02-7f03 rw-p 00000000 00:00 0 \nSize: 8000000 kB\nPss: 4096 kB\n"
    heap = "5500-5501 rw-p 00000000 00:00 0 [heap]\nSize: 100 kB\nPss: 2048 kB\n"
    for pid, parent, maps, peak in ((10, 1, heap, 5120), (11, 10, mapped + pool, 10240), (12, 1, pool, 999)):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "stat").write_text(f"{pid} (a (b) c) S {parent} 0")
        (tmp_path / str(pid) / "status").write_text(f"Name: x\nVmHWM: {peak} kB\n")
        (tmp_path / str(pid) / "smaps").write_text(maps)
    assert memory.memory_of(10) == memory.Memory(pss_mib=7.0, kv_mib=4.0, peak_rss_mib=15.0)


@pytest.fixture
def quiet(monkeypatch):
    monkeypatch.setattr(suite.machine, "wait_until_quiet", lambda limit: 0.0)
    monkeypatch.setattr(suite.roofline, "measure", lambda: PEAKS)


def test_nothing_is_begun_after_the_deadline_and_that_is_kept(quiet):
    run = suite.Suite(suite.Work(None, (), (), 1), minutes=1)
    assert run.may_begin("short") and not run.may_begin("long", likely_s=120)
    assert run.left_out == ["long"]


def test_an_engine_that_fails_is_kept_as_such_with_what_it_had_measured_and_the_others_go_on(quiet, monkeypatch):
    def offline(engine, shape):
        yield "prefill 512", [100.0]
        if engine.name == "peer":
            raise engines.EngineFailed("killed")
        yield "decode b1", [10.0]

    monkeypatch.setattr(engines.Engine, "offline", offline)
    both = [engines.Engine(name, "", (), None, Path("w")) for name in ("peer", "octavo")]
    run = suite.Suite(suite.Work(None, (), ("offline",), 2), minutes=1)
    assert run.compare("m", both) == {"prefill 512": {"peer": [100.0] * 2, "octavo": [100.0] * 2}, "decode b1": {"octavo": [10.0] * 2}}
    assert run.left_out == ["m: peer, round 1 (failed)", "m: peer, round 2 (failed)"]


def test_a_command_that_fails_is_told_with_the_end_of_its_errors():
    with pytest.raises(engines.EngineFailed, match="status 3:  out of luck"):
        engines.finish([sys.executable, "-c", "import sys; sys.stderr.write('out of luck'); sys.exit(3)"], 60, {})
