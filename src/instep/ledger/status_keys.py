"""Status keys: a row each, which keeps its revision when the key is deleted."""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import func, insert, or_, select, update

from instep.errors import Conflict
from instep.ledger.tables import bus_status
from instep.ledger.transaction import Store, Transaction, reads, writes

_THERE = select(bus_status.c.key, bus_status.c.value, bus_status.c.revision).where(bus_status.c.value.is_not(None))


class StatusRow(NamedTuple):
    key: str
    value: str
    revision: int


class StatusKeys(Store):
    """The state of each partition in words, for the bus in the ledger."""

    @writes
    def put(self, tx: Transaction, key: str, value: str | None, *, revision: int | None = None) -> int:
        """Set a key, or delete it (None), if it has this `revision` (0: if it is not there); returns its new one."""
        here = bus_status.c.key == key
        row = tx.connection.execute(select(bus_status).where(here).with_for_update()).one_or_none()
        found = 0 if row is None or row.value is None else row.revision
        if revision is not None and found != revision:
            raise Conflict(f"{key} has changed: its revision is {found}, not {revision}")
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

    @reads
    def get(self, tx: Transaction, key: str) -> StatusRow | None:
        row = tx.connection.execute(_THERE.where(bus_status.c.key == key)).one_or_none()
        return None if row is None else StatusRow(*row)

    @reads
    def under(self, tx: Transaction, prefix: str) -> list[StatusRow]:
        """The key `prefix` and all below it, by key."""
        # Not LIKE, which ignores case in SQLite, nor a range, whose order is the database's collation.
        below = func.substr(bus_status.c.key, 1, len(prefix) + 1) == f"{prefix}."
        rows = tx.connection.execute(_THERE.where(or_(bus_status.c.key == prefix, below)))
        return sorted(StatusRow(*row) for row in rows)
