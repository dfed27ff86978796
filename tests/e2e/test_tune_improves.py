"""`octavo tune` with real servers: a badly flagged one is improved at least twofold."""

import json
import re

import pytest

from octavo.cli.tune import tune_main

QUESTION = "Question {}: tell me about the history of ships, who made them first, and how they changed the lives of people. Answer:"


@pytest.mark.slow
@pytest.mark.model
def test_a_badly_flagged_server_is_improved_at_least_twofold(tmp_path):
    workload, output = tmp_path / "questions.jsonl", tmp_path / "tuned.flags"
    workload.write_text("".join(json.dumps({"prompt": QUESTION.format(number), "output_tokens": 24}) + "\n" for number in range(12)))
    size = ["--num-prompts", "12", "--max-concurrency", "6", "--candidates", "3", "--minutes", "0.5", "--keep", "kv-cache-dtype"]
    bad = ["--max-num-seqs", "1", "--max-num-batched-tokens", "16"]
    assert tune_main(["--workload", str(workload), *size, "--output", str(output), "--", *bad]) == 0
    ratio = float(re.search(r"# that is ([0-9.]+)x", output.read_text()).group(1))
    assert ratio >= 2
