"""Filters: conditions on the columns of documents, by which a search is narrowed before anything is ranked.

A condition has no NOT: the language (`filter_language.py`) moves it inwards, to the leaves. There a null, which in SQL
is neither equal nor unequal to anything, leaves a row out whichever way: **no leaf but `IsNull` holds for a null**. So
"unknown" need not be told from "false", and a target that can only say yes or no means the same as SQL does.

What a comparison means is the same on every target (docs/search.md): strings by their code points, whole numbers in 64
bits, floats that are finite (-0.0 is 0.0), moments in microseconds in UTC, an empty list is a null.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from typing import Final, TypeAlias

from instep.domain.document_columns import DocumentColumn
from instep.errors import UserError

#: The type of a column says which; a `datetime` is in UTC.
FilterValue: TypeAlias = str | int | float | bool | datetime | date


#: What a whole number of 64 bits can be.
MIN_INT: Final = -(2**63)
MAX_INT: Final = 2**63 - 1


class FilterError(UserError):
    """A filter that means nothing. `position` is the number of the character, from 1."""

    def __init__(self, what: str, *, position: int, hint: str | None = None) -> None:
        super().__init__(what, where=f"filter, character {position}", hint=hint)
        self.position = position


class Order(StrEnum):
    LESS = "<"
    AT_MOST = "<="
    MORE = ">"
    AT_LEAST = ">="

    @property
    def opposite(self) -> Order:
        """The order that holds where this one does not."""
        return _OPPOSITES[self]


_OPPOSITES = {
    Order.LESS: Order.AT_LEAST,
    Order.AT_MOST: Order.MORE,
    Order.MORE: Order.AT_MOST,
    Order.AT_LEAST: Order.LESS,
}


@dataclass(frozen=True, slots=True)
class OneOf:
    """The value is one of these; `negated`: it is there, and none of these."""

    column: DocumentColumn
    values: tuple[FilterValue, ...]
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Ordered:
    """The value is so much less or more than another. Not of booleans."""

    column: DocumentColumn
    order: Order
    value: FilterValue


@dataclass(frozen=True, slots=True)
class Prefix:
    """A string begins with this one; `negated`: it is there, and does not."""

    column: DocumentColumn
    prefix: str
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Contains:
    """A list has at least one of these elements; `negated`: it is there, and has none of them."""

    column: DocumentColumn
    values: tuple[str | int, ...]
    negated: bool = False


@dataclass(frozen=True, slots=True)
class IsNull:
    """There is no value; `negated`: there is one."""

    column: DocumentColumn
    negated: bool = False


@dataclass(frozen=True, slots=True)
class All:
    conditions: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Either:
    """At least one of these holds."""

    conditions: tuple[Condition, ...]


Leaf: TypeAlias = OneOf | Ordered | Prefix | Contains | IsNull
Condition: TypeAlias = Leaf | All | Either


def negation(condition: Condition) -> Condition:
    """The condition that NOT makes of it in SQL."""
    if isinstance(condition, All):
        return either([negation(each) for each in condition.conditions])
    if isinstance(condition, Either):
        return every([negation(each) for each in condition.conditions])
    if isinstance(condition, Ordered):
        return replace(condition, order=condition.order.opposite)
    return replace(condition, negated=not condition.negated)


def every(conditions: Sequence[Condition]) -> Condition:
    """All of them together, without a level that is not needed."""
    flat: list[Condition] = []
    for each in conditions:
        flat.extend(each.conditions if isinstance(each, All) else (each,))
    return flat[0] if len(flat) == 1 else All(tuple(flat))


def either(conditions: Sequence[Condition]) -> Condition:
    """Any of them, without a level that is not needed."""
    flat: list[Condition] = []
    for each in conditions:
        flat.extend(each.conditions if isinstance(each, Either) else (each,))
    return flat[0] if len(flat) == 1 else Either(tuple(flat))


def columns_of(condition: Condition) -> frozenset[DocumentColumn]:
    """The columns on which it depends."""
    if isinstance(condition, All | Either):
        return frozenset().union(*map(columns_of, condition.conditions))
    return frozenset({condition.column})


def ordered(condition: Prefix) -> Condition:
    """A beginning as an order, for a target that has an index for that: from itself on, up to the first string behind
    all those that begin like it.
    """
    column, first, behind = condition.column, condition.prefix, _behind(condition.prefix)
    if condition.negated:
        below = Ordered(column, Order.LESS, first)
        return below if behind is None else Either((below, Ordered(column, Order.AT_LEAST, behind)))
    above = Ordered(column, Order.AT_LEAST, first)
    return above if behind is None else All((above, Ordered(column, Order.LESS, behind)))


def _behind(prefix: str) -> str | None:
    """The first string behind all that begin so; None: there is none."""
    kept = prefix.rstrip(chr(sys.maxunicode))
    if not kept:
        return None
    following = ord(kept[-1]) + 1
    # Surrogates are no characters.
    return kept[:-1] + chr(0xE000 if 0xD800 <= following <= 0xDFFF else following)


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def number(value: FilterValue) -> FilterValue:
    """The value as targets keep it that have numbers for moments and dates: microseconds and days since 1970."""
    if isinstance(value, datetime):
        return (value - _EPOCH) // timedelta(microseconds=1)
    return value.toordinal() - _EPOCH.toordinal() if isinstance(value, date) else value
