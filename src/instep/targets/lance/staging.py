"""A task's side: read the rows of documents, write new fragments that no version names yet."""

from __future__ import annotations

import base64
import json
import queue
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from instep.targets.document_target import ChunkChanges, existing_schema
from instep.targets.lance.alignment import aligned
from instep.targets.lance.commits import Change, Changed
from instep.targets.lance.deletions import delete_rows
from instep.targets.lance.location import Location, lance_library

#: Document ids in one lookup: long enough to share the index pages, short enough to bound memory.
_LOOKUP = 500

#: Batches that may wait for the writer: it works while the next ones are being made.
_WAITING = 2


@dataclass(frozen=True, slots=True)
class Staged:
    """What one task left: fragments (lance's JSON) and addresses of rows to delete."""

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
        fragments = delete_rows(place, physical, head, [each.deleted for each in staged])
        return Changed(fragments, numbered([fragment for each in staged for fragment in each.fragments()], first))

    return change


class LanceChunkWriter:
    """See `ChunkWriter`. Reads at the base version, whatever was committed since."""

    def __init__(self, place: Location, physical: str, base: int) -> None:
        self._place = place
        self._dataset = place.open(physical, base)
        with place.understood():
            self._empty = self._dataset.count_rows() == 0

    def existing(self, document_ids: Sequence[str], removed: Collection[str] = ()) -> pa.Table:
        if self._empty or not document_ids:
            return existing_schema().empty_table()
        wanted = list(dict.fromkeys(document_ids))
        with self._place.understood():
            found = [self._rows(wanted[at : at + _LOOKUP]) for at in range(0, len(wanted), _LOOKUP)]
        return pa.concat_tables(found)

    def _rows(self, document_ids: Sequence[str]) -> pa.Table:
        scanner = self._dataset.scanner(
            columns=["document_id", "chunk_id", "chunk_hash"],
            filter=f"document_id IN ({', '.join(map(_literal, document_ids))})",
            with_row_address=True,
        )
        found: pa.Table = scanner.to_table()
        return found.rename_columns({"_rowaddr": "locator"}).select(existing_schema().names).cast(existing_schema())

    def unfit(self, rows: pa.Table) -> Mapping[int, str]:
        return {}

    def stage(self, changes: Iterator[ChunkChanges]) -> bytes:
        stale: list[pa.Array[Any]] = []
        output = FragmentOutput(self._place, self._dataset)
        try:
            for change in changes:
                stale += change.stale.column("locator").chunks
                if change.rows.num_rows:
                    output.add(change.rows)
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
