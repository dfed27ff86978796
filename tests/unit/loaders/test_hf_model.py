"""config.json and its neighbours: defaults of each family, rotary variants, windows, text and sampling."""

import json
import math

import pytest
from model_files import CHATML, hf_config, write_hf_folder

from octavo.errors import ModelError
from octavo.loaders.hf_model import read_hf_spec
from octavo.loaders.hf_text import read_hf_generation, read_hf_text
from octavo.specs.kv import FULL_ATTENTION, AttentionSpan
from octavo.specs.model import RopeSpec


@pytest.fixture
def spec_of(tmp_path):
    def read(family: str = "llama", **changes):
        config = {name: value for name, value in (hf_config(family) | changes).items() if value != "absent"}
        (tmp_path / "config.json").write_text(json.dumps(config))
        return read_hf_spec(tmp_path)

    return read


def refused(spec_of, *args, **changes) -> str:
    with pytest.raises(ModelError) as caught:
        spec_of(*args, **changes)
    return caught.value.message


def test_a_plain_llama_config_gives_its_numbers(spec_of):
    spec = spec_of()
    assert (spec.family, spec.num_layers, spec.hidden_size, spec.intermediate_size) == ("llama", 2, 32, 64)
    assert (spec.num_heads, spec.num_kv_heads, spec.head_dim, spec.vocab_size, spec.max_position) == (4, 2, 8, 8, 128)
    assert spec.rope == RopeSpec(dim=8, theta=10_000.0)
    assert not any((spec.tie_embeddings, spec.qkv_bias, spec.o_bias, spec.mlp_bias, spec.qk_norm, spec.sliding_window))


def test_absent_fields_take_the_familys_defaults(spec_of):
    assert spec_of(num_key_value_heads="absent").num_kv_heads == 4
    assert spec_of("mistral", num_attention_heads=8, num_key_value_heads="absent").num_kv_heads == 8
    assert spec_of("qwen3").head_dim == 128
    assert spec_of(head_dim=None).head_dim == 8
    assert spec_of(vocab_size="absent").vocab_size == 32_000
    assert spec_of("qwen2", vocab_size="absent").vocab_size == 151_936
    assert spec_of("mistral", max_position_embeddings="absent").max_position == 131_072


@pytest.mark.parametrize(
    ("family", "changes", "flags"),
    [
        ("llama", {"attention_bias": True}, (True, True, False, False)),
        ("llama", {"mlp_bias": True}, (False, False, True, False)),
        ("mistral", {"attention_bias": True}, (False, False, False, False)),
        ("qwen2", {}, (True, False, False, False)),
        ("qwen3", {}, (False, False, False, True)),
        ("qwen3", {"attention_bias": True}, (True, True, False, True)),
    ],
)
def test_each_family_has_its_optional_layers(spec_of, family, changes, flags):
    spec = spec_of(family, **changes)
    assert (spec.qkv_bias, spec.o_bias, spec.mlp_bias, spec.qk_norm) == flags


LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}


def test_rope_scaling_and_rope_parameters_say_the_same(spec_of):
    old = spec_of(rope_theta=5e5, rope_scaling=LLAMA3)
    new = spec_of(rope_parameters=LLAMA3 | {"rope_theta": 5e5})
    assert old == new
    assert old.rope == RopeSpec(8, 5e5, kind="llama3", factor=8.0, original_max_position=32, low_freq_factor=1.0, high_freq_factor=4.0)
    assert old.max_position == 128


def test_a_linear_rope_stretches_the_context(spec_of):
    spec = spec_of(rope_scaling={"type": "linear", "factor": 4})
    assert (spec.rope.kind, spec.rope.factor, spec.max_position) == ("linear", 4.0, 512)


