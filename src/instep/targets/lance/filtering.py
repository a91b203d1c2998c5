"""Conditions as SQL of Lance. It takes no parameters, so values are written into the text: no text gets out of its
quotes, and everything else is a number.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, datetime

from instep.domain.filters import (
    MIN_INT,
    All,
    Condition,
    Contains,
    Either,
    FilterValue,
    IsNull,
    OneOf,
    Ordered,
    Prefix,
    number,
    ordered,
)


def sql(condition: Condition) -> str:  # noqa: PLR0911 - one for each form
    """An expression that holds for the rows that a condition holds for."""
    match condition:
        case All(conditions):
            return f"({' AND '.join(map(sql, conditions))})"
        case Either(conditions):
            return f"({' OR '.join(map(sql, conditions))})"
        case OneOf(column, values, negated):
            name, listed = _name(column.name), _listed(values)
            # DataFusion makes `true` of NOT IN (…) OR NOT IN (…) without a common value, for nulls too.
            return f"({name} IS NOT NULL AND {name} NOT IN ({listed}))" if negated else f"({name} IN ({listed}))"
        case Ordered(column, order, value):
            return f"({_name(column.name)} {order} {_literal(value)})"
        case Prefix():
            return sql(ordered(condition))
        case Contains(column, values, negated):
            name = _name(column.name)
            has = f"array_has_any({name}, make_array({_listed(values)}))"
            return f"({name} IS NOT NULL AND NOT {has})" if negated else has
        case IsNull(column, negated):
            return f"({_name(column.name)} IS {'NOT ' * negated}NULL)"


def _name(column: str) -> str:
    # Lance has no way to write a backtick in a name; no column has one.
    assert "`" not in column
    return f"`{column}`"


def _listed(values: Iterable[FilterValue]) -> str:
    return ", ".join(map(_literal, values))


def _literal(value: FilterValue) -> str:
    match value:
        case str():
            return "'" + value.replace("'", "''") + "'"
        case bool():
            return str(value).lower()
        case datetime():
            return f"arrow_cast({number(value)}, 'Timestamp(Microsecond, Some(\"UTC\"))')"
        case date():
            return f"date '{value.isoformat()}'"
        case int():
            # Behind its sign this one would be too large.
            return f"({value + 1} - 1)" if value == MIN_INT else str(value)
    return f"arrow_cast({value!r}, 'Float64')"
