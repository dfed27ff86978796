"""Flags in files mean what they mean on the command line, and a file is no place for a key."""

import pytest

from octavo.config.flag_files import expand_files, read_config
from octavo.config.flag_parser import FlagParser
from octavo.config.flags import ALL_GROUPS, flags_in
from octavo.config.resolve import resolve
from octavo.errors import ConfigError


@pytest.fixture
def config(tmp_path):
    def write(text):
        path = tmp_path / "octavo.yaml"
        path.write_text(text)
        return path

    return write


def read(path):
    return read_config(path, flags_in(ALL_GROUPS))


def test_yaml_values_are_parsed_as_the_flags_are(config):
    path = config(
        "max-model-len: 4k\nenable_prefix_caching: false\nserved-model-name: [a, b]\nkv-events-config: {endpoint: 'tcp://127.0.0.1:5557'}\n"
    )
    settings = resolve({}, read(path), path.name)
    assert settings.engine.model.max_model_len == 4000
    assert settings.engine.cache.enable_prefix_caching is False
    assert settings.engine.model.served_model_name == ("a", "b")
    assert settings.engine.cache.kv_events.endpoint == "tcp://127.0.0.1:5557"
    assert settings.sources["model.max_model_len"] == "octavo.yaml"


def test_the_command_line_overrides_the_file(config):
    path = config("max-model-len: 4k\nport: 9000\n")
    settings = resolve({"max-model-len": 128}, read(path), path.name)
    assert (settings.engine.model.max_model_len, settings.server.port) == (128, 9000)
    assert settings.sources["model.max_model_len"] == "--max-model-len"


def test_an_empty_file_changes_nothing(config):
    assert resolve({}, read(config("")), "x") == resolve({})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("max-modl-len: 4", "max-model-len"),
        ("max-model-len: four", "max-model-len"),
        ("enable-prefix-caching: 7", "true or false"),
        ("api-key: secret", "api-key-file"),
        ("- a\n- b", "mapping"),
        ("{", "no YAML"),
        ("port:", "must have a value"),
        ("x: !!python/object/apply:os.system [true]", "no YAML"),
    ],
)
def test_mistakes_name_the_file_and_the_flag(config, text, said):
    with pytest.raises(ConfigError, match=said) as failure:
        read(config(text))
    assert "octavo.yaml" in failure.value.message


def test_words_of_a_file_stand_where_its_name_stood(tmp_path):
    path = tmp_path / "flags"
    path.write_text("--port 9000  # the usual one\n--served-model-name 'a b'\n")
    assert expand_files(["serve", f"@{path}", "--host", "::1"]) == [
        "serve",
        "--port",
        "9000",
        "--served-model-name",
        "a b",
        "--host",
        "::1",
    ]
    parser = FlagParser("octavo serve", "", ALL_GROUPS)
    assert parser.given(parser.parse([f"@{path}", "--port", "1"])) == {"port": 1, "served-model-name": ["a b"]}


@pytest.mark.parametrize(("text", "said"), [("--api-key=x", "api-key-file"), ("'", "No closing quotation")])
def test_a_file_of_words_is_checked_too(tmp_path, text, said):
    path = tmp_path / "flags"
    path.write_text(text)
    with pytest.raises(ConfigError, match=said):
        expand_files([f"@{path}"])
    with pytest.raises(ConfigError, match="cannot be read"):
        expand_files(["@/nowhere/flags"])
