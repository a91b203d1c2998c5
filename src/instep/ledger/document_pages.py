"""Manifest rows in columns of Arrow, a page at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from sqlalchemy import func, select

from instep.ledger.tables import documents
from instep.ledger.transaction import Transaction, uncollected

if TYPE_CHECKING:
    import pyarrow as pa

#: Rows of a page.
_PAGE: Final = 50_000
#: The column of where a page ends.
_PLACE: Final = "place"


def number_of(tx: Transaction, instance: str) -> int:
    """The number of documents of an instance."""
    here = select(func.count()).select_from(documents).where(documents.c.instance == instance)
    return int(tx.connection.scalar(here) or 0)


def rows_of(tx: Transaction, instance: str, names: Sequence[str], *, since: int | None = None) -> pa.Table:
    """The columns of an instance, or of its revisions after `since`."""
    import pyarrow as pa

    from instep.document_state.entries import entry_schema

    return pa.Table.from_batches(list(pages(tx, instance, names, since=since)), entry_schema(names))


def pages(
    tx: Transaction, instance: str, names: Sequence[str], *, since: int | None = None
) -> Iterator[pa.RecordBatch]:
    """Read pages by the key: no database has to hold more than a page, or sort one. `since`: only later revisions."""
    import pyarrow as pa

    from instep.document_state.entries import entry_schema

    schema = entry_schema(names)
    told = schema.append(pa.field(_PLACE, pa.string()))
    page = select(*(documents.c[name] for name in names), documents.c.document_id.label(_PLACE))
    page = page.where(documents.c.instance == instance).order_by(documents.c.document_id).limit(_PAGE)
    if since is not None:
        page = page.where(documents.c.revision > since)
    after: str | None = None
    while True:
        beyond = page if after is None else page.where(documents.c.document_id > after)
        with uncollected():
            made = tx.dialect.columns(tx.connection, beyond, told)
        if made.num_rows:
            yield made.select(names)
        if made.num_rows < _PAGE:
            return
        after = made[_PLACE][-1].as_py()
