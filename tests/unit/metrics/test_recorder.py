"""The metrics: right names, right figures, no series that a caller could add."""

import pytest
from tests.api.calls import CHAT, call, make_app, post
from tests.api.fake_engine import FakeEngine

from octavo.metrics.catalogue import METRICS, token_buckets

LABELS = '{engine="0",model_name="tiny"}'


@pytest.fixture
def engine():
    return FakeEngine()


@pytest.fixture
def app(engine):
    return make_app(engine)


def scrape(app):
    """Return series -> value."""
    text = call(app, "GET", "/metrics").text
    return {series: float(value) for series, value in (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))}


def test_every_metric_of_the_catalogue_is_there_from_the_start(app):
    text = call(app, "GET", "/metrics").text
    for metric in METRICS:
        suffix = "_total" if metric.kind == "counter" else ""
        assert f"# TYPE vllm:{metric.name}{suffix} {metric.kind}" in text
    assert 'vllm:request_success_total{engine="0",finished_reason="abort",model_name="tiny"} 0.0' in text


def test_ten_requests_of_ten_tokens_count_as_such(app):
    for _ in range(10):
        post(app, "/v1/chat/completions", CHAT | {"max_tokens": 10})
    series = scrape(app)
    prompt = len("user: hi\nassistant:")
    assert series[f"vllm:time_to_first_token_seconds_count{LABELS}"] == 10
    assert series[f"vllm:inter_token_latency_seconds_count{LABELS}"] == 90
    assert series[f"vllm:request_generation_tokens_sum{LABELS}"] == 100
    assert series[f"vllm:generation_tokens_total{LABELS}"] == 100
    assert series[f"vllm:prompt_tokens_total{LABELS}"] == 10 * prompt
    assert series[f"vllm:prompt_tokens_cached_total{LABELS}"] == 160
    assert series[f"vllm:request_params_max_tokens_sum{LABELS}"] == 100
    assert series['vllm:request_success_total{engine="0",finished_reason="length",model_name="tiny"}'] == 10


def test_steps_of_the_engine_show(app, engine):
    engine.num_unfinished = 1
    engine.step(num_running=3, num_waiting=2, kv_usage=0.5, num_scheduled_tokens=40, prefix_cache_queries=32, prefix_cache_hits=16)
    engine.step(num_running=1, kv_usage=0.25, num_scheduled_tokens=1, num_preemptions=2, num_nan_rows=1)
    series = scrape(app)
    assert series[f"vllm:num_requests_running{LABELS}"] == 1
    assert series[f"vllm:num_requests_waiting{LABELS}"] == 0
    assert series[f"vllm:kv_cache_usage_perc{LABELS}"] == 0.25
    assert series[f"vllm:prefix_cache_queries_total{LABELS}"] == 32
    assert series[f"vllm:prefix_cache_hits_total{LABELS}"] == 16
    assert series[f"vllm:num_preemptions_total{LABELS}"] == 2
    assert series[f"vllm:corrupted_requests_total{LABELS}"] == 1
    assert series[f"vllm:iteration_tokens_total_sum{LABELS}"] == 41


def test_with_nothing_unfinished_the_gauges_are_zero_whatever_the_last_step_said(app, engine):
    engine.step(num_running=3, num_waiting=2, kv_usage=0.5)
    series = scrape(app)
    assert series[f"vllm:num_requests_running{LABELS}"] == 0
    assert series[f"vllm:kv_cache_usage_perc{LABELS}"] == 0


def test_a_failed_request_counts_as_error(app, engine):
    engine.fail_at = 1
    post(app, "/v1/chat/completions", CHAT)
    assert scrape(app)['vllm:request_success_total{engine="0",finished_reason="error",model_name="tiny"}'] == 1


def test_strange_requests_add_no_series(app):
    before = set(scrape(app))
    for number in range(50):
        call(app, "GET", f"/v1/path{number}", headers={f"x-{number}": "a"})
        post(app, "/v1/chat/completions", CHAT | {"model": f"m{number}", "user": f"u{number}"})
    assert set(scrape(app)) == before


def test_the_cache_config_is_told_in_labels(app):
    line = next(series for series in scrape(app) if series.startswith("vllm:cache_config_info"))
    assert 'block_size="16"' in line
    assert 'num_gpu_blocks="64"' in line
    assert 'kv_cache_size_tokens="1008"' in line


def test_the_prefix_is_the_operators():
    assert "octavo_num_requests_running" in call(make_app(metrics_prefix="octavo_"), "GET", "/metrics").text


def test_token_buckets_end_at_the_context():
    assert token_buckets(512) == (1, 2, 5, 10, 20, 50, 100, 200, 500)
