"""Pending queues on a ClickHouse server: statements and settings as its client sends them, and its log of queries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from instep.clickhouse.location import Location
from instep.domain.pending_queue import KeyKind, KeyRange
from instep.errors import UserError
from instep.queues.engines.queue_engine import Ask
from tests.contracts.pending_tables import EVERYTHING, KEYS, START, created, demand_equal, read
from tests.contracts.pending_texts import IN_ORDER, TEXTS
from tests.queues.test_clickhouse import ClickHouseTables, ClickHouseTexts
from tests.servers import clickhouse


@pytest.fixture
def tables(tmp_path: Path) -> Iterator[ClickHouseTables]:
    with clickhouse.running(tmp_path) as address:
        yield ClickHouseTables(address)


def test_a_queue_on_a_server(tables: ClickHouseTables) -> None:
    tables.played([1, 2, 3])
    tables.cover([1])
    store = created(tables, tables.spec(participants=tables.names.account))
    assert store.backfill(KEYS).pending == 2
    tables.played([4], at=START + timedelta(hours=2), account=7)
    tables.cover([2])
    assert read(store) == [4, 3]
    assert read(store, Ask(5, settled=START, after=4)) == [3] == store.anti_join(Ask(5, settled=START, after=4))
    assert read(store, replace(EVERYTHING, participants=(7,))) == [4]
    store.withdraw(store.read(Ask(1)))
    assert read(store) == [3]
    store.offer([4])
    store.acknowledge([3])
    store.remember("at", "1'2\\")
    assert store.recall() == {"at": "1'2\\"}
    assert store.clean() > 0
    demand_equal(store)


def test_a_queue_of_texts_on_a_server(tmp_path: Path) -> None:
    """Its client sends values in another way."""
    with clickhouse.running(tmp_path) as address:
        tables = ClickHouseTexts(address, KeyKind.TEXT)
        store = tables.open(replace(tables.spec(), keys=KeyRange()))
        many = [f"{number:06d}{'x' * 90}" for number in range(3_000)]
        tables.played([*TEXTS, *many])
        store.create()
        assert store.backfill(KeyRange()).pending == len(TEXTS) + len(many)
        assert store.confirm([*TEXTS, *many]) == {*TEXTS, *many}
        store.offer([*TEXTS, *many])
        store.acknowledge(many)
        assert read(store) == IN_ORDER[::-1] == store.anti_join(EVERYTHING)
        for key in TEXTS:
            store.acknowledge([key])
        assert read(store) == []
        store.reopen(TEXTS)
        assert read(store) == IN_ORDER[::-1]
        assert store.compare(KeyRange()).missing == ()


def test_readers_are_observed_in_the_query_log(tmp_path: Path) -> None:
    tables = ClickHouseTables(str(tmp_path))
    store = created(tables)
    with pytest.raises(UserError, match="no log of queries") as refused:
        store.observe(START)
    assert "on a server" in str(refused.value)
    with Location.of(str(tmp_path)).session() as session:
        session.command(
            "CREATE TABLE system.query_log (log_comment String, query_duration_ms UInt64, read_rows UInt64,"
            " memory_usage UInt64, event_date Date, event_time DateTime, type String) ENGINE = Memory"
        )
        rows = "SELECT {comment:String}, 2 * number, 100, 1000, today(), now(), 'QueryFinish' FROM numbers(1, 100)"
        for comment in ("instep:queue:salts", "instep:queue:other"):
            session.command(f"INSERT INTO system.query_log {rows}", comment=comment)
    (seen,) = store.observe(datetime.now(UTC) - timedelta(hours=1))
    assert (seen.comment, seen.queries, seen.rows_read, seen.memory) == ("instep:queue:salts", 100, 100, 1000)
    assert (seen.mean, seen.p99) == (timedelta(milliseconds=101), timedelta(milliseconds=200))
    assert store.observe(datetime.now(UTC) + timedelta(hours=1)) == []
