"""The worker: plans in, tokens out; a row is the same alone, in company, chunked, or in a used place."""

import msgspec
import numpy as np
import pytest

from octavo.errors import EngineError, InvalidRequest
from octavo.messages.step import NewRow, RowStep, StepPlan
from octavo.params import SamplingParams

GREEDY = SamplingParams(temperature=0.0, seed=0)
RANDOM = SamplingParams(temperature=1.2, top_p=0.95, seed=11, logprobs=3)
PENALISED = SamplingParams(temperature=0.9, seed=5, repetition_penalty=1.3, frequency_penalty=0.4, presence_penalty=0.2, logprobs=0)
BIASED = SamplingParams(temperature=1.0, seed=6, min_tokens=3, stop_token_ids=(4, 9), logit_bias={4: 5.0, 7: -100.0}, top_k=5, min_p=0.01)
ALL_PARAMS = [GREEDY, RANDOM, PENALISED, BIASED]


def prompt(length: int, seed: int = 0) -> list[int]:
    return np.random.RandomState(seed).randint(0, 50, length).tolist()


@pytest.mark.parametrize("params", ALL_PARAMS)
@pytest.mark.parametrize("chunk", [1, 5, 16, 17])
def test_a_chunked_prompt_gives_the_same_tokens_and_logprobs(make_driver, params, chunk):
    whole, chunked = make_driver(), make_driver()
    assert whole.generate("a", prompt(37), params, 8) == chunked.generate("a", prompt(37), params, 8, chunk)
    assert whole.logprobs == chunked.logprobs


def test_rows_in_a_batch_get_what_they_get_alone(make_driver):
    prompts = {f"r{i}": prompt(3 + 4 * i, seed=i) for i in range(4)}
    alone = {}
    for index, (request_id, tokens) in enumerate(prompts.items()):
        single = make_driver()
        alone[request_id] = (single.generate(request_id, tokens, ALL_PARAMS[index], 8), single.logprobs[request_id])
    together = make_driver()
    opened = [together.open(request_id, tokens, ALL_PARAMS[index]) for index, (request_id, tokens) in enumerate(prompts.items())]
    together.run([new for new, _ in opened], [step for _, step in opened])
    for turn in range(7):  # in another order each time
        ids = list(prompts)[turn % 4 :] + list(prompts)[: turn % 4]
        together.run(rows=[together.step(request_id) for request_id in ids])
    assert {request_id: (together.output[request_id], together.logprobs[request_id]) for request_id in prompts} == alone


def test_prompt_chunks_and_decodes_share_a_step(make_driver):
    alone = make_driver()
    expected = [alone.generate("a", prompt(9), RANDOM, 6), alone.generate("b", prompt(40, seed=1), PENALISED, 2)]
    mixed = make_driver()
    mixed.generate("a", prompt(9), RANDOM, 2)
    new, step = mixed.open("b", prompt(40, seed=1), PENALISED, 11)
    mixed.run([new], [mixed.step("a"), step])
    while len(mixed.output["b"]) < 2:
        mixed.run(rows=[mixed.step("b", 11), mixed.step("a")])
    assert [mixed.output["a"][:6], mixed.output["b"]] == expected


@pytest.mark.parametrize("params", ALL_PARAMS)
def test_a_preempted_row_goes_on_as_if_nothing_had_been(make_driver, params):
    expected = make_driver().generate("a", prompt(20), params, 10)
    driver = make_driver()
    driver.generate("a", prompt(20), params, 4)
    released = driver.release("a")
    new, step = driver.open("a", prompt(20) + driver.output["a"], params, num_prompt=20)
    driver.run([new], [step], released=released)
    while len(driver.output["a"]) < 10:
        driver.run(rows=[driver.step("a")])
    assert driver.output["a"] == expected


def test_a_cached_prefix_is_read_from_its_blocks(make_driver):
    driver = make_driver()
    expected = driver.generate("a", prompt(37), RANDOM, 5)
    new, _ = driver.open("b", prompt(37), RANDOM)
    shared = driver.blocks["a"][:2] + new.block_ids[2:]
    new = msgspec.structs.replace(new, block_ids=shared)
    driver.run([new], [RowStep(request_id="b", start=32, num_tokens=5, new_block_ids=[], wants_sample=True)])
    while len(driver.output["b"]) < 5:
        driver.run(rows=[driver.step("b")])
    assert driver.output["b"] == expected


def test_nothing_of_a_finished_row_reaches_the_next_one_of_its_name(make_driver):
    expected = make_driver().generate("a", prompt(12, seed=2), GREEDY, 6)
    driver = make_driver()
    driver.generate("a", prompt(30), BIASED, 6)
    driver.run(released=driver.release("a"))
    driver.output.clear()
    assert driver.generate("a", prompt(12, seed=2), GREEDY, 6) == expected


def test_eager_and_compiled_give_the_same(make_driver):
    assert make_driver(enforce_eager=True).generate("a", prompt(20), RANDOM, 5) == make_driver().generate("a", prompt(20), RANDOM, 5)


def test_a_row_that_does_not_want_a_sample_gets_none(driver):
    new, step = driver.open("a", prompt(20), GREEDY, 8)
    assert driver.run([new], [step]).sampled == []


def test_a_plan_without_rows_only_releases_and_may_do_so_twice(driver):
    driver.generate("a", prompt(5), GREEDY, 1)
    released = driver.release("a")
    for _ in range(2):
        assert driver.run(released=released).sampled == []
    with pytest.raises(EngineError, match="row a has a step but is not open"):
        driver.worker.execute(plan_of(rows=[RowStep(request_id="a", start=5, num_tokens=1, new_block_ids=[], wants_sample=True)]))


