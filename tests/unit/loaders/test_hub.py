"""Repositories of the hub: which files come, in which order, and that nothing else is asked for."""

import os
import subprocess
import sys

import pytest
from hub_server import hub_server
from model_files import hf_config, write_hf_folder

from octavo.errors import ModelError
from octavo.loaders.hub import parse_folder_name, parse_repository

PULL = """
import sys
from octavo.errors import ModelError
from octavo.loaders.store import list_models, pull, resolve_model
try:
    print(pull(sys.argv[1]))
    print(resolve_model(sys.argv[1]) == pull(sys.argv[1]), list_models()[-1].name)
except ModelError as error:
    print("ModelError:", error.message)
"""


def pull_in_a_process(home, endpoint: str, name: str = "hf:org/tiny") -> str:
    environment = os.environ | {
        "HF_ENDPOINT": endpoint,
        "OCTAVO_HOME": str(home),
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "NO_PROXY": "127.0.0.1",
        "HF_HOME": str(home / "hf_home"),
    }
    result = subprocess.run([sys.executable, "-c", PULL, name], capture_output=True, text=True, env=environment, timeout=60)
    assert result.returncode == 0, result.stderr
    return result.stdout


def repository_files(tmp_path, **config) -> dict[str, bytes]:
    folder = write_hf_folder(tmp_path / "source", config=hf_config(**config))
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    return files | {
        "pytorch_model.bin": b"\x80\x04.",
        "modeling_evil.py": b"raise SystemExit",
        "consolidated.safetensors": b"x",
        "README.md": b"x",
    }


def test_settings_and_weights_come_and_nothing_that_could_run(tmp_path):
    with hub_server(repository_files(tmp_path)) as (endpoint, requests):
        output = pull_in_a_process(tmp_path / "home", endpoint)
    folder = tmp_path / "home" / "models" / "hf" / "org--tiny@main"
    assert output.splitlines() == [str(folder), "True hf:org/tiny"]
    assert {path.name for path in folder.iterdir()} == {"config.json", "tokenizer.json", "chat_template.jinja", "model.safetensors"}
    asked = {path.rpartition("/")[2] for path in requests if "/resolve/" in path}
    assert not asked & {"pytorch_model.bin", "modeling_evil.py", "consolidated.safetensors", "README.md"}


def test_an_unsupported_model_is_refused_before_its_weights_are_fetched(tmp_path):
    with hub_server(repository_files(tmp_path, architectures=["MambaForCausalLM"])) as (endpoint, requests):
        output = pull_in_a_process(tmp_path / "home", endpoint)
    assert "ModelError: config.json: architecture is 'MambaForCausalLM'" in output
    assert not any(path.endswith("model.safetensors") for path in requests)
    assert not (tmp_path / "home" / "models" / "hf" / "org--tiny@main").exists()


def test_a_repository_of_pickled_weights_is_refused(tmp_path):
    files = {name: data for name, data in repository_files(tmp_path).items() if not name.endswith(".safetensors")}
    with hub_server(files) as (endpoint, _):
        assert "holds no model.safetensors" in pull_in_a_process(tmp_path / "home", endpoint)


def test_a_hub_that_does_not_answer_is_told_with_the_way_out(tmp_path):
    with hub_server({}) as (endpoint, _):
        pass
    output = pull_in_a_process(tmp_path / "home", endpoint)
    assert "ModelError: hf:org/tiny: the Hugging Face Hub does not give it" in output
    assert "HF_ENDPOINT" in output


def test_a_repository_that_is_not_there_is_told(tmp_path):
    with hub_server({}) as (endpoint, _):
        output = pull_in_a_process(tmp_path / "home", endpoint, "hf:org/absent@v1")
    assert "ModelError: hf:org/absent@v1: the Hugging Face Hub does not give it" in output


@pytest.mark.parametrize("text", ["hf:org/name", "hf:Org-1/Na.me_2@v1.0"])
def test_a_repository_and_its_folder_name_stand_for_each_other(text):
    repository = parse_repository(text)
    assert parse_folder_name(repository.folder_name) == repository
    assert str(repository) == text


@pytest.mark.parametrize(
    "text", ["hf:", "hf:name", "hf:a/b/c", "hf:../b", "hf:a/..", "hf:a/b@../c", "hf:a/b@refs/pr/1", "hf:-a/b", "hf:a/b c"]
)
def test_a_name_that_could_leave_its_folder_is_refused(text):
    with pytest.raises(ModelError, match="names no Hugging Face repository"):
        parse_repository(text)
