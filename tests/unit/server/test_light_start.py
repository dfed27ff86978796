"""What a server of text does not load, for the sake of its start and its memory."""

import subprocess
import sys

import pytest

PROBE = """
import importlib, sys
for name in sys.argv[1].split():
    importlib.import_module(name)
print(*(name for name in sys.argv[2].split() if name in sys.modules))
"""


@pytest.mark.parametrize(
    ("modules", "unwanted"),
    [
        ("octavo.cli.main octavo.cli.serve", "asyncio dataclasses msgspec zmq argparse octavo.config.flags"),
        ("octavo.server.run octavo.server.app octavo.client.async_engine", "numpy prometheus_client octavo.worker octavo.scheduler"),
        ("octavo.engine.service", "asyncio pydantic argparse octavo.parsers.formats octavo.engine.pooling_core octavo.models.encoder"),
    ],
)
def test_a_process_loads_only_what_it_needs(modules, unwanted):
    done = subprocess.run([sys.executable, "-c", PROBE, modules, unwanted], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
