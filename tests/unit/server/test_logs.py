"""The log: nobody writes lines of his own into it, and JSON lines are JSON."""

import json
import logging

import pytest

from octavo.messages.stats import StepStats
from octavo.server.logs import JsonFormatter, TextFormatter
from octavo.server.stats_line import StatsLine


def record(message, **more):
    return logging.LogRecord("octavo.server", logging.INFO, "", 0, message, (), more.get("exc_info"))


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()])
def test_control_characters_are_escaped(formatter):
    assert "\x1b" not in formatter.format(record("a\x1b[31mb"))


def test_a_json_line_is_one_line_and_has_the_fields():
    line = JsonFormatter().format(record("one\ntwo"))
    assert "\n" not in line
    assert json.loads(line) | {"time": ""} == {"time": "", "level": "info", "logger": "octavo.server", "message": "one\ntwo"}


def test_an_exception_stays_within_its_line():
    try:
        raise ValueError("x")
    except ValueError as error:
        line = JsonFormatter().format(record("failed", exc_info=(ValueError, error, error.__traceback__)))
    assert "\n" not in line
    assert "ValueError" in json.loads(line)["exception"]


def step(**figures):
    fields = dict.fromkeys(StepStats.__struct_fields__, 0) | figures
    return StepStats(**fields)


def test_the_line_of_figures_has_the_rates_and_falls_silent(caplog):
    stats = StatsLine()
    with caplog.at_level(logging.INFO, "octavo.server"):
        stats.record_step(
            step(num_prompt_tokens=200, num_output_tokens=30, num_running=3, kv_usage=0.5, prefix_cache_queries=8, prefix_cache_hits=2)
        )
        for _ in range(4):
            stats.write(10.0)
    lines = [each.getMessage() for each in caplog.records]
    assert len(lines) == 2
    assert lines[0] == (
        "Engine 000: Avg prompt throughput: 20.0 tokens/s, Avg generation throughput: 3.0 tokens/s, Running: 3 reqs, Waiting: 0 reqs, "
        "GPU KV cache usage: 50.0%, Prefix cache hit rate: 25.0%"
    )
    assert "Running: 0 reqs" in lines[1]
