"""LLM and AsyncLLM on a tiny model with text: forms of prompts, queues, metrics, growing answers, ends."""

import asyncio

import pytest
from tests.fakes.tiny_chat import write_tiny_chat

from octavo import LLM, AsyncLLM, BeamSearchParams, SamplingParams
from octavo.errors import ConfigError, ContextLengthExceeded, EngineDead, InvalidRequest

GREEDY = SamplingParams(temperature=0, max_tokens=6)
LONG = SamplingParams(temperature=0, max_tokens=200, ignore_eos=True)
HI = [{"role": "user", "content": "hi"}]
SETTINGS = {"num_gpu_blocks_override": 128}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_tiny_chat(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def llm(folder):
    return LLM(folder, **SETTINGS)


def test_a_salt_keeps_prefixes_apart(llm):
    ids = list(range(20, 60))
    llm.generate({"prompt_token_ids": ids, "cache_salt": "one"}, GREEDY)
    (same,) = llm.generate({"prompt_token_ids": ids, "cache_salt": "one"}, GREEDY)
    (other,) = llm.generate({"prompt_token_ids": ids, "cache_salt": "two"}, GREEDY)
    assert (same.num_cached_tokens, other.num_cached_tokens) == (32, 0)
    assert same.outputs == other.outputs


def test_an_answer_tells_all_that_was_asked(llm):
    params = SamplingParams(temperature=0, max_tokens=3, n=2, logprobs=2, prompt_logprobs=1)
    (answer,) = llm.generate("hello world", params)
    assert answer.finished and answer.prompt == "hello world"
    assert [one.index for one in answer.outputs] == [0, 1]
    first = answer.outputs[0]
    sampled = [candidates[token_id] for candidates, token_id in zip(first.logprobs, first.token_ids, strict=True)]
    assert first.cumulative_logprob == pytest.approx(sum(one.logprob for one in sampled))
    assert [one.rank for one in sampled] == [1, 1, 1]
    assert answer.prompt_logprobs[0] is None
    assert all(token_id in position for token_id, position in zip(answer.prompt_token_ids[1:], answer.prompt_logprobs[1:], strict=True))
    assert answer.metrics.num_generation_tokens == 6
    assert answer.metrics.arrival_time < answer.metrics.first_token_ts <= answer.metrics.last_token_ts


def test_what_is_enqueued_is_answered_in_order_and_others_do_not_wait_for_it(llm):
    ids = llm.enqueue(["a", "b"], LONG, priority=[1, 0]) + llm.enqueue_chat(HI, GREEDY)
    (between,) = llm.generate("c", GREEDY)
    answers = llm.wait_for_completion()
    assert [answer.request_id for answer in answers] == ids
    assert between.request_id not in ids
    assert answers[0].outputs == llm.generate("a", LONG)[0].outputs
    assert answers[2].outputs == llm.chat(HI, GREEDY)[0].outputs
    assert llm.wait_for_completion() == []
    assert llm.reset_prefix_cache()


def test_many_conversations_a_template_and_a_continued_message(llm):
    one, two = llm.chat([HI, [*HI, {"role": "assistant", "content": "ab"}]], GREEDY)
    assert one.prompt_token_ids != two.prompt_token_ids
    (own,) = llm.chat(HI, GREEDY, chat_template="{{ messages[0]['content'] }}")
    assert own.prompt_token_ids == llm.get_tokenizer().encode("hi")
    (going_on,) = llm.chat([*HI, {"role": "assistant", "content": "ab"}], GREEDY, continue_final_message=True)
    assert llm.get_tokenizer().decode(going_on.prompt_token_ids, skip_special_tokens=False).endswith("ab")
    with pytest.raises(InvalidRequest, match="continue_final_message"):
        llm.chat(HI, GREEDY, continue_final_message=True, add_generation_prompt=True)


@pytest.mark.parametrize("priority", [[1], ["x", "y"], 1.5], ids=repr)
def test_priorities_are_one_a_prompt(llm, priority):
    with pytest.raises(InvalidRequest) as raised:
        llm.generate(["a", "b"], GREEDY, priority=priority)
    assert raised.value.param == "priority"


def test_a_beam_of_one_is_the_greedy_answer(llm):
    (found,) = llm.beam_search("hello", BeamSearchParams(beam_width=1, max_tokens=6))
    (greedy,) = llm.generate("hello", GREEDY)
    assert found.sequences[0].tokens == greedy.prompt_token_ids + greedy.outputs[0].token_ids
    with pytest.raises(ContextLengthExceeded):
        llm.beam_search("hello", BeamSearchParams(beam_width=1, max_tokens=256))


def test_metrics_count_what_was_answered(llm):
    before, _ = counts(llm), llm.generate(["a", "b"], GREEDY)
    after = counts(llm)
    assert after["vllm:generation_tokens"] - before["vllm:generation_tokens"] == 12
    assert after["vllm:time_to_first_token_seconds"] - before["vllm:time_to_first_token_seconds"] == 2
    assert after["vllm:num_requests_running"] == 0


def counts(llm):
    return {series.name: series.count if hasattr(series, "count") else series.value for series in llm.get_metrics()}


@pytest.mark.parametrize("verb", ["sleep", "wake_up"])
def test_sleep_is_refused_by_name(llm, verb):
    with pytest.raises(InvalidRequest, match=verb):
        getattr(llm, verb)()


def test_a_setting_that_does_not_exist_is_named_before_anything_is_loaded():
    with pytest.raises(ConfigError, match="modle"):
        AsyncLLM("x", modle="y")


def with_async_llm(folder, scenario):
    async def run():
        async with AsyncLLM(folder, **SETTINGS) as llm:
            return await asyncio.wait_for(scenario(llm), 60)

    return asyncio.run(run())


def test_growing_answers_end_in_what_llm_says(llm, folder):
    params = SamplingParams(temperature=0.8, seed=5, max_tokens=12, n=2, logprobs=1)
    (whole,) = llm.generate("hello", params)

    async def scenario(served):
        growing = [answer async for answer in served.generate("hello", params)]
        assert [answer.finished for answer in growing] == [False] * (len(growing) - 1) + [True]
        assert growing[-1].outputs == whole.outputs
        news = [answer async for answer in served.generate({"prompt": "hello"}, params, output_kind="delta")]
        assert "".join(answer.outputs[1].text for answer in news) == whole.outputs[1].text
        (final,) = [answer async for answer in served.generate(whole.prompt_token_ids, params, output_kind="final_only")]
        assert final.outputs == whole.outputs
        (chat,) = [answer async for answer in served.chat(HI, GREEDY, output_kind="final_only")]
        assert chat.outputs == llm.chat(HI, GREEDY)[0].outputs

    with_async_llm(folder, scenario)


def test_an_aborted_request_ends_with_what_has_come_and_leaves_nothing(folder):
    async def scenario(served):
        async for answer in served.generate("hello", LONG, "mine"):
            if len(answer.outputs[0].token_ids) == 3:
                with pytest.raises(InvalidRequest, match="unfinished"):
                    await anext(served.generate("hello", LONG, "mine"))
                await served.abort("mine")
        assert (answer.outputs[0].finish_reason, answer.finished) == ("abort", True)
        assert 3 <= len(answer.outputs[0].token_ids) < 200
        await served.abort("nobody")
        await served.check_health()
        with pytest.raises(InvalidRequest, match="encoders"):
            await anext(served.encode("hello"))
        while not await served.reset_prefix_cache():  # until the engine has heard of the abort
            await asyncio.sleep(0)

    with_async_llm(folder, scenario)


def test_generation_pauses_and_resumes(folder):
    async def scenario(served):
        stream = served.generate("hello", SamplingParams(max_tokens=4, ignore_eos=True), "held")
        await served.pause_generation("wait")
        held = asyncio.create_task(anext(stream))
        assert await served.is_paused()
        await served.check_health()
        assert not held.done()
        await served.resume_generation()
        await held
        assert [answer async for answer in stream][-1].finished
        assert not await served.is_paused()

    with_async_llm(folder, scenario)


def test_one_that_has_not_been_started_says_so(folder):
    with pytest.raises(EngineDead, match="start"):
        AsyncLLM(folder).get_tokenizer()
