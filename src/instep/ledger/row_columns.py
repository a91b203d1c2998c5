"""Rows of a query in columns of Arrow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Select

if TYPE_CHECKING:
    import pyarrow as pa


def in_columns(rows: Sequence[Any], schema: pa.Schema) -> pa.RecordBatch:
    import pyarrow as pa

    columns: Any = zip(*rows, strict=True) if rows else [()] * len(schema)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def by_rows(connection: Connection, query: Select[Any], schema: pa.Schema) -> pa.RecordBatch:
    """Read `SqlDialect.columns` by way of Python's rows."""
    return in_columns(connection.execute(query).fetchall(), schema)
