"""A source part after part, beside what is recorded of its documents: parts are ranges of their ids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from instep.document_state.columns import FEW, ChangeColumns, ListedColumns, listed_columns, listed_schema
from instep.document_state.corpus_parts import by_part, parts_of
from instep.document_state.difference import ENTRY, RECORDED, Record, difference
from instep.document_state.identities import heads_of
from instep.document_state.spool import Spool
from instep.domain.manifest import DocumentChange, SourceDocument
from instep.entities.documents.adapters import DocumentAdapters
from instep.entities.documents.changes import counts_of
from instep.entities.documents.comparing import compared
from instep.entities.documents.corpora import Told, corpus_of, way_to_plan
from instep.ledger.checkpoints import Checkpoint
from instep.ledger.ledger import Ledger
from instep.pipeline.documents.corpus import HEADED, PartRows, by_id, listed_part
from instep.sources.document_source import DocumentSource, Listing
from instep.sources.files import FilesSource
from instep.sources.tables.row_documents import FramedTable, RowDocuments

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa


class SourcePart(NamedTuple):
    """The listing of a part, which may have documents of others, and its changes since it was recorded."""

    documents: Sequence[SourceDocument]
    changes: Sequence[DocumentChange]

    def listed(self, uris: Collection[str]) -> dict[str, SourceDocument]:
        """The listed documents with these URIs."""
        if not uris:
            return {}
        found = self.documents.named(uris) if isinstance(self.documents, ListedColumns) else self.documents
        return {each.uri: each for each in found if each.uri in uris}

    def changing(self, uris: Collection[str]) -> set[str]:
        """Select the URIs whose documents have changed."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if not uris or not isinstance(self.changes, ChangeColumns):
            return {each.uri for each in self.changes if each.uri in uris}
        changed: Any = self.changes.table["uri"]
        wanted = pa.array(list(uris), pa.string())
        return set(map(str, changed.filter(pc.is_in(changed, value_set=wanted)).to_pylist()))


class SourceParts(Protocol):
    """A listing, which is compared part after part. `counts` are the changes of the parts so far, or of all; `gone` are
    documents of which the source says so; `exhaustive`: what is not listed is gone as well.
    """

    @property
    def problems(self) -> Sequence[str]: ...
    @property
    def gone(self) -> Collection[str]: ...
    @property
    def exhaustive(self) -> bool: ...
    @property
    def counts(self) -> Counter[str]: ...

    def part(self, number: int, recorded: pa.Table) -> SourcePart:
        """A part, of which this is all that is recorded, without hashes: a change here says none."""

    def close(self) -> None: ...


class Whole:
    """A short listing, which is compared as a whole, as plans do it; so is one with links that lead to nothing."""

    def __init__(self, ledger: Ledger, checkpoint: Checkpoint, failed: Mapping[str, str], found: Listing) -> None:
        found, pending = compared(ledger, checkpoint.instance, found, failed, buckets=checkpoint.buckets)
        self.problems, self.gone = found.problems, set(found.deleted)
        self.exhaustive = found.complete and found.exhaustive
        self.counts = Counter(counts_of(pending))
        self._part = SourcePart(found.documents, pending.changes)

    def part(self, number: int, recorded: pa.Table) -> SourcePart:
        return self._part

    def close(self) -> None:
        """Do nothing: there are no open files."""


