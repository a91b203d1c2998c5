"""Rows as a stream brings them: their buffers begin where they lay in a message, at any multiple of eight bytes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa


def as_streamed(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows, with every buffer at a multiple of eight that is none of sixteen."""
    found = pa.RecordBatch.from_arrays([_moved(each) for each in rows.columns], schema=rows.schema)
    assert all(buffer.address % 16 == 8 for column in found.columns for buffer in column.buffers() if buffer)
    return found


def _moved(values: Any) -> Any:
    assert not values.type.num_fields, "a flat column"
    buffers = [each and _at_eight(each) for each in values.buffers()]
    return pa.Array.from_buffers(values.type, len(values), buffers, offset=values.offset)


def _at_eight(buffer: pa.Buffer) -> pa.Buffer:
    room: Any = pa.allocate_buffer(buffer.size + 16)
    start = (8 - room.address) % 16
    memoryview(room).cast("B")[start : start + buffer.size] = memoryview(buffer).cast("B")
    moved: pa.Buffer = room.slice(start, buffer.size)
    return moved
