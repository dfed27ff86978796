"""The block that API processes share: one sees what the other writes, and the lock is let go when its holder dies."""

import os
import select
import subprocess
import sys

import pytest

from octavo.client.load import Load
from octavo.server.processes.shared import Lock, create_block, open_figures

OTHER = """
import sys
from octavo.client.load import Load
from octavo.server.processes.shared import Lock, open_figures
block = int(sys.argv[1])
load = Load(open_figures(block, 2))
with Lock(block):
    load.unfinished.inc(5)
    print("held", flush=True)
    sys.stdin.readline()
print("let go", flush=True)
sys.stdin.readline()
"""


CLAIM = """
import sys
from octavo.server.processes.shared import Lock
with Lock(int(sys.argv[1])):
    print("mine")
"""


@pytest.fixture
def block():
    descriptor = create_block(2)
    yield descriptor
    os.close(descriptor)


@pytest.fixture
def other(block):
    """Another process, which holds the lock until it is given a line."""
    process = subprocess.Popen(
        [sys.executable, "-c", OTHER, str(block)], pass_fds=(block,), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    yield process
    process.kill()
    process.communicate()


def test_what_another_process_adds_shows_in_the_sum(block, other):
    load = Load(open_figures(block, 1))
    assert other.stdout.readline() == "held\n"
    load.unfinished.inc(3)
    assert load.unfinished.parts == [0, 3, 5]
    assert load.unfinished.value == 8


@pytest.mark.parametrize("ends", ["lets go", "dies"])
def test_the_lock_waits_for_its_holder_and_outlives_no_process(block, other, ends):
    assert other.stdout.readline() == "held\n"
    claiming = subprocess.Popen([sys.executable, "-c", CLAIM, str(block)], pass_fds=(block,), stdout=subprocess.PIPE, text=True)
    assert not select.select([claiming.stdout], [], [], 1.0)[0], "it is held"
    if ends == "dies":
        other.kill()
    else:
        other.stdin.write("\n")
        other.stdin.flush()
    assert claiming.communicate(timeout=30)[0] == "mine\n"


def test_a_lock_can_be_taken_again(block):
    lock = Lock(block)
    for _ in range(2):
        with lock:
            pass
