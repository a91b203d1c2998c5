"""Buffers of Arrow as Rust wants them: a value of 16 bytes or more begins at a multiple of 16."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

#: Buffers that came through a stream, as Spark's and ClickHouse's do, begin at a multiple of this.
_STREAMED = 8
_WIDE = 16


def aligned(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows; columns whose buffers begin in the wrong place are copied, others are as they were."""
    columns = [_aligned(each) for each in rows.columns]
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema)


def _aligned(values: Any) -> Any:
    demanded = _WIDE if _is_wide(values.type) else _STREAMED
    if all(each is None or each.address % demanded == 0 for each in values.buffers()):
        return values
    # Of two arrays Arrow makes a new one, whatever is nested in them.
    return pa.concat_arrays([values, values.slice(0, 0)])


def _is_wide(kind: pa.DataType) -> bool:
    """Whether it has values of 16 or 32 bytes, or something in it has: decimals, and the views of texts."""
    if isinstance(kind, pa.BaseExtensionType):
        return _is_wide(kind.storage_type)
    if isinstance(kind, pa.DictionaryType):
        return _is_wide(kind.value_type)
    if kind.num_fields:
        return any(_is_wide(kind.field(at).type) for at in range(kind.num_fields))
    return kind in (pa.string_view(), pa.binary_view()) or (pa.types.is_decimal(kind) and kind.bit_width > 64)
