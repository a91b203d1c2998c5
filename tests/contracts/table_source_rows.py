"""Rows that sources of tables are tested with, and what of them a selection means."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any, TypeAlias

import pyarrow as pa

from instep.domain.columns import BOOL, BYTES, DATE, FLOAT64, INT32, INT64, STRING, TIMESTAMP, Column, decimal_type
from instep.domain.cuts import KeyRange
from instep.domain.keys import Key, key_of
from instep.domain.rows import RowColumns, Selection

Row: TypeAlias = dict[str, Any]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
START = datetime(2024, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1

#: By code point, by UTF-16, by a language, without case, with spaces that do not count: each order is another one.
TEXTS = ("", " ", "A", "B", "C", "Z", "a", "a ", "a  ", "aa", "b", "ab", "z", "é", "e\u0301", "ß", "ss", "\uffee", "😀")
#: What would end a text in SQL, or stand for others in a pattern.
SHARP = ("'", "''; DROP TABLE x; --", '"', "`", "\\", "\\'", "%", "_", "$$", "{0}", "\n", "\t", "?", ":name", "[")

_FIELDS: list[tuple[str, pa.DataType]] = [
    ("id", pa.int64()),
    ("path", pa.string()),
    ("name", pa.string()),
    ("updated", pa.timestamp("us", "UTC")),
    ("gone", pa.bool_()),
    ("number", pa.int32()),
    ("amount", pa.decimal128(12, 3)),
    ("day", pa.date32()),
    ("score", pa.float64()),
    ("data", pa.binary()),
]
SCHEMA = pa.schema(_FIELDS)
COLUMNS = tuple(
    Column(name, kind)
    for name, kind in zip(
        SCHEMA.names,
        (INT64, STRING, STRING, TIMESTAMP, BOOL, INT32, decimal_type(12, 3), DATE, FLOAT64, BYTES),
        strict=True,
    )
)
ROWS = RowColumns(key=("id",), scope="path", watermark="updated", deleted="gone")

_PATHS = ("42/9970/", "42/9970/7/", "42/99700/", "42/997/", "42/", "4/", "420/", "42/9970", "43/1/")


def a_row(at: int, /, **values: Any) -> Row:
    """One of many; every seventh is deleted, each has another watermark."""
    row = {
        "id": at,
        "path": _PATHS[at % len(_PATHS)],
        "name": (TEXTS + SHARP)[at % len(TEXTS + SHARP)],
        "updated": START + timedelta(microseconds=at % 1_000_000),
        "gone": at % 7 == 3,
        "number": at % 100 - 50,
        "amount": Decimal(at * 37 % 10_007) / 1000 - 5,
        "day": date(2020, 1, 1) + timedelta(days=at % 1500),
        "score": at / 7,
        "data": bytes([at % 256, 255 - at % 256]),
    }
    assert values.keys() <= row.keys()
    return row | values


def table_of(rows: Sequence[Row]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=SCHEMA)


def some_rows(count: int = 200) -> list[Row]:
    """With nulls, the ends of int64, and no number."""
    rows = [a_row(number) for number in range(1, count + 1)]
    rows.append(a_row(INT64_MIN, updated=START, number=-1, amount=Decimal("-1.5"), day=date(1969, 7, 20), data=b""))
    rows.append(a_row(INT64_MAX, updated=START, number=-2, amount=Decimal(0), day=date(2100, 1, 1), data=b"\xff\xff"))
    rows += [
        a_row(count + 1, path=None),
        a_row(count + 2, path="42/9970/", name=None, amount=None, day=None, data=None),
        a_row(count + 3, updated=None, gone=None),
        a_row(count + 4, gone=None),
        a_row(count + 5, score=float("nan")),
        a_row(count + 6, score=float("-inf"), number=None),
    ]
    return rows


def micros(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(microseconds=1)


def selected(rows: Sequence[Row], columns: RowColumns, selection: Selection) -> list[Row]:
    """Those that must come, ranges included."""
    return [row for row in rows if _selected(row, columns, selection)]


def _selected(row: Row, columns: RowColumns, selection: Selection) -> bool:
    path = (row[columns.scope] or "") if columns.scope else ""
    if selection.others is not None:
        if any(path.startswith(each.path) for each in selection.others):
            return False
    elif not path.startswith(selection.scope.path):
        return False
    window = selection.window
    if window is not None and columns.watermark:
        mark = row[columns.watermark]
        if not window.holds(None if mark is None else micros(mark)):
            return False
        if window.first and columns.deleted and row[columns.deleted]:
            return False
    values = [row[name] for name in selection.cut_by]
    return not selection.ranges or any(in_range(values, one) for one in selection.ranges)


def in_range(values: Sequence[Any], one: KeyRange) -> bool:
    """Where a null is less than any value."""

    def ordered(given: Sequence[Any]) -> list[tuple[bool, Any]]:
        return [(value is not None, 0 if value is None else value) for value in given]

    for bound, below in ((one.lower, False), (one.upper, True)):
        if bound is not None and (ordered(_comparable(values)[: len(bound)]) < ordered(bound.values)) != below:
            return False
    return True


def _comparable(values: Sequence[Any]) -> list[Any]:
    return [None if value is None else key_of(value).values[0] for value in values]


def cuts(keys: Sequence[Key]) -> tuple[KeyRange, ...]:
    """Ranges that meet at these keys, with open ends."""
    edges = [None, *keys, None]
    return tuple(KeyRange(lower, upper) for lower, upper in pairwise(edges))
