"""Words that an answer may not hold, as token sequences: which token would complete one of them now."""

from __future__ import annotations

from collections.abc import Sequence


class BadWords:
    """Follows one request's output, as much of it as matters."""

    def __init__(self, sequences: Sequence[Sequence[int]], output_token_ids: Sequence[int]) -> None:
        """No sequence is empty, and there is at least one."""
        self._sequences = [list(sequence) for sequence in sequences]
        self._reach = max(map(len, self._sequences)) - 1
        self._tail: list[int] = []
        for token_id in output_token_ids:
            self.append(token_id)

    def append(self, token_id: int) -> None:
        self._tail.append(token_id)
        del self._tail[: len(self._tail) - self._reach]

    def banned(self) -> list[int]:
        """Return the ids that may not come next."""
        return [ids[-1] for ids in self._sequences if self._ends_with(ids[:-1])]

    def _ends_with(self, ids: list[int]) -> bool:
        return self._tail[len(self._tail) - len(ids) :] == ids if len(ids) <= len(self._tail) else False
