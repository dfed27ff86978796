"""Backends under test: `native` with each ISA that this CPU has, and `reference`, which is right by definition."""

import sys
from pathlib import Path

import pytest

from octavo.backends.native import _native
from octavo.backends.native.backend import NativeBackend
from octavo.backends.reference.backend import ReferenceBackend

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "models"))  # tiny.py


@pytest.fixture(scope="session", params=_native.available_isas())
def isa(request):
    return request.param


@pytest.fixture(scope="session")
def native(isa):
    return NativeBackend(threads=2, isa=isa)


@pytest.fixture(scope="session")
def reference():
    return ReferenceBackend()
