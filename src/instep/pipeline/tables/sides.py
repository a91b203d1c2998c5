"""The sides of a comparison of keys: rows of a source and of an index, in one form."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from instep.arrow.types import arrow_type
from instep.domain.columns import BOOL, STRING, TIMESTAMP, Column
from instep.pipeline.tables.key_comparison import VERSION, Keep, Sums
from instep.pipeline.tables.values import fitted

Batches: TypeAlias = "Iterator[pa.RecordBatch]"


@dataclass(frozen=True, slots=True)
class KeyReader:
    """Rows of a source → their keys and versions; rows that are deleted, and those without a key, are left out.
    Picklable: it travels to tasks.

    `elsewhere`: the column of the scope, and its path: rows that are not in it are left out as well. `outside`: these,
    and the deleted ones, are read in place of the others.
    """

    keys: tuple[Column, ...]
    watermark: str | None
    deleted: str | None
    elsewhere: tuple[str, str] | None = None
    outside: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that the rows have, in this order."""
        scope = self.elsewhere[0] if self.elsewhere else None
        marks = (each for each in (self.watermark, self.deleted, scope) if each)
        return tuple(dict.fromkeys((*(each.name for each in self.keys), *marks)))

    @property
    def schema(self) -> pa.Schema:
        fields = [pa.field(each.name, arrow_type(each.type)) for each in self.keys]
        return pa.schema([*fields, pa.field(VERSION, pa.int64())])

    def read(self, batches: Batches) -> Batches:
        for each in batches:
            columns = dict(zip(self.names, each.columns, strict=True))
            keys = [fitted(columns[key.name], key).values for key in self.keys]
            there = np.ones(each.num_rows, bool)
            for values in keys:
                there &= values.is_valid().to_numpy(zero_copy_only=False)
            there &= self._left_out(columns, each.num_rows) == self.outside
            found = pa.RecordBatch.from_arrays([*keys, self._versions(columns, each.num_rows)], schema=self.schema)
            yield found.filter(pa.array(there))

    def _left_out(self, columns: dict[str, Any], rows: int) -> npt.NDArray[np.bool_]:
        """The rows that are deleted, or elsewhere."""
        found = np.zeros(rows, bool)
        if self.deleted:
            flags: Any = fitted(columns[self.deleted], Column(self.deleted, BOOL)).values.fill_null(False)
            found |= flags.to_numpy(zero_copy_only=False)
        if self.elsewhere:
            name, path = self.elsewhere
            scopes: Any = fitted(columns[name], Column(name, STRING)).values.fill_null("")
            found |= ~pc.starts_with(scopes, path).to_numpy(zero_copy_only=False)
        return found

    def _versions(self, columns: dict[str, Any], rows: int) -> pa.Array[Any]:
        """Versions as they are stored: see `RowWriter`. Without a watermark they are 0."""
        if self.watermark is None:
            return pa.repeat(pa.scalar(0, pa.int64()), rows)
        marks = fitted(columns[self.watermark], Column(self.watermark, TIMESTAMP)).values
        versions: pa.Array[Any] = marks.cast(pa.int64()).fill_null(0)
        return versions


def stored_rows(batches: Batches, schema: pa.Schema, key: Sequence[str], version: str | None) -> Batches:
    """Rows of a target in the form of `KeyReader`; without a `version`, 0."""
    for each in batches:
        marks = pa.repeat(pa.scalar(0, pa.int64()), each.num_rows) if version is None else each.column(version)
        yield pa.RecordBatch.from_arrays([*(each.column(name) for name in key), marks.cast(pa.int64())], schema=schema)


class Side(Protocol):
    """One side of a comparison: all its rows, by keys and versions."""

    def sums(self) -> Sums: ...

    def rows(self, kept: Keep) -> pa.Table:
        """The rows that are kept."""


@dataclass(frozen=True, slots=True)
class HereSide:
    """Read by this process: as often as it is asked, a batch at a time."""

    read: Callable[[], Batches]
    schema: pa.Schema

    def sums(self) -> Sums:
        return Sums.of(self.read())

    def rows(self, kept: Keep) -> pa.Table:
        return pa.Table.from_batches(kept(self.read()), self.schema)


#: The column that says which rows of a repair are deleted, where the source has none.
GONE = Column("instep_gone", BOOL)
