"""The metrics: right names, right figures, no series that a caller could add."""

import asyncio
from pathlib import Path
from random import Random

import pytest
from tests.api.asgi_client import Client, until
from tests.api.calls import CHAT, call, make_app, post
from tests.api.fake_engine import FakeEngine

from octavo.config.schema import CacheConfig
from octavo.messages.stats import BlockResidency, StepEstimate, TierStats
from octavo.metrics import recorder, request_clock
from octavo.metrics.catalogue import FINISH_REASONS, LOSS_REASONS, METRICS, PROMPT_SOURCES, metrics_markdown, token_buckets

INTERVALS = (
    "time_to_first_token_seconds",
    "request_queue_time_seconds",
    "request_prefill_time_seconds",
    "request_decode_time_seconds",
    "request_inference_time_seconds",
    "e2e_request_latency_seconds",
)
LABELS = '{engine="0",model_name="tiny"}'


@pytest.fixture
def engine():
    return FakeEngine()


@pytest.fixture
def app(engine):
    return make_app(engine)


class Now:
    s = 100.0


@pytest.fixture
def now(monkeypatch):
    """The recorder's clock, in seconds."""
    now = Now()
    monkeypatch.setattr(request_clock.time, "monotonic", lambda: now.s)
    return now


@pytest.fixture
def metrics(engine):
    return recorder.MetricsRecorder("vllm:", "tiny", engine.ready, CacheConfig())


def scrape(app):
    """Return series -> value."""
    return read_series(call(app, "GET", "/metrics").text)


def series_of(metrics):
    return read_series(metrics.render(is_idle=False).decode())


def read_series(text):
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
    engine.step(
        num_running=3, num_waiting=2, kv_usage=0.5, num_prompt_tokens=38, num_output_tokens=2, prefix_cache_queries=32, prefix_cache_hits=16
    )
    engine.step(num_running=1, kv_usage=0.25, num_output_tokens=1, num_preemptions=2, num_nan_rows=1)
    series = scrape(app)
    assert series[f"vllm:num_requests_running{LABELS}"] == 1
    assert series[f"vllm:num_requests_waiting{LABELS}"] == 0
    assert series[f"vllm:kv_cache_usage_perc{LABELS}"] == 0.25
    assert series[f"vllm:prefix_cache_queries_total{LABELS}"] == 32
    assert series[f"vllm:prefix_cache_hits_total{LABELS}"] == 16
    assert series[f"vllm:num_preemptions_total{LABELS}"] == 2
    assert series[f"vllm:corrupted_requests_total{LABELS}"] == 1
    assert series[f"vllm:iteration_tokens_total_sum{LABELS}"] == 41


def test_what_lies_beyond_the_pool_shows(app, engine):
    engine.num_unfinished = 1
    engine.step(external_queries=48, external_hits=32, tier=TierStats(4000, 1000, 0, {"evicted": 2, "damaged": 1}))
    engine.step(tier=TierStats(3000, 0, 500, {"evicted": 1}))
    series = scrape(app)
    assert series[f"vllm:external_prefix_cache_queries_total{LABELS}"] == 48
    assert series[f"vllm:external_prefix_cache_hits_total{LABELS}"] == 32
    assert series[f"vllm:kv_tier_bytes{LABELS}"] == 3000
    assert series[f"vllm:kv_tier_stored_bytes_total{LABELS}"] == 1000
    assert series[f"vllm:kv_tier_loaded_bytes_total{LABELS}"] == 500
    lost = 'vllm:kv_tier_lost_blocks_total{engine="0",model_name="tiny",reason="%s"}'
    assert [series[lost % reason] for reason in LOSS_REASONS] == [3, 0, 0, 1]


def test_what_steps_had_to_do_adds_up(app, engine):
    engine.step(estimate=StepEstimate(10**12, 10**9, 10))
    engine.step(estimate=StepEstimate(10**12, 10**9, 10))
    engine.step()
    series = scrape(app)
    assert series[f"vllm:estimated_flops_per_gpu_total{LABELS}"] == 2e12
    assert series[f"vllm:estimated_read_bytes_per_gpu_total{LABELS}"] == 2e9
    assert series[f"vllm:estimated_write_bytes_per_gpu_total{LABELS}"] == 20


def test_the_lives_of_blocks_show(app, engine):
    engine.step(residency=BlockResidency([40.0], [1.5], [0.003, 7.0]))
    series = scrape(app)
    assert series[f"vllm:kv_block_lifetime_seconds_sum{LABELS}"] == 40
    assert series[f"vllm:kv_block_idle_before_evict_seconds_sum{LABELS}"] == 1.5
    assert series[f"vllm:kv_block_reuse_gap_seconds_count{LABELS}"] == 2
    assert series['vllm:kv_block_reuse_gap_seconds_bucket{engine="0",le="0.005",model_name="tiny"}'] == 1


def test_with_nothing_unfinished_the_gauges_are_zero_whatever_the_last_step_said(app, engine):
    engine.step(num_running=3, num_waiting=2, kv_usage=0.5)
    series = scrape(app)
    assert series[f"vllm:num_requests_running{LABELS}"] == 0
    assert series[f"vllm:kv_cache_usage_perc{LABELS}"] == 0
    assert series[waiting("deferred")] == series[waiting("capacity")] == 0


