"""`QdrantTarget`: the port, method by method; the work is in the modules beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal
from urllib.parse import unquote, urlsplit

from instep.domain.document_columns import BUILT_IN, DocumentColumn, DocumentColumnType
from instep.domain.filters import Condition
from instep.domain.words import TextQuery
from instep.errors import UserError
from instep.targets import journal as shared
from instep.targets.document_target import EQUAL, SEARCHED, ChunkWriter, FusionWeights, Hit, SearchMode, StoredRow
from instep.targets.facets import Counted, Facet
from instep.targets.logged_target import LoggedDocuments
from instep.targets.ownership import NO_OWNER, Owner, checked_name
from instep.targets.qdrant import searching
from instep.targets.qdrant.collections import VERSION, Collections, FieldIndex
from instep.targets.qdrant.journal import Log
from instep.targets.ranking import Search

if TYPE_CHECKING:
    import pyarrow as pa

#: By what rows are found, and guarded.
_INDEXES: Final[Mapping[str, FieldIndex]] = {"document_id": "keyword", VERSION: "integer", SEARCHED: "text"}


#: Indexes of columns: of a list each element is found.
_KINDS: Final[Mapping[DocumentColumnType, FieldIndex]] = {
    DocumentColumnType.STRING: "keyword",
    DocumentColumnType.INT: "integer",
    DocumentColumnType.FLOAT: "float",
    DocumentColumnType.BOOL: "integer",
    DocumentColumnType.TIMESTAMP: "integer",
    DocumentColumnType.DATE: "integer",
    DocumentColumnType.STRINGS: "keyword",
    DocumentColumnType.INTS: "integer",
}


@dataclass(frozen=True)
class QdrantTarget(LoggedDocuments):
    """Collections of Qdrant at `uri`: a server (`https://host:6333`, with its key), or a folder of this process."""

    uri: str
    api_key: str | None = field(default=None, repr=False)
    owner: Owner = field(default=NO_OWNER, kw_only=True)

    kind: Literal["idempotent"] = field(default="idempotent", init=False)

    def __post_init__(self) -> None:
        if not _is_server(self.uri):
            path = unquote(urlsplit(self.uri).path) if self.uri.startswith("file://") else self.uri
            object.__setattr__(self, "uri", str(Path(path).expanduser().resolve()))

    @cached_property
    def collections(self) -> Collections:
        if _is_server(self.uri):
            from instep.targets.qdrant.server import Connection, ServerCollections

            return ServerCollections(Connection(self.uri, self.api_key))
        from instep.targets.qdrant.edge import EdgeCollections

        return EdgeCollections(Path(self.uri))

    def __getstate__(self) -> dict[str, object]:
        """The state without open connections."""
        return {"uri": self.uri, "api_key": self.api_key, "owner": self.owner, "kind": self.kind}

    @property
    def _store(self) -> Collections:
        return self.collections

    def _log(self, name: str) -> Log:
        return Log(self.collections, name)

    def _made(self, physical: str) -> bool:
        return self.collections.dimensions(physical) is not None

    def _make(self, physical: str, dimensions: int, columns: Sequence[DocumentColumn]) -> None:
        self.collections.create(
            physical, dimensions, {**_INDEXES, **{each.name: _KINDS[each.type] for each in (*BUILT_IN, *columns)}}
        )
        width = self.collections.dimensions(physical)
        if width != dimensions:
            raise UserError(f"index {physical!r} has {width} dimensions, not {dimensions}", where=self.shown)

    def _tidy(self, physical: str, full: bool) -> None:
        """`full` or not: Qdrant itself knows what pays."""
        self.collections.tidy(physical)

    def _demand_index(self, physical: str) -> None:
        searching.demanded(self.collections, physical)

    def _pointed(self, alias: str) -> list[str | None]:
        name = self.collections.pointed(alias)
        return [] if name is None else [name]

    def _show(self, alias: str, log: shared.Log) -> None:
        shown = None
        while shown is None or (head := log.head()) is None or head["seq"] != shown:
            last = log.head()
            assert last is not None
            self.collections.point(alias, last["physical"])
            shown = last["seq"]

    def writer(self, physical: str, base: int) -> ChunkWriter:
        from instep.targets.qdrant.writing import QdrantChunkWriter

        return QdrantChunkWriter(self.collections, checked_name(physical), base)

    def refinable(self, physical: str) -> bool:
        return self.collections.refinable(checked_name(physical))

    def refine(self, physical: str) -> None:
        self.demand(physical)
        self.collections.refine(checked_name(physical))

    def row(self, physical: str, id: str) -> StoredRow | None:
        return searching.row(self.collections, checked_name(physical), id)

    def contents(self, physical: str) -> Iterator[pa.RecordBatch]:
        return searching.contents(self.collections, checked_name(physical))

    def written(self, physical: str, document_ids: Sequence[str], columns: Sequence[DocumentColumn] = ()) -> pa.Table:
        return searching.written(self.collections, checked_name(physical), document_ids, columns)

    def search(
        self,
        physical: str,
        *,
        entity: str,
        text: TextQuery,
        vector: Sequence[float] | None,
        mode: SearchMode,
        limit: int,
        where: Condition | None = None,
        weights: FusionWeights = EQUAL,
        columns: Sequence[DocumentColumn] = (),
    ) -> list[Hit]:
        dimensions = self._width(physical, lambda: searching.demanded(self.collections, checked_name(physical)))
        return searching.search(
            self.collections, physical, Search(entity, text, vector, mode, limit, where, weights, columns), dimensions
        )

    def facets(self, physical: str, counted: Counted) -> dict[str, Facet]:
        return searching.facets(self.collections, checked_name(physical), counted)


def _is_server(uri: str) -> bool:
    return uri.startswith(("http://", "https://"))
