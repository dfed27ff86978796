"""`octavo run-batch` answers each line of a batch file once, whatever stands in the others."""

import asyncio
import json

import pytest

from octavo.cli.run_batch import answer_all, make_room, open_items, read_items, read_records, run_batch_main
from octavo.config.server_schema import ServerConfig
from octavo.errors import ConfigError
from octavo.server.app import create_app
from tests.api.fake_engine import FakeEngine


def line(custom_id, body, **changes):
    return json.dumps({"custom_id": custom_id, "method": "POST", "url": "/v1/chat/completions", "body": body} | changes)


def chat(**fields):
    return {"model": "fake", "messages": [{"role": "user", "content": "a"}], "max_tokens": 3} | fields


def run(source, target):
    app = create_app(FakeEngine(), ServerConfig())
    records = read_records(target)
    items = open_items(read_items(source), records)
    make_room(target, records, items)
    failed = asyncio.run(answer_all(app, items, target, 4))
    return failed, [json.loads(text) for text in target.read_text().splitlines()]


@pytest.fixture
def model():
    return FakeEngine().model_names[0]


def test_bad_lines_are_error_records_and_stop_nobody(tmp_path, model):
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    lines = [
        line("good", chat(model=model)),
        "{",
        "[]",
        line("put", chat(model=model), method="PUT"),
        line("stream", chat(model=model, stream=True)),
        line("nowhere", chat(model=model), url="/v1/nowhere"),
        line("field", chat(model=model, temperature=9)),
        line("good", chat(model=model)),
        line("text", {"model": model, "prompt": "b", "max_tokens": 2}, url="/v1/completions"),
    ]
    source.write_text("\n".join(lines))
    failed, records = run(source, target)
    by_id = {record["custom_id"]: record for record in records if record["error"] is None}
    assert set(by_id) == {"good", "text"}
    assert by_id["good"]["response"]["body"]["choices"][0]["message"]["content"]
    assert by_id["good"]["response"]["request_id"]
    assert (failed, len(records)) == (7, 9)
    refused = {record["custom_id"]: record for record in records if record["response"] and record["response"]["status_code"] != 200}
    assert (refused["nowhere"]["response"]["status_code"], refused["field"]["response"]["status_code"]) == (404, 400)


def test_a_second_run_answers_only_what_is_missing(tmp_path, model):
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("\n".join(line(f"r{number}", chat(model=model)) for number in range(5)))
    _, records = run(source, target)
    target.write_text("".join(json.dumps(record) + "\n" for record in records[:2]) + '{"custom_id": "cut sho')
    _, again = run(source, target)
    assert again[:2] == records[:2]
    assert sorted(record["custom_id"] for record in again) == [f"r{number}" for number in range(5)]


def test_what_fails_again_has_one_record_and_what_is_no_more_asked_keeps_its_own(tmp_path, model):
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    lines = ["{", line("good", chat(model=model)), line("bad", chat(model=model, temperature=9)), line("gone", chat(model=model, top_p=7))]
    source.write_text("\n".join(lines))
    failed, first = run(source, target)
    assert failed == 3
    source.write_text("\n".join(lines[:3]))
    failed, again = run(source, target)
    assert failed == 2
    assert sorted(str(record["custom_id"]) for record in again) == ["None", "bad", "gone", "good"]
    kept = [record for record in first if record["custom_id"] in ("good", "gone")]
    assert [record for record in again if record in first] == kept
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".partial"] == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "-i FILE"),
        (["-i", "http://x/y", "-o", "z"], "URL"),
        (["-i", "/nowhere/in.jsonl", "-o", "/nowhere/out.jsonl"], "cannot be read"),
    ],
)
def test_mistakes_are_told(words, said):
    with pytest.raises(ConfigError, match=said):
        run_batch_main(words)
