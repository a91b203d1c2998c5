"""Membership of many values in a large set, batch by batch: `pyarrow.compute.is_in` prepares its set for each batch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc


class ValueSet:
    """A set of values that are looked for in many batches, prepared once: eight bytes for each.

    Of numbers it is exact. Of others the hashes are compared: a value that is not in the set may very rarely seem to
    be, one that is in it never seems not to be.
    """

    def __init__(self, values: pa.Array[Any] | pa.ChunkedArray[Any]) -> None:
        chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
        self._numbers = np.sort(np.concatenate([np.zeros(0, np.int64), *map(_numbers, map(_without_nulls, chunks))]))

    def __len__(self) -> int:
        return len(self._numbers)

    def with_values(self, batches: Iterable[pa.Array[Any]]) -> ValueSet:
        """These values and those of the set, each once."""
        new = [np.unique(_numbers(_without_nulls(each))) for each in batches]
        # Two runs that are sorted already are merged.
        numbers = np.concatenate([self._numbers, np.sort(np.concatenate([np.zeros(0, np.int64), *new]))])
        numbers.sort(kind="stable")
        once = np.ones(len(numbers), bool)
        np.not_equal(numbers[1:], numbers[:-1], out=once[1:])
        found = ValueSet.__new__(ValueSet)
        found._numbers = numbers[once]
        return found

    def contains(self, values: pa.Array[Any]) -> npt.NDArray[np.bool_]:
        """A mask of the values that are in the set; a null is in none."""
        if not len(self._numbers):
            return np.zeros(len(values), bool)
        found = _numbers(values)
        places = np.searchsorted(self._numbers, found)
        same: npt.NDArray[np.bool_] = self._numbers[np.minimum(places, len(self._numbers) - 1)] == found
        return same & _valid(values) if values.null_count else same


def _without_nulls(values: pa.Array[Any]) -> pa.Array[Any]:
    return values.drop_null() if values.null_count else values


def _valid(values: pa.Array[Any]) -> npt.NDArray[np.bool_]:
    mask: Any = pc.is_valid(values)
    valid: npt.NDArray[np.bool_] = mask.to_numpy(zero_copy_only=False)
    return valid


def _numbers(values: Any) -> npt.NDArray[np.int64]:
    """A number for each value; that of a null says nothing."""
    if pa.types.is_signed_integer(values.type):
        return np.asarray(values.fill_null(0).to_numpy(zero_copy_only=False), np.int64)
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        values = values.cast(pa.large_binary())  # Texts of Parquet may be of any bytes.
    return np.fromiter(map(hash, values.to_pylist()), np.int64, len(values))
