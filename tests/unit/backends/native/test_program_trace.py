"""While a program is traced, its threads say what they did and when; it computes what it computed before."""

import time
from itertools import pairwise

import numpy as np
from tests.fakes.tiny_llama import write_tiny_llama
from tests.unit.worker.test_batch import row, step

from octavo.backends.registry import open_backend
from octavo.loaders.load import open_weights
from octavo.models.registry import bind
from octavo.worker.batch import build_batch


def test_a_trace_names_each_region_in_order_on_each_thread(tmp_path):
    checkpoint = open_weights(write_tiny_llama(tmp_path))
    backend = open_backend("native", threads=2)
    model = bind(checkpoint.spec, checkpoint.tensors, backend)
    spec = checkpoint.spec.kv_spec(block_size=16)
    forward = backend.compile(model, backend.make_kv_cache(spec, 8), 8, 2)
    batch = build_batch([(row("a", 2, [1]), step("a", 0, 2, wants_sample=True))], block_size=16)
    before = np.array(forward(batch))
    assert forward.take_trace() == []

    forward.set_tracing(True)
    began_ns = time.monotonic_ns()
    assert np.array_equal(forward(batch), before)
    ended_ns = time.monotonic_ns()
    trace = forward.take_trace()
    first = [span for span in trace if span[0] == 0]
    names = [name for _, name, *_ in first]
    assert names.count("attention") == checkpoint.spec.num_layers
    assert [name for thread, name, *_ in trace if thread == 1] in ([], names)  # the second one need not have come
    for (_, _, begin_ns, end_ns, waited_ns), (_, _, next_ns, *_) in pairwise(first):
        assert began_ns <= begin_ns <= end_ns == next_ns
        assert 0 <= waited_ns <= end_ns - begin_ns
    assert first[-1][3] <= ended_ns

    forward.set_tracing(False)
    forward(batch)
    assert forward.take_trace() == []
