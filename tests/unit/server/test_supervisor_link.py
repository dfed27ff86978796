"""What an API process hears from its supervisor, and what the supervisor hears from it."""

import asyncio
import socket

import pytest

from octavo.client.deaths import Deaths
from octavo.errors import StartupError
from octavo.messages.wire import AbortRequest
from octavo.server.processes.link import SupervisorLink
from octavo.server.processes.messages import (
    Channel,
    DeleteResponse,
    EngineDown,
    EngineGone,
    EngineHangs,
    EngineUp,
    FindResponse,
    Found,
    FromProcess,
    PutResponse,
    ToProcess,
)
from octavo.server.responses.store import StoredResponse

STORED = StoredResponse({"id": "resp_1", "output": [{"type": "message"}]}, [{"id": "msg_1"}], [])


def talk(scenario):
    """Run scenario(supervisor's channel, link) with the link reading."""

    async def run():
        ours, theirs = socket.socketpair()
        supervisor, process = await Channel.over(ours, FromProcess), await Channel.over(theirs, ToProcess)
        link = SupervisorLink(process, stores=True)
        reading = asyncio.create_task(link.read())
        try:
            async with asyncio.timeout(10):
                await scenario(supervisor, link)
        finally:
            supervisor.close()
            await reading
            process.close()

    asyncio.run(run())


def test_an_engine_that_ends_is_told_with_its_exit_code_and_the_next_one_follows(tmp_path):
    async def scenario(supervisor, link):
        supervisor.send(EngineUp(str(tmp_path)))
        engine = await link.next_engine()
        engine.send(AbortRequest([]))
        supervisor.send(EngineDown(-9))
        assert await engine.wait_dead() == -9
        await engine.close()
        supervisor.send(EngineUp(str(tmp_path)))
        following = await link.next_engine()
        assert following is not engine
        await following.close()

    talk(scenario)


def test_an_engine_that_ends_while_it_starts_is_a_failure_to_start(tmp_path):
    async def scenario(supervisor, link):
        supervisor.send(EngineUp(str(tmp_path)))
        engine = await link.next_engine()
        supervisor.send(EngineDown(1))
        with pytest.raises(StartupError, match="exit code 1"):
            await engine.wait_ready()
        await engine.close()

    talk(scenario)


def test_an_engine_that_will_not_come_again_is_told_with_the_reason():
    async def scenario(supervisor, link):
        supervisor.send(EngineGone("it died 4 times"))
        with pytest.raises(StartupError, match="it died 4 times"):
            await link.next_engine()

    talk(scenario)


def test_a_hanging_engine_is_the_supervisors_to_kill(tmp_path):
    async def scenario(supervisor, link):
        supervisor.send(EngineUp(str(tmp_path)))
        engine = await link.next_engine()
        engine.kill()
        assert await anext(supervisor.messages()) == EngineHangs()
        await engine.close()

    talk(scenario)


def test_responses_are_kept_found_and_forgotten_by_the_supervisor():
    async def scenario(supervisor, link):
        words = supervisor.messages()
        await link.put("tenant", STORED)
        assert await anext(words) == PutResponse("tenant", STORED)
        finding = asyncio.create_task(link.get("tenant", "resp_1"))
        deleting = asyncio.create_task(link.delete("tenant", "resp_1"))
        assert [await anext(words), await anext(words)] == [FindResponse(1, "tenant", "resp_1"), DeleteResponse(2, "tenant", "resp_1")]
        supervisor.send(Found(2, was_there=True))
        supervisor.send(Found(1, stored=STORED))
        assert (await finding, await deleting) == (STORED, True)

    talk(scenario)


def test_what_dies_too_often_is_given_up():
    deaths = Deaths()
    assert [deaths.count() for _ in range(4)] == [True, True, True, False]
    assert deaths.reason == "it died 4 times within 60 s"
