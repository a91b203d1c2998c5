"""Conditions as expressions of Milvus. Milvus Lite takes no parameters, so values are written into the text: no text
gets out of its quotes, and everything else is a number.
"""

from __future__ import annotations

from collections.abc import Iterable

from instep.domain.document_columns import DocumentColumn, DocumentColumnType
from instep.domain.filters import (
    MIN_INT,
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
    either,
    number,
    ordered,
)
from instep.targets.milvus import location


def expression(condition: Condition) -> str:  # noqa: PLR0911 - one for each form
    """An expression that holds for the rows that a condition holds for."""
    match condition:
        case All(conditions):
            return f"({' and '.join(map(expression, conditions))})"
        case Either(conditions):
            return f"({' or '.join(map(expression, conditions))})"
        case OneOf(column, values, negated):
            # Behind its sign the least number would be too large.
            if column.type is DocumentColumnType.INT and MIN_INT in values:
                least = Ordered(column, Order.AT_MOST, MIN_INT)
                others = tuple(each for each in values if each != MIN_INT)
                found = expression(either([least, OneOf(column, others)] if others else [least]))
            else:
                found = f"{column.name} in [{_listed(values)}]"
            return _unless(negated, column, found)
        case Ordered(column, order, value):
            return _ordered(column, order, number(value))
        case Prefix():
            return expression(ordered(condition))
        case Contains(column, values, negated):
            return _unless(negated, column, f"array_contains_any({column.name}, [{_listed(values)}])")
        case IsNull(column, negated):
            return f"({column.name} is {'not ' * negated}null)"


def _ordered(column: DocumentColumn, order: Order, value: FilterValue) -> str:
    if value != MIN_INT:
        return f"({column.name} {order} {_literal(value)})"
    if order is Order.AT_LEAST:
        return f"({column.name} is not null)"
    following = f"{column.name} {'<' if order in (Order.LESS, Order.AT_MOST) else '>='} {MIN_INT + 1}"
    return f"({following} and {column.name} > 0)" if order is Order.LESS else f"({following})"


def _unless(negated: bool, column: DocumentColumn, found: str) -> str:
    return f"({column.name} is not null and not ({found}))" if negated else f"({found})"


def _listed(values: Iterable[FilterValue]) -> str:
    return ", ".join(_literal(number(each)) for each in values)


def _literal(value: FilterValue) -> str:
    if isinstance(value, str):
        return location.text(value)
    return str(value).lower() if isinstance(value, bool) else repr(value)
