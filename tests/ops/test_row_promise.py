"""The promise of every backend: a row's bits depend on that row's inputs alone. Held here bit for bit, verb by verb and for
whole models: alone or in a batch, in one step or in many, eager or compiled, on 1, 2 or 3 threads."""

import cases
import numpy as np
import pytest
import tiny
from msgspec.structs import replace

from octavo.backends.native.backend import NativeBackend
from octavo.models.registry import bind
from octavo.specs.kv import KV_DTYPES, KVSpec
from octavo.specs.tensors import Format

MODELS = [
    "llama",
    "llama-biases",
    "llama-yarn",
    "mistral-window",
    "qwen2",
    "qwen2-windows",
    "qwen3",
    "deepseek-v2",
    "deepseek-v3-yarn",
    "deepseek-v3-experts",
]


@pytest.mark.parametrize("dtype", KV_DTYPES)
@pytest.mark.parametrize(
    ("kv_heads", "group", "head_dim", "window"),
    [
        (3, 3, 64, None),
        (1, 1, 128, None),
        (2, 8, 20, None),
        (1, 5, 80, None),
        (2, 2, 64, 100),
        (1, 1, 64, 9),
        (2, 2, 64, -100),
        (1, 4, 64, -9),
    ],
)
def test_attention_of_a_position_is_the_same_in_every_chunk(native, kv_heads, group, head_dim, window, dtype):
    ops, kv = cases.ops_of(native), native.make_kv_cache(KVSpec(1, kv_heads, head_dim, dtype), 256)
    whole = cases.step([(0, 300), (0, 1)])
    cases.fill(ops, kv, 0, whole)
    q = cases.floats(301, kv_heads * group * head_dim, seed=5)
    expected = ops.attention(q, kv, 0, whole, 0.125, cases.span(window))
    for size in (1, 2, 7, 64, 201):
        parts = [
            ops.attention(np.ascontiguousarray(q[start : min(start + size, 300)]), kv, 0, part, 0.125, cases.span(window))
            for start in range(0, 300, size)
            for part in [cases.one_row(whole, 0, start, min(size, 300 - start))]
        ]
        np.testing.assert_array_equal(np.concatenate(parts), expected[:300], err_msg=f"chunks of {size}")


@pytest.mark.parametrize("format", Format)
def test_linear_of_a_row_is_the_same_among_any_number_of_rows(native, format):
    ops, weight, x = cases.ops_of(native), native.load_matrix(cases.raw_matrix(format, 37, 512)), cases.floats(70, 512, seed=1)
    expected = ops.linear(x, weight)
    for count in (1, 2, 3, 5, 8, 13, 31):
        parts = [ops.linear(x[start : start + count], weight) for start in range(0, 70, count)]
        np.testing.assert_array_equal(np.concatenate(parts), expected, err_msg=f"{count} rows")


def test_whole_attention_of_a_row_is_the_same_beside_others(native):
    lengths = [5, 16, 33, 1, 70]
    batch = cases.whole_rows(lengths)
    q, k, v = cases.floats(3, sum(lengths), 4 * 32)
    ops = cases.ops_of(native)
    together = ops.whole_attention(q, k, v, batch, 32, 0.2)
    for row, length in enumerate(lengths):
        own = slice(batch.query_start[row], batch.query_start[row + 1])
        alone = ops.whole_attention(q[own].copy(), k[own].copy(), v[own].copy(), cases.whole_rows([length]), 32, 0.2)
        np.testing.assert_array_equal(alone, together[own])


@pytest.mark.parametrize("name", MODELS)
def test_the_number_of_threads_changes_no_bit(isa, name):
    batch = cases.step([(0, 33), (0, 1), (0, 30)], num_groups=num_groups(name))
    results = []
    for threads in (1, 2, 3):
        backend = NativeBackend(threads, isa)
        model = tiny_model(backend, name)
        kv = backend.make_kv_cache(tiny.CASES[name].kv_spec(), 256)
        results.append(np.array(backend.compile(model, kv, 64, 64)(batch)))
    np.testing.assert_array_equal(results[1], results[0])
    np.testing.assert_array_equal(results[2], results[0])


@pytest.mark.parametrize("threads", [2, 3, 8])
@pytest.mark.parametrize("dtype", ["f16", "fp8_e4m3", "int8_per_token_head"])
def test_a_long_context_that_is_split_over_threads_gives_the_same_bits(isa, dtype, threads):
    batch = cases.step([(1800, 2)], num_blocks=160)
    q = cases.floats(2, 4 * 64)
    results = []
    for count in (1, threads):
        backend = NativeBackend(count, isa)
        ops, kv = cases.ops_of(backend), backend.make_kv_cache(KVSpec(1, 2, 64, dtype), 160)
        cases.fill(ops, kv, 0, batch)
        results.append([ops.attention(q, kv, 0, batch, 0.125, cases.span(window)) for window in (None, 1000)])
    np.testing.assert_array_equal(results[0], results[1])


@pytest.mark.parametrize("name", MODELS)
def test_compiled_and_eager_give_the_same_bits(native, name):
    model, spec = tiny_model(native, name), tiny.CASES[name].kv_spec()
    forwards = [native.eager(model, native.make_kv_cache(spec, 256)), native.compile(model, native.make_kv_cache(spec, 256), 64, 64)]
    for rows, sampled in (([(0, 20), (0, 9)], [19, 28]), ([(20, 1), (9, 12)], [0, 12]), ([(21, 5)], [])):
        batch = with_samples(cases.step(rows, num_groups=num_groups(name)), sampled)
        eager, compiled = (np.array(forward(batch)) for forward in forwards)
        assert eager.shape == (len(sampled), tiny.VOCAB_SIZE)
        np.testing.assert_array_equal(compiled, eager)


@pytest.mark.parametrize("name", MODELS)
def test_a_prompt_gives_the_same_logits_in_one_step_and_in_many_beside_others(native, name):
    model, spec = tiny_model(native, name), tiny.CASES[name].kv_spec()
    forward = native.compile(model, native.make_kv_cache(spec, 256), 64, 64)
    whole = cases.step([(0, 40), (0, 1)], num_groups=num_groups(name))
    expected = np.array(forward(whole))[:40]
    forward = native.compile(model, native.make_kv_cache(spec, 256), 64, 64)
    others = [(0, 7), (7, 1), (8, 20), (28, 11)]
    got = []
    for (start, count), other in zip([(0, 11), (11, 1), (12, 1), (13, 27)], others, strict=True):
        batch = cases.step([(start, count), other], num_groups=num_groups(name))
        batch.token_ids[:count] = whole.token_ids[start : start + count]
        got.append(np.array(forward(batch))[:count])
    np.testing.assert_array_equal(np.concatenate(got), expected)


def num_groups(name):
    return len(tiny.CASES[name].kv_spec().spans)


def tiny_model(backend, name):
    return bind(tiny.CASES[name], tiny.tensors(tiny.CASES[name]), backend)


def with_samples(batch, rows):
    return replace(batch, sample_rows=np.array(rows, np.int32))