def test_a_yarn_rope_takes_its_length_from_the_original_one(spec_of):
    spec = spec_of(rope_scaling={"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64})
    assert (spec.rope.kind, spec.rope.original_max_position, spec.max_position) == ("yarn", 64, 256)
    assert spec.rope.attention_factor is None
    assert spec_of(rope_scaling={"rope_type": "yarn", "factor": 4.0}).max_position == 512


def test_yarns_attention_factor_comes_from_mscale_when_both_are_given(spec_of):
    yarn = {"rope_type": "yarn", "factor": 4.0, "mscale": 2.0, "mscale_all_dim": 1.0}
    wanted = (0.2 * math.log(4) + 1) / (0.1 * math.log(4) + 1)
    assert spec_of(rope_scaling=yarn).rope.attention_factor == pytest.approx(wanted)
    assert spec_of(rope_scaling=yarn | {"attention_factor": 1.5}).rope.attention_factor == 1.5


@pytest.mark.parametrize(
    ("rope", "part"),
    [
        ({"rope_type": "dynamic", "factor": 2.0}, "'dynamic'; supported are default, linear, llama3, yarn"),
        ({"rope_type": "longrope"}, "longrope"),
        ({"full_attention": {"rope_type": "default"}}, "one rotary embedding per kind of layer"),
        ({"rope_type": "linear"}, "factor"),
        ({"rope_type": "linear", "factor": 0.5}, "factor"),
        ({"rope_type": "linear", "factor": "4"}, "factor is '4'"),
        ({"rope_type": "yarn", "factor": 2.0, "truncate": False}, "truncate"),
        ({"rope_type": "yarn", "factor": 2.0, "new_thing": 1}, "new_thing of a yarn rope"),
        ({"rope_type": "default", "partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5"),
        (LLAMA3 | {"low_freq_factor": 4.0}, "low_freq_factor"),
        ({"rope_type": "default", "rope_theta": 0}, "rope_theta is 0"),
    ],
)
def test_a_rotary_embedding_that_would_be_computed_wrong_is_refused(spec_of, rope, part):
    assert part in refused(spec_of, rope_parameters=rope)


def test_mistrals_window_is_the_configs_and_null_means_none(spec_of):
    assert spec_of("mistral", sliding_window=64).sliding_window == 64
    assert spec_of("mistral", sliding_window=None).sliding_window is None
    assert spec_of("mistral", max_position_embeddings=8192).sliding_window == 4096
    assert spec_of("mistral", sliding_window=128).sliding_window is None  # never filled in a context of 128


def test_qwens_window_needs_its_switch_and_must_hold_for_all_layers(spec_of):
    assert spec_of("qwen2", sliding_window=64, max_window_layers=0).sliding_window is None
    window = {"use_sliding_window": True, "sliding_window": 64}
    assert spec_of("qwen2", **window, max_window_layers=0).sliding_window == 64
    assert spec_of("qwen2", **window, max_window_layers=2).sliding_window is None
    for mixed in (
        spec_of("qwen2", **window, max_window_layers=1),
        spec_of("qwen3", **window, layer_types=["full_attention", "sliding_attention"]),
    ):
        assert mixed.sliding_window is None
        assert mixed.layer_spans == (FULL_ATTENTION, AttentionSpan("sliding", 64))
    assert spec_of("qwen2", **window, max_window_layers=1, max_position_embeddings=64).layer_spans == ()  # never filled
    assert spec_of("qwen3", **window, layer_types=["sliding_attention"] * 2).sliding_window == 64


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"architectures": ["GemmaForCausalLM"]}, "'GemmaForCausalLM'; supported are LlamaForCausalLM, Mistral"),
        ({"architectures": ["LlamaForSequenceClassification"]}, "LlamaForSequenceClassification"),
        ({"architectures": ["LlamaForCausalLM", "x"]}, "one name"),
        ({"architectures": "absent", "model_type": "mamba"}, "'mamba'; supported are llama, mistral, qwen2, qwen3"),
        ({"model_type": "qwen2"}, "do not belong together"),
        ({"hidden_act": "relu"}, "'relu'; supported are silu"),
        ({"quantization_config": {"quant_method": "gptq"}}, "'gptq'"),
        ({"hidden_size": "32"}, "hidden_size is '32'; it must be an integer"),
        ({"hidden_size": 1 << 70}, "hidden_size"),
        ({"num_attention_heads": 0}, "num_attention_heads is 0"),
        ({"num_key_value_heads": 3}, "no multiple of 3 KV heads"),
        ({"num_hidden_layers": -1}, "num_layers is -1"),
        ({"rms_norm_eps": -1e-5}, "norm_eps"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings is 'yes'"),
    ],
)
def test_what_a_config_cannot_mean_is_refused_by_name(spec_of, changes, part):
    assert part in refused(spec_of, **changes)


def test_ending_ids_are_those_of_both_files_and_of_the_templates_turn_end(tmp_path):
    folder = write_hf_folder(tmp_path, config=hf_config(eos_token_id=0))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [5, 0], "temperature": 0.6, "top_k": 20, "top_p": 0.9}))
    defaults = read_hf_generation(folder)
    assert (defaults.bos_token_id, defaults.eos_token_ids) == (1, (5, 0, 2))
    assert (defaults.temperature, defaults.top_k, defaults.top_p, defaults.min_p) == (0.6, 20, 0.9, None)


def test_a_sampling_default_out_of_bounds_is_refused(tmp_path):
    folder = write_hf_folder(tmp_path)
    (folder / "generation_config.json").write_text('{"top_p": 7}')
    with pytest.raises(ModelError, match="top_p"):
        read_hf_generation(folder)


def test_text_assets_hold_the_tokenizers_bytes_and_the_template(tmp_path):
    folder = write_hf_folder(tmp_path)
    text = read_hf_text(folder)
    assert text.tokenizer_json == (folder / "tokenizer.json").read_bytes()
    assert (text.chat_template, text.gguf_vocabulary) == (CHATML, None)
    assert (text.bos_token_id, text.eos_token_ids, text.add_bos, text.add_eos) == (1, (2,), False, False)


def test_a_template_in_the_tokenizers_config_is_taken_when_there_is_no_file(tmp_path):
    folder = write_hf_folder(tmp_path)
    (folder / "chat_template.jinja").unlink()
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": "plain"}))
    assert read_hf_text(folder).chat_template == "plain"
    named = [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": named}))
    assert read_hf_text(folder).chat_template == "d"


def test_add_bos_follows_the_config_or_else_the_post_processor(tmp_path):
    folder = write_hf_folder(tmp_path)
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    template = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}},
    }
    tokenizer["post_processor"] = {"type": "Sequence", "processors": [{"type": "ByteLevel"}, template]}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    assert read_hf_text(folder).add_bos
    (folder / "tokenizer_config.json").write_text('{"add_bos_token": false}')
    assert not read_hf_text(folder).add_bos


def test_a_folder_without_a_tokenizer_says_so(tmp_path):
    folder = write_hf_folder(tmp_path)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ModelError, match=r"no tokenizer.json"):
        read_hf_text(folder)
