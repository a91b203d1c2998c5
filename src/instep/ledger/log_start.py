"""The start of the event log: old events are replaced by the state that they led to, and deleted.

A snapshot is a shortcut, and can be made again; a start cannot: what led to it is gone. So it also has what a state has
not, the origins of wants and of what is served, and later versions of Instep read it whatever becomes of the rules of
the fold. It is written before the first event that it stands for goes, and events that it stands for are read no more,
whether or not they are gone already.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec
from msgspec import Struct
from sqlalchemy import Connection, Table, delete, func, insert, select

from instep.domain.events import Unreadable
from instep.domain.refs import Naming
from instep.domain.snapshot import dump, load
from instep.domain.state import State
from instep.errors import UserError
from instep.ledger import event_log
from instep.ledger.projections import Origins
from instep.ledger.replay import Replayed
from instep.ledger.tables import events, instances, log_start, snapshots, wants
from instep.ledger.transaction import Database, Transaction

#: To write a state for fewer events is not worth it.
FEW: Final = 256
#: So many events are folded into a new start at most.
MOST: Final = 10_000
#: So many events go in one transaction.
LIMIT: Final = 2_000
#: Bytes. Servers bound what one statement may bring.
_PIECE: Final = 4 * 2**20


class Start(NamedTuple):
    """The last event that is forgotten, and its time."""

    sequence: int = 0
    at: int = 0


class _Written(Struct, array_like=True):
    state: bytes
    wants: dict[str, int]
    served: list[tuple[str, str, int]]


class _Made(NamedTuple):
    start: Start
    body: bytes


_decoded = msgspec.msgpack.Decoder(_Written).decode


def of(connection: Connection) -> Start:
    newest = select(log_start.c.sequence, log_start.c.at).order_by(log_start.c.sequence.desc()).limit(1)
    row = connection.execute(newest).one_or_none()
    return Start() if row is None else Start(*row)


def state(connection: Connection, naming: Naming) -> tuple[State, Origins]:
    """The state that the log goes on from."""
    start = of(connection)
    if not start.sequence:
        return State(naming=naming), Origins({}, {})
    pieces = select(log_start.c.body).where(log_start.c.sequence == start.sequence).order_by(log_start.c.piece)
    try:
        written = _decoded(b"".join(connection.execute(pieces).scalars()))
        found = load(written.state, naming)
        why = found.reason if isinstance(found, Unreadable) else ""
    except msgspec.MsgspecError as error:
        why = str(error)
    if why or not isinstance(found, State):
        raise UserError(
            f"the start of the ledger's log, after event {start.sequence:,}, cannot be read ({why})",
            hint="Restore the ledger from a backup; `instep adopt` then compares it with what is indexed.",
        )
    return found, Origins(written.wants, {(ref, generation): since for ref, generation, since in written.served})


def forgettable(tx: Transaction, before: int) -> int:
    """Count the events that may be forgotten: those older than this time, if they are worth it, and those that were
    left by a process that died in the middle of forgetting.
    """
    connection = tx.connection
    start = of(connection).sequence
    older = select(func.count()).where(events.c.sequence > start, events.c.at < before)
    number = int(connection.scalar(older) or 0)
    left = int(connection.scalar(select(func.count()).where(events.c.sequence <= start)) or 0)
    rest = number % MOST
    return left + (number - rest if rest < _worth(connection) else number)


def forget(database: Database, before: int, limit: int) -> int:
    """See `Events.forget`."""
    made, behind = database.read_steadily(lambda tx: _due(tx.connection, before))
    if made is not None:
        database.write(lambda tx: _keep(tx.connection, made))
    return database.write(lambda tx: _clear(tx.connection, limit)) if made is not None or behind else 0


def _due(connection: Connection, before: int) -> tuple[_Made | None, bool]:
    """The start that is to be written, if one is, and whether events are left that one stands for already."""
    start = of(connection)
    left = select(events.c.sequence).where(events.c.sequence <= start.sequence).limit(1)
    behind = connection.scalar(left) is not None
    beyond = select(events.c.at).where(events.c.sequence > start.sequence).order_by(events.c.sequence)
    enough = connection.scalar(beyond.offset(FEW - 1).limit(1))
    if enough is None or enough >= before:
        return None, behind
    reach = (events.c.sequence > start.sequence, events.c.sequence <= start.sequence + MOST, events.c.at < before)
    last = connection.execute(select(func.max(events.c.sequence), func.max(events.c.at)).where(*reach)).one()
    if last[0] is None or last[0] - start.sequence < _worth(connection):
        return None, behind
    return _made(connection, Start(*last)), behind


def _worth(connection: Connection) -> int:
    """The number of events that is worth a new start: as many as there are things in it, so that all that is ever
    written of starts is in proportion to what was appended.
    """
    things = sum(int(connection.scalar(select(func.count()).select_from(each)) or 0) for each in _THINGS)
    return min(max(FEW, things), MOST)


_THINGS: Final[tuple[Table, ...]] = (instances, wants)


def _made(connection: Connection, start: Start) -> _Made:
    before, origins = state(connection, event_log.head(connection).naming)
    some = event_log.read(connection, before.sequence, until=start.sequence)
    replayed = Replayed(some, before, origins)
    found, since = replayed.state, replayed.origins
    written = _Written(
        dump(found),
        {id: since.wants[id] for id in found.wants},
        [(*key, since.served[key]) for key in found.served],
    )
    return _Made(start, msgspec.msgpack.encode(written))


def _keep(connection: Connection, made: _Made) -> None:
    """Write it, unless another worker was first; those before it, and snapshots before it, are of no use any more."""
    event_log.lock(connection)
    start, body = made
    if of(connection).sequence >= start.sequence:
        return
    pieces = [body[begin : begin + _PIECE] for begin in range(0, len(body), _PIECE)]
    rows = [{**start._asdict(), "piece": number, "body": piece} for number, piece in enumerate(pieces)]
    connection.execute(delete(log_start))
    connection.execute(insert(log_start), rows)
    connection.execute(delete(snapshots).where(snapshots.c.sequence < start.sequence))


def _clear(connection: Connection, limit: int) -> int:
    """Remove some of the events that the start stands for, the oldest first."""
    event_log.lock(connection)
    of_it = select(events.c.sequence).where(events.c.sequence <= of(connection).sequence)
    some = connection.scalars(of_it.order_by(events.c.sequence).limit(limit)).all()
    if some:
        connection.execute(delete(events).where(events.c.sequence <= some[-1]))
    return len(some)
