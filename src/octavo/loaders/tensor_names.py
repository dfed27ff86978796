"""The canonical names of a decoder's tensors, their shapes, and what the two file formats call them.

`bind_tensors` is the one place where a file's tensors meet a ModelSpec: everything missing, left over or mis-shaped is
told in one error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from octavo.errors import ModelError
from octavo.specs.model import ExpertsSpec, LatentSpec, ModelSpec
from octavo.specs.tensors import RawTensor

# canonical name -> name in the file; {i} is the layer
SAFETENSORS_NAMES = {
    "embed": "model.embed_tokens.weight",
    "norm": "model.norm.weight",
    "lm_head": "lm_head.weight",
    "layers.{i}.attn_norm": "model.layers.{i}.input_layernorm.weight",
    "layers.{i}.q": "model.layers.{i}.self_attn.q_proj.weight",
    "layers.{i}.k": "model.layers.{i}.self_attn.k_proj.weight",
    "layers.{i}.v": "model.layers.{i}.self_attn.v_proj.weight",
    "layers.{i}.o": "model.layers.{i}.self_attn.o_proj.weight",
    "layers.{i}.q_bias": "model.layers.{i}.self_attn.q_proj.bias",
    "layers.{i}.k_bias": "model.layers.{i}.self_attn.k_proj.bias",
    "layers.{i}.v_bias": "model.layers.{i}.self_attn.v_proj.bias",
    "layers.{i}.o_bias": "model.layers.{i}.self_attn.o_proj.bias",
    "layers.{i}.q_norm": "model.layers.{i}.self_attn.q_norm.weight",
    "layers.{i}.k_norm": "model.layers.{i}.self_attn.k_norm.weight",
    "layers.{i}.q_a": "model.layers.{i}.self_attn.q_a_proj.weight",
    "layers.{i}.q_a_bias": "model.layers.{i}.self_attn.q_a_proj.bias",
    "layers.{i}.q_a_norm": "model.layers.{i}.self_attn.q_a_layernorm.weight",
    "layers.{i}.q_b": "model.layers.{i}.self_attn.q_b_proj.weight",
    "layers.{i}.kv_a": "model.layers.{i}.self_attn.kv_a_proj_with_mqa.weight",
    "layers.{i}.kv_a_bias": "model.layers.{i}.self_attn.kv_a_proj_with_mqa.bias",
    "layers.{i}.kv_a_norm": "model.layers.{i}.self_attn.kv_a_layernorm.weight",
    "layers.{i}.kv_b": "model.layers.{i}.self_attn.kv_b_proj.weight",
    "layers.{i}.mlp_norm": "model.layers.{i}.post_attention_layernorm.weight",
    "layers.{i}.router": "model.layers.{i}.mlp.gate.weight",
    "layers.{i}.router_bias": "model.layers.{i}.mlp.gate.e_score_correction_bias",
    "layers.{i}.experts.{e}.gate": "model.layers.{i}.mlp.experts.{e}.gate_proj.weight",
    "layers.{i}.experts.{e}.up": "model.layers.{i}.mlp.experts.{e}.up_proj.weight",
    "layers.{i}.experts.{e}.down": "model.layers.{i}.mlp.experts.{e}.down_proj.weight",
    "layers.{i}.shared_gate": "model.layers.{i}.mlp.shared_experts.gate_proj.weight",
    "layers.{i}.shared_up": "model.layers.{i}.mlp.shared_experts.up_proj.weight",
    "layers.{i}.shared_down": "model.layers.{i}.mlp.shared_experts.down_proj.weight",
    "layers.{i}.gate": "model.layers.{i}.mlp.gate_proj.weight",
    "layers.{i}.up": "model.layers.{i}.mlp.up_proj.weight",
    "layers.{i}.down": "model.layers.{i}.mlp.down_proj.weight",
    "layers.{i}.gate_bias": "model.layers.{i}.mlp.gate_proj.bias",
    "layers.{i}.up_bias": "model.layers.{i}.mlp.up_proj.bias",
    "layers.{i}.down_bias": "model.layers.{i}.mlp.down_proj.bias",
}
GGUF_NAMES = {
    "embed": "token_embd.weight",
    "norm": "output_norm.weight",
    "lm_head": "output.weight",
    "layers.{i}.attn_norm": "blk.{i}.attn_norm.weight",
    "layers.{i}.q": "blk.{i}.attn_q.weight",
    "layers.{i}.k": "blk.{i}.attn_k.weight",
    "layers.{i}.v": "blk.{i}.attn_v.weight",
    "layers.{i}.o": "blk.{i}.attn_output.weight",
    "layers.{i}.q_bias": "blk.{i}.attn_q.bias",
    "layers.{i}.k_bias": "blk.{i}.attn_k.bias",
    "layers.{i}.v_bias": "blk.{i}.attn_v.bias",
    "layers.{i}.o_bias": "blk.{i}.attn_output.bias",
    "layers.{i}.q_norm": "blk.{i}.attn_q_norm.weight",
    "layers.{i}.k_norm": "blk.{i}.attn_k_norm.weight",
    "layers.{i}.mlp_norm": "blk.{i}.ffn_norm.weight",
    "layers.{i}.gate": "blk.{i}.ffn_gate.weight",
    "layers.{i}.up": "blk.{i}.ffn_up.weight",
    "layers.{i}.down": "blk.{i}.ffn_down.weight",
    "layers.{i}.gate_bias": "blk.{i}.ffn_gate.bias",
    "layers.{i}.up_bias": "blk.{i}.ffn_up.bias",
    "layers.{i}.down_bias": "blk.{i}.ffn_down.bias",
}

# Left over on purpose: rotary frequencies, which RopeSpec holds or gives, and the copy of the embedding that some tied models keep.
_DERIVED = re.compile(r"(model\.layers\.\d+\.self_attn|model)\.rotary_emb\.inv_freq|rope_freqs\.weight|blk\.\d+\.attn_rot_embd\.weight")
_LAYER = re.compile(r"model\.layers\.(\d{1,6})\.")  # behind the last one lie DeepSeek-V3's modules that predict further tokens
_OUTPUT = ("lm_head.weight", "output.weight")


def bind_tensors(spec: ModelSpec, found: Mapping[str, RawTensor], names: Mapping[str, str]) -> dict[str, RawTensor]:
    """Return the tensors of `found` (by the file's names) under the canonical ones, exactly those that `spec` calls for.

    Raises one ModelError that lists all missing, left-over and mis-shaped tensors.
    """
    if spec.num_layers > len(found):
        raise ModelError(f"the model's settings announce {spec.num_layers:,} layers, but its files hold {len(found):,} tensors in all")
    return match_tensors(
        expected_shapes(spec), found, names, lambda name: _is_ignored(name, spec), f"{spec.family}, {spec.num_layers} layers"
    )


def match_tensors(
    shapes: Mapping[str, tuple[int, ...]],
    found: Mapping[str, RawTensor],
    names: Mapping[str, str],
    is_ignored: Callable[[str], bool],
    model: str,
) -> dict[str, RawTensor]:
    """Return the tensors of `found` that `shapes` (by canonical name) asks for, under their canonical names.

    Raises one ModelError that lists all missing, left-over (unless ignored) and mis-shaped tensors of the `model`.
    """
    wanted = {file_name(name, names): (name, shape) for name, shape in shapes.items()}
    missing = [name for name in wanted if name not in found]
    left_over = [name for name in found if name not in wanted and not is_ignored(name)]
    mis_shaped = [
        f"{name} is {found[name].shape}, the settings give {shape}"
        for name, (_, shape) in wanted.items()
        if name in found and found[name].shape != shape
    ]
    groups = {"missing": missing, "left over": left_over, "mis-shaped": mis_shaped}
    problems = [f"{label}: {', '.join(those)}" for label, those in groups.items() if those]
    if problems:
        raise ModelError(f"the model's tensors do not fit its settings ({model}). {'. '.join(problems)}")
    return {canonical: found[name] for name, (canonical, _) in wanted.items()}


def expected_shapes(spec: ModelSpec) -> dict[str, tuple[int, ...]]:
    """Return the canonical name and shape, (out_features, in_features) or (width,), of every tensor of a model."""
    shapes: dict[str, tuple[int, ...]] = {"embed": (spec.vocab_size, spec.hidden_size), "norm": (spec.hidden_size,)}
    if not spec.tie_embeddings:
        shapes["lm_head"] = (spec.vocab_size, spec.hidden_size)
    for i in range(spec.num_layers):
        shapes |= {f"layers.{i}.{name}": shape for name, shape in _layer_shapes(spec, i).items()}
    return shapes


def _layer_shapes(spec: ModelSpec, index: int) -> dict[str, tuple[int, ...]]:
    hidden, inner = spec.hidden_size, spec.intermediate_size
    queries, keys = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    mlp = {"mlp_norm": (hidden,)} | _mlp_shapes("", hidden, inner)
    if spec.experts is not None and spec.has_experts(index):
        mlp = {"mlp_norm": (hidden,)} | _mixture_shapes(hidden, spec.experts)
    if spec.latent is not None:
        return {"attn_norm": (hidden,), **_latent_shapes(spec, spec.latent), **mlp}
    shapes: dict[str, tuple[int, ...]] = {
        "attn_norm": (hidden,),
        "q": (queries, hidden),
        "k": (keys, hidden),
        "v": (keys, hidden),
        "o": (hidden, queries),
        **mlp,
    }
    if spec.qkv_bias:
        shapes |= {"q_bias": (queries,), "k_bias": (keys,), "v_bias": (keys,)}
    if spec.o_bias:
        shapes |= {"o_bias": (hidden,)}
    if spec.mlp_bias:
        shapes |= {"gate_bias": (inner,), "up_bias": (inner,), "down_bias": (hidden,)}
    if spec.qk_norm:
        shapes |= {"q_norm": (spec.head_dim,), "k_norm": (spec.head_dim,)}
    return shapes


def _mlp_shapes(prefix: str, hidden: int, inner: int) -> dict[str, tuple[int, ...]]:
    return {f"{prefix}gate": (inner, hidden), f"{prefix}up": (inner, hidden), f"{prefix}down": (hidden, inner)}


def _mixture_shapes(hidden: int, experts: ExpertsSpec) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {"router": (experts.count, hidden)}
    if experts.has_bias:
        shapes |= {"router_bias": (experts.count,)}
    for expert in range(experts.count):
        shapes |= _mlp_shapes(f"experts.{expert}.", hidden, experts.intermediate_size)
    return shapes | (_mlp_shapes("shared_", hidden, experts.shared_size) if experts.shared_size else {})


def _latent_shapes(spec: ModelSpec, latent: LatentSpec) -> dict[str, tuple[int, ...]]:
    hidden, heads, query_rank = spec.hidden_size, spec.num_heads, latent.q_lora_rank
    kept = latent.kv_lora_rank + latent.qk_rope_head_dim
    shapes: dict[str, tuple[int, ...]] = {
        "kv_a": (kept, hidden),
        "kv_a_norm": (latent.kv_lora_rank,),
        "kv_b": (heads * (latent.qk_nope_head_dim + latent.v_head_dim), latent.kv_lora_rank),
        "o": (hidden, heads * latent.v_head_dim),
    }
    if query_rank is None:
        shapes |= {"q": (heads * spec.head_dim, hidden)}
    else:
        shapes |= {"q_a": (query_rank, hidden), "q_a_norm": (query_rank,), "q_b": (heads * spec.head_dim, query_rank)}
    if spec.qkv_bias:
        shapes |= {"kv_a_bias": (kept,)} | ({"q_a_bias": (query_rank,)} if query_rank is not None else {})
    if spec.o_bias:
        shapes |= {"o_bias": (hidden,)}
    return shapes


def file_name(canonical: str, names: Mapping[str, str]) -> str:
    """Return what a format that uses `names` calls the tensor: layers.3.q -> blk.3.attn_q.weight."""
    if not canonical.startswith("layers."):
        return names[canonical]
    _, layer, part = canonical.split(".", 2)
    if part.startswith("experts."):
        _, expert, part = part.split(".")
        return names[f"layers.{{i}}.experts.{{e}}.{part}"].format(i=layer, e=expert)
    return names[f"layers.{{i}}.{part}"].format(i=layer)


def _is_ignored(name: str, spec: ModelSpec) -> bool:
    if _DERIVED.fullmatch(name) is not None or (spec.tie_embeddings and name in _OUTPUT):
        return True
    layer = _LAYER.match(name)
    return spec.family == "deepseek_v3" and layer is not None and int(layer[1]) >= spec.num_layers
