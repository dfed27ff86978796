"""AsyncEngine with the real model on `native`: crashes, disconnects, exactly one final event, nothing left behind."""

import asyncio
import os
import random
import signal
import tempfile

import pytest
from tests.real_models import path_or_skip

from octavo import AsyncEngine, CacheConfig, EngineConfig, ModelConfig, SamplingParams
from octavo.client import keeper
from octavo.errors import ContextLengthExceeded, EngineDead, InvalidRequest

pytestmark = pytest.mark.model

CONFIG = EngineConfig(model=ModelConfig(max_model_len=1024), cache=CacheConfig(kv_cache_memory_bytes=64 << 20))


@pytest.fixture(autouse=True)
def require_model():
    path_or_skip(CONFIG.model.model)


def with_engine(scenario):
    async def run():
        engine = await AsyncEngine.start(CONFIG)
        try:
            return await asyncio.wait_for(scenario(engine), 120)
        finally:
            await engine.stop()

    return asyncio.run(run())


async def collect(stream):
    """Return (token ids, text, finish reason) of a one-choice stream, checking that its last event alone is final."""
    events = [event async for event in stream]
    assert [event.finish_reason is not None for event in events] == [False] * (len(events) - 1) + [True]
    return (
        [token_id for event in events for token_id in event.token_ids],
        "".join(event.text for event in events),
        events[-1].finish_reason,
    )


def request(number: int) -> tuple[list[int], SamplingParams]:
    chance = random.Random(number)
    prompt = [chance.randrange(1000, 40_000) for _ in range(chance.randrange(5, 90))]
    return prompt, SamplingParams(max_tokens=chance.randrange(4, 40), temperature=chance.choice([0.0, 0.9]), seed=number, ignore_eos=True)


async def answer(engine, number: int):
    prompt, params = request(number)
    return await collect(engine.generate(prompt, params, request_id=f"r{number}"))


def test_a_killed_engine_is_a_pause_in_the_stream_and_the_tokens_are_the_same():
    async def scenario(engine):
        undisturbed = [await answer(engine, number) for number in range(4)]
        running = [asyncio.create_task(answer(engine, number)) for number in range(4)]
        while engine.num_unfinished < 4:
            await asyncio.sleep(0)
        await asyncio.sleep(0.05)  # somewhere in the middle
        os.kill(engine._keeper.process.pid, signal.SIGKILL)
        assert await asyncio.gather(*running) == undisturbed
        assert engine.is_alive

    with_engine(scenario)


def test_a_request_that_was_running_in_two_crashes_fails_alone():
    async def scenario(engine):
        params = SamplingParams(max_tokens=900, temperature=0, ignore_eos=True)
        poison = engine.generate([5, 6, 7], params, request_id="poison")
        for _ in range(2):
            await anext(poison)
            while not engine.is_alive:
                await asyncio.sleep(0.01)
            os.kill(engine._keeper.process.pid, signal.SIGKILL)
            await engine._keeper.process.wait_dead()
        events = [event async for event in poison]
        assert events[-1].finish_reason == "error"
        assert "crashed 2 times" in events[-1].error
        while not engine.is_alive:
            await asyncio.sleep(0.01)
        assert (await answer(engine, 1))[2] == "length"

    with_engine(scenario)


def test_an_engine_that_stands_still_is_not_healthy_and_goes_on_when_it_wakes(monkeypatch):
    monkeypatch.setattr(keeper, "HEARTBEAT_S", 0.05)
    monkeypatch.setattr(keeper, "SILENCE_S", 0.5)

    async def scenario(engine):
        undisturbed = await answer(engine, 1)
        running = asyncio.create_task(answer(engine, 1))
        await asyncio.sleep(0)
        os.kill(engine._keeper.process.pid, signal.SIGSTOP)
        while engine.is_alive:
            await asyncio.sleep(0.02)
        os.kill(engine._keeper.process.pid, signal.SIGCONT)
        assert await running == undisturbed
        assert engine.is_alive

    with_engine(scenario)


def test_an_engine_that_hangs_is_replaced_and_its_requests_go_on(monkeypatch):
    monkeypatch.setattr(keeper, "HEARTBEAT_S", 0.05)
    monkeypatch.setattr(keeper, "SILENCE_S", 0.2)
    monkeypatch.setattr(keeper, "HANG_S", 0.5)

    async def scenario(engine):
        undisturbed = await answer(engine, 2)
        first = engine._keeper.process.pid
        running = asyncio.create_task(answer(engine, 2))
        await asyncio.sleep(0)
        os.kill(first, signal.SIGSTOP)
        assert await running == undisturbed
        assert engine._keeper.process.pid != first

    with_engine(scenario)


