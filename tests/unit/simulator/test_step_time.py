from dataclasses import replace

import pytest

from octavo.errors import ConfigError
from octavo.planner.catalogue import find_device, find_model_shape
from octavo.planner.floors import decode_floor, prefill_floor
from octavo.planner.formats import kv_format, weight_format
from octavo.planner.sizing import Deployment
from octavo.simulator.step_time import MeasuredStep, StepTime, StepWork, fit_step_time, step_time_from_floors

SHAPES = ((1, 1, 32), (1, 1, 1024), (8, 1, 256), (32, 1, 256), (1, 128, 0), (1, 512, 0), (1, 256, 1024))


def deployment(**given):
    return Deployment(find_model_shape("llama-3.1-8b"), find_device("H100"), weight_format("bf16"), kv_format("bf16"), **given)


def test_the_longer_side_of_the_roofline_counts():
    times = StepTime(base_s=1, weights_s=10, read_s=1, token_s=2, pair_s=0.5, logit_s=3, link_s=0.25)
    assert times.seconds(StepWork(tokens=1, reads=4, pairs=4, logits=1)) == 1 + 14 + 0.25
    assert times.seconds(StepWork(tokens=10, reads=4, pairs=8, logits=1)) == 1 + 27 + 2.5


@pytest.mark.parametrize(("batch", "context"), [(1, 1000), (64, 4000), (256, 100)])
def test_a_decode_step_takes_what_the_planner_says(batch, context):
    work = MeasuredStep(batch, 1, context - 1, 1.0).work
    assert step_time_from_floors(deployment()).seconds(work) == pytest.approx(decode_floor(deployment(), batch, context).step_s, rel=0.02)


def test_a_prompt_takes_what_the_planner_says():
    work = MeasuredStep(1, 4096, 0, 1.0).work
    assert step_time_from_floors(deployment()).seconds(work) == pytest.approx(prefill_floor(deployment(), 4096).seconds, rel=0.02)


def test_tensor_parallelism_adds_the_link_and_divides_the_rest():
    work = MeasuredStep(32, 1, 999, 1.0).work
    split = deployment(tp=4)
    assert step_time_from_floors(split).seconds(work) == pytest.approx(decode_floor(split, 32, 1000).step_s, rel=0.02)


def test_half_the_efficiency_takes_twice_as_long():
    work = MeasuredStep(8, 1, 500, 1.0).work
    assert step_time_from_floors(deployment(), 0.5).seconds(work) == pytest.approx(2 * step_time_from_floors(deployment()).seconds(work))
    with pytest.raises(ConfigError):
        step_time_from_floors(deployment(), 0.0)
    with pytest.raises(ConfigError):
        step_time_from_floors(deployment(pp=2))


def test_a_fit_finds_the_times_that_the_steps_were_made_with():
    true = StepTime(base_s=2e-3, token_s=4e-4, pair_s=1e-7, logit_s=3e-4)
    steps = [MeasuredStep(*shape, 1.0) for shape in SHAPES]
    fitted = fit_step_time([replace(step, seconds=true.seconds(step.work)) for step in steps])
    for name in ("base_s", "token_s", "pair_s", "logit_s"):
        assert getattr(fitted, name) == pytest.approx(getattr(true, name), rel=1e-6)


def test_a_fit_has_no_negative_times():
    steps = [MeasuredStep(rows, query, context, 0.01 / (1 + context)) for rows, query, context in SHAPES]
    fitted = fit_step_time(steps)
    assert min(fitted.base_s, fitted.token_s, fitted.pair_s, fitted.logit_s) >= 0


def test_too_few_steps_are_no_measurement():
    with pytest.raises(ConfigError, match="at least 4"):
        fit_step_time([MeasuredStep(1, 1, 0, 1.0)] * 3)
    with pytest.raises(ConfigError, match="no time"):
        fit_step_time([MeasuredStep(1, 1, 0, 0.0)] * 4)
