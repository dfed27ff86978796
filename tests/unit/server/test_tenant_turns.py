"""Slow work of one tenant waits for itself and for nobody else."""

import asyncio
import threading

import pytest

from octavo.errors import CapacityError
from octavo.server.tenant_turns import TenantTurns


async def settle():
    for _ in range(5):
        await asyncio.sleep(0)


def test_of_each_tenant_one_piece_is_done_at_a_time_and_others_go_past():
    async def scenario():
        turns, gate, order = TenantTurns(2, "test"), threading.Event(), []

        def slow(number):
            gate.wait(10)
            order.append(number)

        waiting = [asyncio.ensure_future(turns.run("a", slow, number)) for number in range(4)]
        await settle()
        assert await turns.run("b", lambda: "done") == "done" and not order
        gate.set()
        await asyncio.gather(*waiting)
        return order, turns

    order, turns = asyncio.run(scenario())
    assert order == [0, 1, 2, 3] and not turns._turns


def test_too_many_of_one_tenant_are_refused_and_another_is_not():
    async def scenario():
        turns, gate = TenantTurns(2, "test", max_waiting=2), threading.Event()
        waiting = [asyncio.ensure_future(turns.run("a", gate.wait, 10)) for _ in range(2)]
        await settle()
        with pytest.raises(CapacityError, match="the limit is 2"):
            await turns.run("a", int)
        assert await turns.run("b", int) == 0
        gate.set()
        await asyncio.gather(*waiting)
        assert await turns.run("a", int) == 0

    asyncio.run(scenario())


def test_a_tenant_that_goes_away_gains_no_second_thread():
    async def scenario():
        turns, gate, at_once, most = TenantTurns(4, "test"), threading.Event(), [0], [0]
        counting = threading.Lock()

        def slow():
            with counting:
                at_once[0] += 1
                most[0] = max(most[0], at_once[0])
            gate.wait(10)
            with counting:
                at_once[0] -= 1
            raise ValueError("nobody hears it")

        gone = [asyncio.ensure_future(turns.run("a", slow)) for _ in range(4)]
        await settle()
        for task in gone:
            task.cancel()
        await asyncio.gather(*gone, return_exceptions=True)
        last = asyncio.ensure_future(turns.run("a", slow))
        await settle()
        gate.set()
        with pytest.raises(ValueError):
            await last
        return most[0]

    assert asyncio.run(scenario()) == 1
