"""`LoadCost`: is it cheaper to bring KV back from a tier, or to compute it again? Measured, not assumed.

    load      bytes / (bytes a second that loads have shown)
    compute   tokens / (tokens a second that prefill steps have shown)

Both are moving averages. Until both are known, loading is tried, for only what is tried is measured; and a tier that has
been slow is thought a little better of with each time that it is passed over, so it gets another chance.
"""

from __future__ import annotations

WEIGHT = 0.2  # of the newest measurement
MIN_STEP_TOKENS = 32  # smaller steps tell of weights read, not of tokens computed
FORGIVENESS = 0.99


class LoadCost:
    def __init__(self) -> None:
        self.seconds_per_byte: float | None = None
        self.seconds_per_token: float | None = None

    def observe_step(self, num_tokens: int, seconds: float) -> None:
        """Take in a step's computation."""
        if num_tokens >= MIN_STEP_TOKENS:
            self.seconds_per_token = _averaged(self.seconds_per_token, seconds / num_tokens)

    def observe_load(self, num_bytes: int, seconds: float) -> None:
        """Take in what a load took."""
        self.seconds_per_byte = _averaged(self.seconds_per_byte, seconds / num_bytes)

    def is_load_cheaper(self, num_bytes: int, num_tokens: int) -> bool:
        if self.seconds_per_byte is None or self.seconds_per_token is None:
            return True
        if num_bytes * self.seconds_per_byte <= num_tokens * self.seconds_per_token:
            return True
        self.seconds_per_byte *= FORGIVENESS
        return False


def _averaged(old: float | None, new: float) -> float:
    return new if old is None else old + WEIGHT * (new - old)
