"""What --show-config says of the settings that were left open: what a start makes of them."""

import os

import pytest
from tests.fakes.tiny_llama import MAX_POSITION, write_tiny_llama

from octavo.backends.native.backend import NativeBackend
from octavo.config.resolve import resolve
from octavo.config.schema import CacheConfig, EngineConfig, ModelConfig, RuntimeConfig, SchedulerConfig
from octavo.engine.resolved import resolved_settings
from octavo.engine.startup import start_engine
from octavo.errors import OutOfMemory

ABSENT = ModelConfig(model="absent.gguf")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return str(write_tiny_llama(tmp_path_factory.mktemp("tiny")))


def values(config):
    return {field: value for field, (value, _) in resolved_settings(config).items()}


def test_a_start_comes_to_the_same(model):
    config = EngineConfig(ModelConfig(model=model), CacheConfig(num_gpu_blocks_override=9), runtime=RuntimeConfig(threads=1))
    made = values(config)
    _, ready = start_engine(config)
    assert ready.max_model_len == made["model.max_model_len"] == 8 * 16, "shortened to what the blocks hold"
    assert (ready.max_num_seqs, ready.max_num_batched_tokens) == (made["scheduler.max_num_seqs"], made["scheduler.max_num_batched_tokens"])
    assert "cache.num_gpu_blocks_override" not in made, "it was given"
    assert "runtime.threads" not in made
    assert any(f"native: {made['runtime.isa']}, 1 threads" in line for line in ready.startup_lines)


def test_all_that_was_left_open_is_decided_once_the_model_is_there(model):
    rows = resolve({"model": model}).rows(resolved_settings(EngineConfig(ModelConfig(model=model))))
    shown = {field: (value, source) for field, value, source in rows}
    assert shown["model.max_model_len"] == (str(MAX_POSITION), "default, for this device and model")
    assert shown["runtime.threads"] == (str(len(os.sched_getaffinity(0))), "default, for this device")
    assert shown["cache.gpu_memory_utilization"] == ("0.5", "default, for this device")
    assert int(shown["cache.num_gpu_blocks_override"][0]) > MAX_POSITION // 16
    assert not [field for field, (value, _) in shown.items() if "decided" in value]


def test_without_the_model_only_what_depends_on_the_device_is_known():
    config = EngineConfig(ABSENT, scheduler=SchedulerConfig(performance_mode="throughput", max_num_active_seqs=9))
    made = values(config)
    assert made["scheduler.max_num_seqs"] == 256
    assert made["scheduler.max_num_batched_tokens"] == made["scheduler.max_num_scheduled_tokens"] == 1024
    assert made["cache.kv_cache_dtype"] == NativeBackend(1).kv_dtype
    assert not {"model.max_model_len", "cache.num_gpu_blocks_override", "scheduler.max_num_active_seqs"} & set(made)
    assert "scheduler.max_num_seqs" not in values(EngineConfig(ABSENT, scheduler=SchedulerConfig(enable_chunked_prefill=False)))


def test_the_reference_has_one_thread_and_no_instruction_set():
    made = values(EngineConfig(ABSENT, runtime=RuntimeConfig(backend="reference")))
    assert (made["runtime.threads"], made["runtime.isa"], made["cache.kv_cache_dtype"]) == (1, None, "f32")


def test_settings_that_a_start_would_refuse_are_refused(model):
    with pytest.raises(OutOfMemory, match="largest length"):
        resolved_settings(EngineConfig(ModelConfig(model=model, max_model_len=100), CacheConfig(num_gpu_blocks_override=5)))
