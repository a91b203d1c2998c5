"""Columns of documents in Arrow: their types, values that come in columns, and a text that tells values apart."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import reduce
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from instep.domain.column_values import MAX_BYTES, MAX_ELEMENTS, MAX_INT, MIN_INT, wrong
from instep.domain.document_columns import DocumentColumn, DocumentColumnType

_MOMENT: Final = pa.timestamp("us", "UTC")
_TYPES: Final[Mapping[DocumentColumnType, pa.DataType]] = {
    DocumentColumnType.STRING: pa.string(),
    DocumentColumnType.INT: pa.int64(),
    DocumentColumnType.FLOAT: pa.float64(),
    DocumentColumnType.BOOL: pa.bool_(),
    DocumentColumnType.TIMESTAMP: _MOMENT,
    DocumentColumnType.DATE: pa.date32(),
    DocumentColumnType.STRINGS: pa.list_(pa.string()),
    DocumentColumnType.INTS: pa.list_(pa.int64()),
}

#: Days from 0001-01-01 to 9999-12-31, since 1970.
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
_DAY: Final = 86_400_000_000


def column_type(kind: DocumentColumnType) -> pa.DataType:
    return _TYPES[kind]


class Typed(NamedTuple):
    """A column in its declared type. `wrong` are the places of values that are none of it, with the reason: null."""

    values: Any
    wrong: Mapping[int, str]


class OtherType(ValueError):
    """A column in whose type none of the declared values are."""


def typed(column: DocumentColumn, values: Any) -> Typed:
    """A column as a table or a transform has it, in the declared type. Raises `OtherType`."""
    values = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if pa.types.is_null(values.type):
        nothing: Any = _TYPES[column.type]
        return Typed(pa.nulls(len(values), nothing), {})
    demand_type(column, values.type)
    if column.type.listed:
        return _list(column, values)
    found, bad = _CASTS[column.type](values)
    return _told(column, values, found, bad)


def demand_type(column: DocumentColumn, stored: Any) -> None:
    """Check that a column of this type has values of the declared one. Raises `OtherType`."""
    if pa.types.is_dictionary(stored):
        stored = stored.value_type
    if not (pa.types.is_null(stored) or _FROM[column.type](stored)):
        raise OtherType(f"column {column.name} is declared as {column.type}, and holds {stored}")


def _told(column: DocumentColumn, values: Any, found: Any, bad: Any) -> Typed:
    """Values with a null at the places of a mask."""
    if bad is None or not pc.any(bad, min_count=0).as_py():
        return Typed(found, {})
    reasons = {at: _reason(column, _shown(values[at])) for at in np.flatnonzero(_flags(bad)).tolist()}
    return Typed(pc.if_else(pc.fill_null(bad, False), pa.scalar(None, found.type), found), reasons)


def _shown(value: Any) -> Any:
    """Python has no day or moment after the year 9999: those are shown as a number with its type."""
    try:
        return value.as_py()
    except UnicodeDecodeError:
        return value.as_buffer().to_pybytes().decode(errors="replace")
    except (OverflowError, ValueError):
        return f"{value.value} ({value.type})"


def _reason(column: DocumentColumn, said: Any) -> str:
    if column.type is DocumentColumnType.STRING and isinstance(said, str):
        why = f"{len(said.encode()):,} bytes, more than {MAX_BYTES:,}"
        if "\0" in said:
            why = "the character U+0000 in it"
        elif len(said.encode()) <= MAX_BYTES:
            why = "bytes that are not UTF-8"
        return f"column {column.name}: {why}"
    return str(wrong(column, said))


def _flags(mask: Any) -> np.ndarray[Any, np.dtype[np.bool_]]:
    return np.asarray(pc.fill_null(mask, False).to_numpy(zero_copy_only=False), bool)


def _strings(values: Any) -> tuple[Any, Any]:
    found = values.cast(pa.string())
    bad: Any = pc.greater(pc.binary_length(found), pa.scalar(MAX_BYTES, pa.int32()))
    bad = pc.or_(bad, pc.match_substring(found, "\0"))
    broken = not_utf8(found)
    return found, bad if broken is None else pc.or_(bad, broken)


def not_utf8(texts: Any) -> Any:
    """A mask of texts whose bytes are not UTF-8, which Parquet and Arrow let in; None if there are none."""
    told = texts.cast(pa.binary())
    try:
        told.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([each is not None and not _is_utf8(each) for each in told.to_pylist()], pa.bool_())
    return None


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _ints(values: Any) -> tuple[Any, Any]:
    if values.type == pa.uint64():
        bad = pc.greater(values, pa.scalar(MAX_INT, pa.uint64()))
        return pc.if_else(pc.fill_null(bad, False), pa.scalar(None, pa.uint64()), values).cast(pa.int64()), bad
    if pa.types.is_decimal(values.type):
        wide: Any = values.cast(pa.decimal256(76, 0))
        bad = pc.or_(
            pc.less(wide, pa.scalar(Decimal(MIN_INT), wide.type)),
            pc.greater(wide, pa.scalar(Decimal(MAX_INT), wide.type)),
        )
        return pc.if_else(pc.fill_null(bad, False), pa.scalar(None, values.type), values).cast(pa.int64()), bad
    return values.cast(pa.int64()), None


def _floats(values: Any) -> tuple[Any, Any]:
    found = pc.add(values.cast(pa.float64(), safe=False), pa.scalar(0.0))  # -0.0 is 0.0.
    found = pc.if_else(pc.fill_null(pc.is_nan(found), False), pa.scalar(None, pa.float64()), found)
    return found, pc.is_inf(found)


def _bools(values: Any) -> tuple[Any, Any]:
    return values, None


def _moments(values: Any) -> tuple[Any, Any]:
    """A moment without a zone is in UTC."""
    unit = values.type.unit
    per_day = {"s": 86_400, "ms": 86_400_000, "us": _DAY, "ns": _DAY * 1_000}[unit]
    numbers = values.cast(pa.int64())
    bad = None
    if unit != "ns":
        first, last = _FIRST_DAY * per_day, (_LAST_DAY + 1) * per_day
        bad = pc.or_(
            pc.less(numbers, pa.scalar(first, pa.int64())), pc.greater_equal(numbers, pa.scalar(last, pa.int64()))
        )
        values = pc.if_else(pc.fill_null(bad, False), pa.scalar(None, values.type), values)
    plain = values.cast(pa.timestamp(unit, "UTC"))
    return plain.cast(_MOMENT, safe=False), bad


def _dates(values: Any) -> tuple[Any, Any]:
    found = values.cast(pa.date32())
    days = found.cast(pa.int32())
    bad = pc.or_(pc.less(days, pa.scalar(_FIRST_DAY, pa.int32())), pc.greater(days, pa.scalar(_LAST_DAY, pa.int32())))
    return found, bad


_CASTS: Final[Mapping[DocumentColumnType, Callable[[Any], tuple[Any, Any]]]] = {
    DocumentColumnType.STRING: _strings,
    DocumentColumnType.INT: _ints,
    DocumentColumnType.FLOAT: _floats,
    DocumentColumnType.BOOL: _bools,
    DocumentColumnType.TIMESTAMP: _moments,
    DocumentColumnType.DATE: _dates,
}
_OF: Final = {
    DocumentColumnType.STRINGS: DocumentColumnType.STRING,
    DocumentColumnType.INTS: DocumentColumnType.INT,
}


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or kind == pa.string_view()


def _is_whole(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or (pa.types.is_decimal(kind) and kind.scale == 0)


def _is_list(of: Callable[[pa.DataType], bool]) -> Callable[[pa.DataType], bool]:
    """Lists, or texts of JSON, as Spark's and ClickHouse's come."""

    def holds(kind: Any) -> bool:
        lists = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
        return _is_text(kind) or (lists and (of(kind.value_type) or pa.types.is_null(kind.value_type)))

    return holds


_NUMBERS: Final = (pa.types.is_floating, pa.types.is_integer, pa.types.is_decimal)
_FROM: Final[Mapping[DocumentColumnType, Callable[[pa.DataType], bool]]] = {
    DocumentColumnType.STRING: _is_text,
    DocumentColumnType.INT: _is_whole,
    DocumentColumnType.FLOAT: lambda kind: any(of(kind) for of in _NUMBERS),
    DocumentColumnType.BOOL: pa.types.is_boolean,
    DocumentColumnType.TIMESTAMP: pa.types.is_timestamp,
    DocumentColumnType.DATE: pa.types.is_date,
    DocumentColumnType.STRINGS: _is_list(_is_text),
    DocumentColumnType.INTS: _is_list(_is_whole),
}


def _list(column: DocumentColumn, values: Any) -> Typed:
    kind: Any = _TYPES[column.type]
    reasons: dict[int, str] = {}
    if _is_text(values.type):
        values, reasons = _of_json(column, values)
    of = DocumentColumn(column.name, _OF[column.type])
    lists: Any = _with_lengths(values)
    flat: Any = pc.list_flatten(lists)
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    # Below a null there may be elements, which are not among the flat ones.
    parents = np.repeat(np.arange(len(lengths)), lengths)
    elements = Typed(flat.cast(kind.value_type), {}) if pa.types.is_null(flat.type) else typed(of, flat)
    for at, reason in elements.wrong.items():
        reasons.setdefault(int(parents[at]), reason)
    for at in np.flatnonzero(_flags(flat.is_null())).tolist():
        reasons.setdefault(int(parents[at]), f"column {column.name}: a null in a list of {of.type}")
    for at in np.flatnonzero(lengths > MAX_ELEMENTS).tolist():
        reasons.setdefault(at, f"column {column.name} has {lengths[at]:,} elements, more than {MAX_ELEMENTS:,}")
    none = lengths == 0
    none[list(reasons)] = True
    kept = np.where(none, 0, lengths)
    offsets = np.concatenate([np.zeros(1, np.int32), np.cumsum(kept, dtype=np.int32)])
    left = elements.values.filter(pa.array(~none[parents])) if len(parents) else elements.values
    lists_of: Any = pa.ListArray
    found = lists_of.from_arrays(pa.array(offsets), left, kind, mask=pa.array(none))
    return Typed(found, reasons)


def _with_lengths(values: Any) -> Any:
    """As a plain list. One of a fixed size keeps its elements where it is null, and a cast keeps them, too."""
    kind: Any = pa.list_(values.type.value_type)
    if not pa.types.is_fixed_size_list(values.type) or not values.null_count:
        return values.cast(kind)
    there = np.asarray(values.is_valid().to_numpy(zero_copy_only=False), bool)
    offsets = np.concatenate([np.zeros(1, np.int32), np.cumsum(there * values.type.list_size, dtype=np.int32)])
    lists_of: Any = pa.ListArray
    return lists_of.from_arrays(pa.array(offsets), values.drop_null().flatten(), kind, mask=pa.array(~there))


def _of_json(column: DocumentColumn, texts: Any) -> tuple[Any, dict[int, str]]:
    kind: Any = str if column.type is DocumentColumnType.STRINGS else int
    decoder = msgspec.json.Decoder(list[kind | None] | None)
    found: list[Any] = []
    reasons: dict[int, str] = {}
    for at, text in enumerate(texts.cast(pa.string()).cast(pa.binary()).to_pylist()):
        values = None
        try:
            values = None if text is None else decoder.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            reasons[at] = str(wrong(column, text.decode(errors="replace")))
        if kind is int and any(each is not None and not MIN_INT <= each <= MAX_INT for each in values or ()):
            reasons[at], values = str(wrong(column, text.decode())), None
        found.append(values)
    return pa.array(found, _TYPES[column.type]), reasons


#: Between elements, and before and after a value: where a text has one of them, it is escaped.
_BETWEEN, _BEFORE, _AFTER = "\x1e", "\x1d", "\x1f"
_ESCAPES: Final = (("\\", "\\\\"), (_BETWEEN, "\\e"), (_BEFORE, "\\b"), (_AFTER, "\\a"))


def texts_of(columns: Mapping[str, Any]) -> Any:
    """A text for each row of some columns: two rows have the same where all their values are, and none is said of a
    null. So a column that is added changes the text of rows only that have a value in it.
    """
    said = [_said(name, values) for name, values in columns.items()]
    return pc.binary_join_element_wise(*said, "")


def _said(name: str, values: Any) -> Any:
    values = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    text = _text(values)
    return pc.fill_null(pc.binary_join_element_wise(f"{name}{_BEFORE}", text, _AFTER, ""), "")


def _text(values: Any) -> Any:
    kind = values.type
    if pa.types.is_list(kind):
        elements = _text(pc.list_flatten(values))
        lengths = pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False)
        offsets = np.concatenate([np.zeros(1, np.int32), np.cumsum(lengths, dtype=np.int32)])
        lists = pa.ListArray.from_arrays(pa.array(offsets), elements, mask=values.is_null())
        return pc.binary_join(lists, _BETWEEN)
    if pa.types.is_string(kind):
        return reduce(lambda text, pair: pc.replace_substring(text, *pair), _ESCAPES, values)
    if pa.types.is_floating(kind):
        values = values.view(pa.int64())
    elif pa.types.is_timestamp(kind):
        values = values.cast(pa.int64())
    elif pa.types.is_date32(kind):
        values = values.cast(pa.int32())
    return values.cast(pa.string())
