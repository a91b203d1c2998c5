"""Values that PostgreSQL cannot hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from instep.domain.columns import TypeName
from instep.errors import UserError
from instep.targets.table_target import TableSpec, Unfit

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

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
    """Raises `UserError` that names the first column with values that do not fit."""
    for column, mask, reason in unfit(spec, rows):
        raise UserError(
            f"{spec}: column {column!r} has {reason} in {mask.sum()} rows, which PostgreSQL cannot hold",
            hint="Leave such rows out, or change the value in the source's query.",
        )


def with_nul(values: Any) -> NDArray[np.bool_]:
    """Which texts have the character U+0000."""
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
    """As far as their length varies."""
    import numpy as np
    import pyarrow.compute as pc

    total = np.zeros(rows.num_rows, np.int64)
    for name in spec.key:
        values: Any = rows.column(name)
        if spec.type_of(name).name in (TypeName.STRING, TypeName.BYTES):
            lengths: Any = pc.binary_length(values)
            total += lengths.to_numpy()
    return total
