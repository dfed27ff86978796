"""`octavo bench serve` against the application on a real socket."""

import json
import urllib.request

import pytest

from octavo.bench import datasets
from octavo.cli import load_test
from octavo.cli.bench_serve import bench_serve_main
from octavo.cli.bench_sweep import bench_sweep_main
from octavo.config.server_schema import ServerConfig
from octavo.errors import ConfigError, EngineError
from octavo.server.app import create_app
from tests.api.fake_engine import ByteTokenizer, FakeEngine
from tests.api.live import live


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(load_test, "open_counter", lambda name: ByteTokenizer())
    monkeypatch.setattr(datasets, "_vocabulary_words", lambda counter: ["a", "b", "c"])
    with live(create_app(FakeEngine(), ServerConfig())) as running:
        yield running


def flags(server, *more):
    return ["--port", str(server.port), "--num-prompts", "6", "--random-input-len", "8", "--random-output-len", "5", *more]


@pytest.mark.parametrize("backend", ["openai", "openai-chat"])
def test_a_run_is_measured_and_saved(server, tmp_path, capsys, backend):
    saving = ["--save-detailed", "--result-dir", str(tmp_path), "--result-filename", "r.json", "--html", str(tmp_path / "r.html")]
    assert bench_serve_main(flags(server, "--backend", backend, "--max-concurrency", "2", "--metadata", "who=me", *saving)) == 0
    result = json.loads((tmp_path / "r.json").read_text())
    assert (result["completed"], result["failed"], result["who"], result["errors"]) == (6, 0, "me", [""] * 6)
    assert result["total_output_tokens"] == sum(result["output_lens"]) > 0
    assert result["max_concurrent_requests"] <= 2
    assert "Successful requests:" in capsys.readouterr().out
    assert "<svg" in (tmp_path / "r.html").read_text()


def test_a_talk_grows_turn_by_turn(server, tmp_path):
    saving = ["--save-detailed", "--result-dir", str(tmp_path), "--result-filename", "r.json"]
    assert bench_serve_main(flags(server, "--dataset-name", "multi_turn", "--num-turns", "3", "--num-prompts", "1", *saving)) == 0
    lengths = json.loads((tmp_path / "r.json").read_text())["input_lens"]
    assert len(lengths) == 3
    assert lengths == sorted(set(lengths))


def test_prompts_are_counted_with_the_served_model_where_it_is_here(server, tmp_path, monkeypatch):
    def tokenizer_of(*more):
        saving = ["--save-result", "--result-dir", str(tmp_path), "--result-filename", "r.json"]
        assert bench_serve_main(flags(server, *saving, *more)) == 0
        return json.loads((tmp_path / "r.json").read_text())["tokenizer_id"]

    assert tokenizer_of() == "smollm2-135m-instruct"
    monkeypatch.setattr(load_test, "_is_here", lambda model: True)
    assert tokenizer_of() == served_model(server)
    assert tokenizer_of("--tokenizer", "another") == "another"


def served_model(server):
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/v1/models") as answer:
        return json.load(answer)["data"][0]["id"]


def test_refused_requests_are_failures_with_their_reason(server, tmp_path, capsys):
    saving = ["--save-detailed", "--result-dir", str(tmp_path), "--result-filename", "r.json"]
    assert bench_serve_main(flags(server, "--extra-body", '{"top_p": 7}', *saving)) == 1
    result = json.loads((tmp_path / "r.json").read_text())
    assert (result["completed"], result["failed"]) == (0, 6)
    assert "top_p" in result["errors"][0]
    assert f"6 x {result['errors'][0]}" in capsys.readouterr().out


def test_a_sweep_runs_each_combination(server, tmp_path, capsys):
    saving = ["--save-result", "--result-dir", str(tmp_path), "--result-filename", "s.json"]
    assert bench_sweep_main(flags(server, "--vary", "max-concurrency=1,3", "--vary", "num-prompts=2,4", *saving)) == 0
    results = json.loads((tmp_path / "s.json").read_text())["results"]
    assert [(result["max-concurrency"], result["completed"]) for result in results] == [("1", 2), ("1", 4), ("3", 2), ("3", 4)]
    assert "●" in capsys.readouterr().out


def test_nobody_at_the_port_is_said_so():
    with pytest.raises(EngineError, match="no server is ready"):
        bench_serve_main(["--port", "1"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--goodput", "speed:1"], "it knows ttft, tpot, e2el"),
        (["--extra-body", "["], "no JSON"),
        (["--dataset-name", "custom"], "--dataset-path"),
        (["--ramp-up-strategy", "linear"], "--ramp-up-start-rps"),
        (["--percentile-metrics", "tttf"], "ttft"),
        (["--request-rate", "nan"], "not a number"),
        (["--num-promts", "3"], "--num-prompts"),
    ],
)
def test_mistakes_are_told(server, words, said):
    with pytest.raises(ConfigError, match=said):
        bench_serve_main(flags(server, *words))
