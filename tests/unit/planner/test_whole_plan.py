"""The plan as one value: rows that agree with each other, notes with a way out, derivations that compute."""

import ast
import math
import operator

import msgspec
import pytest

from octavo.errors import ConfigError
from octavo.planner.catalogue import api_rates, find_device, find_model_shape, find_workload, workloads
from octavo.planner.explain import derive
from octavo.planner.formats import kv_format, weight_format
from octavo.planner.plan import Plan, Speculation, Traffic, make_plan
from octavo.planner.sizing import Deployment, size


def deployment(model="qwen3-32b", device="H100-80G", weights="bf16", kv="bf16", **changes):
    return Deployment(find_model_shape(model), find_device(device), weight_format(weights), kv_format(kv), **changes)


def whole_plan(where):
    return make_plan(
        where,
        usd_per_hour=3.49,
        workloads=workloads(),
        apis=api_rates(),
        speculation=Speculation(3, 0.7),
        traffic=Traffic(find_workload("interactive"), 5.0, ttft_s=2.0, itl_s=0.05),
    )


def test_a_plan_is_json_and_back():
    plan = whole_plan(deployment(weights="fp8", kv="fp8"))
    assert msgspec.json.decode(msgspec.json.encode(plan), type=Plan) == plan


def test_the_table_of_formats_swings_by_what_the_guides_say():
    rows = make_plan(deployment(activation_bytes=0, reserve_bytes=0)).formats
    held = {(row.weights, row.kv): row for row in rows}
    assert held["bf16", "bf16"].conversations == 5
    assert held["bf16", "bf16"].gain == 1
    assert held["bf16", "bf16"].is_chosen
    # 34,318,624,768 bytes of real fp8 weights instead of the guides' 32.8e9: 33 instead of 34
    assert held["fp8", "fp8"].conversations == 33
    assert held["fp8", "fp8"].gain == pytest.approx(6.6)


def test_the_chosen_rows_agree_with_the_ledger():
    plan = make_plan(deployment(weights="int4", kv="fp8", tp=2), conversation=8192)
    chosen = next(row for row in plan.formats if row.is_chosen)
    split = next(row for row in plan.splits if (row.tp, row.pp, row.dp) == (2, 1, 1))
    assert chosen.tokens == split.tokens == plan.sizing.tokens
    assert chosen.conversations == split.conversations == plan.sizing.concurrency[2].sequences


@pytest.mark.parametrize(
    ("where", "words"),
    [
        (deployment("llama-3.1-70b", max_model_len=32_768), "--weights int4 fits"),
        (deployment("llama-3.1-70b"), "--tensor-parallel-size 4 fits"),
        (deployment("deepseek-v3", "B200-180G", weights="int4"), "--tensor-parallel-size 4 fits"),
        (deployment("deepseek-v3", "T4-16G", weights="int4"), "A larger device"),
        (deployment(max_model_len=100_000), "start-up takes --max-model-len"),
        (deployment("smollm2-135m"), "made for 8,192 positions"),
        (deployment("smollm2-135m", max_model_len=9000), "start-up refuses it"),
        (deployment("llama-3.1-70b", tp=16), "each is kept 2 times"),
        (deployment("deepseek-v3", "H200-141G", weights="fp8", tp=8), "dp shares it out"),
    ],
)
def test_what_does_not_fit_is_noted_with_the_way_out(where, words):
    assert any(words in note for note in make_plan(where).notes)


def test_a_workloads_batch_is_lowered_to_what_fits():
    plan = whole_plan(deployment(weights="fp8", kv="fp8"))
    batch = next(row for row in plan.costs if row.cost.workload == "batch")
    assert (batch.wished_batch, batch.cost.batch) == (60, 38)
    assert all(row.cost.fits for row in plan.costs)
    assert whole_plan(deployment(weights="fp8", kv="fp8")).fleet.batch <= 32


def test_verdicts_weigh_a_month_of_machines_against_a_month_of_tokens():
    busy = whole_plan(deployment(weights="fp8", kv="fp8"))
    assert {verdict.choice for verdict in busy.verdicts} == {"self-host"}
    quiet = make_plan(
        deployment(weights="fp8", kv="fp8"),
        usd_per_hour=3.49,
        workloads=(),
        apis=api_rates(),
        traffic=Traffic(find_workload("interactive"), 0.01),
    )
    assert {verdict.choice for verdict in quiet.verdicts} == {"API"}
    assert quiet.verdicts[0].api_usd_per_month == pytest.approx(0.0067 * 0.01 * 3600 * 720)


def test_without_a_price_there_are_no_costs():
    plan = make_plan(deployment(), workloads=workloads(), apis=api_rates())
    assert plan.costs == () and plan.verdicts == ()


def test_a_conversation_of_nothing_is_refused():
    with pytest.raises(ConfigError):
        make_plan(deployment(), conversation=0)


def test_on_a_cpu_the_pool_is_no_larger_than_its_requests_and_an_unasked_length_is_lowered():
    wide = size(deployment("smollm2-135m", "EPYC-9654", kv="f16"))
    assert wide.num_blocks == 128 * (8192 // 16) + 1
    tight = msgspec.structs.replace(find_device("EPYC-9654"), memory_bytes=4_000_000_000)
    lowered = size(Deployment(find_model_shape("llama-3.2-1b"), tight, weight_format("q4_k_m"), kv_format("f16")))
    assert lowered.model_len == lowered.longest_context < 131_072
    assert not lowered.fits


OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}
FUNCTIONS = {"ceil": math.ceil, "max": max, "min": min, "int": int}


def compute(text):
    """Return what an arithmetic text amounts to."""

    def value(node):
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.BinOp):
            return OPERATORS[type(node.op)](value(node.left), value(node.right))
        if isinstance(node, ast.UnaryOp):
            return -value(node.operand)
        if isinstance(node, ast.Compare):
            return value(node.left) <= value(node.comparators[0])
        return FUNCTIONS[node.func.id](*map(value, node.args))

    return value(ast.parse(text, mode="eval").body)


@pytest.mark.parametrize(
    "where",
    [
        deployment(weights="fp8", kv="fp8"),
        deployment("gemma-3-27b", tp=2, dp=2),
        deployment("jamba-v0.1", "H200-141G"),
        deployment("deepseek-v3.2", "H200-141G", weights="fp8", kv="fp8_ds_mla", tp=8),
        deployment("smollm2-135m", "EPYC-9654", weights="q4_1", kv="int8_per_token_head"),
        deployment(weight_bytes=65_600_000_000, activation_bytes=0, reserve_bytes=0),
        deployment("llama-3.1-70b", throughput=True),
        deployment("gpt-oss-20b", kv_cache_memory_bytes=1 << 30, max_num_seqs=64, max_num_batched_tokens=4096),
    ],
    ids=lambda where: f"{where.shape.name}-{where.device.name}",
)
def test_every_derivation_computes_to_its_result(where):
    lines = derive(where, make_plan(where, usd_per_hour=3.49, workloads=workloads(), apis=api_rates(), utilization=0.3))
    assert len(lines) > 30
    assert len({line.name for line in lines}) == len(lines)
    for line in lines:
        assert compute(line.values) == pytest.approx(line.result, rel=2e-3), line
