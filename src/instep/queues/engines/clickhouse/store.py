"""A queue in ClickHouse, as the port wants it, with its upkeep and statistics of its queries."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta

from instep.clickhouse.location import Location
from instep.clickhouse.session import Absent, Session, literal, quoted, records
from instep.domain.pending_queue import KeyRange, QueueKey, QueueSpec, before
from instep.errors import InstepError, UserError
from instep.queues.engines.clickhouse import checking, history, layout, reading
from instep.queues.engines.clickhouse.history import truth_sql
from instep.queues.engines.clickhouse.reading import Untouched
from instep.queues.engines.clickhouse.tables import NO_EVENT, Tables, greatest, offered_sql, spent_sql
from instep.queues.engines.queue_engine import Ask, Backfilled, Comparison, Observation, Offer, QueueCounts

#: Behind an insert of many keys and their covers, each read passes over all of them until ClickHouse merges. So many
#: are worth cleaning, if they are at least this share of what has to be written anew for it; so very many always are.
_FEW, _SHARE, _MANY = 1_000, 0.1, 50_000
#: No insert is under way for so long.
_QUIET = "INTERVAL 1 HOUR"


def pays(session: Session, tables: Tables, passed_over: int) -> bool:
    """Whether a read that passed over so many keys should leave fewer to those after it."""
    if passed_over <= _FEW or _under_way(session, tables):
        return False
    return passed_over > _MANY or passed_over > _rows(session, tables) * _SHARE


def begin(session: Session, tables: Tables) -> None:
    """Start a merge without waiting for its end: ClickHouse, when it merges large tables, starts seconds later."""
    _drop_spent(session, tables, {"mutations_sync": 0})


def clean(session: Session, tables: Tables) -> int:
    before = _rows(session, tables)
    waiting: dict[str, str | int] = {"mutations_sync": 1}
    _drop_spent(session, tables, waiting)
    if _left(session, tables):
        settled = f"ALTER TABLE {quoted(tables.offers)} DELETE WHERE key IN ({_settled(tables)})"
        session.under(waiting).command(settled)
    return max(0, before - _rows(session, tables))


def _drop_spent(session: Session, tables: Tables, settings: dict[str, str | int]) -> None:
    """A row that withdraws a key must have met the one that offers it."""
    offers = quoted(tables.offers)
    session.command(f"OPTIMIZE TABLE {offers} FINAL")
    session.under(settings).command(f"ALTER TABLE {offers} DELETE WHERE {spent_sql('offer', tables.registers)}")


def _under_way(session: Session, tables: Tables) -> bool:
    sql = (
        "SELECT count() AS found FROM system.mutations"
        " WHERE database = currentDatabase() AND table = {table:String} AND NOT is_done"
    )
    (row,) = records(session, sql, table=tables.offers)
    return bool(row["found"])


def _rows(session: Session, tables: Tables) -> int:
    (row,) = records(session, f"SELECT count() AS rows FROM {quoted(tables.offers)}")
    return int(row["rows"])


def _left(session: Session, tables: Tables) -> bool:
    (row,) = records(session, f"SELECT count() AS rows FROM ({_settled(tables)})")
    return bool(row["rows"])


def _settled(tables: Tables) -> str:
    """Keys whose rows could hide a late event as long as they are not all dropped at once: one cover took its
    word back, and another holds; or the source never had the key.
    """
    merged = [f"max({name})" for name in tables.registers]
    newest = greatest(["max(offer)", *(f"max({name})" for name in tables.dated)])
    quiet = f"snowflakeIDToDateTime(bitShiftRight({newest}, 1)) < now() - {_QUIET}"
    uncovered = " OR ".join(f"({each} > 0 AND bitAnd({each}, 1) = 0)" for each in merged)
    candidates = (
        f"SELECT key FROM {quoted(tables.offers)} GROUP BY key"
        f" HAVING {quiet} AND ({uncovered} OR NOT {offered_sql('max(offer)', merged)})"
    )
    pending = f"SELECT key FROM ({truth_sql(tables, f'key IN (SELECT key FROM ({candidates}))')}) WHERE is_pending"
    return f"SELECT key FROM ({candidates}) WHERE key NOT IN ({pending})"


_OBSERVED = """
SELECT log_comment AS comment, count() AS queries, avg(query_duration_ms) AS mean,
       quantileExact(0.99)(query_duration_ms) AS p99, avg(read_rows) AS rows_read, avg(memory_usage) AS memory
FROM system.query_log
WHERE event_date >= toDate({since:DateTime64(6, 'UTC')}) - 1 AND event_time >= {since:DateTime64(6, 'UTC')}
  AND type = 'QueryFinish' AND log_comment IN {comments:Array(String)}
