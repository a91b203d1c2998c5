"""Sorting of tables that are large beside the memory that is there."""

from __future__ import annotations

from collections.abc import MutableSequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


def sorted_by_first(tables: MutableSequence[pa.Table]) -> pa.Table:
    """Sort the last table by its first column. It is taken out of `tables`, so that no caller holds it while its
    columns are copied one after the other: at most one of them is there twice. Arrow keeps memory that was freed,
    and is asked after each column to give it back.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    pool = pa.default_memory_pool()
    pool.release_unused()
    table = tables.pop()
    schema, columns = table.schema, list(table.columns)
    del table
    for at, name in enumerate(schema.names):
        columns[at] = pa.Table.from_arrays([columns[at]], [name]).combine_chunks()[name]
        pool.release_unused()
    order: Any = pc.sort_indices(columns[0])
    for at in range(len(columns)):
        columns[at] = columns[at].take(order)
        pool.release_unused()
    return pa.Table.from_arrays(columns, schema=schema)
