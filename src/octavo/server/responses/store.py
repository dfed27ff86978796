"""`ResponseStore`: finished responses, in memory, for previous_response_id and GET. Bounded, and each tenant sees its own only.

When it is full, the tenant that holds most loses its oldest. A size is that of the response and its conversation as JSON.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import msgspec
import orjson

MAX_RESPONSES = 10_000


class StoredResponse(msgspec.Struct, frozen=True):
    """`conversation`: every item up to the response's own output, for the next turn. `input`: the request's own items."""

    response: dict[str, Any]
    input: list[dict[str, Any]]
    conversation: list[dict[str, Any]]


class ResponseStore:
    """`max_bytes` 0 stores nothing."""

    def __init__(self, max_bytes: int, max_responses: int = MAX_RESPONSES) -> None:
        self._max_bytes = max_bytes
        self._max_responses = max_responses
        self._shelves: dict[str, OrderedDict[str, tuple[StoredResponse, int]]] = {}  # tenant -> id -> response, size
        self._sizes: dict[str, int] = {}  # by tenant

    @property
    def is_open(self) -> bool:
        return self._max_bytes > 0

    def put(self, tenant: str, stored: StoredResponse) -> None:
        """Keep a response. One that is larger than the whole store is not kept."""
        size = len(orjson.dumps([stored.response, stored.conversation]))
        if size > self._max_bytes:
            return
        self._shelves.setdefault(tenant, OrderedDict())[stored.response["id"]] = (stored, size)
        self._sizes[tenant] = self._sizes.get(tenant, 0) + size
        while sum(self._sizes.values()) > self._max_bytes or sum(map(len, self._shelves.values())) > self._max_responses:
            fullest = max(self._sizes, key=lambda name: (self._sizes[name], len(self._shelves[name])))
            self.delete(fullest, next(iter(self._shelves[fullest])))

    def get(self, tenant: str, response_id: str) -> StoredResponse | None:
        found = self._shelves.get(tenant, OrderedDict()).get(response_id)
        return None if found is None else found[0]

    def delete(self, tenant: str, response_id: str) -> bool:
        """Return whether there was one."""
        shelf = self._shelves.get(tenant, OrderedDict())
        found = shelf.pop(response_id, None)
        if found is None:
            return False
        self._sizes[tenant] -= found[1]
        if not shelf:
            del self._shelves[tenant], self._sizes[tenant]
        return True
