"""Writers of tiny model files for the tests: GGUF, safetensors, and whole llama models in both."""

import json
import struct
from pathlib import Path

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
LETTERS = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "?", U64: "Q", I64: "q", F64: "d"}
GGML_F32, GGML_F16, GGML_Q4_0, GGML_Q2_K = 0, 1, 2, 10

LAYERS, HIDDEN, INNER, HEADS, KV_HEADS, HEAD_DIM = 2, 32, 64, 4, 2, 8
TOKENS = ["<unk>", "<|im_start|>", "<|im_end|>", "a", "b", "ab", "Ġ", "é"]
MERGES = ["a b"]
TOKEN_TYPES = [2, 3, 3, 1, 1, 1, 1, 1]
CHATML = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"


def encode_string(text: str | bytes) -> bytes:
    data = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(data)) + data


def encode_value(value: object) -> bytes:
    """Return type and value; Python types choose u32, f32, bool, string, array; (code, value) says another one."""
    if isinstance(value, tuple):
        code, content = value
        if code == ARRAY:  # content: (element code, raw elements as bytes, count)
            element, raw, count = content
            return struct.pack("<IIQ", ARRAY, element, count) + raw
        return struct.pack(f"<I{LETTERS[code]}", code, content)
    if isinstance(value, bool):
        return struct.pack("<I?", BOOL, value)
    if isinstance(value, int):
        return struct.pack("<II", U32, value)
    if isinstance(value, float):
        return struct.pack("<If", F32, value)
    if isinstance(value, str):
        return struct.pack("<I", STRING) + encode_string(value)
    return struct.pack("<IIQ", ARRAY, STRING, len(value)) + b"".join(map(encode_string, value))


def encode_numbers(code: int, numbers: list) -> tuple:
    return (ARRAY, (code, struct.pack(f"<{len(numbers)}{LETTERS[code]}", *numbers), len(numbers)))


def gguf_bytes(metadata: dict, tensors: dict[str, tuple[tuple[int, ...], int, bytes]], *, version: int = 3, alignment: int = 32) -> bytes:
    """Return a GGUF file; tensors are name -> (row-major shape, ggml type, data)."""
    head = [b"GGUF", struct.pack("<IQQ", version, len(tensors), len(metadata))]
    head += [encode_string(key) + encode_value(value) for key, value in metadata.items()]
    body = b""
    for name, (shape, code, data) in tensors.items():
        body += bytes(-len(body) % alignment)
        head.append(encode_string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape), code, len(body)))
        body += data
    header = b"".join(head)
    return header + bytes(-len(header) % alignment) + body


def safetensors_bytes(tensors: dict[str, tuple[str, tuple[int, ...], bytes]]) -> bytes:
    header, body = {}, b""
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + body


def zeros(*shape: int) -> bytes:
    size = 4
    for dim in shape:
        size *= dim
    return bytes(size)


LAYER_SHAPES = {
    ("input_layernorm.weight", "attn_norm.weight"): (HIDDEN,),
    ("self_attn.q_proj.weight", "attn_q.weight"): (HEADS * HEAD_DIM, HIDDEN),
    ("self_attn.k_proj.weight", "attn_k.weight"): (KV_HEADS * HEAD_DIM, HIDDEN),
    ("self_attn.v_proj.weight", "attn_v.weight"): (KV_HEADS * HEAD_DIM, HIDDEN),
    ("self_attn.o_proj.weight", "attn_output.weight"): (HIDDEN, HEADS * HEAD_DIM),
    ("post_attention_layernorm.weight", "ffn_norm.weight"): (HIDDEN,),
    ("mlp.gate_proj.weight", "ffn_gate.weight"): (INNER, HIDDEN),
    ("mlp.up_proj.weight", "ffn_up.weight"): (INNER, HIDDEN),
    ("mlp.down_proj.weight", "ffn_down.weight"): (HIDDEN, INNER),
}


def hf_shapes() -> dict[str, tuple[int, ...]]:
    shapes = {"model.embed_tokens.weight": (len(TOKENS), HIDDEN), "model.norm.weight": (HIDDEN,), "lm_head.weight": (len(TOKENS), HIDDEN)}
    for i in range(LAYERS):
        shapes |= {f"model.layers.{i}.{names[0]}": shape for names, shape in LAYER_SHAPES.items()}
    return shapes


def gguf_shapes() -> dict[str, tuple[int, ...]]:
    shapes = {"token_embd.weight": (len(TOKENS), HIDDEN), "output_norm.weight": (HIDDEN,)}
    for i in range(LAYERS):
        shapes |= {f"blk.{i}.{names[1]}": shape for names, shape in LAYER_SHAPES.items()}
    return shapes


def gguf_metadata(arch: str = "llama", **changes: object) -> dict:
    """Return a llama model's metadata; `changes` use __ for dots, None leaves a key out."""
    metadata = {
        "general.architecture": arch,
        f"{arch}.block_count": LAYERS,
        f"{arch}.context_length": 128,
        f"{arch}.embedding_length": HIDDEN,
        f"{arch}.feed_forward_length": INNER,
        f"{arch}.attention.head_count": HEADS,
        f"{arch}.attention.head_count_kv": KV_HEADS,
        f"{arch}.attention.layer_norm_rms_epsilon": 1e-5,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": TOKENS,
        "tokenizer.ggml.token_type": encode_numbers(I32, TOKEN_TYPES),
        "tokenizer.ggml.merges": MERGES,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 0,
        "tokenizer.chat_template": CHATML,
    }
    metadata |= {key.replace("__", "."): value for key, value in changes.items()}
    return {key: value for key, value in metadata.items() if value is not None}


def tiny_gguf(arch: str = "llama", *, extra: dict | None = None, without: tuple[str, ...] = (), **changes: object) -> bytes:
    """Return a whole tied model; `extra` tensors are name -> shape, all F32 zeros."""
    shapes = {name: shape for name, shape in (gguf_shapes() | (extra or {})).items() if name not in without}
    return gguf_bytes(gguf_metadata(arch, **changes), {name: (shape, GGML_F32, zeros(*shape)) for name, shape in shapes.items()})


def hf_config(model_type: str = "llama", **changes: object) -> dict:
    config = {
        "architectures": [{"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3"}[model_type] + "ForCausalLM"],
        "model_type": model_type,
        "num_hidden_layers": LAYERS,
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "vocab_size": len(TOKENS),
        "max_position_embeddings": 128,
        "rms_norm_eps": 1e-5,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    return config | changes


def write_hf_folder(folder: Path, *, config: dict | None = None, shapes: dict | None = None) -> Path:
    """Write a whole llama model as save_pretrained lays it out."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config or hf_config()))
    added = [{"id": TOKENS.index(token), "content": token, "special": True} for token in ("<|im_start|>", "<|im_end|>")]
    tokenizer = {
        "version": "1.0",
        "added_tokens": added,
        "model": {"type": "BPE", "vocab": {t: i for i, t in enumerate(TOKENS)}, "merges": MERGES},
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "chat_template.jinja").write_text(CHATML)
    tensors = {name: ("F32", shape, zeros(*shape)) for name, shape in (shapes or hf_shapes()).items()}
    (folder / "model.safetensors").write_bytes(safetensors_bytes(tensors))
    return folder