GROUP BY log_comment ORDER BY log_comment"""


def observe(place: Location, comments: list[str], since: datetime) -> list[Observation]:
    with place.session() as session:
        if place.remote:
            session.command("SYSTEM FLUSH LOGS")
        try:
            rows = records(session, _OBSERVED, since=since, comments=comments)
        except Absent:
            raise UserError("there is no log of queries", where=place.shown, hint=_hint(place)) from None
    return [
        Observation(
            row["comment"],
            row["queries"],
            timedelta(milliseconds=row["mean"]),
            timedelta(milliseconds=row["p99"]),
            row["rows_read"],
            row["memory"],
        )
        for row in rows
    ]


def _hint(place: Location) -> str:
    if place.remote:
        return "Switch on query_log in the server's configuration, and log_queries for its user."
    return "ClickHouse in this process (chdb) keeps none: observe the queue on a server."


class ClickHousePending:
    """See `PendingStore`. `uri` is a folder of chdb, or `http://user:password@host:8123/database`."""

    def __init__(self, uri: str, spec: QueueSpec, clock: Callable[[], float] = time.monotonic) -> None:
        self._place = Location.of(uri)
        self._tables = Tables(spec)
        self._untouched = Untouched(clock)

    @property
    def spec(self) -> QueueSpec:
        return self._tables.spec

    def statements(self) -> tuple[str, ...]:
        return tuple(layout.statements(self._tables))

    def check(self) -> None:
        with self._place.session() as session:
            self._check(session)

    def create(self) -> None:
        with self._place.session() as session:
            self._check(session)
            for sql in self.statements():
                session.command(sql)

    def drop(self) -> None:
        with self._place.session() as session:
            for view in self._other_views(session):
                session.command(f"DROP VIEW IF EXISTS {quoted(view)} SYNC")
            for sql in layout.dropping(self._tables):
                session.command(sql)

    def exists(self) -> bool:
        with self._place.session() as session:
            return self._declared(session) is not None

    def demand_same(self) -> None:
        with self._place.session() as session:
            self._demand_same(session)

    def bounds(self) -> KeyRange | None:
        with self._place.session() as session:
            (row,) = records(session, history.bounds_sql(self._tables))
        return KeyRange(before(row["lowest"]), row["highest"]) if row["rows"] else None

    def edge(self, keys: KeyRange, size: int) -> QueueKey | None:
        with self._place.session() as session:
            found = records(session, history.edge_sql(self._tables, keys, size))
        return found[0]["key"] if len(found) > 1 else None

    def backfill(self, keys: KeyRange) -> Backfilled:
        with self._place.session() as session:
            for sql in self.backfill_statements(keys):
                session.under(history.BACKFILL_SETTINGS).command(sql)
            (row,) = records(session, history.backfilled_sql(self._tables, keys))
        self._untouched.forget()  # What was there before live capture is no event.
        return Backfilled(row["keys"], row["pending"])

    def backfill_statements(self, keys: KeyRange) -> tuple[str, ...]:
        return tuple(history.backfill_sql(self._tables, keys))

    def read(self, ask: Ask) -> list[Offer]:
        known = {} if self._place.remote else reading.IN_PROCESS
        with self._place.session({**reading.SETTINGS, **known, **self._comment()}) as session:
            found, passed_over = reading.read(session, self._tables, ask, self._untouched)
        if passed_over:
            # The answer is there already: an error of cleaning is told when cleaning is asked for.
            with contextlib.suppress(InstepError), self._place.session() as session:
                self._clean_soon(session, passed_over)
        return found

    def anti_join(self, ask: Ask) -> list[QueueKey]:
        with self._place.session() as session:
            asked = session.under(self._comment(legacy=True))
            found = records(asked, history.anti_join_sql(self._tables, ask), **history.anti_join_values(ask))
        return [row["key"] for row in found]

    def read_statement(self, ask: Ask) -> str:
        page = reading.page_sql(self._tables, ask, ask.limit)
        return f"{self._commented(page)};\n{self._commented(reading.touched_sql(self._tables))}"

    def anti_join_statement(self, ask: Ask) -> str:
        return self._commented(history.anti_join_sql(self._tables, ask), legacy=True)

    def confirm(self, keys: Collection[QueueKey]) -> set[QueueKey]:
        with self._place.session() as session:
            truth = reading.looked_up(session.under(self._comment()), self._tables, keys)
        return {key for key, each in truth.items() if each.pending}

    def withdraw(self, offers: Sequence[Offer]) -> None:
        if not offers:
            return
        values = {
            "key": [each.key for each in offers],
            "offer": [each.version * 2 + 1 for each in offers],
            "event": [NO_EVENT] * len(offers),
        }
        with self._place.session() as session:
            reading.insert_offers(session, self._tables, values)

    def offer(self, keys: Collection[QueueKey]) -> None:
        """Offer keys with the covers that the truth knows, under a version of now. Unknown keys are looked for in the
        user's tables.
        """
        with self._place.session() as session:
            for some in reading.batches(session, keys):
                known = reading.looked_up(session, self._tables, some)
                if unknown := [key for key in some if key not in known or not known[key].seen]:
                    for sql in history.backfill_keys_sql(self._tables):
                        session.command(sql, keys=self._tables.bound(unknown))
                session.command(history.offer_sql(self._tables), keys=self._tables.bound(some))

    def acknowledge(self, keys: Collection[QueueKey]) -> None:
        self._say(keys, covered=True)

    def reopen(self, keys: Collection[QueueKey]) -> None:
        self._say(keys, covered=False)

    def compare(self, keys: KeyRange) -> Comparison:
        with self._place.session() as session:
            (row,) = records(session, history.compare_sql(self._tables, keys))
        missing, surplus = tuple(row["missing"]), tuple(row["surplus"])
        return Comparison(row["pending"], missing, row["missing_count"], surplus, row["surplus_count"])

    def counts(self) -> QueueCounts:
        tables = self._tables
        counted = history.counted_sql(tables)
        sizes = (
            "SELECT sum(bytes_on_disk) AS bytes FROM system.parts"
            " WHERE active AND database = {database:String} AND table IN {names:Array(String)}"
        )
        with self._place.session() as session:
            (row,) = records(session, counted)
            (size,) = records(session, sizes, database=self._place.database, names=tables.all())
        return QueueCounts(row["offered"], row["withdrawn"], size["bytes"])

    def garbage(self) -> dict[str, int]:
        of = [self.spec.source.table, *(each.table for each in self.spec.covers)]
        found = dict.fromkeys(of, 0)
        with self._place.session() as session:
            for each in records(session, history.garbage_sql(self._tables)):
                found[of[each["number"]]] += each["garbage"]
        return found

    def cleanable(self) -> int:
        return self.counts().withdrawn

    def clean(self) -> int:
        """Acknowledgements stay, and the truth: on ClickHouse nothing else says of a late row that it is covered."""
        try:
            with self._place.session() as session:
                return clean(session, self._tables)
        finally:
            self._untouched.forget()

    def remember(self, name: str, value: str) -> None:
        sql = f"INSERT INTO {quoted(self._tables.marks)} (name, value) SELECT {{name:String}}, {{value:String}}"
        with self._place.session() as session:
            session.command(sql, name=name, value=value)

    def recall(self) -> dict[str, str]:
        with self._place.session() as session:
            rows = records(session, f"SELECT name, value FROM {quoted(self._tables.marks)} FINAL ORDER BY name")
        return {row["name"]: row["value"] for row in rows}

    def observe(self, since: datetime) -> list[Observation]:
        comments = [str(self._comment(legacy=legacy)["log_comment"]) for legacy in (False, True)]
        return observe(self._place, comments, since)

    def close(self) -> None:
        """Do nothing: nothing is open between calls."""

    def _clean_soon(self, session: Session, passed_over: int) -> None:
        if pays(session, self._tables, passed_over):
            try:
                begin(session, self._tables)
            finally:
                self._untouched.forget()

    def _comment(self, *, legacy: bool = False) -> Mapping[str, str | int]:
        return {"log_comment": f"instep:queue:{self.spec.name}{':legacy' if legacy else ''}"}

    def _commented(self, sql: str, *, legacy: bool = False) -> str:
        return f"{sql} SETTINGS log_comment = {literal(str(self._comment(legacy=legacy)['log_comment']))}"

    def _declared(self, session: Session) -> str | None:
        """The declaration by which the queue was made."""
        sql = "SELECT comment FROM system.tables WHERE database = {database:String} AND name = {name:String}"
        rows = records(session, sql, database=self._place.database, name=self._tables.truth)
        return str(rows[0]["comment"]) if rows else None

    def _check(self, session: Session) -> None:
        self._demand_same(session)
        checking.check(session, self._tables, self._place.database)

    def _other_views(self, session: Session) -> list[str]:
        """Views of covers that only another declaration had: without the tables that they feed, no insert works."""
        sql = "SELECT name FROM system.tables WHERE database = {database:String} AND match(name, {pattern:String})"
        pattern = f"^{self._tables.name('from_cover_[0-9]+')}$"
        rows = records(session, sql, database=self._place.database, pattern=pattern)
        return [row["name"] for row in rows]

    def _demand_same(self, session: Session) -> None:
        declared = self._declared(session)
        if declared not in (None, self._tables.declaration()):
            raise UserError(
                f"the queue {self.spec.name!r} was made by another declaration",
                where=self._place.shown,
                hint="Drop it and create it again, or give the new declaration another name.",
            )

    def _say(self, keys: Collection[QueueKey], *, covered: bool) -> None:
        sql = (
            f"INSERT INTO {quoted(self._tables.acknowledged)} ({quoted(self.spec.key)}, covered)"
            f" SELECT {self._tables.each_named}, {covered:d}"
        )
        self._for_each_batch(sql, keys)

    def _for_each_batch(self, sql: str, keys: Collection[QueueKey]) -> None:
        with self._place.session() as session:
            for some in reading.batches(session, keys):
                session.command(sql, keys=self._tables.bound(some))
