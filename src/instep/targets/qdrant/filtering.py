"""Conditions as filters of Qdrant, in the words of its client or of its engine in this process."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol

from instep.domain.document_columns import DocumentColumnType
from instep.domain.filters import (
    MAX_INT,
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
    number,
)
from instep.domain.words import TextQuery
from instep.targets.document_target import SEARCHED

#: Up to here every whole number is a float.
_EXACT: Final = 2**53

_BOUNDS: Final = {Order.LESS: "lt", Order.AT_MOST: "lte", Order.MORE: "gt", Order.AT_LEAST: "gte"}


class Words(Protocol):
    """The kinds of conditions that Qdrant has."""

    def filter(self, must: Sequence[Any] = (), should: Sequence[Any] = (), must_not: Sequence[Any] = ()) -> Any: ...

    def one_of(self, field: str, values: Sequence[Any]) -> Any:
        """Texts, or whole numbers."""

    def range(self, field: str, **bounds: float) -> Any: ...

    def prefix(self, field: str, prefix: str) -> Any: ...

    def empty(self, field: str) -> Any: ...

    def phrase(self, field: str, words: str) -> Any:
        """These words side by side."""

    def any_word(self, field: str, words: str) -> Any:
        """One of these words."""


def resolved(condition: Condition, values: Callable[[str], Iterable[str]]) -> Condition:
    """The condition without an order of strings, which Qdrant has not: it names those of the `values` of a field that
    are in the order.
    """
    match condition:
        case All(conditions) | Either(conditions):
            return replace(condition, conditions=tuple(resolved(each, values) for each in conditions))
        case Ordered(column, order, str() as bound):
            return OneOf(column, tuple(each for each in values(column.name) if _IN_ORDER[order](each, bound)))
    return condition


_IN_ORDER: Final[dict[Order, Callable[[str, str], bool]]] = {
    Order.LESS: lambda value, bound: value < bound,
    Order.AT_MOST: lambda value, bound: value <= bound,
    Order.MORE: lambda value, bound: value > bound,
    Order.AT_LEAST: lambda value, bound: value >= bound,
}


def having(text: TextQuery | None, chosen: Condition | None, words: Words) -> Any:
    """A filter that passes the points that are chosen (None: all) and that have the phrases, or one of the words if
    there is no phrase. None if all pass.
    """
    must = [] if chosen is None else [filter_of(chosen, words)]
    if text is not None:
        must += [words.phrase(SEARCHED, " ".join(each)) for each in text.phrases]
        if text.words and not text.phrases:
            must.append(words.any_word(SEARCHED, text.text))
    return words.filter(must=must) if must else None


def filter_of(condition: Condition, words: Words) -> Any:  # noqa: PLR0911 - one for each form
    """A filter, or a single condition of Qdrant, that passes the points that a condition (one that is `resolved`) holds
    for. A filter in a filter takes the engine twice as long as what is in it.
    """
    match condition:
        case All(conditions):
            return words.filter(must=[filter_of(each, words) for each in conditions])
        case Either(conditions):
            return words.filter(should=[filter_of(each, words) for each in conditions])
        case OneOf(column, values, negated) | Contains(column, values, negated):
            return _unless(negated, column.name, _one_of(column.name, column.type, values, words), words)
        case Ordered(column, order, value):
            found = number(value)
            assert isinstance(found, int | float)
            if isinstance(found, int):
                return _any(_whole(column.name, order, found, words), words)
            return words.range(column.name, **{_BOUNDS[order]: found})
        case Prefix(column, prefix, negated):
            begins = [words.prefix(column.name, prefix)] if prefix else []
            return _unless(negated, column.name, words.filter(must=begins, must_not=[words.empty(column.name)]), words)
        case IsNull(column, negated):
            empty = words.empty(column.name)
            return words.filter(must_not=[empty]) if negated else empty


def _unless(negated: bool, field: str, found: Any, words: Words) -> Any:
    return words.filter(must_not=[found, words.empty(field)]) if negated else found


def _any(conditions: Sequence[Any], words: Words) -> Any:
    """One of these conditions."""
    return conditions[0] if len(conditions) == 1 else words.filter(should=conditions)


def _one_of(field: str, kind: DocumentColumnType, values: Sequence[FilterValue], words: Words) -> Any:
    if kind is DocumentColumnType.FLOAT:
        numbers = [each for each in values if isinstance(each, float)]
        return _any([words.range(field, gte=each, lte=each) for each in numbers], words)
    if not values:
        return _nothing(field, words)
    return words.one_of(field, [int(each) if isinstance(each, bool) else number(each) for each in values])


def _nothing(field: str, words: Words) -> Any:
    return words.filter(must=[words.empty(field)], must_not=[words.empty(field)])


def _whole(field: str, order: Order, value: int, words: Words) -> list[Any]:
    """An order of whole numbers, whose bounds are floats for Qdrant. Where these lie apart from each other, the numbers
    around a bound are named one by one, so that it makes no difference how a number is compared with it.
    """
    if order is Order.LESS:
        order, value = Order.AT_MOST, value - 1
    elif order is Order.MORE:
        order, value = Order.AT_LEAST, value + 1
    if not MIN_INT <= value <= MAX_INT:
        return [_nothing(field, words)]
    if abs(value) <= _EXACT:
        return [words.range(field, **{_BOUNDS[order]: float(value)})]
    up = order is Order.AT_LEAST
    bound = float(value)
    if (bound < value) if up else (bound > value):
        bound = math.nextafter(bound, math.inf if up else -math.inf)
    around = int(math.nextafter(bound, math.inf if up else -math.inf))
    near = range(value, min(around, MAX_INT) + 1) if up else range(max(around, MIN_INT), value + 1)
    beyond = words.range(field, **({"gt": bound} if up else {"lt": bound}))
    return [words.one_of(field, list(near)), beyond]
