"""How many bytes a number takes: the formats of KV memory and of weights. A table and two small values, nothing else.

Bits of a weight include its scales. Formats of Hugging Face checkpoints leave embedding, head and norms in 16 bits; a GGUF
file quantises the first two as well and keeps norms in 32.

Sources: OCP microscaling (MX) v1.0 for mxfp4; NVIDIA's NVFP4 note (an fp8 scale for 16 values); AWQ and GPTQ with groups of
128 (a 16-bit scale and a 4-bit zero each); ggml-common.h for the GGUF blocks; Q4_K_M and Q5_K_M are mixes of blocks, their
mean worked out from the published 4,920,739,232 and 5,732,992,416 bytes of Llama-3.1-8B.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from octavo.errors import ConfigError, did_you_mean


@dataclass(frozen=True)
class KVFormat:
    """`bits` of a value; `vector_bytes`: of the scale that each stored vector brings. `latent_only`: fp8_ds_mla, for MLA alone."""

    name: str
    bits: float
    vector_bytes: float = 0.0
    latent_only: bool = False

    def bytes_of(self, dims: tuple[int, ...]) -> float:
        """Return the bytes that one head stores for one token: a vector of each of `dims`."""
        if self.latent_only and dims:  # the latent in fp8 with a float32 scale for 128 values, the rotary part in bf16
            latent, rotary = dims
            return latent + 4 * latent / 128 + 2 * rotary
        return sum(dim * self.bits / 8 + self.vector_bytes for dim in dims)


KV_FORMATS: Mapping[str, KVFormat] = {
    kv.name: kv
    for kv in (
        KVFormat("bf16", 16),
        KVFormat("f16", 16),
        KVFormat("f32", 32),
        KVFormat("fp8", 8),
        KVFormat("fp8_per_token_head", 8, vector_bytes=4),
        KVFormat("int8_per_token_head", 8, vector_bytes=4),
        KVFormat("int4_per_token_head", 4, vector_bytes=4),
        KVFormat("nvfp4", 4.5),
        KVFormat("fp8_ds_mla", 8, latent_only=True),
    )
}
_KV_ALIASES = {"bfloat16": "bf16", "float16": "f16", "float32": "f32", "fp8_e4m3": "fp8", "fp8_e5m2": "fp8", "int8": "int8_per_token_head"}


@dataclass(frozen=True)
class WeightFormat:
    """Bits a weight: of linear layers, of routed experts, of the embedding, of the head, of norms and biases."""

    name: str
    linear: float
    experts: float
    embedding: float = 16.0
    head: float = 16.0
    other: float = 16.0
    compute: str = "bf16"  # the arithmetic that products run in: bf16 | fp8 | int8


def _checkpoint(name: str, bits: float, compute: str = "bf16") -> WeightFormat:
    return WeightFormat(name, bits, bits, compute=compute)


def _gguf(name: str, bits: float, embedding: float | None = None, head: float | None = None) -> WeightFormat:
    return WeightFormat(name, bits, bits, embedding or bits, head or bits, 32.0, "int8")


WEIGHT_FORMATS: Mapping[str, WeightFormat] = {
    weight.name: weight
    for weight in (
        WeightFormat("f32", 32, 32, 32, 32, 32),
        _checkpoint("bf16", 16),
        _checkpoint("fp8", 8, "fp8"),
        _checkpoint("fp8_block", 8 + 32 / 128**2, "fp8"),
        _checkpoint("int8", 8, "int8"),
        _checkpoint("int4", 4 + (16 + 4) / 128),
        _checkpoint("nvfp4", 4.5),
        WeightFormat("mxfp4", 16, 4.25),  # of gpt-oss: experts alone
        _gguf("q8_0", 8.5),
        _gguf("q6_k", 6.5625),
        _gguf("q5_k", 5.5),
        _gguf("q5_k_m", 5.65, 5.5, 6.5625),
        _gguf("q5_1", 6.0),
        _gguf("q5_0", 5.5),
        _gguf("q4_k", 4.5),
        _gguf("q4_k_m", 4.81, 4.5, 6.5625),
        _gguf("q4_1", 5.0),
        _gguf("q4_0", 4.5),
        _gguf("q3_k", 3.4375),
        _gguf("q2_k", 2.625),
    )
}
_WEIGHT_ALIASES = {"bfloat16": "bf16", "float16": "bf16", "f16": "bf16", "float32": "f32", "awq": "int4", "gptq": "int4"}

# What a table of choices offers on each kind of device, the largest first.
_WEIGHT_CHOICES = {"gpu": ("bf16", "fp8", "int4"), "cpu": ("bf16", "q8_0", "q4_k_m")}
_KV_CHOICES = {"gpu": ("bf16", "fp8"), "cpu": ("f16", "int8_per_token_head")}

Entry = TypeVar("Entry")


def weight_choices(kind: str) -> tuple[WeightFormat, ...]:
    """Return the formats that are worth comparing on a device of `kind`, the largest first."""
    return tuple(WEIGHT_FORMATS[name] for name in _WEIGHT_CHOICES[kind])


def kv_choices(kind: str) -> tuple[KVFormat, ...]:
    return tuple(KV_FORMATS[name] for name in _KV_CHOICES[kind])


def default_kv(kind: str) -> KVFormat:
    """Return the format of KV memory where nobody asks for another."""
    return kv_choices(kind)[0]


def kv_format(name: str) -> KVFormat:
    return _find(name, KV_FORMATS, _KV_ALIASES, "KV format")


def weight_format(name: str) -> WeightFormat:
    return _find(name, WEIGHT_FORMATS, _WEIGHT_ALIASES, "weight format")


def _find(name: str, table: Mapping[str, Entry], aliases: Mapping[str, str], what: str) -> Entry:
    key = name.lower().replace("-", "_")
    found = table.get(aliases.get(key, key))
    if found is None:
        raise ConfigError(f"there is no {what} {name[:64]!r}{did_you_mean(name, table, most=2)}; there are {', '.join(table)}")
    return found
