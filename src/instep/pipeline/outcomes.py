"""Outcomes of tasks, as they are sent to the driver and stored in commits of targets."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa

from instep.document_state.columns import buffer_of_table, table_of_stream
from instep.document_state.entries import EntryColumns, joined
from instep.domain.counts import Counts
from instep.domain.manifest import ManifestEntry
from instep.domain.money import NO_BILL, Bill
from instep.domain.storable import pack, unpack
from instep.domain.waves import Failure, SliceOutcome, TaskOutcome, Unseen, Wave

#: One row per task: what it staged in the target, the outcomes of its slices, and what embedding has cost: the numbers
#: of a `Bill`. (Spark's have one column more: `tasks.TASK_SCHEMA`.)
OUTCOME_SCHEMA = pa.schema(
    [
        pa.field("staged", pa.binary(), nullable=False),
        pa.field("slices", pa.binary(), nullable=False),
        pa.field("bill", pa.list_(pa.int64()), nullable=False),
    ]
)


#: Up to so many entries take less room as JSON.
_FEW: Final = 20
#: From so many on threads pay.
_MANY: Final = 50_000
#: Begins an outcome whose entries are in columns: they follow, as a stream of Arrow. (Others are zlib over JSON, which
#: never begins so.)
_IN_COLUMNS: Final = b"\0"
#: The same, with a stream that is not compressed.
_UNCOMPRESSED: Final = b"\1"
#: The length, in bytes, of what follows.
_LENGTH: Final = struct.Struct(">Q")


def encode_outcome(outcome: SliceOutcome, *, compressed: bool = True) -> bytes:
    """Encode an outcome without its fence, as it is stored in a target's commit. Not `compressed` it is quicker made,
    for a reader in this process.
    """
    columns = outcome.entries if isinstance(outcome.entries, EntryColumns) and len(outcome.entries) > _FEW else None
    value = {
        "slice": outcome.slice_id,
        "counts": outcome.counts.as_dict(),
        "entries": [*outcome.entries] if columns is None else (),
        "removed": outcome.removed,
        "failures": outcome.failures,
        "lost": outcome.lost,
        "unseen": outcome.unseen,
    }
    packed = pack(value)
    if columns is None:
        return packed
    if not compressed:
        return _framed([packed, buffer_of_table(columns.table)], after=_UNCOMPRESSED)
    return _framed([packed, columns.stream()], after=_IN_COLUMNS)


def encode_outcomes(outcomes: Sequence[SliceOutcome]) -> list[bytes]:
    """Encode outcomes as they are stored; many entries, which take their time to be compressed, on several cores."""
    if sum(len(each.entries) for each in outcomes) < _MANY:
        return list(map(encode_outcome, outcomes))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(encode_outcome, outcomes))


def decode_outcome(data: bytes | memoryview, *, fence: int) -> SliceOutcome:
    """The outcome in these bytes. Entries that are not compressed use their memory."""
    entries: Sequence[ManifestEntry] | None = None
    form = bytes(data[:1])
    if form in (_IN_COLUMNS, _UNCOMPRESSED):
        data, stream = _frames(memoryview(data)[1:])
        entries = EntryColumns(table_of_stream(stream), bytes(stream) if form == _IN_COLUMNS else None)
    value = unpack(data)
    return SliceOutcome(
        slice_id=value["slice"],
        fence=fence,
        counts=Counts.from_dict(value["counts"]),
        entries=[ManifestEntry(*row) for row in value["entries"]] if entries is None else entries,
        removed=list(value["removed"]),
        failures=[Failure(*row) for row in value["failures"]],
        lost=value.get("lost", 0),
        unseen=[Unseen(*row) for row in value.get("unseen", ())],
    )


def outcome_batch(staged: bytes, outcomes: Sequence[bytes], bill: Bill = NO_BILL) -> pa.RecordBatch:
    """A task's outcome row. `outcomes` are `encode_outcome` bytes."""
    columns: list[Any] = [pa.array([staged]), _one(_framed(outcomes)), pa.array([[*bill]], pa.list_(pa.int64()))]
    return pa.RecordBatch.from_arrays(columns, schema=OUTCOME_SCHEMA)


