import pytest
from tests.fakes.history_worker import make_request
from tests.fakes.tiny_llama import MAX_POSITION, VOCAB, write_tiny_llama

from octavo.backends.native._native import available_isas
from octavo.backends.native.backend import NativeBackend
from octavo.backends.reference.backend import ReferenceBackend
from octavo.config.schema import CacheConfig, EngineConfig, ModelConfig, RuntimeConfig, SchedulerConfig
from octavo.engine.phases import PhaseClock
from octavo.engine.startup import (
    EngineSize,
    check_limits,
    choose_batch_size,
    choose_kv_dtype,
    choose_max_model_len,
    start_engine,
    warn_of_defaults,
)
from octavo.errors import ConfigError, ModelError, OutOfMemory
from octavo.scheduler.admission import Limits


@pytest.mark.parametrize(
    ("seqs", "tokens", "max_model_len", "chosen"),
    [
        (None, None, 8192, (128, 512)),
        (1024, None, 8192, (1024, 1024)),
        (None, 64, 8192, (64, 64)),
        (2, None, 100, (2, 200)),
        (8, 16, 8192, (8, 16)),
        (None, 4096, 8192, (128, 4096)),
    ],
)
def test_what_was_not_given_follows_what_was(seqs, tokens, max_model_len, chosen):
    given = SchedulerConfig(max_num_seqs=seqs, max_num_batched_tokens=tokens)
    assert choose_batch_size(given, max_model_len) == chosen


@pytest.mark.parametrize(
    ("settings", "chosen"),
    [
        ({"performance_mode": "throughput"}, (256, 1024)),
        ({"performance_mode": "interactivity"}, (128, 256)),
        ({"performance_mode": "throughput", "max_num_seqs": 8}, (8, 1024)),
        ({"enable_chunked_prefill": False}, (128, 8192)),
    ],
)
def test_the_mode_sets_what_was_not_given(settings, chosen):
    assert choose_batch_size(SchedulerConfig(**settings), 8192) == chosen


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"max_num_batched_tokens": 7}, "less than one each"),
        ({"chunked_prefill": False}, "a step takes 64 tokens and max_model_len is 100"),
        ({"long_prefill_token_threshold": 101}, "at most max_model_len, 100"),
    ],
)
def test_limits_that_do_not_go_together_are_refused(changes, words):
    limits = {"max_model_len": 100, "max_num_seqs": 8, "max_num_batched_tokens": 64, "vocab_size": 10}
    check_limits(Limits(**limits))
    with pytest.raises(ConfigError, match=words):
        check_limits(Limits(**limits | changes))


@pytest.mark.parametrize(
    ("given", "chosen"),
    [
        ("auto", "f32"),
        ("bf16", "bf16"),
        ("bfloat16", "bf16"),
        ("fp8", "fp8_e4m3"),
        ("fp8_e4m3", "fp8_e4m3"),
        ("int8", "int8_per_token_head"),
    ],
)
def test_kv_dtypes_have_short_names(given, chosen):
    config = EngineConfig(cache=CacheConfig(kv_cache_dtype=given))
    assert choose_kv_dtype(config, ReferenceBackend()) == chosen


@pytest.mark.parametrize("isa", available_isas())
def test_kv_is_bf16_where_attention_takes_tiles_and_f16_elsewhere(isa):
    assert choose_kv_dtype(EngineConfig(), NativeBackend(1, isa)) == ("bf16" if isa == "amx" else "f16")


@pytest.mark.parametrize("name", ["fp8_e5m2", "int4", "nvfp4", "f64", ""])
def test_another_kv_dtype_is_refused_with_the_list(name):
    with pytest.raises(ConfigError, match="choose one of auto, f16, bf16, f32, fp8_e4m3, int8_per_token_head, "):
        CacheConfig(kv_cache_dtype=name)


def test_a_length_beyond_the_models_positions_is_refused():
    assert choose_max_model_len(None, 4096) == choose_max_model_len(4096, 4096) == 4096
    with pytest.raises(ConfigError, match="5,000; this model was made for 4,096"):
        choose_max_model_len(5000, 4096)


def test_phases_have_no_gaps():
    clock = PhaseClock(started_s=PhaseClock()._last_s - 5)
    clock.mark("one")
    clock.mark("two")
    one, two = clock.phases
    assert (one.name, two.name) == ("one", "two")
    assert one.end_s == two.begin_s
    assert one.seconds >= 5
    assert clock.line().startswith("ready in 5.0")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return str(write_tiny_llama(tmp_path_factory.mktemp("tiny")))


def config_for(model, *, max_model_len=None, scheduler=None, **cache):
    return EngineConfig(
        model=ModelConfig(model=model, max_model_len=max_model_len),
        cache=CacheConfig(**cache),
        scheduler=scheduler or SchedulerConfig(),
        runtime=RuntimeConfig(backend="reference"),
    )


def test_an_engine_with_no_setting_sizes_itself_and_answers(model):
    core, ready = start_engine(config_for(model))
    assert (ready.max_model_len, ready.vocab_size) == (MAX_POSITION, VOCAB)
    assert (ready.max_num_seqs, ready.max_num_batched_tokens, ready.block_size) == (128, 512, 16)
    assert ready.num_blocks == 128 * (MAX_POSITION // 16) + 1  # all that 128 requests could use
    assert not core.has_work
    core.add(make_request("r", [1, 2, 3], max_tokens=3, ignore_eos=True))
    tokens = []
    while core.has_work:
        tokens += [token for delta in core.step().deltas for token in delta.token_ids]
    assert len(tokens) == 3
    text = "\n".join(ready.startup_lines)
    for word in ("weights", "activations", "KV pool", "reserve", "KV cache size: ", "Maximum concurrency for 256 tokens", "warm up"):
        assert word in text
    assert model not in text


def test_a_small_pool_lowers_a_length_that_was_not_asked_for(model):
    _, ready = start_engine(config_for(model, num_gpu_blocks_override=5))
    assert ready.max_model_len == 64
    assert any("reduced from 256 to 64" in line for line in ready.startup_lines)
    with pytest.raises(OutOfMemory, match="largest length that fits is 64"):
        start_engine(config_for(model, num_gpu_blocks_override=5, max_model_len=100))


def test_a_model_that_is_not_there_is_a_model_error(tmp_path):
    with pytest.raises(ModelError):
        start_engine(config_for(str(tmp_path / "absent.gguf")))


@pytest.mark.parametrize(("given", "named"), [
    (SchedulerConfig(), "max_num_seqs 4 and max_num_batched_tokens 16"),
    (SchedulerConfig(max_num_seqs=4), "warning: max_num_batched_tokens 16:"),
    (SchedulerConfig(max_num_seqs=4, max_num_batched_tokens=16), None),
])  # fmt: skip
def test_sizes_that_follow_from_the_device_are_named(given, named):
    line = warn_of_defaults(given, EngineSize(None, None, 4, 16))
    assert (named in line) if named else line == ""
