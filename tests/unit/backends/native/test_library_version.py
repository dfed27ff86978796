"""A native library that was built for other Python code is refused with words, before a wrong call can end the process."""

from hashlib import sha256

import pytest

from octavo.backends import native
from octavo.errors import StartupError


def test_the_library_carries_the_interface_that_lies_beside_it():
    assert native._native.interface == sha256(native.INTERFACE.read_bytes()).hexdigest()


@pytest.mark.parametrize("built_for", [None, "", "0" * 64])
def test_a_library_of_another_interface_is_refused_and_the_way_out_is_told(built_for):
    with pytest.raises(StartupError, match=r"built for another version.*pip install"):
        native.check_library(built_for)
