"""`OpenSearchTarget`: the port, method by method; the work is in the modules beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, Self

from instep.domain.document_columns import DocumentColumn
from instep.domain.waves import Mark
from instep.errors import Transient, UserError
from instep.targets import journal as shared
from instep.targets.document_target import ChunkWriter, Hit, SearchMode, StoredRow
from instep.targets.logged_target import LoggedTarget
from instep.targets.opensearch import layout, searching
from instep.targets.opensearch.bulk import MAX_PAYLOAD_BYTES, MAX_REQUESTS, Pace
from instep.targets.opensearch.indexes import Connection, Indexes
from instep.targets.opensearch.layout import coded, decoded
from instep.targets.opensearch.log import Log
from instep.targets.ownership import NO_OWNER, Owner, checked_name
from instep.targets.ranking import Search

if TYPE_CHECKING:
    import pyarrow as pa

#: Looks at an alias that other processes keep moving.
_LOOKS = 100

#: Bytes of one task in flight at most, and of one request at least, if other bounds are set.
_MOST_IN_FLIGHT, _LEAST_SHARE = 256_000_000, 1_000_000


@dataclass(frozen=True)
class OpenSearchTarget(LoggedTarget):
    """Indexes of OpenSearch or Elasticsearch at `uri` (`https://host:9200`), as a user with a password or a key."""

    uri: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    api_key: str | None = field(default=None, repr=False)
    max_payload_bytes: int = MAX_PAYLOAD_BYTES
    max_requests: int = MAX_REQUESTS
    owner: Owner = field(default=NO_OWNER, kw_only=True)

    kind: Literal["idempotent"] = field(default="idempotent", init=False)

    @property
    def indexes(self) -> Indexes:
        return Indexes(Connection(self.uri, self.user, self.password, self.api_key))

    @property
    def _store(self) -> Indexes:
        return self.indexes

    def _log(self, name: str) -> Log:
        return Log(self.indexes, name)

    def _made(self, physical: str) -> bool:
        return self.indexes.mappings(physical) is not None

    def _make(self, physical: str, dimensions: int, columns: Sequence[DocumentColumn]) -> None:
        self.indexes.create(coded(physical), layout.chunks_index(self.indexes.dialect, dimensions, columns))
        there = self.indexes.mappings(physical) or {}
        drifted = layout.drifted(self.indexes.dialect, there, dimensions, columns)
        if drifted:
            raise UserError(
                f"index {physical!r} is not as it would be made: {'; '.join(drifted)}",
                where=self.indexes.shown,
                hint="Build a new one with: instep rebuild",
            )

    def _tidy(self, physical: str, full: bool) -> None:
        self.indexes.serve(physical)
        if full:
            self.indexes.expunge(physical)

    def _demand_index(self, physical: str) -> None:
        searching.demanded(self.indexes, physical)

    def _is_index(self, alias: str) -> bool:
        return super()._is_index(alias) and coded(alias) == alias

    def _pointed(self, alias: str) -> list[str | None]:
        return [decoded(each) for each in self.indexes.behind(alias)]

    def _show(self, alias: str, log: shared.Log) -> None:
        for _ in range(_LOOKS):
            last = log.head()
            assert last is not None
            physical = last["physical"]
            self.indexes.point(alias, physical)
            verified = self.indexes.behind(alias) == ([] if physical is None else [coded(physical)])
            head = log.head()
            if verified and head is not None and head["seq"] == last["seq"]:
                return
        raise Transient(f"{self.shown}: alias {alias!r} does not stay where it is put")

    def writer(self, physical: str, base: int) -> ChunkWriter:
        from instep.targets.opensearch.writing import OpenSearchChunkWriter

        pace = Pace.fullest(self.max_payload_bytes, self.max_requests)
        return OpenSearchChunkWriter(self.indexes, checked_name(physical), base, pace)

    def bounded(self, payload_bytes: int | None, requests: int | None) -> Self:
        """Bytes in flight of one task have a bound too: with many requests, each of them holds less."""
        most = requests or self.max_requests
        share = max(_LEAST_SHARE, _MOST_IN_FLIGHT // most)
        payload = payload_bytes or self.max_payload_bytes
        return replace(self, max_payload_bytes=min(payload, share), max_requests=most)

    def commit(
        self, physical: str, *, base: int, epoch: int, attempt: str, staged: Sequence[bytes], marks: Sequence[Mark]
    ) -> int:
        """Commit: from now on searches find the rows."""
        self.indexes.refresh(coded(checked_name(physical)))
        return super().commit(physical, base=base, epoch=epoch, attempt=attempt, staged=staged, marks=marks)

    def refine(self, physical: str, begin: Callable[[], None]) -> None:
        """Nothing: the server makes its graph of vectors as rows come."""

    def row(self, physical: str, id: str) -> StoredRow | None:
        return searching.row(self.indexes, checked_name(physical), id)

    def contents(self, physical: str) -> Iterator[pa.RecordBatch]:
        return searching.contents(self.indexes, checked_name(physical))

    def written(self, physical: str, document_ids: Sequence[str], columns: Sequence[DocumentColumn] = ()) -> pa.Table:
        return searching.written(self.indexes, checked_name(physical), document_ids, columns)

    def search(
        self, physical: str, *, entity: str, text: str, vector: Sequence[float] | None, mode: SearchMode, limit: int
    ) -> list[Hit]:
        return searching.search(self.indexes, checked_name(physical), Search(entity, text, vector, mode, limit))
