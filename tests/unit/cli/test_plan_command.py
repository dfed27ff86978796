"""`octavo plan`: what a person types, and what comes back."""

import csv
import io
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.loaders.model_files import GGML_F32, gguf_bytes

from octavo.cli.main import main
from octavo.cli.plan_flags import plan_parser
from octavo.cli.plan_model import find_planned_model
from octavo.cli.plan_web import setting_of
from octavo.planner.catalogue import find_device, find_model_entry
from octavo.planner.plan import Plan
from octavo.server.listener import open_listener

DOCS = Path(__file__).parents[3] / "docs" / "plan.md"
H100 = ["--device", "H100-80G"]


def answer(capsys, *argv):
    assert main(["plan", *argv]) == 0
    return capsys.readouterr().out


def test_the_guides_command_line_in_numbers(capsys):
    text = answer(
        capsys,
        "Qwen/Qwen3-32B",
        *H100,
        "--weight-bytes",
        "65600m",
        "--activation-bytes",
        "0",
        "--reserve-bytes",
        "0",
        "--chart",
        "--explain",
    )
    for words in ("13,427,398,247", "3,201 blocks", "51,221 tokens", "262,144", "█", "1.25x", "79027398247 - 65600000000 - 0 - 0"):
        assert words in text


def test_json_is_the_plan(capsys):
    import msgspec

    text = answer(
        capsys,
        "qwen3-32b",
        *H100,
        "--weights",
        "fp8",
        "--kv-cache-dtype",
        "fp8_e4m3",
        "--arrivals",
        "5",
        "--slo",
        "ttft=2s,itl=50ms",
        "--json",
    )
    plan = msgspec.json.decode(text, type=Plan)
    assert (plan.weights, plan.kv, plan.sizing.num_blocks) == ("fp8", "fp8", 19_533)
    assert plan.fleet.ttft_s <= 2
    assert json.loads(text)["model"]["parameters"] == 32_762_123_264


@pytest.mark.parametrize("table", ["concurrency", "formats", "splits", "decode", "prefill", "costs", "groups"])
def test_every_table_is_there_as_csv(capsys, table):
    rows = list(csv.DictReader(io.StringIO(answer(capsys, "gpt-oss-20b", *H100, "--csv", table))))
    assert rows
    assert all(None not in row and "" not in row for row in rows)


def test_csv_rows_hold_the_numbers_of_the_plan(capsys):
    rows = list(csv.DictReader(io.StringIO(answer(capsys, "qwen3-32b", *H100, "--weights", "fp8", "--csv", "concurrency"))))
    assert [row["context"] for row in rows] == ["2048", "4096", "8192", "16384", "32768", "65536", "131072"]
    assert rows[0]["sequences"] == "76"


def test_a_config_file_a_folder_and_a_gguf_file_are_models(capsys, tmp_path):
    config = find_model_entry("llama-3.2-1b").config
    (tmp_path / "config.json").write_text(json.dumps(config))
    for place in (tmp_path, tmp_path / "config.json"):
        assert "32,768" in answer(capsys, str(place), *H100)
    metadata = {
        "general.architecture": "llama",
        "llama.block_count": 2,
        "llama.embedding_length": 32,
        "llama.feed_forward_length": 64,
        "llama.attention.head_count": 4,
        "llama.attention.head_count_kv": 2,
        "llama.context_length": 512,
    }
    (tmp_path / "m.gguf").write_bytes(gguf_bytes(metadata, {"token_embd.weight": ((8, 32), GGML_F32, bytes(8 * 32 * 4))}))
    assert "of the file" in answer(capsys, str(tmp_path / "m.gguf"), *H100)


def test_a_folders_name_is_shown_as_it_is(capsys, tmp_path):
    folder = tmp_path / "[red]model[bold]"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(find_model_entry("llama-3.2-1b").config))
    assert "[red]model[bold] (llama)" in answer(capsys, str(folder), *H100)


def test_a_hub_name_that_is_not_pulled_is_sized_from_the_catalogue(capsys):
    assert "32.76 B weights" in answer(capsys, "hf:Qwen/Qwen3-32B", *H100)


def test_plain_numbers_are_a_model(capsys):
    text = answer(capsys, "--layers", "64", "--kv-heads", "8", "--head-dim", "128", "--params", "32.8g", "--weights", "fp8", *H100)
    assert "262,144" in text


def test_fit_names_devices_that_hold_the_load(capsys):
    text = answer(capsys, "qwen3-32b", "--fit", "34 x 10k + 2 x 128K", "--chart")
    assert "H200-141G" in text
    rows = json.loads(answer(capsys, "qwen3-32b", "--fit", "34 x 10k", "--json", *H100))
    assert [(row["device"], row["devices"], row["usd_per_hour"]) for row in rows] == [("H100-80G", 1, 3.49)]


