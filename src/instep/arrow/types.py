"""Our types of columns as Arrow's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from instep.domain.columns import Column, ColumnType, TypeName

_TYPES: Mapping[TypeName, pa.DataType] = {
    TypeName.BOOL: pa.bool_(),
    TypeName.INT32: pa.int32(),
    TypeName.INT64: pa.int64(),
    TypeName.FLOAT32: pa.float32(),
    TypeName.FLOAT64: pa.float64(),
    TypeName.STRING: pa.string(),
    TypeName.BYTES: pa.binary(),
    TypeName.DATE: pa.date32(),
    TypeName.TIMESTAMP: pa.timestamp("us", "UTC"),
}


def arrow_type(kind: ColumnType) -> pa.DataType:
    if kind.name is TypeName.DECIMAL:
        return pa.decimal128(kind.precision, kind.scale)
    return _TYPES[kind.name]


def arrow_schema(columns: Sequence[Column]) -> pa.Schema:
    return pa.schema([pa.field(each.name, arrow_type(each.type)) for each in columns])
