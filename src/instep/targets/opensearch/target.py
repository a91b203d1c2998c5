"""`OpenSearchTarget`: the port, method by method; the work is in the modules beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Literal, Self

from instep.domain.waves import Mark
from instep.errors import UserError
from instep.targets.document_target import ChunkWriter, Hit, SearchMode, StoredRow
from instep.targets.journal import Journal, owner_in
from instep.targets.opensearch import layout, log, searching
from instep.targets.opensearch.bulk import MAX_PAYLOAD_BYTES, MAX_REQUESTS, Pace
from instep.targets.opensearch.connection import Connection
from instep.targets.opensearch.indexes import Indexes
from instep.targets.opensearch.layout import coded
from instep.targets.opensearch.log import journal_of
from instep.targets.ownership import NOBODY, OwnedIndexes, Owner, checked_name

if TYPE_CHECKING:
    import pyarrow as pa

#: Bytes of one task in flight at most, and of one request at least, if other bounds are set.
_MOST_IN_FLIGHT, _LEAST_SHARE = 256_000_000, 1_000_000

#: Records of epochs gone by stay so long.
_KEEP_SECONDS = 3600.0


@dataclass(frozen=True)
class OpenSearchTarget(OwnedIndexes):
    """Indexes of OpenSearch or Elasticsearch at `uri` (`https://host:9200`), as a user with a password or a key."""

    uri: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    api_key: str | None = field(default=None, repr=False)
    max_payload_bytes: int = MAX_PAYLOAD_BYTES
    max_requests: int = MAX_REQUESTS
    owner: Owner = field(default=NOBODY, kw_only=True)

    kind: Literal["idempotent"] = field(default="idempotent", init=False)

    @property
    def indexes(self) -> Indexes:
        return Indexes(Connection(self.uri, self.user, self.password, self.api_key))

    @property
    def shown(self) -> str:
        return self.indexes.shown

    def owner_of(self, name: str) -> str | None:
        checked_name(name)
        if (head := self._journal(name).log.head()) is not None:
            return owner_in(head)
        if (head := log.newest(self.indexes, name)) is not None:
            return owner_in(head) or (self.owner_of(head["physical"]) if head["physical"] else None)
        return "" if self.indexes.mappings(name) is not None or self.indexes.behind(name) else None

    def claim(self, name: str, *, of: str) -> None:
        owned = partial(self.claimed, name, of)
        found = self.owner_of(name)
        if found is None:
            raise UserError(f"there is no {name!r} to be claimed", where=self.shown)
        if log.newest(self.indexes, name) is None and not self.indexes.behind(name):
            self._journal(name).claim(owned)
        else:
            log.claim(self.indexes, name, lambda: owned(self.owner_of(name) or ""))

    def check(self) -> None:
        self.indexes.check()

    def create(self, physical: str, dimensions: int, buckets: int) -> None:
        """`buckets` say nothing here: rows are found by their document_id, and spread by the server itself."""
        checked_name(physical)
        if dimensions < 1:
            raise UserError(f"an index needs at least one dimension, not {dimensions}")
        self.demand(physical)
        journal = self._journal(physical)
        journal.begin(self.owner.id)
        self.indexes.create(coded(physical), layout.chunks_index(self.indexes.dialect, dimensions))
        drifted = layout.drifted(self.indexes.dialect, self.indexes.mappings(physical) or {}, dimensions)
        if drifted:
            raise UserError(
                f"index {physical!r} is not as it would be made: {'; '.join(drifted)}",
                where=self.indexes.shown,
                hint="Build a new one with: instep rebuild",
            )
        journal.made()
        self.demand(physical)

    def exists(self, physical: str) -> bool:
        checked_name(physical)
        return self.indexes.mappings(physical) is not None and self._journal(physical).complete

    def fence(self, physical: str, epoch: int, marks: Sequence[Mark] = ()) -> int:
        return self._journal(physical).fence(epoch, marks, partial(self.taken, physical))

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
        """The rows are in since they were staged; from now on searches find them."""
        self.indexes.refresh(coded(checked_name(physical)))
        return self._journal(physical).commit(base, epoch, attempt, marks)

    def committed(self, physical: str, since: int, slice_ids: Iterable[str]) -> Mapping[str, bytes]:
        return self._journal(physical).committed(since, slice_ids)

    def maintain(self, physical: str, *, full: bool = False) -> None:
        self.demand(physical)
        self.indexes.serve(checked_name(physical))
        if full:
            self.indexes.expunge(physical)
        self._journal(physical).forget(_KEEP_SECONDS)

    def refine(self, physical: str, begin: Callable[[], None]) -> None:
        """Nothing: the server makes its graph of vectors as rows come."""

    def promote(self, alias: str, physical: str | None, epoch: int) -> None:
        checked_name(alias)
        if physical is not None:
            searching.demanded(self.indexes, checked_name(physical))
            self.demand(physical)
        log.promote(self.indexes, alias, physical, epoch, partial(self.demand, alias))

    def served(self, alias: str) -> str | None:
        return log.served(self.indexes, checked_name(alias))

    def rows(self, physical: str) -> int:
        return self.indexes.count(checked_name(physical))

    def row(self, physical: str, id: str) -> StoredRow | None:
        return searching.row(self.indexes, checked_name(physical), id)

    def contents(self, physical: str) -> Iterator[pa.RecordBatch]:
        return searching.contents(self.indexes, checked_name(physical))

    def written(self, physical: str, document_ids: Sequence[str]) -> pa.Table:
        return searching.written(self.indexes, checked_name(physical), document_ids)

    def leftovers(self, alias: str, *, idle_seconds: float) -> list[str]:
        served = self.served(alias)
        return [
            name
            for name in sorted(self.indexes.names())
            if name.startswith(f"{alias}__")
            and name != served
            and self.mine(name)
            and self._journal(name).idle() >= idle_seconds
        ]

    def drop(self, physical: str) -> None:
        """What is known of it goes last: it says whose that is which a crash may leave."""
        self.demand(physical)
        journal = self._journal(physical)
        journal.going()
        self.indexes.drop(physical)
        journal.log.drop()

    def search(
        self, physical: str, *, entity: str, text: str, vector: Sequence[float] | None, mode: SearchMode, limit: int
    ) -> list[Hit]:
        return searching.search(
            self.indexes,
            checked_name(physical),
            entity=entity,
            text=text,
            vector=vector,
            mode=mode,
            limit=limit,
        )

    def _journal(self, physical: str) -> Journal:
        return journal_of(self.indexes, checked_name(physical))
