"""Status keys in a bucket of JetStream's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from instep.bus.bus import StatusEntry, check_revision, entry_of
from instep.bus.nats.connection import Connection
from instep.bus.nats.keys import Bucket
from instep.bus.nats.listing import Found
from instep.domain import status


class NatsStatusKeys:
    """Implements `bus.StatusKeys`. The value is read before it is written even where no revision is wanted: a write
    that was held up while the server was away must not come after a later one. Nothing is waited for while it is away:
    jobs write keys.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._bucket = Bucket(connection, connection.status)

    def put(self, key: str, value: Mapping[str, Any], *, revision: int | None = None) -> int:
        status.demand_key(key)
        data = status.encode(value).encode()

        def change(found: Found | None) -> bytes:
            check_revision(key, found.revision if found else 0, revision)
            return data

        return self._connection.run(self._bucket.change(key, change))

    def get(self, key: str) -> StatusEntry | None:
        status.demand_key(key)
        found = self._connection.run(self._bucket.get(key))
        return None if found is None else entry_of(key, found.data, found.revision)

    def delete(self, key: str, *, revision: int | None = None) -> None:
        status.demand_key(key)

        def change(found: Found | None) -> None:
            check_revision(key, found.revision if found else 0, revision)

        self._connection.run(self._bucket.change(key, change))

    def under(self, prefix: str) -> list[StatusEntry]:
        status.demand_prefix(prefix)
        found = self._connection.run(self._under(prefix))
        return [entry_of(key, each.data, each.revision) for key, each in sorted(found.items())]

    async def _under(self, prefix: str) -> dict[str, Found]:
        below = await self._bucket.find(f"{prefix}.>")
        itself = None if prefix == "status" else await self._bucket.get(prefix)
        return below | ({prefix: itself} if itself else {})
