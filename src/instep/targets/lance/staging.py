"""Writing by tasks: new fragments of documents or of table rows, which no version names yet.

Each row of a table has a 64-bit number of its key (`_key`), by which one quick scan finds rows of the same key. Two
keys may have one number, so the keys themselves are compared then. Numbers are stored: their computation never changes.
"""

from __future__ import annotations

import base64
import json
import queue
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import pyarrow as pa

from instep.arrow.keys import key_numbers
from instep.arrow.sets import ValueSet
from instep.targets.document_target import ChunkChanges, existing_schema, retold_schema, with_vectors
from instep.targets.lance.commits import Change, Changed
from instep.targets.lance.deletions import delete_rows
from instep.targets.lance.known_documents import KNOWN
from instep.targets.lance.location import Location, lance_library
from instep.targets.lance.upkeep import unindexed_rows
from instep.targets.table_target import Moved, TableChange, TableSpec, arrow_schema, checked_rows, spec_of

if TYPE_CHECKING:
    from instep.domain.document_columns import DocumentColumn

#: Buffers that came through a stream, as Spark's and ClickHouse's do, begin at a multiple of this.
_STREAMED = 8
_WIDE = 16


def aligned(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows; columns whose buffers begin in the wrong place are copied, others are as they were."""
    columns = [_aligned(each) for each in rows.columns]
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema)


def _aligned(values: Any) -> Any:
    demanded = _WIDE if _is_wide(values.type) else _STREAMED
    if all(each is None or each.address % demanded == 0 for each in values.buffers()):
        return values
    # Of two arrays Arrow makes a new one, whatever is nested in them.
    return pa.concat_arrays([values, values.slice(0, 0)])


def _is_wide(kind: pa.DataType) -> bool:
    """Whether it has values of 16 or 32 bytes, or something in it has: decimals, and the views of texts."""
    if isinstance(kind, pa.BaseExtensionType):
        return _is_wide(kind.storage_type)
    if isinstance(kind, pa.DictionaryType):
        return _is_wide(kind.value_type)
    if kind.num_fields:
        return any(_is_wide(kind.field(at).type) for at in range(kind.num_fields))
    return kind in (pa.string_view(), pa.binary_view()) or (pa.types.is_decimal(kind) and kind.bit_width > 64)


#: Document ids in one lookup: long enough to share the index pages, short enough to bound memory.
_LOOKUP = 500
#: Rows that are read in the time that it takes to look for one document, about; and those that no index covers, which
#: each lookup filters, in the time that it takes to read one.
_SCANNED = 50
_FILTERED = 8

#: Batches that may wait for the writer: it works while the next ones are being made.
_WAITING = 2


@dataclass(frozen=True, slots=True)
class Staged:
    """The staged work of one task: fragments (lance's JSON) and addresses of rows to delete."""

    written: Sequence[str]
    deleted: pa.Array[Any]

    def encode(self) -> bytes:
        addresses = base64.b64encode(self.deleted.to_numpy().astype("<u8").tobytes()).decode()
        return json.dumps({"fragments": list(self.written), "deleted": addresses}).encode()

    @classmethod
    def decode(cls, data: bytes) -> Staged:
        value = json.loads(data)
        addresses = pa.py_buffer(base64.b64decode(value["deleted"]))
        return cls(value["fragments"], pa.Array.from_buffers(pa.uint64(), addresses.size // 8, [None, addresses]))

    def fragments(self) -> list[Any]:
        return decode_fragments(self.written)


def decode_fragments(written: Sequence[str]) -> list[Any]:
    lance_library()
    from lance.fragment import FragmentMetadata

    return [FragmentMetadata.from_json(each) for each in written]


def numbered(fragments: Sequence[Any], first: int) -> list[Any]:
    """The same, with ids from `first` on."""
    for number, fragment in enumerate(fragments, start=first):
        fragment.id = number
    return list(fragments)


def replacement(place: Location, physical: str, staged: Sequence[Staged]) -> Change:
    """Put in what was written, and delete by address."""

    def change(head: Any, first: int) -> Changed:
        fragments = delete_rows(physical, head, [each.deleted for each in staged])
        return Changed(fragments, numbered([fragment for each in staged for fragment in each.fragments()], first))

    return change


class LanceChunkWriter:
    """See `ChunkWriter`. Reads at the base version, whatever was committed since."""

    def __init__(self, place: Location, physical: str, base: int) -> None:
        self._place = place
        self._dataset = place.open(physical, base)
        with place.understood():
            self._count = self._dataset.count_rows()
        #: What was asked for so far, in rows that are read in the same time.
        self._asked = 0
        self._there: ValueSet | None = None

    def existing(self, document_ids: Sequence[str], removed: Collection[str] = ()) -> pa.Table:
        if not self._count or not document_ids:
            return existing_schema().empty_table()
        wanted = list(dict.fromkeys(document_ids))
        with self._place.understood():
            wanted = self._perhaps_there(wanted)
            found = [self._rows(wanted[at : at + _LOOKUP]) for at in range(0, len(wanted), _LOOKUP)]
        return pa.concat_tables(found) if found else existing_schema().empty_table()

    @cached_property
    def _unindexed(self) -> int:
        return unindexed_rows(self._dataset)

    @cached_property
    def _unread(self) -> int:
        return KNOWN.unread(self._dataset.uri, self._dataset)

    def _perhaps_there(self, document_ids: list[str]) -> list[str]:
        """Those of these documents that may have rows. To look for many of them by a filter, each time, takes longer
        than to read once which there are.
        """
        self._asked += len(document_ids) * _SCANNED + -(-len(document_ids) // _LOOKUP) * self._unindexed // _FILTERED
        if self._there is None and self._asked >= self._unread:
            self._there = KNOWN.of(self._dataset.uri, self._dataset)
        if self._there is None:
            return document_ids
        there = self._there.contains(pa.array(document_ids, pa.string()))
        return [document_ids[place] for place in there.nonzero()[0].tolist()]

    def _rows(self, document_ids: Sequence[str]) -> pa.Table:
        found = self._scanned(document_ids, ["document_id", "chunk_id", "chunk_hash", "chunk_index"])
        return found.select(existing_schema().names).cast(existing_schema())

    def _scanned(self, document_ids: Sequence[str], columns: Sequence[str]) -> pa.Table:
        scanner = self._dataset.scanner(
            columns=list(columns),
            filter=f"document_id IN ({', '.join(map(_literal, document_ids))})",
            with_row_address=True,
        )
        found: pa.Table = scanner.to_table().rename_columns({"_rowaddr": "locator"})
        return found

    def stored(self, document_ids: Sequence[str], columns: Sequence[DocumentColumn]) -> pa.Table:
        schema = retold_schema(columns)
        if not self._count or not document_ids:
            return schema.empty_table()
        with self._place.understood():
            found = self._scanned(document_ids, [name for name in schema.names if name != "locator"])
        return found.select(schema.names).cast(schema)

    def unfit(self, rows: pa.Table) -> Mapping[int, str]:
        return {}

    def _vectors(self, addresses: Any) -> Any:
        """Vectors by address. A row that is told anew is written whole: fragments do not change, and of a column that
        is written anew in one Lance writes every row, and forgets its index.
        """
        with self._place.understood():
            return self._dataset._take_rows(addresses, columns=["vector"])["vector"].combine_chunks()

    def stage(self, changes: Iterator[ChunkChanges]) -> bytes:
        stale: list[pa.Array[Any]] = []
        output = FragmentOutput(self._place, self._dataset)
        try:
            for change in changes:
                stale += change.stale.column("locator").chunks
                if change.rows.num_rows:
                    output.add(change.rows)
                if change.retold is not None:
                    stale.append(change.retold["locator"].combine_chunks())
                    output.add(with_vectors(change.retold, self._vectors(stale[-1])))
            written = output.finish()
        except BaseException:
            output.abandon()
            raise
        deleted = pa.concat_arrays(stale) if stale else pa.array([], pa.uint64())
        return Staged(written, deleted.cast(pa.uint64())).encode()


class FragmentOutput:
    """Feeds lance's writer, which pulls its batches from threads of its own, by a bounded queue.

    So the changes are made in the task's thread (a cache on SQLite insists on it), and an error in
    them stays the error it was.
    """

    def __init__(self, place: Location, dataset: Any) -> None:
        self._place = place
        self._dataset = dataset
        self._schema = dataset.schema.remove_metadata()
        self._batches: queue.Queue[pa.RecordBatch | None] = queue.Queue(_WAITING)
        self._thread: threading.Thread | None = None
        self._abandoned = False
        self._fragments: list[Any] = []
        self._error: BaseException | None = None

    def add(self, rows: pa.RecordBatch) -> None:
        if not rows.schema.equals(self._schema):
            rows = rows.select(self._schema.names).cast(self._schema)
        if self._thread is None:
            self._thread = threading.Thread(target=self._write, name="instep-lance-writer", daemon=True)
            self._thread.start()
        self._put(aligned(rows))

    def _put(self, item: pa.RecordBatch | None) -> None:
        assert self._thread is not None
        while self._thread.is_alive():
            try:
                self._batches.put(item, timeout=0.2)
            except queue.Full:
                continue
            return
        self._raise()

    def _raise(self) -> None:
        if self._error is not None:
            with self._place.understood():
                raise self._error

    def finish(self) -> list[str]:
        """Fragments written, as JSON; no rows, no file."""
        if self._thread is None:
            return []
        self._put(None)
        self._thread.join()
        self._raise()
        return [json.dumps(each.to_json()) for each in self._fragments]

    def abandon(self) -> None:
        """Stop the writer; its files belong to no version and are cleaned up in time."""
        self._abandoned = True
        if self._thread is not None and self._thread.is_alive():
            while self._thread.is_alive():
                try:
                    self._batches.put(None, timeout=0.2)
                    break
                except queue.Full:
                    continue
            self._thread.join()

    def _rows(self) -> Iterator[pa.RecordBatch]:
        while (batch := self._batches.get()) is not None:
            yield batch
        if self._abandoned:
            raise RuntimeError("abandoned")

    def _write(self) -> None:
        lance_library()
        from lance.fragment import write_fragments

        try:
            reader = pa.RecordBatchReader.from_batches(self._schema, self._rows())
            options = dict(self._place.storage_options) or None
            self._fragments = write_fragments(reader, self._dataset, schema=self._schema, storage_options=options)
        except BaseException as error:  # handed to the task's thread
            self._error = error


def _literal(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


KEY = "_key"


def with_keys(rows: pa.RecordBatch, key: Sequence[str]) -> pa.RecordBatch:
    numbers = pa.array(key_numbers([rows.column(name) for name in key]))
    return rows.append_column(pa.field(KEY, pa.uint64(), nullable=False), numbers)


@dataclass
class LanceTableWriter:
    """See `TableWriter`."""

    place: Location
    physical: str
    specs: Sequence[TableSpec]

    def stage(self, changes: Iterator[TableChange]) -> bytes:
        outputs: dict[tuple[str, Moved | None], FragmentOutput] = {}
        try:
            for kind, rows, moved, _ in changes:
                spec = spec_of(self.specs, kind)
                good = checked_rows(spec, arrow_schema(spec), rows)
                if good.num_rows:
                    if (kind, moved) not in outputs:
                        head = self.place.open(spec.table(self.physical))
                        outputs[kind, moved] = FragmentOutput(self.place, head)
                    outputs[kind, moved].add(with_keys(good, spec.key))
            written = {each: output.finish() for each, output in outputs.items()}
        except BaseException:
            for output in outputs.values():
                output.abandon()
            raise
        return json.dumps([[kind, moved, fragments] for (kind, moved), fragments in written.items()]).encode()


class StagedFragments(NamedTuple):
    """The staged fragments of one table (lance's, or their JSON): rows, and rows that moved (see `TableChange`)."""

    written: Sequence[Any]
    remembered: Sequence[Any]
    forgotten: Sequence[Any]

    @classmethod
    def of(cls, kind: str, staged: Sequence[bytes]) -> Self:
        """Those of a kind of table, of all tasks."""
        found: dict[Moved | None, list[str]] = {None: [], "remembered": [], "forgotten": []}
        for each in staged:
            for of_kind, moved, fragments in json.loads(each):
                if of_kind == kind:
                    found[moved] += fragments
        return cls(*found.values())
