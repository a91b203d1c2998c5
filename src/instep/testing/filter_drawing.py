"""Rows with columns of every type, and filters on them: as text, and what they mean by themselves.

The meaning is SQL's, with a third value for what is unknown, and knows nothing of how Instep reads a filter.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from operator import ge, gt, le, lt
from typing import Any, Final

from hypothesis import strategies as st

from instep.domain.document_columns import DocumentColumn, DocumentColumnType
from instep.domain.filters import All, Condition, Contains, Either, IsNull, OneOf, Ordered

_T = DocumentColumnType

#: A column of each type.
COLUMNS: Final = tuple(DocumentColumn(f"c_{each.name.lower()}", each) for each in _T)

_FIRST: Final = datetime(1, 1, 1, tzinfo=UTC)
_LAST: Final = datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC)
_DAY: Final = datetime(2024, 5, 1, tzinfo=UTC)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TICK: Final = timedelta(microseconds=1)

_TEXTS: Final = (
    *("", " ", "ops", "Ops", "opsy", "it's", '"', "\\", "\\'", "a\\", "100%", "a_b", "a%", "aXb", "\0", "a\0b", "a"),
    *("é", "e\u0301", "É", "中文", "中", "😀", "\uffff", "\ue000", "\ud7ff", "\U0010ffff", "\U0010ffffa", "z" * 300),
    *("\n", "\t'", "NULL", "--", "{}", "%s", "$1", "`", "[x]", "*", "null", "true", "1", "\u202e", "\x7f", "\x01"),
)
_INTS: Final = (
    *(0, 1, -1, 2, 7, 2024, 2**31, -(2**31) - 1, 2**53 - 1, 2**53, 2**53 + 1, -(2**53) - 1, 2**62, 2**62 + 1),
    *(2**62 - 255, -(2**62) + 3, 2**63 - 1, 2**63 - 2, 2**63 - 513, -(2**63), -(2**63) + 1, -(2**63) + 1025),
)

#: Values of each type: what is hard to tell apart lies close together.
POOLS: Final[Mapping[DocumentColumnType, tuple[Any, ...]]] = {
    _T.STRING: _TEXTS,
    _T.INT: _INTS,
    _T.FLOAT: (0.0, 1.0, -1.0, 0.1, 0.1 + 2**-56, 1e-5, 1e300, -1e300, 1.7e308, 5e-324, 2.5, 1 / 3, 2.0**60, 7.0),
    _T.BOOL: (True, False),
    _T.TIMESTAMP: (_FIRST, _FIRST + _TICK, _LAST, _LAST - _TICK, _DAY, _DAY + _TICK, _EPOCH, _EPOCH - _TICK),
    _T.DATE: (date(1, 1, 1), _LAST.date(), _EPOCH.date(), date(1969, 12, 31), date(2024, 2, 29), date(2024, 3, 1)),
    _T.STRINGS: _TEXTS,
    _T.INTS: _INTS,
}  # fmt: skip

Row = Mapping[str, Any]


def rows(count: int) -> list[dict[str, Any]]:
    """Values of these columns: each one of the pools is in some row."""
    dice = random.Random(22)
    found: list[dict[str, Any]] = []
    for number in range(count):
        row: dict[str, Any] = {}
        for column in COLUMNS:
            pool = POOLS[column.type]
            value = pool[number % len(pool)] if dice.random() < 0.85 else None
            if column.type.listed and value is not None:
                value = [value, *dice.sample(pool, dice.randrange(3))]
            row[column.name] = value
        found.append(row)
    return found


@dataclass(frozen=True)
class Drawn:
    """A filter as it is written, and whether it holds for a row: True, False, or None where SQL says unknown."""

    text: str
    holds: Callable[[Row], bool | None]


def filters() -> st.SearchStrategy[Drawn]:
    """Filters of any columns, and as often of one alone: what simplifies filters sees a column that is named twice."""
    alone = st.sampled_from(COLUMNS).flatmap(lambda column: st.recursive(_leaves_of(column), _joined, max_leaves=6))
    return st.one_of(st.recursive(leaves(), _joined, max_leaves=5), alone)


def leaves() -> st.SearchStrategy[Drawn]:
    return st.sampled_from(COLUMNS).flatmap(_leaves_of)


def _joined(part: st.SearchStrategy[Drawn]) -> st.SearchStrategy[Drawn]:
    return st.one_of(
        part.map(lambda one: Drawn(f"NOT ({one.text})", lambda row: _not(one.holds(row)))),
        st.tuples(part, part).map(
            lambda two: Drawn(
                f"({two[0].text}) AND ({two[1].text})", lambda row: _and(two[0].holds(row), two[1].holds(row))
            )
        ),
        st.tuples(part, part).map(
            lambda two: (
                Drawn(
                    f"({two[0].text}) OR {two[1].text}",
                    lambda row: _not(_and(_not(two[0].holds(row)), _not(two[1].holds(row)))),
                )
                if " OR " not in two[1].text and " AND " not in two[1].text
                else Drawn(
                    f"({two[0].text}) OR ({two[1].text})",
                    lambda row: _not(_and(_not(two[0].holds(row)), _not(two[1].holds(row)))),
                )
            )
        ),
    )


def _not(one: bool | None) -> bool | None:
    return None if one is None else not one


def _and(one: bool | None, other: bool | None) -> bool | None:
    if one is False or other is False:
        return False
    return None if one is None or other is None else True


def _leaves_of(column: DocumentColumn) -> st.SearchStrategy[Drawn]:
    name, pool = column.name, st.sampled_from(POOLS[column.type])
    null = st.booleans().map(
        lambda no: Drawn(f"{name} IS NOT NULL" if no else f"{name} IS NULL", lambda row: (row[name] is None) is not no)
    )
    if column.type.listed:
        return st.one_of(null, st.tuples(pool, st.booleans()).map(lambda found: _contains(name, *found)))
    kinds = [
        null,
        st.tuples(pool, st.booleans()).map(lambda found: _one_of(name, [found[0]], found[1], short=True)),
        st.tuples(st.lists(pool, min_size=1, max_size=4), st.booleans()).map(lambda found: _one_of(name, *found)),
    ]
    if column.type is not _T.BOOL:
        kinds.append(st.tuples(pool, st.sampled_from(sorted(_ORDERS))).map(lambda found: _ordered(name, *found)))
        kinds.append(st.tuples(pool, pool).map(lambda found: _between(name, *found)))
    if column.type is _T.STRING:
        cut = st.tuples(pool, st.integers(0, 3)).map(lambda found: str(found[0])[: found[1]])
        kinds.append(st.tuples(cut, st.booleans()).map(lambda found: _begins(name, *found)))
    return st.one_of(kinds)


_ORDERS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {"<": lt, "<=": le, ">": gt, ">=": ge}


def written(value: Any) -> str:
    """A value as a filter names it."""
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, bool):
        return "true" if value else "FALSE"
    return f"'{value.isoformat()}'" if isinstance(value, date) else repr(value)


def _known(name: str, holds: Callable[[Any], bool]) -> Callable[[Row], bool | None]:
    return lambda row: None if row[name] is None else holds(row[name])


def _contains(name: str, value: Any, no: bool) -> Drawn:
    text = f"{name} {'NOT ' * no}CONTAINS {written(value)}"
    return Drawn(text, _known(name, lambda there: (value in there) is not no))


def _one_of(name: str, values: list[Any], no: bool, *, short: bool = False) -> Drawn:
    listed = ", ".join(map(written, values))
    text = f"{name} {'!=' if no else '='} {listed}" if short else f"{name} {'NOT ' * no}IN ({listed})"
    return Drawn(text, _known(name, lambda there: (there in values) is not no))


def _ordered(name: str, value: Any, order: str) -> Drawn:
    return Drawn(f"{name} {order} {written(value)}", _known(name, lambda there: _ORDERS[order](there, value)))


def _between(name: str, low: Any, high: Any) -> Drawn:
    text = f"{name} BETWEEN {written(low)} AND {written(high)}"
    return Drawn(text, _known(name, lambda there: low <= there <= high))


def _begins(name: str, prefix: str, no: bool) -> Drawn:
    escaped = "".join("\\" + each if each in "%_\\" else each for each in prefix)
    text = f"{name} {'NOT ' * no}LIKE {written(escaped + '%')}"
    return Drawn(text, _known(name, lambda there: there.startswith(prefix) is not no))


def holds(condition: Condition, row: Row) -> bool:
    """Whether a condition, as a target is given it, holds for a row."""
    match condition:
        case All(conditions):
            return all(holds(each, row) for each in conditions)
        case Either(conditions):
            return any(holds(each, row) for each in conditions)
        case IsNull(column, negated):
            return (row.get(column.name) is None) is not negated
    value = row.get(condition.column.name)
    if value is None:
        return False
    match condition:
        case Ordered(_, order, bound):
            return _ORDERS[order](value, bound)
        case OneOf(_, values, negated):
            return (value in values) is not negated
        case Contains(_, values, negated):
            return any(each in value for each in values) is not negated
    return bool(value.startswith(condition.prefix)) is not condition.negated
