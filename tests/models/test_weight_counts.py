"""The planner's weight counts and attention kinds against transformers, which builds every architecture without memory."""

from collections import Counter

import pytest

from octavo.planner.catalogue import find_model_entry, find_model_shape, model_names

pytestmark = pytest.mark.reference

# Checkpoints keep a bias that balances experts, which transformers holds as a buffer and not as a weight.
BALANCED = {"deepseek-v3": 58 * 256, "deepseek-v3.2": 58 * 256, "kimi-k2": 60 * 384, "glm-4.5-air": 45 * 128}


@pytest.mark.parametrize("name", model_names())
def test_an_architecture_has_as_many_weights_as_transformers_builds(name):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    causal_models = transformers.models.auto.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING
    config = dict(find_model_entry(name).config)
    config = dict(config.get("text_config", config))
    config.pop("quantization_config", None)
    family = config.pop("model_type")
    settings = transformers.AutoConfig.for_model("deepseek_v3" if family == "kimi_k2" else family, **config)
    with torch.device("meta"):
        model = causal_models[type(settings)](settings)
    model.tie_weights()
    built = sum(weight.numel() for weight in model.parameters())
    shape = find_model_shape(name)
    assert shape.counts.total == built + BALANCED.get(name, 0)
    kinds = Counter(getattr(settings, "layer_types", None) or ())
    if kinds["sliding_attention"] + kinds["chunked_attention"]:
        assert sum(group.num_layers for group in shape.groups if group.window) == kinds["sliding_attention"] + kinds["chunked_attention"]
