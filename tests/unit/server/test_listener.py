"""The port is taken first."""

import pytest

from octavo.errors import StartupError
from octavo.server.listener import open_listener


def test_a_taken_port_is_named_at_once():
    with open_listener("127.0.0.1", 0) as first:
        first.listen()
        port = first.getsockname()[1]
        with pytest.raises(StartupError, match=f"port {port}: another program listens there"):
            open_listener("127.0.0.1", port)


def test_an_address_that_is_not_ours_is_named():
    with pytest.raises(StartupError, match=r"192\.0\.2\.1"):
        open_listener("192.0.2.1", 0)