def _one(value: bytes) -> Any:
    """A column of one value, where it is: those of a million documents are hundreds of megabytes."""
    ends = pa.array([0, len(value)], pa.int32())
    return pa.Array.from_buffers(pa.binary(), 1, [None, ends.buffers()[1], pa.py_buffer(value)])


def _framed(parts: Iterable[bytes | pa.Buffer], *, after: bytes = b"") -> bytes:
    """One behind the other, each after its length."""
    pieces: list[Any] = [after]
    for part in parts:
        pieces += (_LENGTH.pack(len(part)), part)
    return b"".join(pieces)


def _frames(data: memoryview) -> list[memoryview]:
    found, place = [], 0
    while place < len(data):
        (length,) = _LENGTH.unpack_from(data, place)
        place += _LENGTH.size
        found.append(data[place : place + length])
        place += length
    return found


def outcomes_in(framed: bytes | memoryview) -> list[SliceOutcome]:
    """The outcomes in a task's row, under no fence."""
    return [decode_outcome(each, fence=0) for each in _frames(memoryview(framed))]


def task_outcomes(rows: pa.Table, wave: Wave) -> list[TaskOutcome]:
    """Outcome rows back to values; each slice gets the fence it has in this wave."""
    fences = {part.slice_id: part.fence for part in wave.slices}
    tasks = []
    framed = [memoryview(each.as_buffer()) for each in rows["slices"]]
    for row, data in zip(rows.drop_columns("slices").to_pylist(), framed, strict=True):
        slices = tuple(_under(outcome, fences) for outcome in outcomes_in(data))
        tasks.append(TaskOutcome(row["staged"], slices, row.get("cpu") or 0.0, Bill(*row["bill"])))
    return tasks


def merged_outcomes(rows: pa.Table, wave: Wave) -> list[TaskOutcome]:
    """Outcomes of tasks that share slices: the first value has every slice of the wave once, with what all tasks say of
    it together, and all have what was staged. A slice that no task met had no rows.
    """
    tasks = task_outcomes(rows, wave)
    whole = {part.slice_id: SliceOutcome(part.slice_id, part.fence, Counts()) for part in wave.slices}
    for outcome in (each for task in tasks for each in task.slices):
        whole[outcome.slice_id] = _together(whole[outcome.slice_id], outcome)
    if not tasks:  # No task read a row.
        return [TaskOutcome(b"", tuple(whole.values()))]
    together = tuple(whole.values())
    return [replace(task, slices=together if number == 0 else ()) for number, task in enumerate(tasks)]


def row_outcomes(rows: pa.Table, wave: Wave) -> list[TaskOutcome]:
    """Outcomes of documents that are rows of a scan: what it did not give has vanished since it was listed, and is
    skipped. Raises when it gave more than was asked for.
    """
    first, *others = merged_outcomes(rows, wave)
    planned = {part.slice_id: len(part.changes) for part in wave.slices}
    return [replace(first, slices=tuple(_whole(each, planned[each.slice_id]) for each in first.slices)), *others]


def _whole(outcome: SliceOutcome, planned: int) -> SliceOutcome:
    missing = planned - outcome.counts.read
    if missing < 0:
        raise RuntimeError("rows have come to share a key since they were listed")
    return _together(outcome, SliceOutcome(outcome.slice_id, outcome.fence, Counts(read=missing, skipped=missing)))


def _together(one: SliceOutcome, other: SliceOutcome) -> SliceOutcome:
    return SliceOutcome(
        one.slice_id,
        one.fence,
        one.counts + other.counts,
        joined(one.entries, other.entries),
        [*one.removed, *other.removed],
        [*one.failures, *other.failures],
        one.lost + other.lost,
        [*one.unseen, *other.unseen],
    )


def _under(outcome: SliceOutcome, fences: dict[str, int]) -> SliceOutcome:
    return replace(outcome, fence=fences[outcome.slice_id])
