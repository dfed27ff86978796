"""The command: fast, helpful, honest exit codes."""

import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

from octavo import __version__
from octavo.cli import main as cli
from octavo.cli.collect_env import facts
from octavo.config.flags import FLAGS


def test_version_is_printed(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"octavo {__version__}\n"


def test_c9_the_version_is_the_same_in_the_package_and_its_metadata():
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    assert project["version"] == __version__


def test_version_imports_next_to_nothing():
    program = """
import sys
from octavo.cli.main import main
main(["--version"])
print([name for name in ("numpy", "starlette", "tokenizers", "argparse") if name in sys.modules])
"""
    started = time.monotonic()
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.splitlines()[1] == "[]"
    assert time.monotonic() - started < 5


def test_help_lists_every_command(capsys):
    assert cli.main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in cli.COMMANDS)


def test_no_command_is_a_usage_error(capsys):
    assert cli.main([]) == 2


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["sreve"], "did you mean serve?"),
        (["serve", "--prot", "1"], "did you mean --port?"),
        (["bench", "latancy"], "did you mean latency?"),
        (["bench", "latency", "--batch-size", "0"], "--batch-size"),
        (["complete", "x", "--max-tokens", "many"], "--max-tokens"),
    ],
)
def test_mistakes_exit_2_and_say_what_is_right(capsys, argv, words):
    assert cli.main(argv) == 2
    assert words in capsys.readouterr().err


def test_serve_help_lists_every_flag(capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["serve", "--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert all(flag.option in text for flag in FLAGS)


def test_show_config_prints_values_and_sources_and_no_key(capsys):
    assert cli.main(["serve", "some.gguf", "--max_model_len", "4K", "--api-key", "sk-secret", "--show-config"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["model.model", "some.gguf", "--model"] in lines
    assert ["model.max_model_len", "4096", "--max-model-len"] in lines
    assert not any("sk-secret" in word for line in lines for word in line)


def test_collect_env_tells_no_names_and_no_paths():
    text = str(facts())
    assert "python" in text
    for secret in ("/home", "/root", "/tmp", "hostname"):
        assert secret not in text


def test_descriptors_that_the_starter_has_closed_are_taken_by_no_file_of_ours(tmp_path):
    program = f"""
import socket
from octavo.cli.main import main
main(["--version"])
open({str(tmp_path / "found")!r}, "w").write(str(socket.socket().fileno() > 2))
"""
    subprocess.run(["sh", "-c", 'exec "$0" -c "$1" <&- >&- 2>&-', sys.executable, program], check=True)
    assert (tmp_path / "found").read_text() == "True"


def test_output_that_cannot_be_written_is_told_in_a_line():
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([sys.executable, "-m", "octavo.cli.main", "models"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "No space left" in done.stderr


def test_completion_scripts_know_every_command_and_flag(capsys):
    for shell in ("bash", "zsh", "fish"):
        assert cli.main(["completion", shell]) == 0
        script = capsys.readouterr().out
        assert all(name in script for name in cli.COMMANDS)
        assert "max-model-len" in script
    assert cli.main(["completion"]) == 2
