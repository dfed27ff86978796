"""DeepSeek's config.json: the shapes of latent attention, YaRN's part in the scores, and what is refused."""

import json
import math

import pytest
from model_files import hf_config

from octavo.errors import ModelError
from octavo.loaders.hf_model import read_hf_spec
from octavo.loaders.tensor_names import SAFETENSORS_NAMES, bind_tensors, expected_shapes, file_name
from octavo.specs.model import ExpertsSpec, LatentSpec, RopeSpec
from octavo.specs.tensors import Format, RawTensor

YARN = {"type": "yarn", "factor": 40, "original_max_position_embeddings": 16, "mscale": 0.707, "mscale_all_dim": 0.707}


@pytest.fixture
def spec_of(tmp_path):
    def read(family: str = "deepseek_v3", **changes):
        config = hf_config("llama") | {
            "architectures": [{"deepseek_v2": "DeepseekV2ForCausalLM", "deepseek_v3": "DeepseekV3ForCausalLM"}[family]],
            "model_type": family,
            "first_k_dense_replace": 2,
            "kv_lora_rank": 64,
        }
        (tmp_path / "config.json").write_text(json.dumps(config | changes))
        return read_hf_spec(tmp_path)

    return read


def refused(spec_of, *args, **changes) -> str:
    with pytest.raises(ModelError) as caught:
        spec_of(*args, **changes)
    return caught.value.message


def test_a_config_gives_the_shapes_of_latent_attention(spec_of):
    spec = spec_of(q_lora_rank=48)
    assert spec.latent == LatentSpec(kv_lora_rank=64, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128, q_lora_rank=48)
    assert (spec.head_dim, spec.num_kv_heads, spec.num_heads) == (192, 1, 4)
    assert spec.rope == RopeSpec(dim=64, interleaved=True)
    assert spec.kv_spec("bf16").bytes_per_token == 2 * (64 + 64) * 2


def test_a_null_q_lora_rank_means_that_there_is_none_and_an_absent_one_is_the_familys(spec_of):
    assert spec_of("deepseek_v2", q_lora_rank=None).latent.q_lora_rank is None
    assert spec_of("deepseek_v2").latent.q_lora_rank == 1536


def test_rotary_pairs_are_neighbours_unless_v3_says_otherwise(spec_of):
    assert spec_of("deepseek_v2", rope_interleave=False).rope.interleaved
    assert not spec_of("deepseek_v3", rope_interleave=False).rope.interleaved


def test_yarn_stretches_the_scores_by_the_square_of_mscale(spec_of):
    spec = spec_of("deepseek_v2", rope_scaling=YARN)
    assert spec.latent.score_factor == pytest.approx((0.0707 * math.log(40) + 1) ** 2)
    assert spec.rope.attention_factor == pytest.approx(1.0)
    assert spec.max_position == 640
    assert spec_of(rope_scaling=YARN | {"mscale_all_dim": 0}).latent.score_factor == 1.0


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"first_k_dense_replace": 1, "n_group": 3}, "256 experts in 3 groups"),
        ({"first_k_dense_replace": 1, "n_routed_experts": 8}, "8 experts in 8 groups"),
        ({"first_k_dense_replace": 1, "scoring_func": "softmax"}, "scoring_func is 'softmax'"),
        ({"first_k_dense_replace": 1, "moe_layer_freq": 2}, "moe_layer_freq is 2"),
        ({"first_k_dense_replace": 1, "num_experts_per_tok": 0}, "0 of 256 experts a token"),
        ({"first_k_dense_replace": 1, "n_group": 64, "topk_group": 1}, "8 experts a token, but 1 groups hold fewer"),
        ({"first_k_dense_replace": 1, "moe_intermediate_size": 40}, "inner size of an expert is 40"),
        ({"mlp_bias": True}, "mlp_bias"),
        ({"index_topk": 2048}, "index_topk"),
        ({"kv_lora_rank": 40}, "multiples of 16"),
        ({"kv_lora_rank": 1024}, "kv_lora_rank is 1,024"),
        ({"qk_rope_head_dim": 256}, "qk_rope_head_dim is 256"),
    ],
)
def test_what_would_be_computed_wrong_is_refused(spec_of, changes, part):
    assert part in refused(spec_of, **changes)


def test_layers_from_first_k_dense_replace_on_are_mixtures_of_experts(spec_of):
    assert spec_of(first_k_dense_replace=2).experts is None
    spec = spec_of(first_k_dense_replace=1, moe_intermediate_size=32, n_routed_experts=16, num_experts_per_tok=2)
    assert spec.experts == ExpertsSpec(1, 16, 2, 32, 32, "sigmoid", 8, 4, "two_best", True, 2.5, has_bias=True)
    names = expected_shapes(spec)
    assert names["layers.0.gate"] == (64, 32) and "layers.1.gate" not in names
    assert names["layers.1.experts.15.down"] == (32, 32)
    assert file_name("layers.1.experts.15.down", SAFETENSORS_NAMES) == "model.layers.1.mlp.experts.15.down_proj.weight"


def test_v2_scores_by_softmax_and_limits_groups_where_topk_method_says_so(spec_of):
    numbers = {"first_k_dense_replace": 1, "moe_intermediate_size": 32, "n_routed_experts": 16, "num_experts_per_tok": 2, "n_group": 4}
    assert spec_of("deepseek_v2", **numbers).experts == ExpertsSpec(1, 16, 2, 32, 64)
    limited = spec_of("deepseek_v2", **numbers, topk_method="group_limited_greedy", topk_group=2, routed_scaling_factor=16.0)
    assert limited.experts == ExpertsSpec(1, 16, 2, 32, 64, num_groups=4, groups_kept=2, scaling=16.0)
    assert "norm_topk_prob" in refused(spec_of, "deepseek_v2", **numbers, norm_topk_prob=True)
    assert "noaux_tc" in refused(spec_of, "deepseek_v2", **numbers, topk_method="noaux_tc")


def tensors_of(spec, more=()):
    names = {file_name(name, SAFETENSORS_NAMES): shape for name, shape in expected_shapes(spec).items()} | dict(more)
    return {name: RawTensor(name, shape, Format.F32, memoryview(b"")) for name, shape in names.items()}


def test_modules_that_predict_further_tokens_lie_behind_the_last_layer_and_are_left_out(spec_of):
    spec = spec_of("deepseek_v3")
    further = {"model.layers.2.eh_proj.weight": (1,), "model.layers.2.self_attn.q_a_proj.weight": (1,)}
    assert bind_tensors(spec, tensors_of(spec, further), SAFETENSORS_NAMES).keys() == expected_shapes(spec).keys()
    spec = spec_of("deepseek_v2")
    with pytest.raises(ModelError, match=r"left over: model\.layers\.2\.eh_proj"):
        bind_tensors(spec, tensors_of(spec, further), SAFETENSORS_NAMES)
