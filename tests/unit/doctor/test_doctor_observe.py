"""From pages of /metrics and bench results to what was seen."""

import pytest

from octavo.doctor.diagnosis import diagnose
from octavo.doctor.exposition import read_page
from octavo.doctor.observation import Settings
from octavo.doctor.observe import observe_bench, observe_server
from octavo.errors import ConfigError, RequestError

PAGE = """\
# TYPE {p}num_requests_running gauge
{p}num_requests_running{{engine="0",model_name="big"}} {running}
{p}num_requests_running{{engine="1",model_name="big"}} {running}
# TYPE {p}num_requests_waiting gauge
{p}num_requests_waiting{{engine="0",model_name="big"}} 0.0
{p}num_requests_waiting{{engine="1",model_name="big"}} 5.0
# TYPE {p}kv_cache_usage_perc gauge
{p}kv_cache_usage_perc{{engine="0",model_name="big"}} 0.25
{p}kv_cache_usage_perc{{engine="1",model_name="big"}} 0.75
# TYPE {p}generation_tokens_total counter
{p}generation_tokens_total{{engine="0",model_name="big"}} {tokens}
# TYPE {p}request_success_total counter
{p}request_success_total{{engine="0",model_name="big",finished_reason="stop"}} 4.0
{p}request_success_total{{engine="0",model_name="big",finished_reason="error"}} {failed}
# TYPE {p}spec_decode_num_drafts_total counter
{p}spec_decode_num_drafts_total{{engine="0",model_name="big"}} {drafts}
# TYPE {p}spec_decode_num_draft_tokens_total counter
{p}spec_decode_num_draft_tokens_total{{engine="0",model_name="big"}} {drafts}
# TYPE {p}iteration_tokens_total histogram
{p}iteration_tokens_total_bucket{{engine="0",model_name="big",le="8.0"}} {small}
{p}iteration_tokens_total_bucket{{engine="0",model_name="big",le="64.0"}} {all}
{p}iteration_tokens_total_bucket{{engine="0",model_name="big",le="+Inf"}} {all}
{p}iteration_tokens_total_sum{{engine="0",model_name="big"}} {sum}
{p}iteration_tokens_total_count{{engine="0",model_name="big"}} {all}
# TYPE {p}cache_config_info gauge
{p}cache_config_info{{engine="0",block_size="16",num_gpu_blocks="65",gpu_memory_utilization="0.9",num_gpu_blocks_override="None"}} 1.0
# TYPE process_cpu_seconds_total counter
process_cpu_seconds_total 7.5
"""
BENCH = {
    "completed": 20,
    "failed": 0,
    "duration": 10.0,
    "total_input_tokens": 2000,
    "total_output_tokens": 1000,
    "max_concurrent_requests": 8,
    "model_id": "m",
    **{f"{kind}_{name}_ms": value for name, value in (("ttft", 100), ("itl", 20), ("e2el", 1000)) for kind in ("mean", "median", "p99")},
}


def page(prefix="vllm:", **figures):
    defaults = {"running": 2.0, "tokens": 100.0, "failed": 0.0, "drafts": 0.0, "small": 10.0, "all": 12.0, "sum": 200.0}
    return read_page(PAGE.format(p=prefix, **(defaults | figures)))


@pytest.mark.parametrize("prefix", ["vllm:", "octavo_", ""])
def test_engines_add_up_and_any_prefix_will_do(prefix):
    read = page(prefix)
    assert read.values["num_requests_running"] == 4
    assert read.values["num_requests_waiting"] == 5
    assert (read.kv_usage, read.num_engines, read.models) == (0.75, 2, ("big",))


def test_counters_and_histograms_are_those_of_the_window():
    seen = observe_server("u", [(5.0, page()), (9.0, page(tokens=160.0, small=20.0, all=30.0, sum=900.0))], Settings())
    assert (seen.seconds, seen.counts.generation_tokens) == (4.0, 60)
    assert seen.step_tokens.counts == (10, 8, 0)
    assert seen.step_tokens.mean == 700 / 18
    assert seen.counts.cpu_s == 0
    assert [sample.at_s for sample in seen.samples] == [0.0, 4.0]
    settings = seen.settings
    assert (settings.model, settings.num_engines, settings.kv_tokens) == ("big", 2, 2 * 64 * 16)
    assert (settings.gpu_memory_utilization, settings.num_blocks_override) == (0.9, None)


def test_a_server_that_was_restarted_in_between_counts_from_nothing():
    seen = observe_server("u", [(0.0, page(tokens=500.0)), (1.0, page(tokens=30.0))], Settings())
    assert seen.counts.generation_tokens == 30


def test_drafts_in_vain_on_another_server_are_found():
    seen = observe_server("u", [(0.0, page()), (10.0, page(drafts=400.0))], Settings(program="vllm"))
    assert [finding.rule for finding in diagnose(seen).findings] == ["speculation"]


@pytest.mark.parametrize("text", ["up 1\n", "<html>no metrics</html>", '{"error": 1}'])
def test_a_page_of_something_else_is_refused(text):
    with pytest.raises(RequestError):
        read_page(text)


def test_a_good_bench_result_is_healthy():
    assert diagnose(observe_bench("r.json", BENCH, Settings())).findings == ()


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"failed": 3}, "failures"),
        ({"p99_itl_ms": 400}, "long_prompt_stalls"),
        ({"mean_ttft_ms": 700}, "queue"),
    ],
)
def test_a_bench_result_shows_what_its_clients_saw(change, rule):
    assert [finding.rule for finding in diagnose(observe_bench("r.json", BENCH | change, Settings())).findings] == [rule]


def test_another_file_is_refused():
    with pytest.raises(ConfigError, match="no result of octavo bench serve"):
        observe_bench("x.json", {"results": []}, Settings())
