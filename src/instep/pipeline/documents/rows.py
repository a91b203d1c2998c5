"""The row contract of documents on their way through a wave.

Schemas are checked where rows enter and leave a user's transform: it may add columns, never drop
or rename these.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from instep.document_state.columns import ChangeColumns
from instep.domain.waves import WaveSlice


def _required(name: str, kind: pa.DataType) -> pa.Field[Any]:
    return pa.field(name, kind, nullable=False)


#: One row per document change (`domain.manifest.DocumentChange`) with the slice that holds it.
#: Rows of one slice are contiguous.
CHANGE_SCHEMA = pa.schema(
    [
        _required("slice_id", pa.string()),
        _required("action", pa.string()),
        _required("document_id", pa.string()),
        _required("uri", pa.string()),
        _required("size", pa.int64()),
        _required("version", pa.string()),
        _required("bucket", pa.int32()),
        _required("previous_hash", pa.string()),
        _required("locator", pa.string()),
    ]
)

#: Chunk rows, and after the chunks of each document exactly one *end row* (`end_of_document`), which
#: alone says what became of the document: `deleted` (tombstone), `unchanged` (same bytes as indexed),
#: `vanished` (gone since the listing), a failure (`failure_stage` set), or else complete with as many
#: chunks as came before it (zero too). Rows of one document are contiguous and within one slice.
CHUNK_SCHEMA = pa.schema(
    [
        _required("slice_id", pa.string()),
        _required("document_id", pa.string()),
        pa.field("document_hash", pa.string()),
        _required("source_uri", pa.string()),
        _required("source_version", pa.string()),
        _required("source_size", pa.int64()),
        _required("bucket", pa.int32()),
        _required("end_of_document", pa.bool_()),
        _required("deleted", pa.bool_()),
        _required("unchanged", pa.bool_()),
        _required("vanished", pa.bool_()),
        pa.field("failure_stage", pa.string()),
        pa.field("failure_reason", pa.string()),
        pa.field("chunk_index", pa.int32()),
        pa.field("chunk_id", pa.string()),
        pa.field("chunk_hash", pa.string()),
        pa.field("title", pa.string()),
        pa.field("text", pa.string()),
        pa.field("modified", pa.timestamp("us", "UTC")),
    ]
)


#: The column of what is embedded and searched before the text of a chunk, but not shown: title and headings.
CONTEXT = "context"


def chunk_schema(fields: Sequence[pa.Field[Any]], *, context: bool = False) -> pa.Schema:
    """`CHUNK_SCHEMA` with declared columns; with `context`, `CONTEXT` before them."""
    return pa.schema([*CHUNK_SCHEMA, *([pa.field(CONTEXT, pa.string())] if context else []), *fields])


def embedded_texts(rows: pa.Table | pa.RecordBatch) -> Any:
    """The texts of chunks as they are embedded: with what stands before them, if they have that."""
    return _behind(rows, "\n\n")


def _behind(rows: pa.Table | pa.RecordBatch, between: str) -> Any:
    texts: Any = rows["text"]
    if CONTEXT not in rows.schema.names:
        return texts
    context: Any = rows[CONTEXT]
    before = context.fill_null("")
    whole: Any = pc.binary_join_element_wise(before, texts, between)
    return pc.if_else(pc.equal(before, pa.scalar("")), texts, whole)


def told_apart(rows: pa.Table | pa.RecordBatch) -> Any:
    """The texts of chunks, each behind what stands before it and a NUL, which no text has: others, too, where the same
    characters are split otherwise into what is shown and what is not.
    """
    return _behind(rows, "\0")


def change_batch(part: WaveSlice) -> pa.RecordBatch:
    """The changes of a slice as one batch of `CHANGE_SCHEMA`."""
    changes = part.changes
    if isinstance(changes, ChangeColumns):
        return _of_columns([part.slice_id], [changes.with_ids()])
    columns: list[Sequence[Any]] = [
        [part.slice_id] * len(changes),
        [str(change.action) for change in changes],
        [change.document_id for change in changes],
        [change.uri for change in changes],
        [change.size for change in changes],
        [change.version for change in changes],
        [change.bucket for change in changes],
        [change.previous_hash for change in changes],
        [change.locator for change in changes],
    ]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, CHANGE_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=CHANGE_SCHEMA)


def changes_together(parts: Sequence[WaveSlice]) -> pa.RecordBatch:
    """The changes of some slices, of which there is at least one, as one batch of `CHANGE_SCHEMA`."""
    tables = [each.changes.with_ids() for each in parts if isinstance(each.changes, ChangeColumns)]
    if len(tables) == len(parts):
        return _of_columns([each.slice_id for each in parts], tables)
    (batch,) = pa.Table.from_batches(map(change_batch, parts), CHANGE_SCHEMA).combine_chunks().to_batches()
    return batch


def _of_columns(slice_ids: Sequence[str], changes: Sequence[pa.Table]) -> pa.RecordBatch:
    """A batch of changes that are columns already, of each slice a table."""
    own = [pa.repeat(pa.scalar(name), each.num_rows) for name, each in zip(slice_ids, changes, strict=True)]
    whole = pa.concat_tables(changes)
    told: list[Any] = [whole[each.name].cast(each.type).combine_chunks() for each in list(CHANGE_SCHEMA)[1:]]
    return pa.RecordBatch.from_arrays([pa.concat_arrays(own), *told], schema=CHANGE_SCHEMA)
