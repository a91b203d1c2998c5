"""Statistics of a queue's queries from ClickHouse's query log. ClickHouse in this process keeps no such log."""

from __future__ import annotations

from datetime import datetime, timedelta

from instep.clickhouse.location import Location
from instep.clickhouse.session import Absent, records
from instep.errors import UserError
from instep.queues.engines.queue_engine import Observation

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
