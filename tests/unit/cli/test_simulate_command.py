import json

import pytest

from octavo.cli.main import main

GIVEN = ["simulate", "--model", "llama-3.1-8b", "--device", "H100", "--num-prompts", "40", "--input-len", "512", "--output-len", "32"]


def figures_of(capsys, *flags):
    assert main([*GIVEN, *flags, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_figures_have_the_names_of_a_load_test(capsys):
    result = figures_of(capsys, "--rate", "10", "--goodput", "ttft:1000,tpot:100")
    assert result["completed"] == 40
    assert result["total_output_tokens"] == 40 * 32
    assert 0 < result["median_ttft_ms"] <= result["p99_ttft_ms"] < 1000
    assert result["request_goodput"] == result["request_throughput"]
    assert result["refused"] == result["preemptions"] == 0


def test_a_second_copy_takes_half_of_the_queue(capsys):
    one, two = (figures_of(capsys, "--max-num-seqs", "4", "-dp", copies) for copies in ("1", "2"))
    assert two["duration"] < 0.6 * one["duration"]
    assert two["completed"] == 40
    assert two["median_ttft_ms"] < one["median_ttft_ms"]


def test_scheduling_flags_change_what_happens(capsys):
    small = figures_of(capsys, "--num-gpu-blocks-override", "70", "--max-num-batched-tokens", "256")
    assert small["num_gpu_blocks"] == 70
    assert small["max_num_waiting"] > 30
    assert small["max_kv_usage"] > 0.4
    assert figures_of(capsys, "--prefix-len", "64", "--no-enable-prefix-caching", "--rate", "10")["cached_input_tokens"] == 0
    assert figures_of(capsys, "--prefix-len", "64", "--rate", "10")["cached_input_tokens"] >= 30 * 64


def test_caps_refuse_what_is_too_much(capsys):
    result = figures_of(capsys, "--max-num-queued-reqs", "10")
    assert (result["completed"], result["refused"]) == (10, 30)


def test_tables_charts_and_the_page_are_whole(capsys, tmp_path):
    assert main([*GIVEN, "--max-num-seqs", "2", "--html", str(tmp_path / "page.html")]) == 0
    out = capsys.readouterr().out
    assert "Time to First Token" in out
    assert "KV memory in use over" in out
    assert "requests waiting" in out
    page = (tmp_path / "page.html").read_text()
    assert page.count("<svg") == 4


def test_measured_steps_take_the_place_of_floors(capsys, tmp_path):
    files = []
    for number, (rows, query, context) in enumerate([(1, 1, 32), (16, 1, 256), (1, 256, 0), (1, 512, 512)]):
        path = tmp_path / f"{number}.json"
        path.write_text(json.dumps({"rows": rows, "query": query, "context": context, "parts": [], "seconds": 0.01 + 0.001 * rows * query}))
        files += ["--profile", str(path)]
    step_time = figures_of(capsys, *files)["step_time"]
    assert step_time["base_s"] == pytest.approx(0.01)
    assert step_time["token_s"] == pytest.approx(0.001)


def test_a_trace_is_replayed(capsys, tmp_path):
    trace = tmp_path / "trace.jsonl"
    trace.write_text(
        '{"timestamp": 5, "input_length": 100, "output_length": 4}\n{"timestamp": 9, "input_length": 50, "output_length": 2}\n'
    )
    result = figures_of(capsys, "--trace", str(trace))
    assert (result["total_input_tokens"], result["total_output_tokens"]) == (150, 6)
    assert result["duration"] > 4


@pytest.mark.parametrize(
    "flags",
    [
        ["--kv-offload-gib", "1"],
        ["--rate", "0"],
        ["--efficiency", "2"],
        ["--measure"],
        ["--profile", "absent.json"],
        ["--goodput", "speed:3"],
        ["--range-ratio", "x"],
    ],
)
def test_what_cannot_be_simulated_is_a_usage_error(capsys, flags):
    assert main([*GIVEN, *flags]) == 2
    assert capsys.readouterr().err.startswith("octavo: ")


def test_a_model_that_does_not_fit_is_no_deployment(capsys):
    assert main(["simulate", "--model", "llama-3.1-70b", "--device", "L4"]) == 3
    assert "does not fit" in capsys.readouterr().err
