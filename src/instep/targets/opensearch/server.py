"""Base of targets of documents and of rows: the connection to a server, aliases, and the bounds of requests."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal, Self

from instep.errors import Transient
from instep.targets import journal as shared
from instep.targets.logged_target import LoggedTarget
from instep.targets.opensearch.bulk import MAX_PAYLOAD_BYTES, MAX_REQUESTS, MAX_ROWS, Pace
from instep.targets.opensearch.indexes import Connection, Indexes
from instep.targets.opensearch.layout import coded, decoded
from instep.targets.opensearch.log import Log
from instep.targets.ownership import NO_OWNER, Owner

#: Looks at an alias that other processes keep moving.
_LOOKS = 100

#: Bytes of one task in flight at most, and of one request at least, if other bounds are set.
_MOST_IN_FLIGHT, _LEAST_SHARE = 256_000_000, 1_000_000


@dataclass(frozen=True)
class OpenSearchIndexes(LoggedTarget):
    """Indexes of OpenSearch or Elasticsearch at `uri` (`https://host:9200`), as a user with a password or a key."""

    uri: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    api_key: str | None = field(default=None, repr=False)
    max_payload_bytes: int = MAX_PAYLOAD_BYTES
    max_requests: int = MAX_REQUESTS
    max_rows: int = MAX_ROWS
    owner: Owner = field(default=NO_OWNER, kw_only=True)

    kind: Literal["idempotent"] = field(default="idempotent", init=False)

    @property
    def indexes(self) -> Indexes:
        return Indexes(Connection(self.uri, self.user, self.password, self.api_key))

    @property
    def _store(self) -> Indexes:
        return self.indexes

    @property
    def _pace(self) -> Pace:
        return Pace.fullest(self.max_payload_bytes, self.max_requests, self.max_rows)

    def bounded(self, payload_bytes: int | None, requests: int | None, rows: int | None) -> Self:
        """Bytes in flight of one task have a bound too: with many requests, each of them holds less."""
        most = requests or self.max_requests
        share = max(_LEAST_SHARE, _MOST_IN_FLIGHT // most)
        payload = payload_bytes or self.max_payload_bytes
        held = min(payload, share)
        return replace(self, max_payload_bytes=held, max_requests=most, max_rows=rows or self.max_rows)

    def _log(self, name: str) -> Log:
        return Log(self.indexes, name)

    def _made(self, physical: str) -> bool:
        return self.indexes.mappings(physical) is not None

    def _is_index(self, alias: str) -> bool:
        return super()._is_index(alias) and coded(alias) == alias

    def _pointed(self, alias: str) -> list[str | None]:
        return [decoded(each) for each in self.indexes.behind(alias)]

    def _point(self, alias: str, physical: str | None) -> None:
        self.indexes.point(alias, physical)

    def _show(self, alias: str, log: shared.Log) -> None:
        for _ in range(_LOOKS):
            last = log.head()
            assert last is not None
            physical = last["physical"]
            self._point(alias, physical)
            verified = self.indexes.behind(alias) == ([] if physical is None else [coded(physical)])
            head = log.head()
            if verified and head is not None and head["seq"] == last["seq"]:
                return
        raise Transient(f"{self.shown}: alias {alias!r} does not stay where it is put")
