"""A pending queue in SQLite, kept by triggers of rows."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from instep.domain.pending_queue import KeyRange, QueueKey, QueueSpec, before
from instep.errors import Transient, UserError
from instep.queues.engines.queue_engine import NAMED, Ask, Backfilled, Comparison, Observation, Offer, QueueCounts
from instep.queues.engines.sqlite import layout, queries
from instep.queues.engines.sqlite.layout import Layout, demand_usable
from instep.queues.engines.triggered import PAGE, TriggeredPending

#: So long a writer waits for the one before it.
_SECONDS: Final = 30.0

_PASSING: Final = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


@contextlib.contextmanager
def connected(path: Path) -> Iterator[sqlite3.Connection]:
    """Each statement is a transaction, outside `transaction`. Nothing is made where there is nothing."""
    if not path.is_file():
        raise UserError("there is no such database", where=str(path), hint="The queue is in that of its tables.")
    with understood(path):
        connection = sqlite3.connect(path, timeout=_SECONDS, isolation_level=None)
        # SQLite keeps any bytes as a text. What is no UTF-8 is no key, and stops no page that it is in.
        connection.text_factory = lambda data: data.decode(errors="surrogateescape")
        try:
            yield connection
        finally:
            connection.close()


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection, *, writes: bool) -> Iterator[None]:
    """A transaction: reads see one moment, and writes happen as a whole or not at all."""
    connection.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
    try:
        yield
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


@contextlib.contextmanager
def understood(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        code: Any = getattr(error, "sqlite_errorcode", 0)
        if code & 0xFF in _PASSING:
            raise Transient(f"{path}: {error}") from None
        raise UserError(f"SQLite refused: {error}", where=str(path)) from None


_ASKED: Final = "SELECT DISTINCT value AS key FROM json_each(?)"


class SqlitePending(TriggeredPending[sqlite3.Connection]):
    """The offers are exact, since there is one writer at a time; the truth is in the user's tables."""

    def __init__(self, path: str | Path, spec: QueueSpec) -> None:
        self._path = Path(path)
        self._layout = Layout(spec)
        super().__init__(spec, self._layout)

    @property
    def _shown(self) -> str:
        return str(self._path)

    # -- being there ---------------------------------------------------------------------------

    def statements(self) -> tuple[str, ...]:
        return (*layout.tables(self._layout), *layout.capture(self._layout))

    def check(self) -> None:
        with self._session() as connection, transaction(connection, writes=False):
            demand_usable(connection, self._layout, self._path)
            if self._there(connection):
                self._demand_same(connection)

    def create(self) -> None:
        with self._session() as connection, transaction(connection, writes=True):
            demand_usable(connection, self._layout, self._path)
            for statement in layout.tables(self._layout):
                connection.execute(statement)
            self._demand_same(connection)
            for statement in layout.capture(self._layout):
                connection.execute(statement)

    def drop(self) -> None:
        names = self._layout
        with self._session() as connection, transaction(connection, writes=True):
            for trigger in layout.triggers(names, self._most_covers(connection)):
                connection.execute(f"DROP TRIGGER IF EXISTS {trigger}")
            for table in (names.offers, names.acks, names.words, names.participants):
                connection.execute(f"DROP TABLE IF EXISTS {table}")

    def bounds(self) -> KeyRange | None:
        with self._session() as connection, transaction(connection, writes=False):
            ((lowest,),), ((highest,),) = (connection.execute(each).fetchall() for each in queries.bounds(self._layout))
        return None if lowest is None else KeyRange(before(lowest), highest)

    def edge(self, keys: KeyRange, size: int) -> QueueKey | None:
        with self._session() as connection:
            found = connection.execute(queries.edge(self._layout, self._within(keys), size)).fetchall()
        return found[0][0] if len(found) > 1 else None

    def backfill(self, keys: KeyRange) -> Backfilled:
        counting, adding = self.backfill_statements(keys)
        with self._session() as connection, transaction(connection, writes=True):
            ((found, pending),) = connection.execute(counting)
            connection.execute(adding)
        return Backfilled(found, pending)

    def backfill_statements(self, keys: KeyRange) -> tuple[str, ...]:
        keys = self._within(keys)
        return (
            queries.counted(self._layout, keys),
            layout.insert(self._layout, queries.present(self._layout, keys)),
        )

    # -- reading -------------------------------------------------------------------------------

    def read(self, ask: Ask) -> list[Offer]:
        found: list[Offer] = []
        page = ask
        with self._session() as connection:
            while len(found) < ask.limit:
                rows = connection.execute(queries.offers(self._layout, page)).fetchall()
                found += [
                    Offer(key, version, _moment(time))
                    for key, version, time, false in rows
                    if not false and self.spec.key_of(key) is not None
                ]
                self._heal(connection, [version for _, version, _, false in rows if false])
                if len(rows) < page.limit:
                    break
                page = Ask(min(4 * page.limit, PAGE), ask.settled, rows[-1][0], ask.participants)
        return found[: ask.limit]

    def read_statement(self, ask: Ask) -> str:
        return queries.offers(self._layout, ask)

    def anti_join(self, ask: Ask) -> list[QueueKey]:
        with self._session() as connection:
            found = connection.execute(queries.anti_join(self._layout, ask))
            return [key for (key,) in found if self.spec.key_of(key) is not None]

    def anti_join_statement(self, ask: Ask) -> str:
        return queries.anti_join(self._layout, ask)

    def confirm(self, keys: Collection[QueueKey]) -> set[QueueKey]:
        wanted = f"{self._layout.between('key')} AND {self._layout.pending('_asked.key')}"
        with self._session() as connection:
            rows = connection.execute(f"SELECT key FROM ({_ASKED}) AS _asked WHERE {wanted}", _bound(keys))
            return {key for (key,) in rows}

    # -- changing ------------------------------------------------------------------------------

    def withdraw(self, offers: Sequence[Offer]) -> None:
        with self._session() as connection, transaction(connection, writes=True):
            connection.executemany(
                f"DELETE FROM {self._layout.offers} WHERE key = ? AND version <= ?",
                [(each.key, each.version) for each in offers],
            )

    def offer(self, keys: Collection[QueueKey]) -> None:
        with self._session() as connection, transaction(connection, writes=True):
            # Anew, under a version of its own.
            connection.execute(f"DELETE FROM {self._layout.offers} WHERE key IN ({_ASKED})", _bound(keys))
            self._offer(connection, keys)

    def acknowledge(self, keys: Collection[QueueKey]) -> None:
        wanted = f"SELECT key FROM ({_ASKED}) AS _asked WHERE {self._layout.between('key')}"
        with self._session() as connection:
            connection.execute(f"INSERT OR IGNORE INTO {self._layout.acks} {wanted}", _bound(keys))

    def reopen(self, keys: Collection[QueueKey]) -> None:
        with self._session() as connection, transaction(connection, writes=True):
            connection.execute(f"DELETE FROM {self._layout.acks} WHERE key IN ({_ASKED})", _bound(keys))
            self._offer(connection, keys)

    # -- upkeep --------------------------------------------------------------------------------

    def compare(self, keys: KeyRange) -> Comparison:
        keys = self._within(keys)
        pending, offered = queries.pending(self._layout, keys), queries.offered(self._layout, keys)
        with self._session() as connection, transaction(connection, writes=False):
            ((count,),) = connection.execute(f"SELECT count(*) FROM ({pending})")
            missing, missing_count = self._named(connection, f"{pending} EXCEPT {offered}")
            surplus, surplus_count = self._named(connection, f"{offered} EXCEPT {pending}")
        return Comparison(count, missing, missing_count, surplus, surplus_count)

    def counts(self) -> QueueCounts:
        with self._session() as connection:
            ((offered,),) = connection.execute(f"SELECT count(*) FROM {self._layout.offers}")
        return QueueCounts(offered, 0, None)

    def garbage(self) -> dict[str, int]:
        with self._session() as connection, transaction(connection, writes=False):
            return {
                table: connection.execute(queries.garbage(self._layout, table, where)).fetchone()[0]
                for table, where in self._tables()
            }

    def cleanable(self) -> int:
        with self._session() as connection, transaction(connection, writes=False):
            ((false,),) = connection.execute(f"SELECT count(*) FROM {self._false_offers}")
            ((left,),) = connection.execute(f"SELECT count(*) FROM {self._left}")
        return int(false + left)

    def clean(self) -> int:
        """Remove offers that the triggers missed (withdrawn ones are removed at once), and acknowledgements of keys
        that the source has no more: some at a time, so that writers get their turn.
        """
        with self._session() as connection:
            removed = connection.execute(f"DELETE FROM {self._false_offers}").rowcount
            after: QueueKey | None = None
            while keys := connection.execute(self._forget_left(after)).fetchall():
                removed, (after,) = removed + len(keys), max(keys)
        return removed

    @property
    def _false_offers(self) -> str:
        return f"{self._layout.offers} AS _offer WHERE NOT ({self._layout.pending('_offer.key')})"

    @property
    def _left(self) -> str:
        return f"{self._layout.acks} AS _ack WHERE NOT {self._layout.present('_ack.key')}"

    def _forget_left(self, after: QueueKey | None) -> str:
        beyond = self._layout.between("_ack.key", KeyRange(after))
        some = f"SELECT key FROM {self._left} AND {beyond} ORDER BY key LIMIT {PAGE}"
        return f"DELETE FROM {self._layout.acks} WHERE key IN ({some}) RETURNING key"

    def remember(self, name: str, value: str) -> None:
        with self._session() as connection:
            connection.execute(f"INSERT OR REPLACE INTO {self._layout.words} VALUES (?, ?)", (name, value))

    def observe(self, since: datetime) -> list[Observation]:
        raise UserError(
            "SQLite keeps no log of its queries",
            where=str(self._path),
            hint="Time `instep queue next`, and `instep queue next --legacy` beside it.",
        )

    # -- inside --------------------------------------------------------------------------------

    def _offer(self, connection: sqlite3.Connection, keys: Collection[QueueKey]) -> None:
        asked = f"SELECT key FROM ({_ASKED}) WHERE {self._layout.between('key')}"
        connection.execute(layout.insert(self._layout, asked), _bound(keys))

    def _heal(self, connection: sqlite3.Connection, versions: list[int]) -> None:
        """Read the truth once more, within the write transaction."""
        if versions:
            connection.execute(
                f"DELETE FROM {self._layout.offers} AS _offer WHERE version IN ({_ASKED})"
                f" AND NOT ({self._layout.pending('_offer.key')})",
                _bound(versions),
            )

    def _named(self, connection: sqlite3.Connection, keys: str) -> tuple[tuple[QueueKey, ...], int]:
        named = connection.execute(f"SELECT key FROM ({keys}) ORDER BY key LIMIT {NAMED}").fetchall()
        ((count,),) = connection.execute(f"SELECT count(*) FROM ({keys})")
        found = tuple(key for (key,) in named if self.spec.key_of(key) is not None)
        return found, count - len(named) + len(found)

    def _session(self) -> contextlib.AbstractContextManager[sqlite3.Connection]:
        return connected(self._path)

    def _there(self, session: sqlite3.Connection) -> bool:
        found = session.execute(f"SELECT 1 FROM pragma_table_info('pending_words_{self._spec.name}') LIMIT 1")
        return found.fetchone() is not None

    def _words(self, session: sqlite3.Connection) -> dict[str, str]:
        return dict(session.execute(f"SELECT name, value FROM {self._layout.words}").fetchall())


def _bound(keys: Collection[QueueKey]) -> tuple[str]:
    return (json.dumps(list(keys)),)


def _moment(seconds: float | None) -> datetime | None:
    """A time that a `datetime` can hold; None for others."""
    if seconds is None:
        return None
    with contextlib.suppress(ValueError, OverflowError, OSError):
        return datetime.fromtimestamp(seconds, UTC)
    return None
