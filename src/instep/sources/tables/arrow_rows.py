"""Rows of a table, as Arrow has them, as documents: what `row_documents.RowTable` lists and reads of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from instep.arrow.sets import ValueSet
from instep.arrow.types import arrow_type
from instep.domain.columns import BOOL, BYTES, DATE, INT64, MAX_PRECISION, STRING, TIMESTAMP, ColumnType, decimal_type
from instep.domain.keys import Key
from instep.domain.rows import DocumentColumns
from instep.errors import UserError
from instep.sources.tables.row_documents import demand_types, row_columns
from instep.sources.tables.row_keys import values_at
from instep.sources.tables.rows import content_versions, declared_values, demand_declared, versions_of
from instep.sources.tables.table_source import demand

#: Bytes of text and rows in a batch, about.
_BATCH_BYTES: Final = 4 << 20
BATCH_ROWS: Final = 16_384


@dataclass(frozen=True)
class ArrowRows:
    """The columns of documents in batches of a table. `types` are those of the columns; `text` names the table."""

    columns: DocumentColumns
    types: Mapping[str, ColumnType]
    text: str

    @property
    def marks(self) -> list[str]:
        """The columns that tell whether a row has changed, if it has a version."""
        columns = self.columns
        return [*columns.key, *filter(None, (columns.version, columns.deleted))]

    def listed(self, rows: pa.RecordBatch, usual: int | None) -> pa.RecordBatch:
        """Rows as they are listed. `usual`: so many bytes a text has, about, where it has not been read."""
        columns = self.columns
        keys = [self.values(rows, name) for name in columns.key]
        texts: Any = pa.nulls(rows.num_rows, pa.binary()) if usual is not None else _bytes(rows, columns.text)
        titles = _bytes(rows, columns.title) if columns.title and usual is None else None
        facts = None
        if columns.columns and usual is None:
            facts = declared_values([_stored(rows, each.of) for each in columns.columns], columns.columns).facts
        if columns.version is None:
            versions = content_versions(titles, texts, facts)
        else:
            versions = versions_of(_typed(rows, columns.version, self.types), titles, texts, facts)
        if usual is None:
            sizes: Any = pc.fill_null(pc.binary_length(texts), 0).cast(pa.int64())
        else:
            sizes = pa.repeat(pa.scalar(-max(1, usual), pa.int64()), rows.num_rows)
        return pa.RecordBatch.from_arrays([*keys, versions, sizes], _names(len(keys) + 2))

    def read(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Rows as they are read."""
        columns = self.columns
        found = [self.values(batch, name) for name in columns.key]
        found += [_typed(batch, columns.version, self.types)] if columns.version else []
        found += [_bytes(batch, name) for name in (columns.title, columns.text) if name]
        found += [_stored(batch, each.of) for each in columns.columns]
        return pa.RecordBatch.from_arrays(found, _names(len(found)))

    def sets(self, keys: Sequence[Key]) -> Mapping[str, ValueSet]:
        """The values that these keys have in each column of the key that they name."""
        named = row_columns(self.columns, keys).key
        values = {name: values_at(keys, at) for at, name in enumerate(named)}
        return {name: ValueSet(pa.array(each, arrow_type(self.types[name]))) for name, each in values.items()}

    def wanted(self, batches: Iterable[pa.RecordBatch], values: Mapping[str, ValueSet]) -> Iterator[pa.RecordBatch]:
        """Rows that have one of these values in each column, and perhaps others."""
        for batch in batches:
            chosen = [each.contains(self.values(batch, name)) for name, each in values.items()]
            yield batch.filter(pa.array(reduce(and_, chosen)))

    def values(self, batch: pa.RecordBatch, name: str) -> pa.Array[Any]:
        """A column in its type."""
        try:
            return _typed(batch, name, self.types)
        except pa.ArrowInvalid as error:
            raise UserError(f"{name!r} cannot be read: {error}", where=self.text) from None

    def is_deleted(self, batch: pa.RecordBatch) -> pa.BooleanArray | None:
        """Flags of the rows that are marked as deleted; None: there is no mark."""
        name = self.columns.deleted
        if name is None or name not in batch.schema.names:
            return None
        gone: Any = batch.column(name).cast(pa.bool_()).fill_null(False)
        flags: pa.BooleanArray = gone
        return flags

    def undeleted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        gone = self.is_deleted(batch)
        return batch if gone is None else batch.filter(pc.invert(gone))


