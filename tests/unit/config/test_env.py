"""The environment: what is empty is not set."""

import pwd
from pathlib import Path

import pytest

from octavo.config import env
from octavo.errors import ConfigError


@pytest.fixture
def nothing_set(monkeypatch):
    for name in ("OCTAVO_HOME", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.setenv(name, "")
    return monkeypatch


def test_models_lie_where_the_first_variable_that_is_set_says(nothing_set):
    nothing_set.setenv("HOME", "/h")
    assert env.cache_home() == Path("/h/.cache/octavo")
    nothing_set.setenv("XDG_CACHE_HOME", "/x")
    assert env.cache_home() == Path("/x/octavo")
    nothing_set.setenv("OCTAVO_HOME", "/o")
    assert env.cache_home() == Path("/o")


def test_an_empty_home_is_the_one_that_the_system_knows(nothing_set):
    assert env.cache_home() == Path(pwd.getpwuid(env.os.getuid()).pw_dir) / ".cache" / "octavo"


def test_a_user_without_a_home_is_told_what_to_set(nothing_set):
    def unknown(uid):
        raise KeyError(uid)

    nothing_set.setattr(pwd, "getpwuid", unknown)
    with pytest.raises(ConfigError, match="OCTAVO_HOME"):
        env.cache_home()
