"""Documents that were removed after the base of their instance was written, and so are in its file (`tables.removals`).

They cost what was removed: without them each removed document would cost a base that is written anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from sqlalchemy import delete, func, insert, select

from instep.ledger.tables import removals
from instep.ledger.transaction import Transaction, batches

if TYPE_CHECKING:
    import pyarrow as pa

#: Ids of a page.
_PAGE: Final = 50_000
ID: Final = "document_id"


def note(tx: Transaction, instance: str, ids: Sequence[str]) -> None:
    """Record that these documents were removed."""
    for some in batches(sorted(set(ids))):
        here = (removals.c.instance == instance, removals.c.document_id.in_(some))
        tx.connection.execute(delete(removals).where(*here))
        tx.connection.execute(insert(removals), [{"instance": instance, "document_id": each} for each in some])


def count(tx: Transaction, instance: str) -> int:
    """Count the removed documents of an instance."""
    here = select(func.count()).select_from(removals).where(removals.c.instance == instance)
    return int(tx.connection.scalar(here) or 0)


def ids_of(tx: Transaction, instance: str) -> pa.Table:
    """The ids of an instance's removed documents in their order, in one column, `document_id`."""
    import pyarrow as pa

    return pa.Table.from_batches(list(pages(tx, instance)), pa.schema([(ID, pa.string())]))


def pages(tx: Transaction, instance: str) -> Iterator[pa.RecordBatch]:
    """Read removals, a batch at a time."""
    import pyarrow as pa

    ids = select(removals.c.document_id).where(removals.c.instance == instance)
    page, after = ids.order_by(removals.c.document_id).limit(_PAGE), ""
    while found := tx.connection.scalars(page.where(removals.c.document_id > after)).all():
        yield pa.record_batch({ID: pa.array(found, pa.string())})
        after = found[-1]


def forget(tx: Transaction, instance: str) -> None:
    """Forget the removals of an instance: its new base has none of them."""
    tx.connection.execute(delete(removals).where(removals.c.instance == instance))
