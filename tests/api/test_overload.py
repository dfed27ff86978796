"""A hundred thousand requests at once against a cap of two thousand: the rest is sent away, quickly, and costs nothing afterwards."""

import asyncio
import resource
import time
from collections import Counter

import pytest

from tests.api.asgi_client import Client
from tests.api.calls import COMPLETION, call, make_app
from tests.api.fake_engine import FakeEngine

CAP = 2_000
AT_ONCE = 100


async def ask(app, statuses):
    """Send one request; count the status of its answer and return its seconds."""
    client = Client("/v1/completions", COMPLETION)
    began = time.perf_counter()
    await app(client.scope, client.receive, client.send)
    statuses[client.sent[0]["status"]] += 1
    return time.perf_counter() - began


@pytest.mark.slow
def test_of_a_hundred_thousand_requests_those_within_the_cap_are_answered_and_all_others_sent_away_at_once():
    engine = FakeEngine()
    app = make_app(engine, max_num_queued_reqs=CAP)

    async def run():
        engine.running.clear()
        accepted, refused, slowest_s = Counter(), Counter(), 0.0
        waiting = [asyncio.create_task(ask(app, accepted)) for _ in range(CAP)]
        while engine.num_unfinished < CAP:
            await asyncio.sleep(0.01)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(98_000 // AT_ONCE):
            slowest_s = max(slowest_s, *await asyncio.gather(*(ask(app, refused) for _ in range(AT_ONCE))))
        grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        assert not accepted
        assert refused == {503: 98_000}
        engine.running.set()
        await asyncio.gather(*waiting)
        assert accepted == {200: CAP}
        return grown_kib, slowest_s

    grown_kib, slowest_s = asyncio.run(run())
    assert grown_kib < 32 * 1024
    assert slowest_s < 1.0
    text = call(app, "GET", "/metrics").text
    assert 'vllm:requests_accepted_total{engine="0",model_name="tiny"} 2000.0' in text
    assert 'vllm:requests_in_flight{engine="0",model_name="tiny"} 0.0' in text
    assert 'vllm:requests_refused_total{engine="0",model_name="tiny"} 98000.0' in text
    assert engine.num_unfinished == 0
    assert not engine.aborted
