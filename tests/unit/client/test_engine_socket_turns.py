"""The client's end of the engine's socket: an engine that is faster than its readers does not keep the loop from turning."""

import asyncio

import zmq

from octavo.client.engine_wire import EngineWire
from octavo.messages.codec import encode
from octavo.messages.wire import StepOutputs, TokenDelta

NUM_FRAMES = 50


def test_the_loop_turns_between_any_two_messages_of_the_engine():
    async def run(engine, client):
        engine.bind("inproc://engine")
        client.connect("inproc://engine")
        for number in range(NUM_FRAMES):
            engine.send(encode(StepOutputs([TokenDelta(str(number), [1])])))
        link = EngineWire(client)
        turns, seen = 0, []
        link.listen(lambda message: seen.append((turns, message.deltas[0].request_id)))
        async with asyncio.timeout(10):
            while len(seen) < NUM_FRAMES:
                turns += 1
                await asyncio.sleep(0)
        assert [request_id for _, request_id in seen] == [str(number) for number in range(NUM_FRAMES)]
        assert len({turn for turn, _ in seen}) == NUM_FRAMES

    context = zmq.Context()
    try:
        asyncio.run(run(context.socket(zmq.PAIR), context.socket(zmq.PAIR)))
    finally:
        context.destroy(linger=0)