def test_the_docs_show_what_is_printed(capsys):
    shown = re.findall(r"```text\n(.*?)```", DOCS.read_text(), re.DOTALL)
    printed = answer(capsys, "qwen3-32b", *H100, "--weights", "fp8", "--kv-cache-dtype", "fp8", "--chart")
    fits = answer(capsys, "qwen3-32b", "--fit", "34 x 10k + 2 x 128K")
    for block, real in zip(shown, (printed, fits), strict=False):
        lines = [line.rstrip() for line in real.splitlines()]
        assert [line for line in block.splitlines() if line and line not in lines] == []


def test_list_names_everything(capsys):
    text = answer(capsys, "--list")
    for words in ("qwen3-32b", "H100-80G", "q4_k_m", "fp8_ds_mla", "agentic", "$3.49/h", "2026-09-28", "deepseek-v4.1-flash"):
        assert words in text


def test_measured_runs_stand_beside_the_floors(capsys, tmp_path):
    result = {"num_requests": 8, "elapsed_time": 10.0, "total_num_tokens": 2048, "output_tokens_per_second": 102.4}
    (tmp_path / "run.json").write_text(json.dumps(result))
    text = answer(capsys, "llama-3.1-8b", *H100, "--bench", str(tmp_path / "run.json"))
    assert "at the measured" in text


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["qwen3-32", *H100], "did you mean qwen3-32b"),
        (["qwen3-32b", "--device", "H100-80GB"], "did you mean H100-80G"),
        (["qwen3-32b", *H100, "--weights", "fp9"], "did you mean fp8"),
        (["qwen3-32b", *H100, "--kv-cache-dtype", "fp8_ds_mla"], "latent attention"),
        (["qwen3-32b", *H100, "-tp", "3"], "cannot share evenly"),
        (["qwen3-32b", *H100, "--csv", "format"], "is no table"),
        (["qwen3-32b", *H100, "--workload", "agent"], "did you mean agentic"),
        (["qwen3-32b", *H100, "--arrivals", "1", "--slo", "ttft=fast"], "is no time"),
        (["qwen3-32b", *H100, "--gpu-memory-utilization", "1.5"], "at most 1"),
        (["qwen3-32b", *H100, "--bench", "nowhere.json"], "cannot be read"),
        (["qwen3-32b", "--fit", "many"], "is no load"),
        (["qwen3-32b", "--fit", "1 x 1g"], "no known device holds"),
        (["hf:some/model", *H100], "there is no model 'hf:some/model'"),
        (["qwen3-32b", *H100, "--performance-mode", "fast"], "is no mode"),
        (["./nowhere.gguf", *H100], "there is no such file"),
        (["--layers", "3", *H100], "name a model"),
        (["qwen3-32b", "--devise", "x"], "did you mean --device"),
    ],
)
def test_mistakes_are_told_with_the_way_out(capsys, argv, words):
    assert main(["plan", *argv]) in (2, 3)
    assert words in capsys.readouterr().err


def test_a_plan_imports_no_array_library_and_no_server():
    program = """
import sys
from octavo.cli.main import main
main(["plan", "qwen3-32b", "--device", "H100-80G", "--json"])
print([name for name in ("numpy", "starlette", "tokenizers", "rich", "zmq") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_this_machine_is_measured(capsys):
    text = answer(capsys, "smollm2-1.7b")
    assert "this machine" in text
    assert "measured now" in text


def setting(*argv):
    args = plan_parser().parse([*argv, "--web"])
    model = find_planned_model(args.model, args.weights) if args.model else None
    return setting_of(args, model, find_device(args.device) if args.device else None)


def test_the_page_begins_with_what_the_command_line_said():
    assert setting() == {}
    assert setting("qwen3-32b", *H100) == {}  # what it begins with anyway
    assert setting("gpt-oss-20b", "--device", "l4", "-tp", "2", "--workload", "batch", "--conversation", "4K") == {
        "model": "gpt-oss-20b",
        "device": "L4-24G",
        "tensor_parallel_size": 2,
        "workload": "batch",
        "conversation": 4096,
    }


@pytest.mark.parametrize("flag", [["--json"], ["--fit", "1 x 1k"], ["--chart"], ["--arrivals", "1"]])
def test_what_the_page_does_not_answer_is_refused_with_it(capsys, flag):
    assert main(["plan", "--web", *flag]) == 2
    assert f"{flag[0]} and --web do not go together" in capsys.readouterr().err


@pytest.mark.parametrize("flag", [["--port", "1"], ["--open"]])
def test_flags_of_the_page_are_refused_without_it(capsys, flag):
    assert main(["plan", "qwen3-32b", *H100, *flag]) == 2
    assert "give --web too" in capsys.readouterr().err


def test_a_taken_port_is_told(capsys):
    with open_listener("127.0.0.1", 0) as taken:
        taken.listen()
        assert main(["plan", "--web", "--port", str(taken.getsockname()[1])]) == 3
    assert "another program listens there" in capsys.readouterr().err
