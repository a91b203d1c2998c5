"""Parts of rows and of ids that one request to a server may hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    Sizes = np.ndarray[Any, np.dtype[np.int64]]

_Each = TypeVar("_Each")


def portions(values: Sequence[_Each], size: int) -> Iterator[Sequence[_Each]]:
    return (values[at : at + size] for at in range(0, len(values), size))


def requests(
    rows: pa.RecordBatch, sizes: Callable[[pa.RecordBatch], Sizes], *, most_rows: int, most_bytes: int
) -> Iterator[pa.RecordBatch]:
    """The rows in parts that one request may hold. A row that is too large by itself is a part of its own."""
    import numpy as np

    ends = np.cumsum(sizes(rows))
    start = 0
    while start < rows.num_rows:
        before = ends[start - 1] if start else 0
        fitting = int(np.searchsorted(ends, before + most_bytes, side="right")) - start
        count = max(1, min(fitting, most_rows))
        yield rows.slice(start, count)
        start += count


def records(rows: pa.RecordBatch) -> list[dict[str, Any]]:
    """Rows without their vectors, as they are sent: moments and dates as numbers, of microseconds and of days since
    1970, which every server keeps exactly.
    """
    import pyarrow as pa

    columns: list[Any] = []
    names = [name for name in rows.schema.names if name != "vector"]
    for name in names:
        column: Any = rows.column(name)
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.int64())
        elif pa.types.is_date32(column.type):
            column = column.cast(pa.int32())
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, names).to_pylist()


def row_sizes(rows: pa.RecordBatch, *, row: int, number: int) -> Sizes:
    """About how many bytes of a request each row is: `row` of them besides its texts, `number` for one of its vector.
    It may be without its vector yet.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    place = rows.schema.get_field_index("vector")
    numbers = rows.schema.field(place).type.list_size if place >= 0 else 0
    sizes = np.full(rows.num_rows, row + number * numbers, np.int64)
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        if pa.types.is_string(column.type):
            texts: Any = column
            lengths: Any = pc.fill_null(pc.binary_length(texts), 0)
            sizes += lengths.to_numpy(zero_copy_only=False)
        elif pa.types.is_list(column.type) and name != "vector":
            joined: Any = pc.binary_join(column.cast(pa.list_(pa.string())), ",")
            sizes += pc.fill_null(pc.binary_length(joined), 0).to_numpy(zero_copy_only=False)
    return sizes