def test_rows_opened_anew_after_a_step_that_failed_half_way_go_on_as_if_nothing_had_been(make_driver):
    expected = make_driver().generate("a", prompt(9), RANDOM, 5)
    driver = make_driver()
    driver.generate("a", prompt(9), RANDOM, 2)
    step = driver.step("a")
    forward, driver.worker._forward = driver.worker._forward, failing_forward
    with pytest.raises(RuntimeError, match="device"):
        driver.run(rows=[step])
    driver.worker._forward = forward
    known = prompt(9) + driver.output["a"]
    anew = NewRow(request_id="a", token_ids=known, num_prompt_tokens=9, params=RANDOM, block_ids=driver.blocks["a"])
    driver.run([anew], [step], released=["a"])
    while len(driver.output["a"]) < 5:
        driver.run(rows=[driver.step("a")])
    assert driver.output["a"] == expected


def failing_forward(batch):
    raise RuntimeError("the device failed")


def test_log_probabilities_come_as_asked(driver):
    driver.generate("a", prompt(5), RANDOM, 1)
    (entry,) = driver.logprobs["a"]
    assert len(entry.top_ids) == len(entry.top_logprobs) == 3
    assert entry.top_logprobs == sorted(entry.top_logprobs, reverse=True)
    assert entry.rank >= 1 and entry.logprob <= entry.top_logprobs[0]


def test_greedy_takes_the_first_of_the_most_likely(driver):
    driver.generate("a", prompt(5), msgspec.structs.replace(GREEDY, logprobs=1), 4)
    assert [entry.top_ids[0] for entry in driver.logprobs["a"]] == driver.output["a"]
    assert all(entry.rank == 1 for entry in driver.logprobs["a"])


def test_a_row_with_nan_logits_is_told_and_its_neighbour_goes_on(make_driver, loaded):
    driver = make_driver()
    forward = driver.worker._forward

    def poisoned(batch):
        logits = forward(batch).copy()
        logits[0, 3] = np.nan
        return logits

    driver.worker._forward = poisoned
    opened = [driver.open(request_id, prompt(4), GREEDY) for request_id in ("a", "b")]
    first, second = driver.run([new for new, _ in opened], [step for _, step in opened]).sampled
    assert (first.is_nan, first.token_ids) == (True, [])
    assert (second.is_nan, second.token_ids) == (False, make_driver().generate("b", prompt(4), GREEDY, 1))


def plan_of(new_rows=(), rows=(), released=()):
    return StepPlan(step_id=99, new_rows=list(new_rows), rows=list(rows), released=list(released))


def bad_plans():
    def with_new(**changes):
        def make(driver):
            new, step = driver.open("b", prompt(5), GREEDY)
            return plan_of([msgspec.structs.replace(new, **changes)], [step])

        return make

    def with_step(**changes):
        def make(driver):
            return plan_of(rows=[msgspec.structs.replace(driver.step("a"), **changes)])

        return make

    return {
        "token id past the vocabulary": (with_new(token_ids=[1, 2, 50, 3, 4]), "token id 50; this model's ids are 0..49"),
        "negative token id": (with_new(token_ids=[1, -2, 5, 3, 4]), "token id -2"),
        "no tokens": (with_new(token_ids=[], num_prompt_tokens=0), "0 prompt tokens of 0"),
        "more prompt than tokens": (with_new(num_prompt_tokens=6), "6 prompt tokens of 5"),
        "block past the pool": (with_new(block_ids=[24]), "block ids 24..24; the pool has 1..23"),
        "the null block": (with_new(block_ids=[0]), "block ids 0..0"),
        "too few blocks": (with_new(block_ids=[]), "0 blocks of 16 do not hold 5 positions"),
        "opened twice": (with_new(request_id="a"), "row a is opened twice"),
        "past the known tokens": (with_step(num_tokens=2), "positions 6..7 of 7 known tokens"),
        "no tokens to compute": (with_step(num_tokens=0), "positions 6..5 of 7"),
        "a sample too early": (with_step(start=2), "wants a sample at position 2 of 7"),
        "unknown row": (with_step(request_id="zz"), "row zz has a step but is not open"),
    }


@pytest.mark.parametrize("name", bad_plans())
def test_a_plan_that_cannot_be_run_is_refused_and_changes_nothing(make_driver, name):
    make, message = bad_plans()[name]
    expected = make_driver().generate("a", prompt(6), RANDOM, 4)
    driver = make_driver()
    driver.generate("a", prompt(6), RANDOM, 1)
    plan = make(driver)
    with pytest.raises(EngineError, match=message):
        driver.worker.execute(plan)
    driver.computed["a"] = 6
    while len(driver.output["a"]) < 4:
        driver.run(rows=[driver.step("a")])
    assert driver.output["a"] == expected


def test_a_bias_past_the_vocabulary_is_refused_before_anything_is_run(driver):
    new, step = driver.open("b", prompt(5), SamplingParams(seed=1, logit_bias={50: 1.0}))
    with pytest.raises(InvalidRequest, match="token id 50"):
        driver.run([new], [step])


def test_a_step_larger_than_the_worker_is_refused(driver):
    new, step = driver.open("a", prompt(65), GREEDY)
    with pytest.raises(EngineError, match="65 tokens in 1 rows; this worker takes 64 and 6"):
        driver.run([new], [msgspec.structs.replace(step, num_tokens=65)])
