"""Mixtures of experts: routing and the experts' products on every ISA of this CPU against `reference`, and the promise that a row's
bits depend on that row alone. Outputs of the eager verbs hold NaN before, so a value that is not written is seen."""

import bounds
import cases
import numpy as np
import pytest
from msgspec.structs import replace

from octavo.backends.native import ops as native_ops
from octavo.backends.native.backend import NativeBackend
from octavo.specs.model import ExpertsSpec
from octavo.specs.tensors import Format

ROUTES = {
    "softmax": ExpertsSpec(0, 64, 6, 32),
    "softmax in groups": ExpertsSpec(0, 16, 3, 32, num_groups=4, groups_kept=2, scaling=16.0),
    "sigmoid": ExpertsSpec(
        0, 32, 8, 32, scoring="sigmoid", num_groups=8, groups_kept=4, group_worth="two_best", normalize=True, scaling=2.5
    ),
    "groups of one": ExpertsSpec(0, 8, 2, 32, scoring="sigmoid", num_groups=8, groups_kept=3),
    "one expert": ExpertsSpec(0, 1, 1, 32),
    "all experts": ExpertsSpec(0, 4, 4, 32, normalize=True),
}
SIZES = ExpertsSpec(0, 8, 3, 96)
HIDDEN = 256


@pytest.fixture(autouse=True)
def poisoned_outputs(monkeypatch):
    class Poisoned:
        def __getattr__(self, name):
            return getattr(np, name)

        def empty_like(self, x):
            return np.full_like(x, np.nan)

    monkeypatch.setattr(native_ops, "np", Poisoned())


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("name", ROUTES)
def test_route_weighs_the_experts_that_it_picks(native, reference, name, has_bias):
    experts = ROUTES[name]
    logits = 3 * cases.floats(50, experts.count)
    bias = 0.3 * cases.floats(experts.count, seed=1) if has_bias else None
    actual, expected = (cases.ops_of(backend).route(logits, bias, experts) for backend in (native, reference))
    np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-12)
    assert np.all(np.count_nonzero(actual, axis=1) == experts.per_token)
    if experts.normalize:
        np.testing.assert_allclose(actual.sum(axis=1), experts.scaling, rtol=1e-6)


@pytest.mark.parametrize("name", ["native", "reference"])
def test_of_equal_scores_the_lower_expert_is_taken_and_nan_spoils_its_row_alone(request, native, name):
    ops = cases.ops_of(native if name == "native" else request.getfixturevalue("reference"))
    logits = np.zeros((3, 8), np.float32)
    logits[1, 4] = np.nan
    logits[2, 5:] = 1
    weights = ops.route(logits, None, ExpertsSpec(0, 8, 2, 32))
    assert np.flatnonzero(weights[0]).tolist() == [0, 1]
    assert np.isnan(weights[1]).sum() == 2
    assert np.flatnonzero(weights[2]).tolist() == [5, 6]


def mixture(backend, format=Format.F32, hidden=HIDDEN):
    inner = SIZES.intermediate_size if format.block_values < 256 else 256
    experts = replace(SIZES, intermediate_size=inner)
    gate, up = (backend.load_matrix(cases.raw_matrix(format, experts.count * inner, hidden, seed)) for seed in (1, 2))
    return experts, gate, up, backend.load_matrix(cases.raw_matrix(format, experts.count * hidden, inner, 3))


def inputs(rows):
    x = cases.floats(rows, HIDDEN, seed=4)
    return x, cases.ops_of(NativeBackend(1)).route(cases.floats(rows, SIZES.count, seed=5), None, SIZES)


@pytest.mark.parametrize("format", Format)
@pytest.mark.parametrize("rows", [0, 1, 40])
def test_each_row_is_the_weighted_sum_of_its_experts(native, reference, format, rows):
    x, weights = inputs(rows)
    results = []
    for backend in (native, reference):
        experts, gate, up, down = mixture(backend, format)
        results.append(cases.ops_of(backend).experts(x, weights, gate, up, down, experts, "silu"))
    actual, expected = results
    bound = 4 * bounds.LINEAR["quantised" if format.block_values > 1 else format.label]  # two products, one after the other
    assert actual.shape == expected.shape
    assert np.all(np.abs(actual - expected) <= bound * np.linalg.norm(expected, axis=1, keepdims=True))


@pytest.mark.parametrize("format", [Format.F32, Format.BF16, Format.Q8_0, Format.Q4_K])
def test_a_row_has_the_same_bits_among_any_rows_and_on_any_number_of_threads(isa, format):
    x, weights = inputs(61)
    expected = None
    for threads, count in ((1, 61), (3, 61), (1, 1), (2, 7), (3, 20)):
        backend = NativeBackend(threads, isa)
        experts, gate, up, down = mixture(backend, format)
        parts = [
            cases.ops_of(backend).experts(x[start : start + count], weights[start : start + count], gate, up, down, experts, "silu")
            for start in range(0, 61, count)
        ]
        expected = np.concatenate(parts) if expected is None else expected
        np.testing.assert_array_equal(np.concatenate(parts), expected, err_msg=f"{threads} threads, {count} rows")


def test_a_row_that_picks_fewer_experts_has_only_those(native):
    experts, gate, up, down = mixture(native)
    x, weights = inputs(2)
    weights[0] = 0
    out = cases.ops_of(native).experts(x, weights, gate, up, down, experts, "silu")
    assert not out[0].any() and out[1].any()


def test_what_does_not_fit_is_refused():
    backend = NativeBackend(1)
    ops = cases.ops_of(backend)
    experts, gate, up, down = mixture(backend)
    x, weights = inputs(2)
    ops.experts(x, weights, gate, up, down, experts, "silu")
    for bad in (
        lambda: ops.experts(x, np.ones_like(weights), gate, up, down, experts, "silu"),  # more picks than a row has
        lambda: ops.experts(x, weights[:1].copy(), gate, up, down, experts, "silu"),
        lambda: ops.experts(x[:, :8].copy(), weights, gate, up, down, experts, "silu"),
        lambda: ops.experts(x, weights, gate, down, up, experts, "silu"),
        lambda: ops.experts(x, weights, gate, up, gate, experts, "silu"),
        lambda: ops.experts(x, weights, gate, up, down, replace(experts, count=16), "silu"),
        lambda: ops.route(weights, np.zeros(3, np.float32), experts),
        lambda: ops.route(weights, None, ExpertsSpec(0, 4, 2, 32)),
    ):
        with pytest.raises(ValueError):
            bad()