def test_32_streams_with_random_disconnects_leave_nothing_and_the_others_answer_as_alone():
    async def visit(engine, number):
        prompt, params = request(number)
        stream = engine.generate(prompt, params, request_id=str(number))
        if number % 3:
            return number, await collect(stream)
        for _ in range(random.Random(number).randrange(0, 4)):
            await anext(stream)
        await stream.aclose()
        return number, None

    async def scenario(engine):
        visits = dict(await asyncio.gather(*(visit(engine, number) for number in range(32))))
        assert engine.num_unfinished == 0
        reply = await engine.control("reset_prefix_cache")
        assert reply.ok, "no block is in use"
        for number, seen in visits.items():
            if seen is not None:
                assert seen == await answer(engine, number)

    with_engine(scenario)


def test_n_choices_each_end_once_and_equal_their_own_seeds():
    async def scenario(engine):
        params = SamplingParams(n=3, max_tokens=12, temperature=1.0, seed=11, ignore_eos=True)
        events = [event async for event in engine.generate([9, 8, 7, 6], params, request_id="n")]
        for index in range(3):
            tokens = [token_id for event in events if event.index == index for token_id in event.token_ids]
            alone = SamplingParams(max_tokens=12, temperature=1.0, seed=11 + index, ignore_eos=True)
            assert (await collect(engine.generate([9, 8, 7, 6], alone, request_id="one")))[0] == tokens
        assert sum(event.finish_reason is not None for event in events) == 3

    with_engine(scenario)


def test_a_stop_string_ends_the_stream_without_showing_and_frees_the_request():
    async def scenario(engine):
        prompt = engine.tokenizer.encode("The capital of France is")
        _, text, _ = await collect(engine.generate(prompt, SamplingParams(max_tokens=30, temperature=0), request_id="a"))
        stop = text[10:14]
        _, cut, reason = await collect(engine.generate(prompt, SamplingParams(max_tokens=30, temperature=0, stop=(stop,)), request_id="b"))
        assert (cut, reason) == (text[: text.index(stop)], "stop")
        assert engine.num_unfinished == 0
        while not (await engine.control("reset_prefix_cache")).ok:
            await asyncio.sleep(0)

    with_engine(scenario)


def test_a_bad_request_is_refused_before_the_engine_hears_of_it():
    async def scenario(engine):
        with pytest.raises(ContextLengthExceeded, match=r"1,024 tokens"):
            engine.generate([1] * 1024, SamplingParams(max_tokens=1), request_id="long")
        with pytest.raises(ContextLengthExceeded, match="max_tokens is 1,000"):
            engine.generate([1] * 100, SamplingParams(max_tokens=1000), request_id="long")
        with pytest.raises(InvalidRequest, match="token id 49152"):
            engine.generate([49_152], SamplingParams(), request_id="range")
        with pytest.raises(InvalidRequest, match="no tokens"):
            engine.generate([], SamplingParams(), request_id="empty")
        assert engine.num_unfinished == 0

    with_engine(scenario)


def test_an_engine_that_cannot_be_started_again_fails_who_waits_and_says_so(monkeypatch, tmp_path):
    async def scenario(engine):
        running = asyncio.create_task(answer(engine, 1))
        while engine.num_unfinished < 1:
            await asyncio.sleep(0)
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
        os.kill(engine._keeper.process.pid, signal.SIGKILL)
        assert (await running)[2] == "error"
        assert not engine.is_alive
        assert "TMPDIR" in engine.last_error
        with pytest.raises(EngineDead):
            engine.generate([1], SamplingParams(), request_id="late")

    with_engine(scenario)


def test_a_temporary_folder_with_a_long_path_does_not_matter(monkeypatch, tmp_path):
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))

    async def scenario(engine):
        assert (await answer(engine, 1))[2] == "length"

    with_engine(scenario)
    assert list(folder.iterdir()) == []


def test_a_pause_outlives_the_engines_process_and_costs_no_token():
    async def scenario(engine):
        undisturbed = [await answer(engine, number) for number in range(4)]
        running = [asyncio.create_task(answer(engine, number)) for number in range(3)]
        while engine.num_unfinished < 3:
            await asyncio.sleep(0)
        await asyncio.sleep(0.05)
        await engine.pause("keep")
        running.append(asyncio.create_task(answer(engine, 3)))
        await asyncio.sleep(0)
        os.kill(engine._keeper.process.pid, signal.SIGKILL)
        await engine._keeper.process.wait_dead()
        while not engine.is_alive:
            await asyncio.sleep(0.01)
        assert (await engine.control("ping")).ok
        assert engine.is_paused
        assert not running[3].done()
        await engine.resume()
        assert await asyncio.gather(*running) == undisturbed

    with_engine(scenario)


def test_a_pause_that_waits_returns_when_all_that_was_there_has_ended():
    async def scenario(engine):
        running = [asyncio.create_task(answer(engine, number)) for number in range(3)]
        while engine.num_unfinished < 3:
            await asyncio.sleep(0)
        await engine.pause("wait")
        assert engine.num_unfinished == 0
        late = asyncio.create_task(answer(engine, 3))
        while not engine.num_unfinished:
            await asyncio.sleep(0)
        await engine.pause("wait")  # asked again: what is held is not waited for
        assert not late.done()
        await engine.resume()
        await asyncio.gather(late, *running)

    with_engine(scenario)
