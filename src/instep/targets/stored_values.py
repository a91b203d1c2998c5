"""Values of documents' columns as a store gives them back, in their own types again.

A store without a type holds another: a moment as microseconds since 1970, a date as days, a flag as 0 or 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

from instep.domain.column_values import Value
from instep.domain.document_columns import DocumentColumn, DocumentColumnType
from instep.domain.filters import FilterValue

_DAY: Final = date(1970, 1, 1)
_MOMENT: Final = datetime(1970, 1, 1, tzinfo=UTC)

_PLAIN: Final[Mapping[DocumentColumnType, Callable[[Any], FilterValue]]] = {
    DocumentColumnType.STRING: str,
    DocumentColumnType.STRINGS: str,
    DocumentColumnType.DATE: lambda stored: stored,
    DocumentColumnType.BOOL: bool,
    DocumentColumnType.INT: int,
    DocumentColumnType.INTS: int,
    DocumentColumnType.FLOAT: float,
}


def restored(column: DocumentColumn, stored: Any) -> Value:
    """The value of a column; an empty list is none."""
    if stored is None:
        return None
    if column.type.listed:
        return [restored_element(column, each) for each in stored] or None  # type: ignore[return-value]  # all of one type
    return restored_element(column, stored)


def restored_element(column: DocumentColumn, stored: Any) -> FilterValue:
    """The value of a column, or one element of its list."""
    match column.type:
        case DocumentColumnType.DATE if not isinstance(stored, date):
            return _DAY + timedelta(days=int(stored))
        case DocumentColumnType.TIMESTAMP if not isinstance(stored, datetime):
            return _MOMENT + timedelta(microseconds=int(stored))
        case DocumentColumnType.TIMESTAMP:
            moment: datetime = stored
            return moment.astimezone(UTC)
    found: FilterValue = _PLAIN[column.type](stored)
    return found
