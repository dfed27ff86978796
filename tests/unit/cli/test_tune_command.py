"""`octavo tune` from flags to file, with an invented machine in place of servers."""

import json

import pytest
from tests.api.fake_engine import ByteTokenizer

from octavo.bench import datasets
from octavo.cli import tune
from octavo.cli.tune import tune_main
from octavo.config.flag_files import expand_files
from octavo.errors import ConfigError
from octavo.tune.search import Trial
from octavo.tune.trial import Bench

TIMES = {f"{kind}_{name}_ms": 5.0 for kind in ("mean", "median", "p99") for name in ("ttft", "itl", "tpot", "e2el")}


@pytest.fixture
def workload(tmp_path, monkeypatch):
    """A file of questions; seats are all that counts on this machine."""

    def measure(self, candidate, share):
        seats = int(dict(candidate.values).get("max-num-seqs", 32))
        figures = {"output_throughput": 10.0 * seats, "request_throughput": 1.0, "failed": 0, **TIMES}
        return Trial(candidate, 10.0 * seats, figures)

    monkeypatch.setattr(Bench, "measure", measure)
    monkeypatch.setattr(tune, "_read_tokenizer", lambda model: ByteTokenizer())
    monkeypatch.setattr(datasets, "_vocabulary_words", lambda counter: ["a", "b"])
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "questions.jsonl"
    path.write_text("".join(json.dumps({"prompt": f"question {number}", "output_tokens": 4}) + "\n" for number in range(5)))
    return str(path)


def test_the_best_flags_are_written_with_what_was_measured(workload, tmp_path, capsys):
    words = ["m", "--workload", workload, "--num-prompts", "8", "--slo", "ttft=1", "--output", "best.flags", "--html", "tune.html"]
    assert tune_main([*words, "--", "--max-num-seqs", "1", "--max-model-len", "64"]) == 0
    text = (tmp_path / "best.flags").read_text()
    found = expand_files(["@best.flags"])
    assert found[:4] == ["--model", "m", "--max-model-len", "64"]
    assert int(found[found.index("--max-num-seqs") + 1]) > 32
    assert "questions.jsonl, 8 sessions" in text
    assert "objective: ttft=1" in text
    assert "with --max-num-seqs 1\n" in text
    assert "<svg" in (tmp_path / "tune.html").read_text()
    assert "as good as each other" in capsys.readouterr().out


def test_a_kept_flag_is_not_turned(workload):
    assert tune_main(["m", "--workload", workload, "--keep", "max-num-seqs", "--output", "kept.flags", "--", "--max-num-seqs", "2"]) == 0
    found = expand_files(["@kept.flags"])
    assert found[:4] == ["--model", "m", "--max-num-seqs", "2"]
    assert found.count("--max-num-seqs") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--workload", "absent.jsonl"], "cannot be read"),
        (["--slo", "speed=1"], "ttft"),
        (["--keep", "max-num-seks"], "max-num-seqs"),
        (["--minutes", "0"], "more than 0"),
        (["--", "--block-size", "7"], "block_size"),
    ],
)
def test_mistakes_are_told(workload, words, said):
    with pytest.raises(ConfigError, match=said):
        tune_main(["m", "--workload", workload, *words])
