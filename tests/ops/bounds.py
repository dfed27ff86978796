"""How far a backend may be from `reference`, op by op: one table.

Elementwise ops and attention: |error| <= bound * the largest magnitude in the reference's result. Products: |error| <=
bound * |x| * |w| (norms of the row and of the channel), by what the backend makes of x: its rounding is the error.
"""

ELEMENTWISE = {
    "embed": 1e-7,
    "rms_norm": 2e-6,
    "rope": 5e-7,
    "gated": 2e-6,
    "add": 0.0,
    "attention": 5e-6,
    "attention in tiles": 5e-3,  # queries and weights rounded to 8 bits
    "layer_norm": 2e-6,
    "activate": 2e-6,
    "whole_attention": 5e-6,
}

LINEAR = {
    "f32": 2e-6,  # sums in float32, in another order
    "f16": 2e-6,
    "bf16": 4e-3,  # x rounded to 8 bits
    "quantised": 8e-3,  # x rounded to int8 in groups of 32
}


def attention(isa: str, kv_dtype: str) -> str:
    """Return the name of attention's bound: with AMX, K and V in bf16 or in 8 bits are multiplied in tiles."""
    return "attention in tiles" if isa == "amx" and kv_dtype not in ("f16", "f32") else "attention"


LOGPROB = 2e-6  # relative to max(1, |logprob|)
