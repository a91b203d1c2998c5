"""Values of the source in the types that were declared; those that do not fit are found one by one."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from instep.arrow_types import arrow_type
from instep.domain.columns import Column, ColumnType, TypeName
from instep.errors import UserError

Values: TypeAlias = "pa.Array[Any]"

#: The years that every store has.
_FIRST = {TypeName.DATE: date.min, TypeName.TIMESTAMP: datetime.min.replace(tzinfo=UTC)}
_LAST = {TypeName.DATE: date.max, TypeName.TIMESTAMP: datetime.max.replace(tzinfo=UTC)}


class Fitted(NamedTuple):
    """A column in its declared type. Null stands for what does not fit: `misfits` has the reasons, by row."""

    values: Values
    misfits: Mapping[int, str]


def fitted(values: Values, column: Column) -> Fitted:
    """Convert values to the type of a column. Raises `UserError` if no value of this type could fit."""
    try:
        return Fitted(_cast(values, column.type), {})
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError):
        raise UserError(
            f"column {column.name!r} came as {values.type}, and is declared as {column.type}",
            hint="Has the table changed? Look at it with: instep check",
        ) from None
    except pa.ArrowInvalid:
        misfits = _misfits(values, column)
    wrong = np.zeros(len(values), bool)
    wrong[list(misfits)] = True
    rest = pc.if_else(pa.array(wrong), pa.scalar(None, values.type), values)
    return Fitted(_cast(rest, column.type), misfits)


def _misfits(values: Values, column: Column) -> dict[int, str]:
    """Find misfitting rows by halves: most rows are good, and are checked a few times together."""
    found: dict[int, str] = {}
    stretches = [(0, len(values))]
    while stretches:
        start, length = stretches.pop()
        try:
            _cast(values.slice(start, length), column.type)
        except pa.ArrowInvalid as error:
            if length == 1:
                found[start] = f"column {column.name!r} is no {column.type}: {_first_line(error)}"
            else:
                half = length // 2
                stretches += [(start + half, length - half), (start, half)]
    return found


def _cast(values: Values, kind: ColumnType) -> Values:
    wanted = arrow_type(kind)
    if kind.name is TypeName.STRING:
        values.validate(full=True)  # Spark takes any bytes for text.
    cast = values if values.type == wanted else values.cast(wanted)
    if kind.name in _FIRST:
        extremes = pc.min_max(cast)
        first, last = (pa.scalar(each[kind.name], wanted) for each in (_FIRST, _LAST))
        if pc.less(extremes["min"], first).as_py() or pc.greater(extremes["max"], last).as_py():
            raise pa.ArrowInvalid("outside the years 1 to 9999")
    return cast


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:300]
