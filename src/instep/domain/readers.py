"""Readers of documents: who may find which, closed by default.

A document names its readers in a column, a list of principals such as `alice` and `group:ops`. One that names none is
found by nobody; one that names `public` by everybody. A search is asked as some principals, or as nobody in particular.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from instep.domain.column_values import WrongValue, value_of
from instep.domain.document_columns import DocumentColumn, DocumentColumnType
from instep.domain.filters import Condition, Contains
from instep.domain.texts import names_in

#: The reader that everybody is.
PUBLIC: Final = "public"
#: A person's groups are many, but not without end: each is a value of a filter.
MOST: Final = 500

_PRINCIPAL: Final = DocumentColumn("principal", DocumentColumnType.STRING)


class PrincipalError(ValueError):
    """A text that names no principal, or too many of them."""


def checked_principals(principals: Iterable[str]) -> tuple[str, ...]:
    """Each once. Raises `PrincipalError`."""
    found = tuple(dict.fromkeys(names_in(principals)))
    if len(found) > MOST:
        raise PrincipalError(f"{len(found):,} principals, more than {MOST}")
    for each in found:
        if not isinstance(each, str):
            raise PrincipalError(f"a principal is a text, such as alice, and not {type(each).__name__}")
        if not each.strip():
            raise PrincipalError("a principal must not be empty")
        try:
            value_of(_PRINCIPAL, each)
        except WrongValue:
            raise PrincipalError("a principal is too long, or has characters that no reader has") from None
    return found


def allowed(principals: Sequence[str]) -> tuple[str, ...]:
    """Readers of which a document has to name at least one."""
    return tuple(dict.fromkeys((PUBLIC, *principals)))


def readable(readers: DocumentColumn, principals: Sequence[str]) -> Condition:
    """The condition of documents that these principals may find. It holds for none without readers."""
    return Contains(readers, allowed(principals))


def among_both(before: Iterable[str], now: Iterable[str]) -> list[str]:
    """The readers of a text of `before`, of which only the readers are known `now`: none who is not among both. Applied
    again it changes nothing.
    """
    then, named = list(before), list(now)
    if PUBLIC in then:
        return named
    return then if PUBLIC in named else [each for each in then if each in set(named)]


def may_read(readers: Iterable[Any], principals: Sequence[str]) -> bool:
    """The same of one document."""
    return not set(allowed(principals)).isdisjoint(readers)
