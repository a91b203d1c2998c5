"""Status keys: a row each, which keeps its revision when the key is deleted."""

from __future__ import annotations

from sqlalchemy import func, insert, or_, select, update

from instep.errors import Conflict
from instep.ledger.tables import bus_status
from instep.ledger.transaction import Transaction

_THERE = select(bus_status.c.key, bus_status.c.value, bus_status.c.revision).where(bus_status.c.value.is_not(None))


def put(tx: Transaction, key: str, value: str | None, wanted: int | None) -> int:
    """Set it, or delete it (None), if it has the revision that is wanted; returns the one that it has then."""
    here = bus_status.c.key == key
    row = tx.connection.execute(select(bus_status).where(here).with_for_update()).one_or_none()
    found = 0 if row is None or row.value is None else row.revision
    if wanted is not None and found != wanted:
        raise Conflict(f"{key} has changed: its revision is {found}, not {wanted}")
    if row is None and value is None:
        return 0
    if row is None:
        tx.connection.execute(insert(bus_status).values(key=key, value=value, revision=1, updated_at=tx.now()))
        return 1
    if row.value is None and value is None:
        return int(row.revision)
    after = int(row.revision) + 1
    tx.connection.execute(update(bus_status).where(here).values(value=value, revision=after, updated_at=tx.now()))
    return after


def get(tx: Transaction, key: str) -> tuple[str, str, int] | None:
    """Key, value and revision."""
    row = tx.connection.execute(_THERE.where(bus_status.c.key == key)).one_or_none()
    return None if row is None else (row[0], row[1], row[2])


def under(tx: Transaction, prefix: str) -> list[tuple[str, str, int]]:
    # Not LIKE, which ignores case in SQLite, nor a range, whose order is the database's collation.
    below = func.substr(bus_status.c.key, 1, len(prefix) + 1) == f"{prefix}."
    rows = tx.connection.execute(_THERE.where(or_(bus_status.c.key == prefix, below)))
    return sorted((key, value, revision) for key, value, revision in rows)
