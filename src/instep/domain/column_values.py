"""Values of documents' columns, from what a source says: front matter, a path, a line of a feed.

Every target holds every value that is let in here, and compares it alike: so texts and lists have bounds, and there is
no NUL, no infinity and no moment outside of the years 1 to 9999. NaN is no number, and counts as missing.
"""

from __future__ import annotations

import math
import re
import reprlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, date, datetime
from typing import Any, Final, TypeAlias

from instep.domain.document_columns import DocumentColumn, DocumentColumnType

Value: TypeAlias = str | int | float | bool | datetime | date | list[str] | list[int] | None

#: Bytes of a text, and elements of a list: PostgreSQL's indexes take no longer texts, Milvus no longer lists.
MAX_BYTES: Final = 2_000
MAX_ELEMENTS: Final = 1_000
MIN_INT: Final = -(2**63)
MAX_INT: Final = 2**63 - 1

_SHOWN: Final = 60
_BRIEF: Final = reprlib.Repr()
_BRIEF.maxlevel, _BRIEF.maxlist, _BRIEF.maxtuple, _BRIEF.maxstring, _BRIEF.maxother = 2, 8, 8, _SHOWN, _SHOWN
#: Plain words of YAML that say nothing.
_NOTHING: Final = frozenset({"", "~", "null", "Null", "NULL"})
_WHOLE: Final = re.compile(r"[-+]?[0-9]{1,30}")
_NUMBER: Final = re.compile(r"[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?")
_NOT_A_NUMBER: Final = re.compile(r"\.?nan", re.IGNORECASE)
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}")
_MOMENT: Final = re.compile(r"\d{4}-\d{2}-\d{2}([Tt ]\d{2}:\d{2}(:\d{2}(\.\d{1,9})?)?( ?(Z|z|[+-]\d{2}(:?\d{2})?))?)?")
_FRACTION: Final = re.compile(r"(\.\d{6})\d+")


class WrongValue(ValueError):
    """A value that is not of its column's type. The message names column and value."""


def value_of(column: DocumentColumn, said: Any, *, text: bool = False) -> Any:
    """The value of a column by what a source says of it. `text`: it only has text for all of them, as a path has.

    A moment without a zone is in UTC. Raises `WrongValue`.
    """
    if said is None or (text and isinstance(said, str) and said in _NOTHING):
        return None
    if not column.type.listed:
        return _single(column, said, text=text)
    if not isinstance(said, list | tuple):
        raise wrong(column, said)
    if len(said) > MAX_ELEMENTS:
        raise WrongValue(f"column {column.name} has {len(said):,} elements, more than {MAX_ELEMENTS:,}")
    of = DocumentColumn(column.name, _ELEMENTS[column.type])
    found: list[Any] = []
    for each in said:
        if each is None or (text and isinstance(each, str) and each in _NOTHING):
            raise WrongValue(f"column {column.name}: a null in a list of {of.type}")
        found.append(_single(of, each, text=text))
    return found or None


_ELEMENTS: Final = {
    DocumentColumnType.STRINGS: DocumentColumnType.STRING,
    DocumentColumnType.INTS: DocumentColumnType.INT,
}


def _single(column: DocumentColumn, said: Any, *, text: bool) -> Any:
    return _READERS[column.type](column, _plain(column.type, said) if text and isinstance(said, str) else said)


def _plain(kind: DocumentColumnType, said: str) -> Any:
    """The value of this type that a text stands for; the text itself if for none."""
    match kind:
        case DocumentColumnType.INT if _WHOLE.fullmatch(said):
            return int(said)
        case DocumentColumnType.FLOAT if _NUMBER.fullmatch(said) or _NOT_A_NUMBER.fullmatch(said):
            return math.nan if _NOT_A_NUMBER.fullmatch(said) else float(said)
        case DocumentColumnType.BOOL if said.lower() in ("true", "false"):
            return said.lower() == "true"
    return said


def _text(column: DocumentColumn, said: Any) -> str:
    if not isinstance(said, str):
        raise wrong(column, said)
    try:
        size = len(said.encode())
    except UnicodeEncodeError:
        raise WrongValue(f"column {column.name}: half of a surrogate pair in {_shown(said)}") from None
    if size > MAX_BYTES:
        raise WrongValue(f"column {column.name} has {size:,} bytes, more than {MAX_BYTES:,}: {_shown(said)}")
    if "\0" in said:
        raise WrongValue(f"column {column.name}: the character U+0000 in {_shown(said)}")
    return said


def _int(column: DocumentColumn, said: Any) -> int:
    if not isinstance(said, int) or isinstance(said, bool):
        raise wrong(column, said)
    if not MIN_INT <= said <= MAX_INT:
        raise WrongValue(f"column {column.name} is int, and {_shown(said)} is not a whole number of 64 bits")
    return said


def _bool(column: DocumentColumn, said: Any) -> bool:
    if not isinstance(said, bool):
        raise wrong(column, said)
    return said


def _date(column: DocumentColumn, said: Any) -> date:
    if isinstance(said, date) and not isinstance(said, datetime):
        return said
    if isinstance(said, str) and _DATE.fullmatch(said):
        with suppress(ValueError):
            return date.fromisoformat(said)
    raise wrong(column, said)


def _float(column: DocumentColumn, said: Any) -> float | None:
    if not isinstance(said, int | float) or isinstance(said, bool):
        raise wrong(column, said)
    try:
        number = float(said)
    except OverflowError:
        number = math.inf
    if math.isnan(number):
        return None
    if math.isinf(number):
        raise WrongValue(f"column {column.name} is float, and {_shown(said)} is not a finite number")
    return number + 0.0  # -0.0 is 0.0.


def _moment(column: DocumentColumn, said: Any) -> datetime:
    found: datetime | None = None
    try:
        if isinstance(said, datetime):
            found = said
        elif isinstance(said, date):
            found = datetime(said.year, said.month, said.day, tzinfo=UTC)
        elif isinstance(said, str) and _MOMENT.fullmatch(said):
            found = datetime.fromisoformat(_FRACTION.sub(r"\1", said.upper()).replace(" +", "+").replace(" Z", "Z"))
        if found is not None:
            return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        raise wrong(column, said) from None
    raise wrong(column, said)


_READERS: Final[Mapping[DocumentColumnType, Callable[[DocumentColumn, Any], Any]]] = {
    DocumentColumnType.STRING: _text,
    DocumentColumnType.INT: _int,
    DocumentColumnType.FLOAT: _float,
    DocumentColumnType.BOOL: _bool,
    DocumentColumnType.TIMESTAMP: _moment,
    DocumentColumnType.DATE: _date,
}


def wrong(column: DocumentColumn, said: Any) -> WrongValue:
    return WrongValue(f"column {column.name} is {column.type}, and the value is {_shown(said)}")


def _shown(said: Any) -> str:
    if isinstance(said, str):
        said = said[: _SHOWN + 1]
    elif isinstance(said, list | tuple | dict):
        # As much as is shown: what YAML has by aliases may be without end when it is written out.
        return _cut(_BRIEF.repr(said))
    shown = ascii(said) if isinstance(said, str) and not said.isprintable() else repr(said)
    return _cut(shown)


def _cut(shown: str) -> str:
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"
