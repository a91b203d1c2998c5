"""Keys of rows, and whole rows, as numbers of 64 bits: for whole columns at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Numbers: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.uint64]]"

_ONE = np.uint64(0x9E3779B97F4A7C15)
_TWO = np.uint64(0xBF58476D1CE4E5B9)
_THREE = np.uint64(0x94D049BB133111EB)
#: What stands for a null.
_NULL = np.uint64(0xD6E8FEB86659FD93)


def key_numbers(columns: Sequence[pa.Array[Any]]) -> Numbers:
    total = np.zeros(len(columns[0]), np.uint64)
    with np.errstate(over="ignore"):
        for column in columns:
            total = mixed(total * _ONE + _numbers(column))
    return total


def row_numbers(columns: Sequence[pa.Array[Any]]) -> Numbers:
    """Numbers of rows by all that is in them: columns of any of our types, in which there may be nulls."""
    total = np.zeros(len(columns[0]), np.uint64)
    with np.errstate(over="ignore"):
        for column in columns:
            total = mixed(total * _ONE + _numbers_or_null(column))
    return total


def _numbers_or_null(column: pa.Array[Any]) -> Numbers:
    if column.null_count == len(column):
        return np.full(len(column), _NULL)
    if pa.types.is_floating(column.type):
        # By their bits: what is not a number is what it was.
        doubles: Any = column.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False)
        numbers = mixed(np.ascontiguousarray(doubles).view(np.uint64))
    else:
        numbers = _numbers(column)
    if not column.null_count:
        return numbers
    return np.where(column.is_null().to_numpy(zero_copy_only=False), _NULL, numbers)


def mixed(values: Numbers) -> Numbers:
    """Every bit of the input changes half the bits of the output (splitmix64)."""
    values = values + _ONE
    values = (values ^ (values >> np.uint64(30))) * _TWO
    values = (values ^ (values >> np.uint64(27))) * _THREE
    return values ^ (values >> np.uint64(31))


def _numbers(column: pa.Array[Any]) -> Numbers:
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _of_bytes(column)
    if pa.types.is_decimal(kind):
        words = np.frombuffer(_buffer(column, 1), np.uint64).reshape(-1, 2)[column.offset : column.offset + len(column)]
        return mixed(words[:, 0]) * _TWO + mixed(words[:, 1])
    if pa.types.is_date32(kind):
        column = column.cast(pa.int32())
    values: Any = pc.cast(column, pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    return mixed(values.astype(np.int64).view(np.uint64))


def _of_bytes(column: pa.Array[Any]) -> Numbers:
    """A sum over the bytes, each times a number that belongs to its place, and the length."""
    offsets = np.frombuffer(_buffer(column, 1), np.int32)[column.offset : column.offset + len(column) + 1].astype(
        np.int64
    )
    first, last = int(offsets[0]), int(offsets[-1])
    data = np.frombuffer(_buffer(column, 2), np.uint8)[first:last] if last > first else np.empty(0, np.uint8)
    lengths = np.diff(offsets)
    places = np.arange(len(data)) - np.repeat(offsets[:-1] - first, lengths)
    weights = mixed(np.arange(int(lengths.max(initial=0)), dtype=np.uint64)) | np.uint64(1)
    sums = np.zeros(len(data) + 1, np.uint64)
    np.cumsum((data.astype(np.uint64) + np.uint64(1)) * weights[places], out=sums[1:])
    return mixed(sums[offsets[1:] - first] - sums[offsets[:-1] - first] + lengths.astype(np.uint64))


def _buffer(column: pa.Array[Any], number: int) -> Any:
    return column.buffers()[number]
