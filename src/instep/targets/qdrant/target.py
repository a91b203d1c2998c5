"""`QdrantTarget`: the port, method by method; the work is in the modules beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal
from urllib.parse import unquote, urlsplit

from instep.domain.waves import Mark
from instep.errors import UserError
from instep.targets.document_target import ChunkWriter, Hit, SearchMode, StoredRow
from instep.targets.journal import owner_in
from instep.targets.ownership import NOBODY, OwnedIndexes, Owner, checked_name
from instep.targets.qdrant import journal, searching
from instep.targets.qdrant.collections import VERSION, Collections, FieldIndex
from instep.targets.qdrant.journal import Journal
from instep.targets.ranking import SEARCHED

if TYPE_CHECKING:
    import pyarrow as pa

#: By what rows are found, and guarded.
_INDEXES: Final[Mapping[str, FieldIndex]] = {"document_id": "keyword", VERSION: "integer", SEARCHED: "text"}

#: Records of epochs gone by stay so long.
_KEEP_SECONDS = 3600.0


@dataclass(frozen=True)
class QdrantTarget(OwnedIndexes):
    """Collections of Qdrant at `uri`: a server (`https://host:6333`, with its key), or a folder of this process."""

    uri: str
    api_key: str | None = field(default=None, repr=False)
    owner: Owner = field(default=NOBODY, kw_only=True)

    kind: Literal["idempotent"] = field(default="idempotent", init=False)

    def __post_init__(self) -> None:
        if not _is_server(self.uri):
            path = unquote(urlsplit(self.uri).path) if self.uri.startswith("file://") else self.uri
            object.__setattr__(self, "uri", str(Path(path).expanduser().resolve()))

    @cached_property
    def collections(self) -> Collections:
        if _is_server(self.uri):
            from instep.targets.qdrant.connection import Connection
            from instep.targets.qdrant.server import ServerCollections

            return ServerCollections(Connection(self.uri, self.api_key))
        from instep.targets.qdrant.edge import EdgeCollections

        return EdgeCollections(Path(self.uri))

    def __getstate__(self) -> dict[str, object]:
        """Without what was opened."""
        return {"uri": self.uri, "api_key": self.api_key, "owner": self.owner, "kind": self.kind}

    @property
    def shown(self) -> str:
        return self.collections.shown

    def owner_of(self, name: str) -> str | None:
        checked_name(name)
        if (head := self._journal(name).log.head()) is not None:
            return owner_in(head)
        if (head := journal.newest(self.collections, name)) is not None:
            return owner_in(head) or (self.owner_of(head["physical"]) if head["physical"] else None)
        return "" if self.collections.dimensions(name) is not None or self.collections.pointed(name) else None

    def claim(self, name: str, *, of: str) -> None:
        owned = partial(self.claimed, name, of)
        found = self.owner_of(name)
        if found is None:
            raise UserError(f"there is no {name!r} to be claimed", where=self.shown)
        if journal.newest(self.collections, name) is None and self.collections.pointed(name) is None:
            self._journal(name).claim(owned)
        else:
            journal.claim(self.collections, name, lambda: owned(self.owner_of(name) or ""))

    def check(self) -> None:
        self.collections.check()

    def create(self, physical: str, dimensions: int, buckets: int) -> None:
        """`buckets` say nothing here: all rows are in one collection, found by their document_id."""
        checked_name(physical)
        if dimensions < 1:
            raise UserError(f"an index needs at least one dimension, not {dimensions}")
        self.demand(physical)
        journal = self._journal(physical)
        journal.begin(self.owner.id)
        self.collections.create(physical, dimensions, _INDEXES)
        width = self.collections.dimensions(physical)
        if width != dimensions:
            raise UserError(
                f"index {physical!r} has {width} dimensions, not {dimensions}", where=self.collections.shown
            )
        journal.made()
        self.demand(physical)

    def exists(self, physical: str) -> bool:
        checked_name(physical)
        return self.collections.dimensions(physical) is not None and self._journal(physical).complete

    def fence(self, physical: str, epoch: int, marks: Sequence[Mark] = ()) -> int:
        return self._journal(physical).fence(epoch, marks, partial(self.taken, physical))

    def writer(self, physical: str, base: int) -> ChunkWriter:
        from instep.targets.qdrant.writing import QdrantChunkWriter

        return QdrantChunkWriter(self.collections, checked_name(physical), base)

    def commit(
        self, physical: str, *, base: int, epoch: int, attempt: str, staged: Sequence[bytes], marks: Sequence[Mark]
    ) -> int:
        """The rows are in since they were staged."""
        return self._journal(physical).commit(base, epoch, attempt, marks)

    def committed(self, physical: str, since: int, slice_ids: Iterable[str]) -> Mapping[str, bytes]:
        return self._journal(physical).committed(since, slice_ids)

    def maintain(self, physical: str, *, full: bool = False) -> None:
        """`full` or not: Qdrant itself knows what pays."""
        self.demand(physical)
        self.collections.tidy(checked_name(physical))
        self._journal(physical).forget(_KEEP_SECONDS)

    def refine(self, physical: str, begin: Callable[[], None]) -> None:
        self.demand(physical)
        self.collections.refine(checked_name(physical), begin)

    def promote(self, alias: str, physical: str | None, epoch: int) -> None:
        checked_name(alias)
        if physical is not None:
            searching.demanded(self.collections, checked_name(physical))
            self.demand(physical)
        journal.promote(self.collections, alias, physical, epoch, partial(self.demand, alias))

    def served(self, alias: str) -> str | None:
        return journal.served(self.collections, checked_name(alias))

    def rows(self, physical: str) -> int:
        return self.collections.count(checked_name(physical))

    def row(self, physical: str, id: str) -> StoredRow | None:
        return searching.row(self.collections, checked_name(physical), id)

    def contents(self, physical: str) -> Iterator[pa.RecordBatch]:
        return searching.contents(self.collections, checked_name(physical))

    def written(self, physical: str, document_ids: Sequence[str]) -> pa.Table:
        return searching.written(self.collections, checked_name(physical), document_ids)

    def leftovers(self, alias: str, *, idle_seconds: float) -> list[str]:
        served = self.served(alias)
        return [
            name
            for name in sorted(self.collections.names())
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
        self.collections.drop(physical)
        journal.log.drop()

    def search(
        self, physical: str, *, entity: str, text: str, vector: Sequence[float] | None, mode: SearchMode, limit: int
    ) -> list[Hit]:
        return searching.search(
            self.collections,
            checked_name(physical),
            entity=entity,
            text=text,
            vector=vector,
            mode=mode,
            limit=limit,
        )

    def _journal(self, physical: str) -> Journal:
        return Journal.of(self.collections, checked_name(physical))


def _is_server(uri: str) -> bool:
    return uri.startswith(("http://", "https://"))
