"""Values of the source in the types that were declared, and ids of rows: their keys as text."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from instep.arrow.types import arrow_type
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
            hint="Has the table changed? Compare it with: instep check",
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
                found[start] = f"column {column.name!r} is not of the type {column.type}: {_first_line(error)}"
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


#: For a key that is none.
_NULL = "null"

#: Characters that a ledger has room for.
_LONGEST = 80


def row_ids(keys: Sequence[pa.Array[Any]]) -> pa.Array[Any]:
    """Key columns of declared types, joined by commas. What no ledger can keep is shortened."""
    columns: list[Any] = [*map(_texts, keys), ","]
    joined: pa.Array[Any] = pc.binary_join_element_wise(*columns, null_handling="replace", null_replacement=_NULL)
    odd = _odd(joined)
    if not odd.true_count:
        return joined
    texts = joined.filter(odd).to_pylist()
    found: pa.Array[Any] = pc.replace_with_mask(joined, odd, pa.array([_short(str(each)) for each in texts]))
    return found


def row_uri(entity: str, row_id: str) -> str:
    """The name of a row for people."""
    return f"{entity}({row_id})"


def id_of(entity: str, uri: str) -> str:
    """The id of the row that `row_uri` made this of."""
    return uri.removeprefix(f"{entity}(").removesuffix(")")


def is_keyless(uri: str) -> bool:
    """Whether this may be the name of a row in whose key something is null."""
    return _NULL in uri.partition("(")[2].removesuffix(")").split(",")


def _odd(ids: Any) -> Any:
    length: Any = pc.utf8_length(ids)
    long: Any = pc.greater(length, pa.scalar(_LONGEST))
    unkept: Any = pc.match_substring(ids, "\0")
    return pc.or_(long, unkept)


def _short(text: str) -> str:
    """The beginning of a text and a digest. PostgreSQL stores no NUL."""
    return f"{text[:40].replace(chr(0), '?')}…{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def _texts(values: pa.Array[Any]) -> pa.Array[Any]:
    return _in_hex(values) if pa.types.is_binary(values.type) else values.cast(pa.string())


def _in_hex(values: pa.Array[Any]) -> pa.Array[Any]:
    """Encode all values at once: they lie behind each other, and each byte becomes two characters."""
    rows, there = len(values), values.is_valid()
    values = values.fill_null(b"")
    _, places, content = values.buffers()
    assert places is not None
    offsets = np.frombuffer(memoryview(places), np.int32)[values.offset : values.offset + rows + 1]
    text = content[int(offsets[0]) : int(offsets[-1])].to_pybytes().hex() if content else ""
    starts = pa.py_buffer((offsets - offsets[0]) * np.int32(2))
    found = pa.Array.from_buffers(pa.string(), rows, [None, starts, pa.py_buffer(text.encode())])
    with_nulls: pa.Array[Any] = pc.if_else(there, found, pa.scalar(None, pa.string()))
    return with_nulls
