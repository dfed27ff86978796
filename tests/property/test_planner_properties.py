"""What holds for every model, device and number: more memory never holds less, and nonsense is refused by name."""

from dataclasses import replace

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.errors import OctavoError
from octavo.planner.catalogue import devices, find_model_entry, find_model_shape, model_names
from octavo.planner.floors import decode_floor, prefill_floor
from octavo.planner.formats import KV_FORMATS, WEIGHT_FORMATS, kv_format
from octavo.planner.gguf_shape import shape_from_gguf
from octavo.planner.hf_shape import shape_from_config
from octavo.planner.plan import make_plan
from octavo.planner.queueing import erlang_c, wait_quantile_s
from octavo.planner.sizing import Deployment, longest_context, sequences, size
from octavo.units import GiB

SHAPES = [find_model_shape(name) for name in model_names()]
KVS = [kv for kv in KV_FORMATS.values() if not kv.latent_only]


@st.composite
def deployments(draw):
    return Deployment(
        draw(st.sampled_from(SHAPES)),
        draw(st.sampled_from(devices())),
        draw(st.sampled_from(list(WEIGHT_FORMATS.values()))),
        draw(st.sampled_from(KVS)),
        tp=draw(st.sampled_from([1, 1, 2])) if draw(st.booleans()) else 1,
        dp=draw(st.integers(1, 3)),
        block_size=draw(st.sampled_from([16, 32, 128])),
        utilization=draw(st.floats(0.05, 1.0)),
    )


def is_splittable(deployment):
    return deployment.shape.num_heads % deployment.tp == 0


@settings(max_examples=80, deadline=None)
@given(deployments().filter(is_splittable), st.integers(1, 300_000))
def test_what_is_said_to_fit_fits_and_one_more_does_not(deployment, context):
    sizing = size(deployment)
    held = sequences(deployment, sizing.available_bytes, context) // deployment.dp
    each = deployment.rank.sequence_bytes(deployment.kv, context, deployment.block_size)
    usable = sizing.available_bytes - sizing.bytes_per_block
    assert held == 0 or held * each <= usable * (1 + 1e-9)
    assert (held + 1) * each > usable - each * 1e-9 - sizing.bytes_per_block


@settings(max_examples=60, deadline=None)
@given(deployments().filter(is_splittable), st.integers(1, 64))
def test_more_memory_never_holds_less(deployment, more):
    larger = replace(
        deployment, device=msgspec.structs.replace(deployment.device, memory_bytes=deployment.device.memory_bytes + more * GiB)
    )
    before, after = size(deployment), size(larger)
    assert after.tokens >= before.tokens
    assert after.longest_context >= before.longest_context
    assert all(new.sequences >= old.sequences for new, old in zip(after.concurrency, before.concurrency, strict=True))


@settings(max_examples=60, deadline=None)
@given(deployments().filter(is_splittable))
def test_a_longer_context_never_lets_more_in_and_is_never_faster(deployment):
    sizing = size(deployment)
    held = [row.sequences for row in sizing.concurrency]
    assert held == sorted(held, reverse=True)
    steps = [decode_floor(deployment, 4, row.context).step_s for row in sizing.concurrency]
    assert steps == sorted(steps)
    times = [prefill_floor(deployment, tokens).seconds for tokens in (1, 100, 8192, 8193, 100_000)]
    assert times == sorted(times)


@settings(max_examples=40, deadline=None)
@given(deployments().filter(is_splittable))
def test_a_plan_is_made_of_whatever_is_well_formed_and_is_json(deployment):
    plan = make_plan(deployment)
    assert msgspec.json.decode(msgspec.json.encode(plan), type=type(plan)) == plan


@settings(max_examples=60, deadline=None)
@given(deployments().filter(is_splittable))
def test_the_longest_context_holds_one_sequence(deployment):
    available = size(deployment).available_bytes
    longest = longest_context(deployment, available)
    assert longest == 0 or sequences(deployment, available, longest) >= 1


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 400), st.floats(0, 500), st.floats(0.5, 0.999))
def test_waiting_is_a_share_and_grows_with_the_load(places, load, quantile):
    waiting = erlang_c(places, load)
    assert 0 <= waiting <= 1
    assert waiting <= erlang_c(places, load * 1.01) + 1e-12
    assert wait_quantile_s(places, load, 1.0, quantile) >= 0


WEIRD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-10, 10),
    st.integers(),
    st.floats(allow_nan=True),
    st.text(max_size=5),
    st.lists(st.integers(), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)


@settings(max_examples=250, deadline=None)
@given(st.sampled_from(model_names()), st.data())
def test_a_config_with_anything_in_it_is_sized_or_refused(name, data):
    config = dict(find_model_entry(name).config)
    inner = dict(config["text_config"]) if "text_config" in config else config
    for key in data.draw(st.lists(st.sampled_from([*inner, "layer_types", "head_dim", "rope_scaling", "quantization_config"]), max_size=3)):
        inner[key] = data.draw(WEIRD)
    if inner is not config:
        config["text_config"] = inner
    try:
        shape = shape_from_config(config, name)
    except OctavoError:
        return
    device = devices()[0]
    try:
        deployment = Deployment(shape, device, WEIGHT_FORMATS["bf16"], kv_format("bf16"))
    except OctavoError:
        return
    sizing = size(deployment)
    assert sizing.bytes_per_token > 0
    assert sizing.weight_bytes > 0
    decode_floor(deployment, 8, 1000)


GGUF_KEYS = ("block_count", "embedding_length", "feed_forward_length", "attention.head_count", "attention.head_count_kv", "context_length")


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(["llama", "gemma3", "jamba", "deepseek2", "gpt-oss", "qwen3moe"]), st.dictionaries(st.sampled_from(GGUF_KEYS), WEIRD)
)
def test_a_header_with_anything_in_it_is_sized_or_refused(architecture, changes):
    sound = dict(zip(GGUF_KEYS, (2, 64, 128, 4, 2, 512), strict=True))
    metadata = {"general.architecture": architecture} | {f"{architecture}.{key}": value for key, value in (sound | changes).items()}
    try:
        shape, weights = shape_from_gguf(metadata, {"token_embd.weight": (6400, 12800)}, "m")
    except OctavoError:
        return
    sizing = size(Deployment(shape, devices()[0], weights, kv_format("f16")))
    assert sizing.bytes_per_token > 0