def ended_by_reason(series):
    names = {reason: f'vllm:request_success_total{{engine="0",finished_reason="{reason}",model_name="tiny"}}' for reason in FINISH_REASONS}
    return {reason: series[name] for reason, name in names.items()}


def waiting(reason):
    return f'vllm:num_requests_waiting_by_reason{{engine="0",model_name="tiny",reason="{reason}"}}'


def test_waiting_by_reason_sums_to_waiting(app, engine):
    engine.num_unfinished = 1
    engine.step(num_waiting=5, num_deferred=1)
    series = scrape(app)
    assert series[waiting("deferred")] == 1
    assert series[waiting("capacity")] == 4


def test_the_intervals_of_a_request_run_from_queue_to_last_token(metrics, now):
    (clock,) = metrics.start_request(1, 8, arrival_s=99.0)
    now.s = 103.0
    clock.begin(101.0)  # told late, as the engine does
    clock.tokens(1, 40, 16, 4)
    clock.begin(102.0)  # begun anew after a preemption
    now.s = 107.0
    clock.tokens(1, 40, 16)
    clock.end("length", 3)
    series = series_of(metrics)
    sums = {name: series[f"vllm:{name}_sum{LABELS}"] for name in INTERVALS}
    assert sums == {
        "time_to_first_token_seconds": 4,
        "request_queue_time_seconds": 1,
        "request_prefill_time_seconds": 2,
        "request_decode_time_seconds": 4,
        "request_inference_time_seconds": 6,
        "e2e_request_latency_seconds": 8,
    }
    assert series[f"vllm:request_prefill_kv_computed_tokens_sum{LABELS}"] == 24
    assert series[f"vllm:request_num_preemptions_sum{LABELS}"] == 3
    by_source = 'vllm:prompt_tokens_by_source_total{engine="0",model_name="tiny",source="%s"}'
    assert [series[by_source % source] for source in PROMPT_SOURCES] == [24, 12, 4]


def test_the_longest_of_a_requests_choices_is_counted_once_all_have_ended(metrics):
    clocks = metrics.start_request(3, 8, arrival_s=0.0)
    for clock, num_tokens in zip(clocks, (2, 7, 4), strict=True):
        assert series_of(metrics)[f"vllm:request_max_num_generation_tokens_count{LABELS}"] == 0
        clock.tokens(num_tokens, 5, 0)
        clock.end("stop")
    assert series_of(metrics)[f"vllm:request_max_num_generation_tokens_sum{LABELS}"] == 7


@pytest.mark.parametrize("seed", range(20))
def test_the_ledger_balances_at_every_point_of_any_history(metrics, seed):
    random = Random(seed)
    open_clocks, ended = [], dict.fromkeys(FINISH_REASONS, 0)
    num_accepted = 0
    for _ in range(200):
        if random.random() < 0.4:
            num_choices = random.randint(1, 4)
            open_clocks += metrics.start_request(num_choices, 8, 0.0)
            num_accepted += num_choices
        elif open_clocks:
            clock = open_clocks.pop(random.randrange(len(open_clocks)))
            reason = random.choice(FINISH_REASONS)
            clock.tokens(random.randint(0, 3), 5, 0)
            clock.end(reason)
            clock.end(random.choice(FINISH_REASONS))  # only the first end counts
            ended[reason] += 1
        if random.random() < 0.1:
            series = series_of(metrics)
            assert ended_by_reason(series) == ended
            assert series[f"vllm:requests_accepted_total{LABELS}"] == num_accepted
            assert series[f"vllm:requests_in_flight{LABELS}"] == num_accepted - sum(ended.values())


def test_the_ledger_holds_over_answers_refusals_failures_and_clients_that_leave(engine):
    app = make_app(engine, max_num_queued_reqs=3)
    assert post(app, "/v1/chat/completions", CHAT | {"n": 3}).status_code == 200
    assert post(app, "/v1/chat/completions", CHAT | {"n": 4}).status_code == 503
    assert post(app, "/v1/chat/completions", CHAT | {"logit_bias": {"300": 1}}).status_code == 400
    engine.fail_at = 1
    assert post(app, "/v1/chat/completions", CHAT).status_code == 500
    engine.fail_at = None

    async def leave():
        engine.running.clear()
        client = Client("/v1/chat/completions", CHAT | {"stream": True})
        exchange = asyncio.create_task(app(client.scope, client.receive, client.send))
        await until(lambda: engine.num_unfinished == 1)
        assert series_of(app.state.server.metrics)[f"vllm:requests_in_flight{LABELS}"] == 1
        client.left.set()
        await exchange

    asyncio.run(leave())
    series = series_of(app.state.server.metrics)
    assert ended_by_reason(series) == {"stop": 0, "length": 3, "error": 2, "abort": 1}
    assert series[f"vllm:requests_accepted_total{LABELS}"] == 6
    assert series[f"vllm:requests_in_flight{LABELS}"] == 0
    assert series[f"vllm:requests_refused_total{LABELS}"] == 1


def test_the_page_about_metrics_is_made_from_the_catalogue():
    page = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text()
    assert page.endswith(metrics_markdown())


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