def types_of(
    columns: DocumentColumns, schemas: Sequence[tuple[str, pa.Schema]], text: str, *, hint: str
) -> dict[str, ColumnType]:
    """The types of the named columns, which all these schemas have in common (each with where it is); one that a schema
    has not is null there. (Of one in which all is null, pandas writes no type.) Raises `UserError` for what cannot be
    used, with this hint.
    """
    found: dict[str, ColumnType] = {}
    untyped: set[str] = set()
    own, there = replace(columns, columns=()).named, set[str]()
    for place, schema in schemas:
        for stored in schema:
            there.add(stored.name)
            for column in columns.columns:
                if column.of == stored.name:
                    demand_declared(column, stored.type, text, f"{hint[0].lower()}{hint[1:]}")
            if stored.name not in own:
                continue
            if pa.types.is_null(stored.type):
                untyped.add(stored.name)
                continue
            kind = kind_of(stored.type)
            if kind is None or found.setdefault(stored.name, kind) != kind:
                raise UserError(
                    f"{stored.name!r} is {stored.type} in {place}, which cannot be used here", where=text, hint=hint
                )
    found |= {name: BOOL if name == columns.deleted else STRING for name in untyped - found.keys()}
    demand(columns.named, [*found, *there], text)
    demand_types(columns, found, text)
    return found


def kind_of(stored: pa.DataType) -> ColumnType | None:  # noqa: PLR0911 - one return for each type
    """Integers are of one type, whatever their length: it may differ between files."""
    if pa.types.is_dictionary(stored):
        return kind_of(stored.value_type)
    if pa.types.is_integer(stored):
        return INT64
    if pa.types.is_string(stored) or pa.types.is_large_string(stored):
        return STRING
    if pa.types.is_binary(stored) or pa.types.is_large_binary(stored):
        return BYTES
    if pa.types.is_timestamp(stored):
        return TIMESTAMP
    if pa.types.is_decimal(stored) and 0 <= stored.scale <= stored.precision <= MAX_PRECISION:
        return decimal_type(stored.precision, stored.scale)
    return {pa.bool_(): BOOL, pa.date32(): DATE}.get(stored)


def batch_rows(text_bytes: int) -> int:
    """The rows that are read at once, where a text has so many bytes."""
    return max(1, min(BATCH_ROWS, _BATCH_BYTES // max(1, text_bytes)))


def _typed(batch: pa.RecordBatch, name: str, types: Mapping[str, ColumnType]) -> pa.Array[Any]:
    kind: Any = arrow_type(types[name])
    if name not in batch.schema.names:
        nothing: pa.Array[Any] = pa.nulls(batch.num_rows, kind)
        return nothing
    values: pa.Array[Any] = batch.column(name)
    if pa.types.is_timestamp(values.type) and values.type.tz is None:
        values = values.cast(pa.timestamp(values.type.unit, "UTC"))
    found: pa.Array[Any] = values.cast(kind, safe=not pa.types.is_timestamp(kind))
    return found


def _stored(batch: pa.RecordBatch, name: str) -> pa.Array[Any]:
    return batch.column(name) if name in batch.schema.names else pa.nulls(batch.num_rows)


def _bytes(batch: pa.RecordBatch, name: str) -> pa.Array[Any]:
    if name not in batch.schema.names:
        return pa.nulls(batch.num_rows, pa.binary())
    values = batch.column(name)
    plain = values.dictionary_decode() if isinstance(values, pa.DictionaryArray) else values
    return plain.cast(pa.binary())


def _names(count: int) -> list[str]:
    return [f"c{at}" for at in range(count)]
