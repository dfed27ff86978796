"""The table of flags: complete, parsed strictly, shown whole."""

from pathlib import Path

import pytest

from octavo.config import env
from octavo.config.flag_docs import flags_markdown
from octavo.config.flag_parser import FlagParser
from octavo.config.flags import ALL_GROUPS, FLAGS
from octavo.config.resolve import resolve
from octavo.config.schema import EngineConfig
from octavo.config.server_schema import ServerConfig
from octavo.errors import ConfigError


@pytest.fixture
def parser():
    return FlagParser("octavo serve", "Serve.", ALL_GROUPS)


@pytest.fixture(autouse=True)
def no_keys_in_the_environment(monkeypatch):
    monkeypatch.delenv("OCTAVO_API_KEY", raising=False)
    monkeypatch.delenv("VLLM_API_KEY", raising=False)


def settings(parser, *argv):
    return resolve(parser.given(parser.parse(argv)))


def test_every_setting_has_a_flag_and_every_flag_a_setting():
    fields = {f"server.{field}" for field in ServerConfig.__struct_fields__}
    for room in EngineConfig.__struct_fields__:
        fields |= {f"{room}.{field}" for field in getattr(EngineConfig(), room).__struct_fields__}
    assert {flag.field for flag in FLAGS} == fields


def test_help_and_docs_show_every_flag(parser):
    for text in (parser.format_help(), flags_markdown()):
        for flag in FLAGS:
            assert flag.name in text


def test_the_page_about_flags_is_made_from_the_table():
    page = (Path(__file__).parents[3] / "docs" / "flags.md").read_text()
    assert page.endswith(flags_markdown())


def test_nothing_given_is_the_defaults(parser):
    got = settings(parser)
    assert (got.engine, got.server) == (EngineConfig(), ServerConfig())
    assert set(got.sources.values()) == {"default"}


def test_what_is_given_arrives_with_its_source(parser):
    got = settings(
        parser, "--max-model-len", "4k", "--watermark=0.25", "--served-model-name", "a", "--served-model-name", "b", "--port", "0"
    )
    assert got.engine.model.max_model_len == 4000
    assert got.engine.scheduler.watermark == 0.25
    assert got.engine.model.served_model_name == ("a", "b")
    assert got.server.port == 0
    assert got.sources["model.max_model_len"] == "--max-model-len"


@pytest.mark.parametrize("spelling", ["--max-num-seqs=7", "--max_num_seqs=7", "--max-num_seqs=7"])
def test_dashes_and_underscores_are_the_same(parser, spelling):
    assert settings(parser, spelling).engine.scheduler.max_num_seqs == 7


@pytest.mark.parametrize(
    ("argv", "value"), [((), True), (("--no-enable-prefix-caching",), False), (("--no_enable_prefix_caching",), False)]
)
def test_switches_have_a_no_form(parser, argv, value):
    assert settings(parser, *argv).engine.cache.enable_prefix_caching is value


@pytest.mark.parametrize(
    ("text", "value"), [("32k", 32_000), ("1K", 1024), ("2.5k", 2500), ("1M", 1 << 20), ("9223372036854775807", 2**63 - 1)]
)
def test_integers_may_be_written_short(parser, text, value):
    assert settings(parser, "--kv-cache-memory-bytes", text).engine.cache.kv_cache_memory_bytes == value


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--max-model-lenn", "4"], ["unknown flag --max-model-lenn", "did you mean --max-model-len?"]),
        (["--prot=80"], ["unknown flag --prot", "did you mean --port?"]),
        (["--max-model-len", "4x"], ["--max-model-len", "4x"]),
        (["--max-model-len", "1.5K"], ["--max-model-len", "1.5K"]),
        (["--seed", "9223372036854775808"], ["--seed", "64 bits"]),
        (["--seed", "9" * 5000], ["--seed", "64 bits"]),
        (["--max-model-len", "9000000000G"], ["--max-model-len", "64 bits"]),
        (["--max-model"], ["unknown flag --max-model"]),
        (["--log-level", "warn"], ["--log-level", "did you mean warning?"]),
        (["--watermark", "high"], ["--watermark", "high"]),
        (["--port"], ["--port"]),
        (["--structured-outputs-config", '{"disable_any_whitespac": true}'], ["did you mean disable_any_whitespace?"]),
        (["stray"], ["stray"]),
    ],
)
def test_mistakes_are_named_with_the_nearest_right_one(parser, argv, words):
    with pytest.raises(ConfigError) as raised:
        parser.parse(argv)
    for word in words:
        assert word in raised.value.message


@pytest.mark.parametrize(
    "argv",
    [
        ["--block-size", "17"],
        ["--port", "70000"],
        ["--max-num-seqs", "9", "--max-num-batched-tokens", "8"],
        ["--metrics-prefix", "a{"],
        ["--metrics-prefix", "1"],
        ["--served-model-name", ""],
        ["--kv-cache-dtype", "fp8_e5m2"],
        ["--structured-outputs-config", '{"backend": "xgrammar"}'],
    ],
)
def test_values_that_no_setting_takes_are_refused(parser, argv):
    with pytest.raises(ConfigError):
        settings(parser, *argv)


def test_keys_come_from_a_private_file_and_add_to_those_of_the_command_line(parser, tmp_path):
    file = tmp_path / "keys"
    file.write_text("# ours\nsk-one\n\nsk-two\n")
    file.chmod(0o600)
    got = settings(parser, "--api-key-file", str(file), "--api-key", "sk-three")
    assert sorted(got.server.api_key) == ["sk-one", "sk-three", "sk-two"]
    assert ("server.api_key", "3 keys", "--api-key, --api-key-file") in got.rows()
    assert "sk-" not in str(got.rows())


def test_a_key_file_that_others_can_read_is_refused(parser, tmp_path):
    file = tmp_path / "keys"
    file.write_text("sk-one\n")
    file.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        parser.parse(["--api-key-file", str(file)])


@pytest.mark.parametrize("text", ["", "# nothing\n"])
def test_a_key_file_without_a_key_is_refused(parser, tmp_path, text):
    file = tmp_path / "keys"
    file.write_text(text)
    file.chmod(0o600)
    with pytest.raises(ConfigError, match="no key"):
        parser.parse(["--api-key-file", str(file)])


def test_keys_of_the_environment_count_only_when_no_flag_gives_any(parser, monkeypatch):
    monkeypatch.setenv("OCTAVO_API_KEY", "sk-a,sk-b")
    assert env.api_keys() == ("sk-a", "sk-b")
    assert settings(parser).server.api_key == ("sk-a", "sk-b")
    assert settings(parser).sources["server.api_key"] == "environment"
    assert settings(parser, "--api-key", "sk-c").server.api_key == ("sk-c",)
