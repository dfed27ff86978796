"""The planner's page: what it may ask, what it is answered, what it may load, and that its sliders ask nothing that is refused."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest

from octavo.config.server_schema import ServerConfig
from octavo.planner.catalogue import api_rates, find_device, find_model_shape, find_workload, model_names
from octavo.planner.explain import derive
from octavo.planner.formats import kv_format, weight_format
from octavo.planner.plan import CONVERSATION, Plan, make_plan
from octavo.planner.sizing import Deployment
from octavo.server.app import create_app
from octavo.server.plan.answer import Extra, ExtraModel
from octavo.server.plan.endpoints import PLAN_ENDPOINTS
from octavo.server.plan.schemas import PlanRequest
from tests.api.calls import assert_openai_error, call, make_app, post

UI = Path(__file__).parents[2] / "src" / "octavo" / "ui"
API = "/ui/plan/api"
BY_NUMBERS = {"model": "numbers", "device": "numbers", "workload": "own"}


@pytest.fixture(scope="module")
def app():
    return create_app(None, ServerConfig(), PLAN_ENDPOINTS)


def answered(app, **asked):
    response = post(app, API, asked)
    assert response.status_code == 200, response.text
    return response.json()


def decoded(answer):
    return msgspec.convert(answer["plan"], Plan)


def deployment(**changes):
    given = {"weights": weight_format("fp8"), "kv": kv_format("fp8")} | changes
    return Deployment(find_model_shape("qwen3-32b"), find_device("H100-80G"), **given)


FP8 = {"weights": "fp8", "kv_cache_dtype": "fp8"}


LEDGER = {"activation_bytes": 0, "reserve_bytes": 0, "weight_bytes": 65_600_000_000}
POOL = {"kv_cache_memory_bytes": 1 << 33, "max_num_seqs": 7}


@pytest.mark.parametrize(
    ("asked", "where"),
    [
        ({}, deployment()),
        ({"tensor_parallel_size": 4, "data_parallel_size": 2}, deployment(tp=4, dp=2)),
        ({"gpu_memory_utilization": 0.5, "block_size": 32}, deployment(utilization=0.5, block_size=32)),
        ({"performance_mode": "throughput", "max_model_len": 8192}, deployment(throughput=True, max_model_len=8192)),
        (LEDGER, deployment(**LEDGER)),
        (POOL, deployment(**POOL)),
    ],
)
def test_the_answer_is_the_plan_of_the_same_functions(app, asked, where):
    answer = answered(app, **FP8, **asked, utilization=0.3, efficiency=0.5)
    plan = make_plan(where, efficiency=0.5, utilization=0.3, usd_per_hour=3.49, workloads=[find_workload("agentic")], apis=api_rates())
    assert decoded(answer) == plan
    assert answer["derivations"] == json.loads(msgspec.json.encode(derive(where, plan)))


def test_the_seeds_calculator_gives_the_seeds_numbers(app):
    plain = LEDGER | {"max_model_len": 40_960}
    sizing = decoded(answered(app, model="qwen3-32b", weights="bf16", **plain)).sizing
    assert (sizing.available_bytes, sizing.num_blocks, sizing.tokens) == (13_427_398_247, 3201, 51_221)
    assert (sizing.fits, sizing.logged_tokens) == (True, int(3201 / 2560 * 40_960))
    assert decoded(answered(app, weights="bf16", **plain | {"max_model_len": 51_200})).sizing.fits  # 3,200 blocks and the null block
    assert not decoded(answered(app, weights="bf16", **plain | {"max_model_len": 51_201})).sizing.fits


def test_a_model_and_a_device_by_numbers(app):
    numbers = {"model": "numbers", "layers": 64, "kv_heads": 8, "queries_per_kv_head": 8, "head_dim": 128, "params": 32_800_000_000}
    plan = decoded(answered(app, **numbers, device="numbers", memory_gib=80, bandwidth_gbs=3350, tflops=989, usd_per_hour=1))
    assert plan.sizing.bytes_per_token == 262_144
    assert (plan.device.memory_bytes, plan.device.bandwidth) == (80 << 30, 3350e9)
    assert plan.costs[0].cost.usd_per_hour == 1


def test_a_workload_by_numbers_and_the_cheaper_of_the_two(app):
    mix = {"workload": "own", "new_input": 100, "cached_input": 0, "output": 1000, "batch": 8}
    answer = answered(app, **FP8, **mix, utilization=1.0)
    assert decoded(answer).costs[0].cost.batch == 8
    assert set(answer["verdicts"]) == {api.name for api in api_rates()}
    assert set(answer["verdicts"].values()) <= {"self-host", "API"}
    assert answer["cost_curve"][-1] == [1.0, decoded(answer).costs[0].cost.usd_per_million_output]


def test_without_a_price_there_is_no_curve(app):
    answer = answered(app, device="L4-24G", model="llama-3.2-1b")
    assert (answer["usd_per_hour"], answer["cost_curve"], answer["verdicts"]) == (None, [], {})


@pytest.mark.parametrize(
    ("asked", "param"),
    [
        ({"nix": 1}, "nix"),
        ({"layers": 0}, "layers"),
        ({"layers": "64"}, "layers"),
        ({"gpu_memory_utilization": 1.01}, "gpu_memory_utilization"),
        ({"utilization": 0}, "utilization"),
        ({"kv_cache_memory_bytes": 0}, "kv_cache_memory_bytes"),
        ({"model": "x" * 129}, "model"),
        ({"performance_mode": "fast"}, "performance_mode"),
        ({"model": "no-such-model"}, None),
        ({"device": "no-such-device"}, None),
        ({"weights": "no-such-format"}, None),
        ({"workload": "no-such-mix"}, None),
        ({"tensor_parallel_size": 3}, None),
        ({"kv_cache_dtype": "fp8_ds_mla"}, None),
    ],
)
def test_what_cannot_be_planned_is_refused_in_openais_shape(app, asked, param):
    response = post(app, API, asked)
    assert response.status_code == 400
    error = assert_openai_error(response)
    assert (error["type"], error["param"]) == ("invalid_request_error", param)


def test_a_long_body_is_refused_before_it_is_read(app):
    assert call(app, "POST", API, body={"model": "x" * (64 << 10)}).status_code == 413


def test_what_can_be_chosen_is_what_the_planner_knows(app):
    choices = call(app, "GET", API).json()
    assert choices["models"] == [*model_names(), "numbers"]
    assert choices["defaults"] == PlanRequest().model_dump()
    assert choices["defaults"]["conversation"] == CONVERSATION
    assert all(api["date"] and api["source"] for api in choices["apis"])


def test_a_model_and_a_device_of_the_command_line_come_first(app):
    own = create_app(None, ServerConfig(), PLAN_ENDPOINTS)
    shape = replace(find_model_shape("smollm2-135m"), name="mine")
    device = msgspec.structs.replace(find_device("EPYC-9654"), name="this machine")
    own.state.plan_extra = Extra({"mine": ExtraModel(shape, weight_format("q4_1"))}, {"this machine": device})
    choices = call(own, "GET", API).json()
    assert (choices["models"][0], choices["devices"][0]["name"]) == ("mine", "this machine")
    plan = decoded(answered(own, model="mine", device="this machine"))
    assert (plan.model.name, plan.weights, plan.kv, plan.device.name) == ("mine", "q4_1", "f16", "this machine")


class Page(HTMLParser):
    """The sliders of the page, what has a label, and every address that it names."""

    def __init__(self):
        super().__init__()
        self.sliders, self.controls, self.labels, self.addresses = {}, set(), set(), []

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        if tag in ("input", "select"):
            self.controls.add(attrs["id"])
        if tag == "label":
            self.labels.add(attrs["for"])
        if attrs.get("type") == "range":
            self.sliders[attrs["name"]] = steps(attrs)
        self.addresses += [attrs[name] for name in ("src", "href") if name in attrs]
        assert not {name for name in attrs if name.startswith("on") or name == "style"}, "the policy forbids code and style in a tag"


def steps(attrs):
    """Return the first and last value of a slider as its field; None for auto."""
    words = attrs["data-steps"].split()
    scale = int(attrs.get("data-scale", 0))

    def field(word):
        value = json.loads(word)
        return round(value * scale) if scale else value

    numbers = [field(word) for part in words if part != "auto" for word in re.split(r"\.\.|/.*|\*.*", part)[:2] if word]
    return [None] * ("auto" in words) + [min(numbers), max(numbers)]


@pytest.fixture(scope="module")
def page():
    parsed = Page()
    parsed.feed((UI / "plan.html").read_text())
    return parsed


def test_every_field_has_a_control_and_every_control_a_label(page):
    selects = {"model", "weights", "kv_cache_dtype", "device", "workload", "performance_mode"}
    assert set(page.sliders) | selects == set(PlanRequest.model_fields)
    assert page.controls <= page.labels


@pytest.mark.parametrize(
    "base", [{}, {"model": "numbers", "device": "numbers", "workload": "own", "usd_per_hour": 2}], ids=["names", "numbers"]
)
def test_both_ends_of_every_slider_are_planned(app, page, base):
    for name, ends in page.sliders.items():
        for end in ends:
            answer = answered(app, **base | {name: end})
            assert decoded(answer).sizing.total_bytes > 0, (name, end)
            assert "NaN" not in json.dumps(answer) and "Infinity" not in json.dumps(answer)


@pytest.mark.parametrize("end", [0, -1], ids=["low", "high"])
def test_all_sliders_at_the_same_end_are_planned(app, page, end):
    asked = {name: ends[end] for name, ends in page.sliders.items()}
    response = post(app, API, asked | BY_NUMBERS)
    assert response.status_code == 200, response.text


def test_the_page_and_its_files_load_nothing_from_elsewhere(app, page):
    paths = {endpoint.path for endpoint in PLAN_ENDPOINTS if endpoint.access == "open"}
    assert {f"/ui/{address}" for address in page.addresses if address != "#"} <= paths
    for path in paths:
        response = call(app, "GET", path)
        assert response.status_code == 200
        policy = response.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy
        assert response.headers["x-content-type-options"] == "nosniff"
        addresses = set(re.findall(r"//[\w.-]+\.\w+[\w/]*", response.text))
        assert addresses <= {"//www.w3.org/2000/svg"}  # the name of a kind of XML, which nothing asks for
    assert sum(len(call(app, "GET", path).content) for path in paths) < 100_000


def test_a_server_that_starts_does_not_import_the_planners_tables():
    program = "import sys, octavo.server.app; print('octavo.planner.plan' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "False\n"


def test_a_server_has_the_page_for_admins_only_and_answers_it_with_a_key_only():
    assert call(make_app(), "GET", "/ui/plan").status_code == 404
    guarded = make_app(enable_admin_endpoints=True, api_key=("sk-right",))
    assert call(guarded, "GET", "/ui/plan").status_code == 200
    assert call(guarded, "GET", API).status_code == post(guarded, API, {}).status_code == 401
    assert post(guarded, API, {}, authorization="Bearer sk-right").status_code == 200


def test_the_list_of_endpoints_leads_to_the_page_where_there_is_one():
    assert '<a href="ui/plan">' in call(make_app(enable_admin_endpoints=True), "GET", "/docs").text
    assert "ui/plan" not in call(make_app(), "GET", "/docs").text
