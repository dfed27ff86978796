"""The least time that this machine needs for a figure of the suite: bytes over its memory's speed, operations over its best products.

The counting is the planner's (octavo.planner.floors), the peaks are measured in the suite's own run. Weights are the file's own,
KV is in 16 bits. Engines that read other weights have other limits: shares are given for Octavo alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from engines import Shape
from loads import Load

from octavo.bench.peaks import Peaks, last_cache_bytes, measure_peaks
from octavo.cli.plan_model import find_planned_model
from octavo.planner.catalogue import Device
from octavo.planner.floors import decode_floor, prefill_floor
from octavo.planner.formats import kv_format
from octavo.planner.sizing import Deployment

READ_BYTES = 4 * max(last_cache_bytes(), 64 << 20)  # hardly a line of it is still cached when its turn comes again


def measure() -> Peaks:
    """Return the peaks of all CPUs that this process may use."""
    return measure_peaks(None, None, READ_BYTES)


class Roofline:
    """The limits of one model's figures, in the figures' own units."""

    def __init__(self, model: str, peaks: Peaks) -> None:
        planned = find_planned_model(model, None)
        device = Device("this machine", "cpu", 0, peaks.read, max(peaks.bf16, peaks.f32), 0.0, peaks.int8, 0.0, 0, "measured", "now")
        self._deployment = Deployment(shape=planned.shape, device=device, weights=planned.weights, kv=kv_format("bf16"))

    @property
    def max_context(self) -> int:
        return self._deployment.shape.max_position

    @property
    def kv_mib_for_1024(self) -> float:
        """Memory of K and V of 1,024 tokens."""
        return self._deployment.rank.read_bytes(self._deployment.kv, 1024) / 2**20

    def of_figures(self, shape: Shape, loads: Sequence[Load]) -> dict[str, float]:
        """Return the limit of each figure that has one, by its name."""
        limits = {f"prefill {tokens}": self.prefill(tokens) for tokens in shape.prefills}
        limits |= {f"decode b{batch}": self.decode(batch, shape.prompt_len + shape.output_len // 2) for batch in shape.batches}
        return limits | {f"http {load.name}, out tok/s": self.http(load) for load in loads}

    def prefill(self, tokens: int, cached: int = 0) -> float:
        """Return prompt tokens a second."""
        return prefill_floor(self._deployment, tokens, cached).tokens_per_s

    def decode(self, batch: int, context: int, shared: int = 0) -> float:
        """Return tokens a second of all `batch` streams, each behind `context` tokens, of which the first `shared` are the same for all."""
        return batch / decode_floor(self._deployment, batch, context, shared=shared).step_s

    def http(self, load: Load) -> float:
        """Return output tokens a second of a load: its prompts, then its answers, with nothing between them."""
        prompt_s = load.own_len / self.prefill(load.own_len, load.prefix_len)
        token_s = 1 / self.decode(load.streams, load.prefix_len + load.own_len + load.output_len // 2, load.prefix_len)
        return load.output_len / (prompt_s + load.output_len * token_s)
