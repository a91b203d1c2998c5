"""Pages begin after the last item of the one before, and not at a number: an item added or removed in between neither
repeats nor hides another item.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, or_

from instep.domain.refs import PartitionRef


def on(page: Select[Any], column: ColumnElement[str], refs: Collection[PartitionRef] | None) -> Select[Any]:
    return page if refs is None else page.where(column.in_(sorted(map(str, refs))))


def beyond(columns: Sequence[ColumnElement[Any]], values: Sequence[Any]) -> ColumnElement[bool]:
    """(a, b, c) > (x, y, z), written out: not all databases read an index for a comparison of rows."""
    column, value = columns[0], values[0]
    further: ColumnElement[bool] = column > value
    return further if len(columns) == 1 else or_(further, and_(column == value, beyond(columns[1:], values[1:])))
