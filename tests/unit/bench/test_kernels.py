import json

from octavo.bench.kernels import Kernel, Work, fastest_call, judge, kernels
from octavo.bench.peaks import Peaks
from octavo.cli.bench import bench_main

PEAKS = Peaks(threads=1, read=1e9, f32=2e9, bf16=0.0, int8=4e9)


def test_a_kernels_share_is_of_the_peak_that_it_comes_closer_to():
    of_memory = judge(Work("op", "shape", bytes=5e8, operations=5e8), 1.0, PEAKS)
    of_products = judge(Work("op", "shape", bytes=1e3, operations=3e9, kind="int8"), 1.0, PEAKS)
    assert (of_memory.limit, of_memory.share) == ("memory", 0.5)
    assert (of_products.limit, of_products.share) == ("int8", 0.75)


def test_bf16_is_held_to_f32_where_no_instruction_multiplies_it():
    assert PEAKS.of("bf16") == PEAKS.f32


def test_goals_are_shares_of_the_peak_that_they_name():
    timing = judge(Work("op", "shape", bytes=1e9, operations=1e9, kind="bf16", goals={"int8": 0.6, "memory": 0.85}), 2.0, PEAKS)
    assert [(goal.peak, goal.reached, goal.share, goal.wanted) for goal in timing.goals] == [
        ("int8", 5e8, 0.125, 0.6),
        ("memory", 5e8, 0.5, 0.85),
    ]


def test_of_two_measurements_the_higher_peaks_count():
    assert PEAKS.higher(Peaks(1, read=2e9, f32=1e9, bf16=5e9, int8=3e9)) == Peaks(1, read=2e9, f32=2e9, bf16=5e9, int8=4e9)


def test_the_first_call_does_not_count_and_five_do():
    calls = []
    fastest_call(Kernel(Work("op", "shape", 1.0, 1.0), calls.append), 0)
    assert calls == [0, 1, 2, 3, 4, 5]


def test_kernels_are_chosen_by_a_part_of_their_name():
    chosen = [(kernel.work.op, kernel.work.shape) for kernel in kernels("portable", 1, 1 << 20, "q4_0")]
    assert chosen == [("linear q4_0", f"{rows} x 4096 x 4096") for rows in (1, 8, 32, 128)]


def test_four_bits_are_held_to_memory_at_one_row_and_to_the_int8_peak_at_128():
    goals = [kernel.work.goals for kernel in kernels("portable", 1, 1 << 20, "q4_k")]
    assert goals == [{"memory": 0.85}, {}, {}, {"int8": 0.6}]


def test_calls_of_attention_take_turns_with_rows_that_are_all_filled():
    decode = next(kernel for kernel in kernels("portable", 1, 128 << 20, "attention f16") if "decode at 4,096" in kernel.work.shape)
    assert decode.work.bytes == 64 << 20
    assert decode.run(0).any() and (decode.run(0) == decode.run(1)).all()


def test_the_command_prints_peaks_and_kernels_as_json(capsys):
    assert bench_main(["kernels", "--only", "rms_norm", "--memory-mb", "1", "--seconds", "0", "--threads", "1", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert all(peak["read"] > 0 and peak["f32"] > 0 and peak["int8"] > 0 for peak in printed["peaks"])
    assert [kernel["op"] for kernel in printed["kernels"]] == ["rms_norm"]
    assert printed["kernels"][0]["share"] > 0


def test_the_command_prints_tables_with_goals_and_says_what_the_caches_hold(capsys, monkeypatch):
    monkeypatch.setattr("octavo.cli.bench_kernels.last_cache_bytes", lambda: 32 << 20)
    assert bench_main(["kernels", "--only", "attention f16", "--memory-mb", "1", "--seconds", "0", "--threads", "1"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "peaks of this machine" in printed and "goals" in printed and "80%" in printed
    assert "operands of 1 MiB come round within reach of the last cache of 32 MiB" in printed
