"""Removal of withdrawn and covered rows, and statistics of a queue's queries."""

from __future__ import annotations

from datetime import datetime, timedelta

from instep.clickhouse.location import Location
from instep.clickhouse.session import Absent, Session, quoted, records
from instep.errors import UserError
from instep.queues.engines.clickhouse.history import truth_sql
from instep.queues.engines.clickhouse.tables import Tables, greatest, offered_sql, spent_sql
from instep.queues.engines.queue_engine import Observation

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
