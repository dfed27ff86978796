"""`octavo doctor` against the application on a real socket."""

import json

import pytest

from octavo.cli.doctor import doctor_main
from octavo.config.server_schema import ServerConfig
from octavo.errors import ConfigError, StartupError
from octavo.server.app import create_app
from tests.api.fake_engine import FakeEngine
from tests.api.live import live

QUICK = ("--seconds", "0.25")


def open_server(engine, **settings):
    return live(create_app(engine, ServerConfig(enable_admin_endpoints=True, **settings)))


def test_a_server_at_rest_is_healthy(capsys):
    with open_server(FakeEngine()) as server:
        assert doctor_main([server.url, *QUICK]) == 0
    said = capsys.readouterr().out
    assert "Nothing is wrong, and there is room" in said
    assert "seats (max_num_seqs): 8" in said


def test_findings_come_as_json_and_as_exit_code_1(capsys):
    engine = FakeEngine()
    engine.num_unfinished = 12
    with open_server(engine, api_key=("secret",)) as server, pytest.MonkeyPatch.context() as patch:
        engine.step(num_running=8, num_waiting=4, kv_usage=0.2)
        patch.setenv("OCTAVO_API_KEY", "secret")
        assert doctor_main([server.url, "--json", *QUICK]) == 1
    report = json.loads(capsys.readouterr().out)
    assert not report["healthy"]
    (finding,) = report["findings"]
    assert (finding["rule"], finding["command"]) == ("batch_width", "octavo serve tiny --max-num-seqs 12")
    assert {"what": "requests waiting on average", "value": 4.0, "unit": ""} in finding["evidence"]


def test_a_server_without_its_engine_is_unhealthy(capsys):
    engine = FakeEngine()
    engine.is_alive = False
    with open_server(engine) as server:
        assert doctor_main([server.url, "--json", *QUICK]) == 1
    assert json.loads(capsys.readouterr().out)["findings"][0]["rule"] == "unhealthy"


def test_a_missing_key_and_a_missing_server_are_said_so(monkeypatch):
    monkeypatch.delenv("OCTAVO_API_KEY", raising=False)
    with open_server(FakeEngine(), api_key=("secret",)) as server, pytest.raises(StartupError, match="OCTAVO_API_KEY"):
        doctor_main([server.url, *QUICK])
    with pytest.raises(StartupError, match="no server answers"):
        doctor_main(["http://127.0.0.1:1", *QUICK])


def test_a_file_that_is_no_result_is_refused(tmp_path):
    path = tmp_path / "x.json"
    path.write_text("[]")
    for words in ([str(path)], [str(tmp_path / "absent")], [str(path), "--watch"]):
        with pytest.raises(ConfigError):
            doctor_main(words)


def test_a_bench_result_is_judged(tmp_path, capsys):
    path = tmp_path / "r.json"
    times = {f"{kind}_{name}_ms": 20.0 for name in ("ttft", "itl", "e2el") for kind in ("mean", "median", "p99")}
    result = {"completed": 5, "failed": 2, "duration": 1.0, "total_input_tokens": 50, "total_output_tokens": 100, **times}
    path.write_text(json.dumps([result | {"failed": 0}, result]))
    assert doctor_main([str(path)]) == 1
    assert "requests that failed: 2" in capsys.readouterr().out
