"""The row contract of documents on their way through a wave, and how outcomes travel back.

Schemas are checked where rows enter and leave a user's transform: it may add columns, never drop
or rename these.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from instep.domain.counts import Counts
from instep.domain.manifest import ManifestEntry
from instep.domain.packing import pack, unpack
from instep.domain.waves import Failure, SliceOutcome, TaskOutcome, Wave, WaveSlice


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
    ]
)

#: One row per task: what it staged in the target, and the outcomes of its slices.
OUTCOME_SCHEMA = pa.schema([_required("staged", pa.binary()), _required("slices", pa.binary())])


def change_batch(part: WaveSlice) -> pa.RecordBatch:
    """All changes of a slice as one batch of `CHANGE_SCHEMA`."""
    changes = part.changes
    columns: list[Sequence[Any]] = [
        [part.slice_id] * len(changes),
        [str(change.action) for change in changes],
        [change.document_id for change in changes],
        [change.uri for change in changes],
        [change.size for change in changes],
        [change.version for change in changes],
        [change.bucket for change in changes],
        [change.previous_hash for change in changes],
    ]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, CHANGE_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=CHANGE_SCHEMA)


def encode_outcome(outcome: SliceOutcome) -> bytes:
    """An outcome without its fence, as it is stored in a target's commit."""
    value = {
        "slice": outcome.slice_id,
        "counts": outcome.counts.as_dict(),
        "entries": outcome.entries,
        "removed": outcome.removed,
        "failures": outcome.failures,
    }
    return pack(value)


def decode_outcome(data: bytes, *, fence: int) -> SliceOutcome:
    value = unpack(data)
    return SliceOutcome(
        slice_id=value["slice"],
        fence=fence,
        counts=Counts.from_dict(value["counts"]),
        entries=[ManifestEntry(*row) for row in value["entries"]],
        removed=list(value["removed"]),
        failures=[Failure(*row) for row in value["failures"]],
    )


def outcome_batch(staged: bytes, outcomes: Sequence[bytes]) -> pa.RecordBatch:
    """A task's outcome row. `outcomes` are `encode_outcome` bytes, framed as a JSON list of hex."""
    framed = json.dumps([outcome.hex() for outcome in outcomes]).encode()
    return pa.RecordBatch.from_arrays([pa.array([staged]), pa.array([framed])], schema=OUTCOME_SCHEMA)


def task_outcomes(rows: pa.Table, wave: Wave) -> list[TaskOutcome]:
    """Outcome rows back to values; each slice gets the fence it has in this wave."""
    fences = {part.slice_id: part.fence for part in wave.slices}
    tasks = []
    for row in rows.to_pylist():
        outcomes = [decode_outcome(bytes.fromhex(each), fence=0) for each in json.loads(row["slices"])]
        tasks.append(TaskOutcome(row["staged"], tuple(_under(outcome, fences) for outcome in outcomes)))
    return tasks


def _under(outcome: SliceOutcome, fences: dict[str, int]) -> SliceOutcome:
    return SliceOutcome(
        outcome.slice_id, fences[outcome.slice_id], outcome.counts, outcome.entries, outcome.removed, outcome.failures
    )
