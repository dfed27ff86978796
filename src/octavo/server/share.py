"""`Share`: what one API process has in common with the others of its server. A process alone has it for itself."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import msgspec

from octavo.client.load import Load
from octavo.metrics.figures import Figures
from octavo.server.responses.store import ResponseStore, StoredResponse


class Responses(Protocol):
    """Finished responses: a ResponseStore, here or in the process that keeps it for all."""

    @property
    def is_open(self) -> bool: ...
    async def put(self, tenant: str, stored: StoredResponse) -> None: ...
    async def get(self, tenant: str, response_id: str) -> StoredResponse | None: ...
    async def delete(self, tenant: str, response_id: str) -> bool: ...


class Share(msgspec.Struct, frozen=True):
    """`load` has the first places of `figures`, the metrics those behind it. `claiming`: held from the look at the load to the
    taking on of a request, so that two processes do not both take the last place. `secret`: tenants' salts come from it; None for
    one of this process' own."""

    figures: Figures
    load: Load
    responses: Responses
    claiming: AbstractContextManager[None] = msgspec.field(default_factory=nullcontext)
    secret: bytes | None = None


def alone(response_store_bytes: int) -> Share:
    figures = Figures()
    return Share(figures, Load(figures), LocalResponses(ResponseStore(response_store_bytes)))


class LocalResponses:
    """A store of this very process."""

    def __init__(self, store: ResponseStore) -> None:
        self._store = store

    @property
    def is_open(self) -> bool:
        return self._store.is_open

    async def put(self, tenant: str, stored: StoredResponse) -> None:
        self._store.put(tenant, stored)

    async def get(self, tenant: str, response_id: str) -> StoredResponse | None:
        return self._store.get(tenant, response_id)

    async def delete(self, tenant: str, response_id: str) -> bool:
        return self._store.delete(tenant, response_id)
