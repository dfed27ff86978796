"""`octavo pull` and `octavo models` as a person sees them."""

import pytest

from octavo.cli import models as command
from octavo.errors import ModelError
from octavo.loaders.progress import PullProgress


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("OCTAVO_HOME", str(tmp_path / "home"))


def test_the_list_shows_each_model_and_how_to_fetch_it(capsys):
    assert command.models_command() == 0
    shown = capsys.readouterr().out
    assert "smollm2-135m-instruct" in shown and "93.8 MiB" in shown and "octavo pull NAME" in shown


def test_progress_off_a_terminal_is_a_line_at_each_tenth(capsys):
    lines = command._ProgressLines()
    for done in range(0, 1001, 50):
        lines(PullProgress("downloading", done, 1000))
    lines(PullProgress("waiting"))
    shown = capsys.readouterr().err.splitlines()
    assert shown[0] == "downloading 1000 B"
    assert [line.split(" of ")[0] for line in shown[1:-1]] == [f"downloading {tenth}0 %" for tenth in range(1, 11)]
    assert shown[-1] == "waiting"


def test_progress_on_a_terminal_is_a_bar(capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    with command._shown_progress() as on_progress:
        on_progress(PullProgress("downloading", 512, 2048))
        on_progress(PullProgress("downloading", 2048, 2048))
    assert "downloading" in capsys.readouterr().err


def test_a_pull_of_nothing_known_raises_for_the_main_to_print():
    with pytest.raises(ModelError, match="did you mean smollm2-135m-instruct"):
        command.pull_command("smolm2", quiet=True)
