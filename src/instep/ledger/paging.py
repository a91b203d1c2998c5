"""Pages begin after the last item of the one before, and not at a number: an item added or removed in between neither
repeats nor hides another item.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Dialect, Select, String, TypeDecorator, and_, bindparam, false, or_
from sqlalchemy.ext.compiler import compiles

from instep.domain.refs import PartitionRef


def on(page: Select[Any], column: ColumnElement[str], refs: Collection[PartitionRef] | None) -> Select[Any]:
    return page if refs is None else page.where(one_of(column, refs))


def one_of(column: ColumnElement[str], refs: Collection[PartitionRef]) -> ColumnElement[bool]:
    """Whether a column names one of these partitions. They may be more than a statement may have variables."""
    return _OneOf(column, sorted(map(str, refs))) if refs else false()


def beyond(columns: Sequence[ColumnElement[Any]], values: Sequence[Any]) -> ColumnElement[bool]:
    """(a, b, c) > (x, y, z), written out: not all databases read an index for a comparison of rows."""
    column, value = columns[0], values[0]
    further: ColumnElement[bool] = column > value
    return further if len(columns) == 1 else or_(further, and_(column == value, beyond(columns[1:], values[1:])))


class _AsJson(TypeDecorator[list[str]]):
    impl = String
    cache_ok = True

    def process_bind_param(self, value: list[str] | None, dialect: Dialect) -> str:
        return json.dumps(value)


class _OneOf(ColumnElement[bool]):
    inherit_cache = False

    def __init__(self, column: ColumnElement[str], values: list[str]) -> None:
        self.column = column
        self.plain = column.in_(values)
        self.whole = bindparam(None, values, type_=_AsJson(), unique=True)


@compiles(_OneOf)
def _plain(element: _OneOf, compiler: Any, **options: Any) -> str:
    """PyMySQL has no variables: it writes values into the statement."""
    return str(compiler.process(element.plain, **options))


@compiles(_OneOf, "sqlite")
def _sqlite(element: _OneOf, compiler: Any, **options: Any) -> str:
    column, whole = (compiler.process(each, **options) for each in (element.column, element.whole))
    return f"{column} IN (SELECT value FROM json_each({whole}))"  # noqa: S608 - a column, and the name of a variable


@compiles(_OneOf, "postgresql")
def _postgres(element: _OneOf, compiler: Any, **options: Any) -> str:
    column, whole = (compiler.process(each, **options) for each in (element.column, element.whole))
    return f"{column} IN (SELECT json_array_elements_text(CAST({whole} AS json)))"
