"""What a folder says of an encoder: its shapes, pooling, labels; and what is refused by name."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "models"))
import tiny_bert

from octavo.errors import ModelError
from octavo.loaders.load import open_weights, read_spec


def test_a_plain_folder_pools_the_first_token(tmp_path):
    spec = read_spec(tiny_bert.write_folder(tmp_path, tiny_bert.spec()))
    assert (spec.pooling, spec.normalize, spec.max_position) == ("cls", True, 40)


@pytest.mark.parametrize("mode", [{"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}, {"pooling_mode": "mean"}])
def test_sentence_transformers_files_are_followed(tmp_path, mode):
    tiny_bert.write_modules(tiny_bert.write_folder(tmp_path, tiny_bert.spec()), modes=mode, normalize=False, longest=16)
    spec = read_spec(tmp_path)
    assert (spec.pooling, spec.normalize, spec.max_position, spec.num_positions) == ("mean", False, 16, 40)


def test_labels_stand_in_the_order_of_the_scores(tmp_path):
    tiny_bert.write_folder(tmp_path, tiny_bert.spec(labels=("no", "yes"), is_multi_label=True), prefix="bert.")
    spec = read_spec(tmp_path)
    assert (spec.labels, spec.is_multi_label, spec.pooling, spec.normalize) == (("no", "yes"), True, "cls", False)


@pytest.mark.parametrize("prefix", ["", "bert."])
def test_tensors_are_found_with_and_without_a_prefix_and_buffers_left_out(tmp_path, prefix):
    spec = tiny_bert.spec(pooling="cls")
    assert open_weights(tiny_bert.write_folder(tmp_path, spec, prefix=prefix)).tensors.keys() == tiny_bert.tensors(spec).keys()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"position_embedding_type": "relative_key"}, "only absolute"),
        ({"is_decoder": True}, "is_decoder"),
        ({"hidden_act": "mish"}, "hidden_act"),
        ({"num_attention_heads": 5}, "no multiple of 5 heads"),
        ({"hidden_size": 64}, "mis-shaped"),
        ({"num_hidden_layers": 3}, r"missing: encoder\.layer\.2"),
    ],
)
def test_a_config_that_is_not_computed_or_does_not_fit_is_refused(tmp_path, change, message):
    tiny_bert.write_folder(tmp_path, tiny_bert.spec())
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | change))
    with pytest.raises(ModelError, match=message):
        open_weights(tmp_path)


@pytest.mark.parametrize(
    "modes", [{"pooling_mode_max_tokens": True}, {}, {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True}]
)
def test_another_way_of_pooling_is_refused(tmp_path, modes):
    tiny_bert.write_modules(tiny_bert.write_folder(tmp_path, tiny_bert.spec()), modes=modes)
    with pytest.raises(ModelError, match="pools by"):
        read_spec(tmp_path)


def test_a_module_that_is_not_computed_is_refused(tmp_path):
    tiny_bert.write_modules(tiny_bert.write_folder(tmp_path, tiny_bert.spec()), modes={"pooling_mode": "mean"})
    modules = json.loads((tmp_path / "modules.json").read_text())
    modules[2]["type"] = "sentence_transformers.models.Dense"
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(ModelError, match="Dense"):
        read_spec(tmp_path)
