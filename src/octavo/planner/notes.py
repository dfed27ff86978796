"""What a reader of a plan must know before trusting its numbers: what does not fit, what is estimated, and the way out."""

from __future__ import annotations

from dataclasses import replace

from octavo.planner.formats import weight_choices
from octavo.planner.sizing import CONTEXTS, Deployment, Sizing, size
from octavo.units import format_bytes


def notes(deployment: Deployment, sizing: Sizing) -> tuple[str, ...]:
    """Return what a reader must know before trusting the numbers, each with its way out."""
    d, shape = deployment, deployment.shape
    found = []
    if sizing.num_blocks <= 1:
        missing = format_bytes(-min(0, sizing.available_bytes - round(2 * sizing.bytes_per_block)))
        found.append(f"It does not fit: {missing} are missing on each device. {_way_out(d)}")
    elif not sizing.fits:
        found.append(
            f"One request of {sizing.model_len:,} tokens does not fit: start-up takes --max-model-len {sizing.max_model_len:,} at most."
        )
    if d.model_len > shape.max_position:
        found.append(f"--max-model-len {d.model_len:,} is more than the model's {shape.max_position:,} positions: start-up refuses it.")
    elif shape.max_position < CONTEXTS[-1]:
        found.append(
            f"The model was made for {shape.max_position:,} positions; longer contexts are sized too, but need a rope that stretches it."
        )
    if d.tp > shape.num_kv_heads and any(group.num_kv_heads > 1 for group in shape.groups):
        found.append(f"tp {d.tp} is more than the {shape.num_kv_heads} KV heads: each is kept {d.tp // shape.num_kv_heads} times.")
    if d.is_latent and d.tp > 1:
        found.append(f"A latent cache is not cut by tensor parallelism: each of the {d.tp} ranks keeps all of it. dp shares it out.")
    if d.device.kind == "gpu" and d.activation_bytes is None:
        found.append(
            "Activations and the reserve for runtime and graphs are estimates; what a server measures replaces them "
            "(--activation-bytes, --reserve-bytes)."
        )
    return tuple(found)


def _way_out(deployment: Deployment) -> str:
    """Name the first change that makes the model fit: a smaller format, else more devices."""
    d = deployment
    for smaller in weight_choices(d.device.kind):
        if smaller.linear < d.weights.linear and size(replace(d, weights=smaller, weight_bytes=None)).fits:
            return f"--weights {smaller.name} fits."
    for tp in (2, 4, 8, 16):
        if d.device.kind == "gpu" and tp > d.tp and d.shape.num_heads % tp == 0 and size(replace(d, tp=tp)).fits:
            return f"--tensor-parallel-size {tp} fits."
    return "A larger device, a smaller model or several machines are needed."