class InParts:
    """A listing that waits in files. Each part is compared by itself: `documents` are those of its rows, `failed` and
    `deleted` what is known of the parts; `told` is all else that was said of the listing.
    """

    def __init__(
        self,
        rows: Spool | PartRows,
        documents: Callable[[pa.Table], ListedColumns],
        buckets: int,
        failed: Mapping[int, Mapping[str, str]],
        deleted: Mapping[int, Mapping[str, str]],
        *,
        told: Listing,
    ) -> None:
        self.problems, self.gone = told.problems, set(told.deleted)
        self.exhaustive = told.complete and told.exhaustive
        self.counts = Counter[str]()
        self._rows, self._documents, self._buckets = rows, documents, buckets
        self._failed, self._deleted = failed, deleted

    def part(self, number: int, recorded: pa.Table) -> SourcePart:
        """A part, of which this is all that is recorded, without hashes: a change here says none."""
        import pyarrow as pa
        import pyarrow.compute as pc

        def named(uris: pa.Array[Any]) -> pa.Table:
            some = recorded.filter(pc.is_in(recorded["uri"], value_set=uris))
            return some.append_column("document_hash", pa.repeat("", some.num_rows)).select(ENTRY)

        documents = self._documents(self._rows.part(number))
        found = difference(
            documents,
            Record(recorded.select(RECORDED), named),
            self._failed.get(number, {}),
            complete=self.exhaustive,
            buckets=self._buckets,
            deleted=[*self._deleted.get(number, {})],
        )
        self.counts.update(counts_of(found))
        return SourcePart(documents, found.changes)

    def close(self) -> None:
        self._rows.close()


def source_parts(
    setup: DocumentAdapters,
    ledger: Ledger,
    checkpoint: Checkpoint,
    failed: Mapping[str, str],
    listing: Told | None,
    *,
    parts: int,
) -> SourceParts:
    """The source of an entity in so many parts. What only Spark reads, and files in S3, are listed by its tasks where
    plans are made there as well.
    """
    source, failures = setup.source, by_part(failed, parts)
    framed = isinstance(source, RowDocuments) and any(isinstance(each.table, FramedTable) for each in source.members)
    corpus = corpus_of(source) if framed or isinstance(source, FilesSource) else None
    tasks = way_to_plan(setup, ledger, checkpoint.instance).tasks if corpus is not None else None
    if tasks is not None and corpus is not None:
        kept = tasks.listed(corpus, parts)
        told = Listing((), kept.problems)
        return InParts(kept, partial(listed_part, corpus), checkpoint.buckets, failures, {}, told=told)
    if isinstance(source, RowDocuments):
        rows, told = _spooled(_rows(source, listing), HEADED, parts), Listing((), ())
        return InParts(rows, partial(listed_part, source), checkpoint.buckets, failures, {}, told=told)
    found = source.list(listing)
    if len(found.documents) <= FEW or found.nowhere:
        return Whole(ledger, checkpoint, failed, found)
    documents = found.documents if isinstance(found.documents, ListedColumns) else listed_columns(found.documents)
    told, schema = replace(found, documents=()), listed_schema()
    spool = _spooled(documents.table.to_batches(max_chunksize=FEW), schema.append(HEADED.field("head")), parts)
    deleted = by_part(dict.fromkeys(told.deleted, ""), parts)

    def of_part(rows: pa.Table) -> ListedColumns:
        return ListedColumns(by_id(rows).select(schema.names))

    return InParts(spool, of_part, checkpoint.buckets, failures, deleted, told=told)


def _rows(source: RowDocuments, listing: Told | None) -> Iterator[pa.RecordBatch]:
    source.check()
    rows = 0
    for number, member in enumerate(source.members):
        for batch in member.table.listed(member.columns):
            yield source.named(batch, number)
            rows += batch.num_rows
            if listing:
                listing(rows)


def _spooled(batches: Iterable[pa.RecordBatch], schema: pa.Schema, parts: int) -> Spool:
    """Documents with a `uri`, by the parts of these; with the head of each document's id."""
    import pyarrow as pa

    def headed() -> Iterator[tuple[pa.RecordBatch, npt.NDArray[np.int32]]]:
        for batch in batches:
            uris: Any = pa.chunked_array([batch["uri"]])
            heads = heads_of(uris)
            columns: list[Any] = [*batch.columns, pa.array(heads)]
            yield pa.RecordBatch.from_arrays(columns, schema=schema), parts_of(heads, parts)

    found = Spool(schema, parts)
    found.fill(headed())
    return found


def rows_of(source: DocumentSource) -> int:
    """The number of rows of a table, about, as far as it is known without listing them."""
    return (source.counted() or 0) if isinstance(source, RowDocuments) else 0
