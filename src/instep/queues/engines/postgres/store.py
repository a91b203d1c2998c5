"""A pending queue in PostgreSQL, kept by triggers of statements."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, Final, TypeAlias

from instep.domain.pending_queue import KeyKind, KeyRange, QueueKey, QueueSpec, before
from instep.errors import InstepError
from instep.postgres.connection import Session
from instep.postgres.location import Location
from instep.queues.engines.postgres import capture, queries
from instep.queues.engines.postgres.layout import Layout, demand_usable
from instep.queues.engines.postgres.queries import observations
from instep.queues.engines.queue_engine import Ask, Backfilled, Comparison, Observation, Offer, QueueCounts
from instep.queues.engines.triggered import PAGE, TriggeredPending, literal

#: Key, version, event time, and what `asking.offers` says of it.
_Row: TypeAlias = tuple[QueueKey, int, datetime | None, str]

_FALSE: Final = ("covered", "gone")


class PostgresPending(TriggeredPending[Session]):
    """Offers are rows of their own table; the truth is in the user's. `capture` says why nothing is lost."""

    def __init__(self, uri: str, schema: str, spec: QueueSpec) -> None:
        self._place = Location(uri, schema)
        self._layout = Layout(schema, spec)
        super().__init__(spec, self._layout)

    @property
    def _shown(self) -> str:
        return self._place.shown

    # -- being there ---------------------------------------------------------------------------

    def statements(self) -> tuple[str, ...]:
        return (*capture.tables(self._layout), *capture.capture(self._layout))

    def check(self) -> None:
        with self._session() as session:
            demand_usable(session, self._layout)
            if self._there(session):
                self._demand_same(session)

    def create(self) -> None:
        with self._session() as session:
            demand_usable(session, self._layout)
            for statement in capture.tables(self._layout):
                session.ask(statement)
            self._demand_same(session)
            # One by one: each waits for those who write to its table, and would keep others waiting for the next.
            for statement in capture.capture(self._layout):
                session.ask(statement)

    def drop(self) -> None:
        layout = self._layout
        with self._session() as session:
            for function in capture.functions(layout, self._most_covers(session)):
                session.ask(f"DROP FUNCTION IF EXISTS {function}() CASCADE")
            session.ask(f"DROP TABLE IF EXISTS {layout.offers}, {layout.acks}, {layout.words}")

    def bounds(self) -> KeyRange | None:
        with self._session() as session:
            lowest, highest = self._keys(session.ask(queries.bounds(self._layout))[0])
        return None if lowest is None else KeyRange(before(lowest), highest)

    def edge(self, keys: KeyRange, size: int) -> QueueKey | None:
        with self._session() as session:
            found = self._keys(key for (key,) in session.ask(queries.edge(self._layout, self._within(keys), size)))
        return found[0] if len(found) > 1 else None

    def backfill(self, keys: KeyRange) -> Backfilled:
        with self._joining() as session:
            ((found, pending),) = session.ask(queries.backfill(self._layout, self._within(keys)))
        return Backfilled(found, pending)

    def backfill_statements(self, keys: KeyRange) -> tuple[str, ...]:
        return (queries.backfill(self._layout, self._within(keys)),)

    # -- reading -------------------------------------------------------------------------------

    def read(self, ask: Ask) -> list[Offer]:
        found: dict[int, Offer] = {}
        page = ask
        with self._session() as session:
            while len(found) < ask.limit:
                rows = self._look(session, page)
                for key, version, event_time, state in rows:
                    if state == "pending" and key not in found:
                        found[key] = Offer(key, version, event_time)
                if len(rows) < page.limit:
                    break
                page = Ask(min(4 * page.limit, PAGE), ask.settled, rows[-1][0], ask.participants)
        return list(found.values())[: ask.limit]

    def read_statement(self, ask: Ask) -> str:
        return queries.offers(self._layout, ask)

    def anti_join(self, ask: Ask) -> list[QueueKey]:
        with self._session() as session:
            return self._keys(key for (key,) in session.ask(queries.anti_join(self._layout, ask)))

    def anti_join_statement(self, ask: Ask) -> str:
        return queries.anti_join(self._layout, ask)

    def confirm(self, keys: Collection[QueueKey]) -> set[QueueKey]:
        with self._session() as session:
            rows = session.ask(queries.confirmed(self._layout, list(keys))) if keys else []
        return set(self._keys(key for (key,) in rows))

    # -- changing ------------------------------------------------------------------------------

    def withdraw(self, offers: Sequence[Offer]) -> None:
        if offers:
            with self._session() as session:
                session.ask(queries.withdraw(self._layout, offers))

    def offer(self, keys: Collection[QueueKey]) -> None:
        if keys:
            with self._session() as session:
                session.ask(queries.offer(self._layout, list(keys)))

    def acknowledge(self, keys: Collection[QueueKey]) -> None:
        if keys:
            with self._session() as session:
                session.ask(queries.acknowledge(self._layout, list(keys)))

    def reopen(self, keys: Collection[QueueKey]) -> None:
        if not keys:
            return
        with self._session() as session, session.transaction():
            # Those that had been acknowledged are offered by the trigger.
            opened = set(self._keys(key for (key,) in session.ask(queries.reopen(self._layout, list(keys)))))
            if others := set(keys) - opened:
                session.ask(queries.offer(self._layout, list(others)))

    # -- upkeep --------------------------------------------------------------------------------

    def compare(self, keys: KeyRange) -> Comparison:
        with self._joining() as session:
            ((pending, missing, surplus, lacking, left),) = session.ask(
                queries.compare(self._layout, self._within(keys))
            )
        return Comparison(pending, tuple(self._keys(lacking)), missing, tuple(self._keys(left)), surplus)

    def counts(self) -> QueueCounts:
        layout = self._layout
        size = " + ".join(f"pg_total_relation_size({literal(each)})" for each in (layout.offers, layout.acks))
        with self._session() as session:
            ((offered, size_on_disk),) = session.ask(f"SELECT count(DISTINCT key), {size} FROM {layout.offers}")
        return QueueCounts(offered, 0, size_on_disk)

    def garbage(self) -> dict[str, int]:
        layout = self._layout
        with self._session() as session:
            return {
                table: session.ask(queries.garbage(layout, table, layout.key, where))[0][0]
                for table, where in self._tables()
            }

    def cleanable(self) -> int:
        with self._session() as session:
            ((left,),) = session.ask(queries.left(self._layout))
        return int(left)

    def clean(self) -> int:
        """Confirms every offer, as reading would. Twice: what has no source is only watched at first. So is what was
        acknowledged and has none: a transaction that goes on may be adding it, and found it covered.
        """
        forgotten = removed = 0
        with self._session() as session:
            after: int | None = None
            while some := session.ask(queries.forget_left(self._layout, after, PAGE)):
                forgotten, after = forgotten + len(some), max(self._keys(key for (key,) in some))
            for _ in range(2):
                page: Ask | None = Ask(PAGE)
                while page is not None:
                    rows = self._look(session, page)
                    removed += sum(state in _FALSE for *_, state in rows)
                    page = Ask(PAGE, after=rows[-1][0]) if len(rows) == PAGE else None
            session.ask(f"VACUUM {self._layout.offers}, {self._layout.acks}")
        return max(forgotten, removed)  # Each that is forgotten was offered, and that was removed again.

    def remember(self, name: str, value: str) -> None:
        with self._session() as session:
            session.ask(
                f"INSERT INTO {self._layout.words} AS _word VALUES ({literal(name)}, {literal(value)})"
                " ON CONFLICT (name) DO UPDATE SET value = excluded.value"
            )

    def observe(self, since: datetime) -> list[Observation]:
        with self._session() as session:
            return observations(session, (self._layout.comment, self._layout.legacy_comment))

    # -- inside --------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _session(self) -> Iterator[Session]:
        self._place.demand_understood()
        with self._place.session() as session:
            yield session

    @contextlib.contextmanager
    def _joining(self) -> Iterator[Session]:
        """A session for statements about many keys: of tables that were never analyzed the planner believes that a loop
        over all rows for each key is quickest.
        """
        with self._session() as session:
            session.setting("enable_nestloop", "off")
            try:
                yield session
            finally:
                with contextlib.suppress(InstepError):
                    session.setting("enable_nestloop", "on")

    def _look(self, session: Session, ask: Ask) -> list[_Row]:
        """One page of offers with what the truth says of them; those that are false are taken away."""
        found = session.ask(queries.offers(self._layout, ask))
        rows: list[_Row] = [
            (key, *row[1:]) for key, row in zip(self._keys(row[0] for row in found), found, strict=True)
        ]
        if false := [(key, version) for key, version, _, state in rows if state in _FALSE]:
            session.ask(queries.remove(self._layout, false))
        if absent := [(key, version) for key, version, _, state in rows if state == "absent"]:
            session.ask(queries.watch(self._layout, absent))
        return rows

    def _keys(self, found: Iterable[Any]) -> list[QueueKey]:
        """Keys of an answer: UUIDs come as objects."""
        return [None if key is None else str(key) for key in found] if self.spec.kind is KeyKind.UUID else list(found)

    def _there(self, session: Session) -> bool:
        return bool(session.ask(f"SELECT to_regclass({literal(self._layout.words)}) IS NOT NULL")[0][0])

    def _words(self, session: Session) -> dict[str, str]:
        return dict(session.ask(f"SELECT name, value FROM {self._layout.words}"))
