"""Two thousand histories of the engine's policy, each from its seed, against each request alone (make test-histories: 200,000)."""

import os

import pytest
from tests.fakes.simulated_history import run_history

HISTORIES = int(os.environ.get("OCTAVO_HISTORIES", "2000"))
BATCHES = 20


@pytest.mark.parametrize("batch", range(BATCHES))
def test_a_simulated_history_keeps_every_promise(batch):
    for seed in range(batch, HISTORIES, BATCHES):
        try:
            run_history(seed)
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise


@pytest.mark.parametrize("seed", range(40))
def test_a_history_told_twice_is_the_same(seed):
    assert run_history(seed) == run_history(seed)
