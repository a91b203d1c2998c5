"""Conditions as SQL of PostgreSQL, values as parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from psycopg import sql

from instep.domain.document_columns import DocumentColumn, DocumentColumnType
from instep.domain.filters import (
    All,
    Condition,
    Contains,
    Either,
    FilterValue,
    IsNull,
    OneOf,
    Order,
    Ordered,
    Prefix,
    ordered,
)
from instep.postgres.connection import Name

_TYPES: Final = {
    DocumentColumnType.STRING: sql.SQL("text"),
    DocumentColumnType.INT: sql.SQL("bigint"),
    DocumentColumnType.FLOAT: sql.SQL("double precision"),
    DocumentColumnType.BOOL: sql.SQL("boolean"),
    DocumentColumnType.TIMESTAMP: sql.SQL("timestamptz"),
    DocumentColumnType.DATE: sql.SQL("date"),
    DocumentColumnType.STRINGS: sql.SQL("text"),
    DocumentColumnType.INTS: sql.SQL("bigint"),
}

_ORDERS: Final = {each: sql.SQL(each.value) for each in Order}


class Clause(NamedTuple):
    """An expression, and the values of its placeholders."""

    sql: sql.Composable
    values: Sequence[Any]


#: What holds for every row.
EVERY: Final = Clause(sql.SQL("true"), ())


def clause(condition: Condition) -> Clause:  # noqa: PLR0911 - one for each form
    """An expression that holds for the rows that a condition holds for."""
    match condition:
        case All(conditions):
            return _joined(" AND ", conditions)
        case Either(conditions):
            return _joined(" OR ", conditions)
        case OneOf(column, values, negated):
            return _one_of(column, values, negated)
        case Ordered(column, order, value):
            return _ordered(column, order, value)
        case Prefix():
            return clause(ordered(condition))
        case Contains(column, values, negated):
            shared = sql.SQL("{} && %s::{}[]").format(Name(column.name), _TYPES[column.type])
            found = sql.SQL("(NOT {})").format(shared) if negated else sql.SQL("({})").format(shared)
            return Clause(found, [_held(values)])
        case IsNull(column, negated):
            words = sql.SQL("({} IS NOT NULL)" if negated else "({} IS NULL)")
            return Clause(words.format(Name(column.name)), ())


def _joined(word: str, conditions: Sequence[Condition]) -> Clause:
    parts = [clause(each) for each in conditions]
    joined = sql.SQL(" AND " if word == " AND " else " OR ").join([each.sql for each in parts])
    return Clause(sql.SQL("({})").format(joined), [value for each in parts for value in each.values])


def _one_of(column: DocumentColumn, values: Sequence[FilterValue], negated: bool) -> Clause:
    held = _held(values)
    if negated and not held:
        # Of no values even a null is none.
        return clause(IsNull(column, negated=True))
    words = sql.SQL("({} <> ALL(%s::{}[]))" if negated else "({} = ANY(%s::{}[]))")
    return Clause(words.format(Name(column.name), _TYPES[column.type]), [held])


def _ordered(column: DocumentColumn, order: Order, value: FilterValue) -> Clause:
    if isinstance(value, str) and "\0" in value:
        # No text here has this character: whatever is below this value is at most what stands before it.
        value = value.partition("\0")[0]
        order = Order.AT_MOST if order in (Order.LESS, Order.AT_MOST) else Order.MORE
    collated = sql.SQL(' COLLATE "C"' if column.type is DocumentColumnType.STRING else "")
    words = sql.SQL("({}{} {} %s::{})")
    return Clause(words.format(Name(column.name), collated, _ORDERS[order], _TYPES[column.type]), [value])


def _held(values: Sequence[FilterValue]) -> list[FilterValue]:
    """Those of these values that a column can have."""
    return [each for each in values if not (isinstance(each, str) and "\0" in each)]
