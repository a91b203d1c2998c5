"""Manifest rows one by one: as entries, or what tells that a document has not changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, Select, select

from instep.domain.manifest import ManifestEntry
from instep.ledger.tables import documents
from instep.ledger.transaction import Transaction

#: Rows that are fetched at once.
_TOGETHER: Final = 5_000


def entries_of(tx: Transaction, instance: str, *where: ColumnElement[bool]) -> dict[str, ManifestEntry]:
    """Entries of an instance, by URI."""
    columns = [documents.c[name] for name in ManifestEntry._fields]
    wanted = select(*columns).where(documents.c.instance == instance, *where)
    return {row[1]: ManifestEntry._make(row) for row in _rows(tx, wanted)}


def versions_of(tx: Transaction, instance: str) -> dict[str, tuple[int, str]]:
    """Size and version of all entries of an instance, by URI."""
    wanted = select(documents.c.uri, documents.c.size, documents.c.version).where(documents.c.instance == instance)
    return {uri: (size, version) for uri, size, version in _rows(tx, wanted)}


def _rows(tx: Transaction, wanted: Select[Any]) -> Iterator[Sequence[Any]]:
    """Rows as the driver gives them: one of SQLAlchemy's for each takes as long as reading it."""
    found = tx.connection.execute(wanted)
    assert found.cursor is not None, "a statement that selects"
    while some := found.cursor.fetchmany(_TOGETHER):
        yield from some
    found.close()
