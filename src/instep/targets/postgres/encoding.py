"""Rows of Arrow as PostgreSQL's COPY reads them in binary: each value bit by bit as it is, without a loop over rows.

A row is the number of its fields, and before each field its length in bytes (-1 for null). Decimals travel as text, a
vector as pgvector has it: the number of its elements, two bytes of nothing, and each element.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from instep.domain.columns import ColumnType, TypeName

if TYPE_CHECKING:
    import pyarrow as pa

#: An array of Arrow. Its stubs tell types of columns apart that are only known when there are rows.
Values: TypeAlias = Any

HEADER: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)
TRAILER: Final = b"\xff\xff"

#: Encoded at once: large enough that what is done once for each column does not count.
_BYTES: Final = 8 * 1024 * 1024

#: PostgreSQL counts from the year 2000.
EPOCH_DAYS: Final = 10_957
EPOCH_MICROSECONDS: Final = EPOCH_DAYS * 86_400_000_000

_FIXED: Final = {
    TypeName.BOOL: ">i1",
    TypeName.INT32: ">i4",
    TypeName.INT64: ">i8",
    TypeName.FLOAT32: ">f4",
    TypeName.FLOAT64: ">f8",
    TypeName.DATE: ">i4",
    TypeName.TIMESTAMP: ">i8",
}


@dataclass(frozen=True, slots=True)
class Vector:
    """The type of a column of vectors, none of them null."""

    dimensions: int


def encoded(columns: Mapping[str, ColumnType | Vector], rows: pa.RecordBatch, task: int) -> Iterator[bytes]:
    """Rows as they are in Arrow, each with the number of its task at the end."""
    at_once = max(1, rows.num_rows * _BYTES // max(rows.nbytes, 1))
    for at in range(0, rows.num_rows, at_once):
        yield _encoded(columns, rows.slice(at, at_once), task)


def _encoded(columns: Mapping[str, ColumnType | Vector], rows: pa.RecordBatch, task: int) -> bytes:
    import pyarrow as pa
    import pyarrow.compute as pc

    row = _Row(rows.num_rows)
    row.fixed(">i2", len(columns) + 1)
    for name, kind in columns.items():
        values = rows.column(name)
        if isinstance(kind, Vector):
            _vectors(row, kind.dimensions, values)
        elif kind.name not in _FIXED:
            _text(row, values)
        elif values.null_count:
            _sparse(row, kind, values)
        else:
            _dense(row, kind, values)
    row.fixed(">i4", 8)
    row.fixed(">i8", task)
    nothing: Values = pa.scalar(b"", pa.binary())
    return _data(pc.binary_join_element_wise(*row.pieces(), nothing))


class _Row:
    """All rows, field by field. What has the same length in each row is put together first."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._pieces: list[Values] = []
        self._fixed: list[tuple[str, Any]] = []

    def fixed(self, kind: str, values: Any) -> None:
        """The same for all rows, or one for each."""
        self._fixed.append((kind, values))

    def various(self, values: Values) -> None:
        """Bytes of any length, none of them null."""
        self._flush()
        self._pieces.append(values)

    def pieces(self) -> list[Values]:
        self._flush()
        return self._pieces

    def _flush(self) -> None:
        if self._fixed:
            self._pieces.append(_side_by_side(self._number, self._fixed))
            self._fixed = []


def _side_by_side(number: int, parts: list[tuple[str, Any]]) -> Values:
    import numpy as np
    import pyarrow as pa

    packed = np.empty(number, dtype=[(f"f{at}", kind) for at, (kind, _) in enumerate(parts)])
    for at, (_, values) in enumerate(parts):
        packed[f"f{at}"] = values
    width = packed.dtype.itemsize
    fixed = pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), number, [None, pa.py_buffer(packed.data)])
    return fixed.cast(pa.binary())


def _dense(row: _Row, kind: ColumnType, values: Values) -> None:
    """A column of one width, without nulls."""
    import numpy as np

    row.fixed(">i4", np.dtype(_FIXED[kind.name]).itemsize)
    row.fixed(_FIXED[kind.name], _numbers(kind, values))


def _sparse(row: _Row, kind: ColumnType, values: Values) -> None:
    """A column of one width, with nulls."""
    import pyarrow as pa
    import pyarrow.compute as pc

    there = _Row(len(values))
    _dense(there, kind, pc.fill_null(values, _zero(values.type)))
    (field,) = there.pieces()
    row.various(pc.if_else(values.is_valid(), field, pa.scalar(b"\xff\xff\xff\xff", pa.binary())))


def _zero(kind: pa.DataType) -> Values:
    import pyarrow as pa

    return pa.scalar(False, kind) if pa.types.is_boolean(kind) else pa.scalar(0, kind)


def _text(row: _Row, values: Values) -> None:
    """A column of text, bytes or decimals."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_decimal(values.type):
        values = values.cast(pa.string())
    lengths: Values = pc.binary_length(values)
    row.fixed(">i4", lengths.fill_null(-1).to_numpy())
    row.various(values.cast(pa.binary()).fill_null(b""))


def _vectors(row: _Row, dimensions: int, values: Values) -> None:
    row.fixed(">i4", 4 + 4 * dimensions)
    row.fixed(">i2", dimensions)
    row.fixed(">i2", 0)
    row.fixed(f"({dimensions},)>f4", values.flatten().to_numpy().reshape(-1, dimensions))


def _numbers(kind: ColumnType, values: Values) -> Any:
    import pyarrow as pa

    match kind.name:
        case TypeName.BOOL:
            return values.cast(pa.uint8()).to_numpy()
        case TypeName.DATE:
            return values.view(pa.int32()).to_numpy() - EPOCH_DAYS
        case TypeName.TIMESTAMP:
            return values.view(pa.int64()).to_numpy() - EPOCH_MICROSECONDS
    return values.to_numpy()


def _data(joined: Values) -> bytes:
    """The bytes of all its values, one after the other. It has just been made: it begins where its buffers begin."""
    import numpy as np

    _, offsets, data = joined.buffers()
    return bytes(memoryview(data)[: np.frombuffer(offsets, np.int32)[len(joined)]])
