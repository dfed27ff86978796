"""--slo and --goodput: what an answer may take at most."""

import pytest

from octavo.cli.time_limits import read_goodput, read_slo
from octavo.errors import ConfigError


def test_an_slo_is_in_seconds_unless_it_says_milliseconds():
    assert read_slo("ttft=0.5,itl=50ms") == {"ttft": 0.5, "itl": 0.05}
    assert read_slo("ttft=2s") == {"ttft": 2.0}
    assert read_slo("") == {}


def test_goodput_is_in_milliseconds_unless_it_says_seconds():
    assert read_goodput("ttft:200,tpot:50") == read_goodput("ttft:200 tpot:50ms") == {"ttft": 200.0, "tpot": 50.0}
    assert read_goodput("e2el:5s") == {"e2el": 5000.0}


@pytest.mark.parametrize("text", ["tpot=1", "ttft=fast", "ttft=0", "ttft=-1", "ttft=inf", "ttft=nan", "itl", "itl="])
def test_what_is_no_limit_is_told_with_the_flag(text):
    with pytest.raises(ConfigError, match="--slo"):
        read_slo(text)
    with pytest.raises(ConfigError, match="--goodput"):
        read_goodput(text.replace("=", ":").replace("tpot", "itl"))
