import json

from octavo.bench.kernels import Kernel, Peaks, kernels, measure
from octavo.cli.bench import bench_main

PEAKS = Peaks(threads=1, read=1e15, f32=2e15, bf16=0.0, int8=4e15)


def test_a_kernels_share_is_of_the_peak_that_it_comes_closer_to():
    of_memory = measure(Kernel("op", "shape", lambda i: None, bytes=2e6, operations=2e6), PEAKS, 0)
    of_products = measure(Kernel("op", "shape", lambda i: None, bytes=1e3, operations=8e6, kind="int8"), PEAKS, 0)
    assert (of_memory.limit, of_products.limit) == ("memory", "int8")
    assert of_memory.share == of_memory.bytes_per_second / PEAKS.read
    assert of_products.share == of_products.operations_per_second / PEAKS.int8


def test_bf16_is_held_to_f32_where_no_instruction_multiplies_it():
    assert PEAKS.operations("bf16") == PEAKS.f32


def test_the_first_call_does_not_count_and_five_do():
    calls = []
    measure(Kernel("op", "shape", calls.append, 1.0, 1.0), PEAKS, 0)
    assert calls == [0, 1, 2, 3, 4, 5]


def test_kernels_are_chosen_by_a_part_of_their_name():
    chosen = [(kernel.op, kernel.shape) for kernel in kernels("portable", 1, 1 << 20, "q4_0")]
    assert chosen == [("linear q4_0", f"{rows} x 2048 x 2048") for rows in (1, 8, 32, 128)]


def test_the_command_prints_peaks_and_kernels_as_json(capsys):
    assert bench_main(["kernels", "--only", "rms_norm", "--memory-mb", "1", "--seconds", "0", "--threads", "1", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert all(peak["read"] > 0 and peak["f32"] > 0 and peak["int8"] > 0 for peak in printed["peaks"])
    assert [kernel["op"] for kernel in printed["kernels"]] == ["rms_norm"]
    assert printed["kernels"][0]["share"] > 0


def test_the_command_prints_tables(capsys):
    assert bench_main(["kernels", "--only", "attention", "--memory-mb", "1", "--seconds", "0", "--threads", "1"]) == 0
    printed = capsys.readouterr().out
    assert "peaks of this machine" in printed and "decode at 4,096" in printed
