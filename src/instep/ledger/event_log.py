"""The log of events. An append holds the lock of its head until the end of the transaction, and takes that after
all other locks: so sequences have no gaps, and become visible in their order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from sqlalchemy import Connection, bindparam, insert, select, update

from instep.domain import events as e
from instep.domain.events import Event, Unreadable
from instep.domain.fold import apply
from instep.domain.refs import Naming
from instep.domain.state import Rejected
from instep.domain.storable import LONGEST_ID, is_storable, storable
from instep.errors import Conflict
from instep.ledger import projections
from instep.ledger.loaded_state import Stored
from instep.ledger.tables import event_head, events
from instep.ledger.transaction import Transaction

#: An event as it is stored: sequence, at, kind, version, JSON. `domain.events.read` makes events of them.
LogRow = tuple[int, int, str, int, str]

#: What is in an index, and of how many characters it can be.
_NAMES: Final = (("want", LONGEST_ID), ("ref", 255), ("refs", 255), ("missing", 255))

#: So many rows are read at once.
_CHUNK: Final = 10_000

_HEAD = select(event_head.c.last, event_head.c.at, event_head.c.ledger, event_head.c.since).where(event_head.c.id == 1)
_LOCKED_HEAD = _HEAD.with_for_update()
_MOVE_HEAD = update(event_head).where(event_head.c.id == 1)
_AFTER = select(events).where(events.c.sequence > bindparam("b_after")).order_by(events.c.sequence)
_SOME = _AFTER.limit(bindparam("b_limit"))


def unstorable(event: Event | Unreadable) -> Rejected | None:
    """The reason why an event is refused: it names what not every ledger could find again."""
    for field_name, longest in _NAMES:
        named = getattr(event, field_name, ())
        for each in (named,) if isinstance(named, str) else named:
            if len(each) > longest:
                return Rejected("malformed", f"{each[:40]}… is too long to be stored")
            if not is_storable(each):
                return Rejected("malformed", f"{storable(each)} cannot be stored: it is not text")
    return None


class Head(NamedTuple):
    """Sequence and time of the last event, and the ledger's id with the last event before it had that."""

    last: int
    at: int
    ledger: str
    since: int

    @property
    def naming(self) -> Naming:
        return Naming(self.ledger, self.since)


def head(connection: Connection) -> Head:
    return Head(*connection.execute(_HEAD).one())


def present(tx: Transaction) -> int:
    """The present time, but not before the last event."""
    return max(tx.now(), head(tx.connection).at)


def lock(connection: Connection) -> Head:
    """Lock the log's head: no other transaction appends until the end of this one."""
    return Head(*connection.execute(_LOCKED_HEAD).one())


def append(tx: Transaction, new: Sequence[e.Event]) -> list[e.Recorded] | Rejected:
    """Append events and change the projections, or do nothing when one of them is rejected."""
    head = lock(tx.connection)
    last, before = head.last, head.at
    if not new:
        return []
    # Times in the log grow even if the clock was set back: a want may be as of one of them.
    at = tx.now() if tx.now() >= before else before + 1
    rows = [
        (sequence, at, each.KIND, each.VERSION, e.encode(each)) for sequence, each in enumerate(new, start=last + 1)
    ]
    # As they will be read: whatever the text cannot hold must not get into the projections either.
    recorded = list(e.read(rows))
    stored = Stored(tx.connection, last, head.naming)
    stored.expect(each.event for each in recorded)
    changes = projections.Changes()
    for each in recorded:
        applied = unstorable(each.event) or apply(stored.state, each)
        if isinstance(applied, Rejected):
            return applied
        changes.add(each.sequence, applied)
    tx.connection.execute(insert(events), [dict(zip(events.c.keys(), row, strict=True)) for row in rows])
    changes.write(tx.connection, stored)
    tx.connection.execute(_MOVE_HEAD.values(last=rows[-1][0], at=at))
    tx.appended = (last, rows[-1][0])
    return recorded


def demand(tx: Transaction, events: Sequence[e.Event]) -> list[e.Recorded]:
    """Append them all."""
    appended = append(tx, events)
    if isinstance(appended, Rejected):
        raise Conflict(appended.reason)
    return appended


def rows(connection: Connection, after: int, limit: int) -> list[LogRow]:
    found = connection.execute(_SOME, {"b_after": after, "b_limit": limit})
    return [tuple(row) for row in found]


def read(connection: Connection, after: int = 0, until: int | None = None) -> Iterator[e.Recorded]:
    """Read all events after a sequence, up to another one, including those that cannot be decoded."""
    while some := rows(connection, after, _CHUNK if until is None else min(_CHUNK, until - after)):
        yield from e.read(each for each in some if until is None or each[0] <= until)
        after = some[-1][0]
        if until is not None and after >= until:
            return
