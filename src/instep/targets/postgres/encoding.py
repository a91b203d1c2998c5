"""Rows of Arrow as PostgreSQL's COPY reads them in binary, and the values that it cannot hold.

A row is the number of its fields, and before each field its length in bytes (-1 for null). Decimals travel as text, a
vector as pgvector has it: the number of its elements, two bytes of nothing, and each element.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from instep.domain.columns import ColumnType, TypeName
from instep.errors import UserError
from instep.targets.table_target import TableSpec, Unfit

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray


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
class Listed:
    """The type of a column of lists, which hold no nulls."""

    of: ColumnType


@dataclass(frozen=True, slots=True)
class Vector:
    """The type of a column of vectors, none of them null."""

    dimensions: int


@dataclass(frozen=True, slots=True)
class Words:
    """The type of a column of words with their places, none of them null: see `lexemes`."""


Kind: TypeAlias = ColumnType | Listed | Vector | Words


def encoded(columns: Mapping[str, Kind], rows: pa.RecordBatch, task: int) -> Iterator[bytes]:
    """Rows as they are in Arrow, each with the number of its task at the end."""
    at_once = max(1, rows.num_rows * _BYTES // max(rows.nbytes, 1))
    for at in range(0, rows.num_rows, at_once):
        yield _encoded(columns, rows.slice(at, at_once), task)


def _encoded(columns: Mapping[str, Kind], rows: pa.RecordBatch, task: int) -> bytes:
    import pyarrow as pa
    import pyarrow.compute as pc

    row = _Row(rows.num_rows)
    row.fixed(">i2", len(columns) + 1)
    for name, kind in columns.items():
        values = rows.column(name)
        if isinstance(kind, Vector):
            _vectors(row, kind.dimensions, values)
        elif isinstance(kind, Listed):
            _lists(row, kind.of, values)
        elif isinstance(kind, Words) or kind.name not in _FIXED:
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
    """The rows, encoded field by field. What has the same length in each row is put together first."""

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


#: Types of what is in an array, by the numbers that PostgreSQL has for them.
_ELEMENTS: Final = {TypeName.STRING: 25, TypeName.INT64: 20}


def _lists(row: _Row, kind: ColumnType, values: Values) -> None:
    """Arrays: of one dimension, without nulls, each element behind its length."""
    import pyarrow as pa
    import pyarrow.compute as pc

    there = values.is_valid()
    values = pc.if_else(there, values, pa.scalar([], values.type))
    elements = _Row(len(values.flatten()))
    if kind.name is TypeName.STRING:
        _text(elements, values.flatten())
    else:
        _dense(elements, kind, values.flatten())
    nothing: Values = pa.scalar(b"", pa.binary())
    fields = (
        pc.binary_join_element_wise(*elements.pieces(), nothing) if len(values.flatten()) else pa.array([], pa.binary())
    )
    data: Values = pc.binary_join(pa.ListArray.from_arrays(values.offsets, fields), nothing)
    counts = pc.list_value_length(values).to_numpy()
    head = _Row(len(values))
    sizes: Values = pc.binary_length(data)
    head.fixed(">i4", sizes.to_numpy() + 20)
    head.fixed(">i4", 1)
    head.fixed(">i4", 0)
    head.fixed(">i4", _ELEMENTS[kind.name])
    head.fixed(">i4", counts)
    head.fixed(">i4", 1)
    head.various(data)
    field = pc.binary_join_element_wise(*head.pieces(), nothing)
    row.various(pc.if_else(there, field, pa.scalar(b"\xff\xff\xff\xff", pa.binary())))


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


#: Days and microseconds since 1970 that the server takes: from 24 November 4714 BC on; dates up to the year 5874897.
_FIRST_DAY, _LAST_DAY = -2_440_588, 2_145_042_905
_FIRST_MICROSECOND: Final = _FIRST_DAY * 86_400_000_000

#: An index takes keys of a third of a page: 2,704 bytes, of which some are its own.
_KEY_BYTES: Final = 2_500


def unfit(spec: TableSpec, rows: pa.RecordBatch) -> Iterator[Unfit]:
    """See `TableTarget.unfit`."""
    for column in spec.columns:
        values = rows.column(column.name)
        match column.type.name:
            case TypeName.STRING:
                found = Unfit(column.name, with_nul(values), "text with the character U+0000")
            case TypeName.DATE:
                found = Unfit(column.name, _no_day(values), "a date before 4714 BC or after the year 5874897")
            case TypeName.TIMESTAMP:
                found = Unfit(column.name, _no_moment(values), "a moment before 4714 BC")
            case _:
                continue
        if found.rows.any():
            yield found
    if (long := _key_bytes(spec, rows) > _KEY_BYTES).any():
        yield Unfit(spec.key[-1], long, f"a key of more than {_KEY_BYTES} bytes")


def demand_fit(spec: TableSpec, rows: pa.RecordBatch) -> None:
    """Check that rows fit. Raises `UserError` that names the first column with values that do not fit."""
    for column, mask, reason in unfit(spec, rows):
        raise UserError(
            f"{spec}: column {column!r} has {reason} in {mask.sum()} rows, which PostgreSQL cannot hold",
            hint="Leave such rows out, or change the value in the source's query.",
        )


def with_nul(values: Any) -> NDArray[np.bool_]:
    """A mask of the texts that have the character U+0000."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    # All bytes at once first: there is as good as never one.
    data = values.buffers()[2]
    if data is None or np.frombuffer(data, np.uint8).all():
        return np.zeros(len(values), np.bool_)
    mask: Any = pc.match_substring(values, "\0")
    return np.asarray(mask.fill_null(False))


def _no_day(values: Any) -> NDArray[np.bool_]:
    import numpy as np

    days = values.view("int32").fill_null(0).to_numpy()
    return np.asarray((days < _FIRST_DAY) | (days > _LAST_DAY))


def _no_moment(values: Any) -> NDArray[np.bool_]:
    import numpy as np

    return np.asarray(values.view("int64").fill_null(0).to_numpy() < _FIRST_MICROSECOND)


def _key_bytes(spec: TableSpec, rows: pa.RecordBatch) -> NDArray[np.int64]:
    """The bytes of keys, as far as their length varies."""
    import numpy as np
    import pyarrow.compute as pc

    total = np.zeros(rows.num_rows, np.int64)
    for name in spec.key:
        values: Any = rows.column(name)
        if spec.type_of(name).name in (TypeName.STRING, TypeName.BYTES):
            lengths: Any = pc.binary_length(values)
            total += lengths.to_numpy()
    return total
