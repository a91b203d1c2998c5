"""Snapshots of the state, so that a replay begins near the end of the log; and the state itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from itertools import takewhile
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, Select, and_, delete, insert, select

from instep.domain.events import Recorded
from instep.domain.fold import replay
from instep.domain.snapshot import dump, load
from instep.domain.state import State
from instep.errors import InstepError, UserError
from instep.ledger import event_log, log_start
from instep.ledger.tables import snapshots
from instep.ledger.transaction import Database, Transaction

#: A snapshot is made after so many events.
EVERY: Final = 10_000
#: Of the older ones, these are kept: for the state as of a time long ago.
_KEPT: Final = 100_000
#: Bytes. Servers bound what one statement may bring.
_PIECE: Final = 4 * 2**20


def follow(database: Database, tx: Transaction) -> None:
    """Make the snapshot that is due after what a transaction has appended.

    That is committed. Without the snapshot a replay takes longer, that is all.
    """
    sequence = _due(*tx.appended)
    if sequence is not None:
        with suppress(InstepError):
            made = database.read_steadily(lambda tx: make(tx.connection, sequence))
            database.write(lambda tx: keep(tx.connection, made))


def _due(before: int, last: int) -> int | None:
    """The event after which a snapshot is to be made, when these were appended."""
    latest = last // EVERY * EVERY
    return latest if latest > before else None


def state(connection: Connection, *, at: int | None = None, sequence: int | None = None) -> State:
    """Load the state from the newest snapshot that can be read, or else from the start of the log, and the events after
    it: up to a time, or to an event. All statements must see the same moment. Raises `UserError` for a time of which
    events were forgotten.
    """
    start = log_start.of(connection)
    if at is not None and at < start.at:
        raise UserError(
            f"what the ledger knew at that time was forgotten: its log begins after {_text(start.at)}",
            hint="Ask for a later time; `retention` in instep.yaml says how long events are kept.",
        )
    found = _newest(connection, at, sequence, start.sequence)
    return replay(_until(event_log.read(connection, found.sequence), at, sequence), found)


def _until(events: Iterator[Recorded], at: int | None, sequence: int | None) -> Iterator[Recorded]:
    def wanted(each: Recorded) -> bool:
        return (at is None or each.at <= at) and (sequence is None or each.sequence <= sequence)

    return events if at is None and sequence is None else takewhile(wanted, events)


def _text(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(" ", "seconds")


def _newest(connection: Connection, at: int | None, sequence: int | None, start: int) -> State:
    naming = event_log.head(connection).naming
    made = select(snapshots.c.sequence).where(snapshots.c.piece == 0, snapshots.c.sequence >= start)
    made = made.order_by(snapshots.c.sequence.desc())
    if at is not None:
        made = made.where(snapshots.c.at <= at)
    if sequence is not None:
        made = made.where(snapshots.c.sequence <= sequence)
    for each in connection.execute(made).scalars().all():
        found = load(b"".join(connection.execute(_pieces(each)).scalars()), naming)
        if isinstance(found, State):
            return found
    return log_start.state(connection, naming)[0]


def _pieces(sequence: int) -> Select[Any]:
    return select(snapshots.c.body).where(snapshots.c.sequence == sequence).order_by(snapshots.c.piece)


class Snapshot(NamedTuple):
    sequence: int
    at: int
    body: bytes


def make(connection: Connection, sequence: int) -> Snapshot:
    """The one after an event."""
    return Snapshot(sequence, _time_of(connection, sequence), dump(state(connection, sequence=sequence)))


def keep(connection: Connection, made: Snapshot) -> None:
    """Store it; those before it are thinned out."""
    sequence, at, body = made
    connection.execute(delete(snapshots).where(snapshots.c.sequence == sequence))
    pieces = [body[start : start + _PIECE] for start in range(0, len(body), _PIECE)]
    rows = [{"sequence": sequence, "at": at, "piece": number, "body": piece} for number, piece in enumerate(pieces)]
    connection.execute(insert(snapshots), rows)
    # The one before stays, in case that this one cannot be read.
    old = and_(snapshots.c.sequence < sequence - EVERY, snapshots.c.sequence % _KEPT != 0)
    connection.execute(delete(snapshots).where(old))


def _time_of(connection: Connection, sequence: int) -> int:
    return next(at for _, at, *_ in event_log.rows(connection, sequence - 1, 1))


def forget(connection: Connection) -> None:
    connection.execute(delete(snapshots))
