"""Pending queues in PostgreSQL: what is special there."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import timedelta

import psycopg
import pytest

from instep.domain.pending_queue import KeyKind, KeyRange, QueueKey, QueueSpec
from instep.errors import Transient, UserError
from instep.queues.engines.postgres import PostgresPending, capture, queries
from instep.queues.engines.postgres import store as store_of_postgres
from instep.queues.engines.queue_engine import Ask, PendingStore
from instep.queues.engines.triggered import literal
from tests.contracts.pending import PendingContract
from tests.contracts.pending_tables import EVERYTHING, KEYS, START, created, demand_equal, kind_of, read
from tests.contracts.pending_texts import TextsContract
from tests.queues.postgres_tables import DATABASE, PostgresTables

_numbers = itertools.count(1)


@pytest.fixture
def tables(request: pytest.FixtureRequest) -> Iterator[PostgresTables]:
    made = PostgresTables(f'sche"ma {next(_numbers)}%s', kind_of(request))
    yield made
    made.drop()


class TestContract(PendingContract):
    pass


class TestContractOfTexts(PendingContract):
    kind = KeyKind.TEXT


class PostgresTexts(PostgresTables):
    """Keys as they are, and not by numbers."""

    def literal(self, number: QueueKey) -> str:
        return "NULL" if number is None else literal(number)

    def open(self, spec: QueueSpec) -> PostgresPending:
        return PostgresPending(self.server.url(DATABASE), self.schema, spec)


class TestTexts(TextsContract):
    @pytest.fixture
    def texts(self) -> Iterator[PostgresTexts]:
        made = PostgresTexts(f"texts as they are {next(_numbers)}", KeyKind.TEXT)
        yield made
        made.drop()

    def test_an_index_in_another_order_is_none(self, texts: PostgresTexts) -> None:
        texts.run("DROP TABLE salts")
        texts.run("CREATE TABLE salts (match_id text PRIMARY KEY, state text)")
        with pytest.raises(UserError, match="in the order of bytes") as refused:
            texts.open(texts.spec()).check()
        assert refused.value.hint is not None
        texts.run(refused.value.hint)
        texts.open(texts.spec()).check()

    def test_a_column_with_an_order_of_its_own_needs_no_index_more(self, texts: PostgresTexts) -> None:
        texts.run("DROP TABLE salts")
        texts.run('CREATE TABLE salts (match_id text COLLATE "C" PRIMARY KEY, state text)')
        texts.open(texts.spec()).check()

    @pytest.mark.parametrize("kind", ["char(9)", "uuid", "bigint"])
    def test_columns_of_other_types_are_refused(self, texts: PostgresTexts, kind: str) -> None:
        texts.run("DROP TABLE salts")
        texts.run(f"CREATE TABLE salts (match_id {kind} PRIMARY KEY, state text)")
        with pytest.raises(UserError, match=r"match_id of salts is .*, and not a text"):
            texts.open(texts.spec()).check()

    def test_a_backfill_reads_its_part_of_the_index_alone(self, texts: PostgresTexts, store: PendingStore) -> None:
        texts.played(f"{number:06d}" for number in range(30_000))
        texts.run("ANALYZE history")
        (statement,) = store.backfill_statements(KeyRange("001000", "001100"))
        with texts.connect() as connection:
            plan = "\n".join(line for (line,) in connection.execute(f"EXPLAIN {statement}"))  # type: ignore[misc]
        connection.close()
        assert "Seq Scan on history" not in plan

    def test_covers_that_were_never_analyzed_are_joined_by_no_loop_over_all_rows(
        self, texts: PostgresTexts, store: PendingStore
    ) -> None:
        """It took hours for 300,000 keys."""
        for table in ("history", "salts", "players"):
            texts.run(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
        several = [f"{number:08d}" for number in range(20_000)]
        texts.played(several)
        texts.cover(several[:8_000])
        assert isinstance(store, PostgresPending)
        with store._joining() as session:
            rows = session.ask(f"EXPLAIN {queries.compare(store._layout, KeyRange(several[0], several[-2]))}")
        plan = "\n".join(line for (line,) in rows)
        assert "Nested Loop Anti Join" not in plan, plan


class TestContractOfUuids(PendingContract):
    kind = KeyKind.UUID


@pytest.mark.parametrize("kind", list(KeyKind))
def test_a_row_without_a_key_is_no_garbage(kind: KeyKind) -> None:
    tables = PostgresTables(f"nulls {next(_numbers)}", kind)
    tables.run("INSERT INTO history VALUES (NULL, 'ranked', now(), 1)")
    assert created(tables, tables.spec(keys=KeyRange())).garbage() == {"history": 0, "salts": 0, "players": 0}
    tables.drop()


class LargeStatements:
    """Whatever the size of a statement, it is captured as one with many rows is."""

    @pytest.fixture(autouse=True)
    def large(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(capture, "_FEW", 0)


@pytest.mark.proof
class TestContractOfLargeStatements(LargeStatements, PendingContract):
    pass


@pytest.mark.proof
class TestContractOfLargeStatementsOfTexts(LargeStatements, TestContractOfTexts):
    pass


@pytest.mark.proof
class TestContractOfLargeStatementsOfUuids(LargeStatements, TestContractOfUuids):
    pass


def test_keys_that_are_new_are_not_looked_up_one_by_one(tables: PostgresTables) -> None:
    """One look into each index says that it has none of them, also if others are above and below."""
    store = created(tables)
    tables.played([1, 9_000])
    tables.cover([1, 9_000])
    before = _looks(tables)
    tables.played(range(1_001, 3_001))
    assert _looks(tables) - before < 10
    tables.cover([2_000, 5_000])
    tables.played([*range(1_001, 3_001), *range(4_000, 6_001)])
    wanted = sorted({*range(1_001, 3_001), *range(4_000, 6_001)} - {2_000, 5_000}, reverse=True)
    with tables.connect() as connection:
        offers = connection.execute("SELECT key FROM pending_offers_salts ORDER BY key DESC").fetchall()
    connection.close()
    assert [key for (key,) in offers] == wanted == read(store)
    demand_equal(store)


def _looks(tables: PostgresTables) -> int:
    tables.run("SELECT pg_stat_force_next_flush()")
    with tables.connect() as connection:
        ((looks,),) = connection.execute(
            "SELECT sum(idx_scan)::bigint FROM pg_stat_user_indexes WHERE schemaname = %s", [tables.schema]
        ).fetchall()
    connection.close()
    return int(str(looks))


def test_keys_that_one_statement_did_not_withdraw_are_found_by_reading(
    tables: PostgresTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capture, "_WITHDRAWN", 3)
    store = created(tables)
    tables.played(range(1, 9))
    tables.cover(range(2, 9))
    assert store.compare(KEYS).surplus_count == 4
    assert read(store) == [1]
    demand_equal(store)


def test_rows_that_are_changed_take_their_covers_along(tables: PostgresTables) -> None:
    store = created(tables)
    tables.played(range(1, 9))
    tables.cover([1, 2, 3])
    tables.run("UPDATE salts SET match_id = match_id + 1")
    assert read(store) == [8, 7, 6, 5, 1]
    tables.run("UPDATE salts SET state = CASE match_id WHEN 2 THEN 'bad' ELSE state END")
    assert read(store) == [8, 7, 6, 5, 2, 1]
    tables.run("UPDATE history SET match_id = match_id + 10, kind = CASE match_id WHEN 5 THEN 'private' ELSE kind END")
    assert read(store) == [18, 17, 16, 14, 13, 12, 11]
    tables.run("UPDATE history SET kind = 'ranked'")
    demand_equal(store)
    tables.run("DELETE FROM history WHERE match_id > 12")
    assert read(store) == [12, 11]
    assert store.clean() > 0
    assert store.counts().offered == 2


def test_what_was_acknowledged_is_forgotten_when_the_source_has_no_row_of_it(
    tables: PostgresTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_of_postgres, "PAGE", 2)
    store = created(tables)
    tables.played(range(1, 9))
    store.acknowledge(range(1, 8))
    tables.run("DELETE FROM history WHERE match_id IN (1, 2, 3, 5, 6)")
    assert store.cleanable() == store.clean() == 5
    assert store.cleanable() == store.clean() == 0
    assert read(store) == [8]
    demand_equal(store)
    tables.played([4, 5])
    assert read(store) == [8, 5], "4 stays done, 5 is new again"
    store.reopen([7])
    assert read(store) == [8, 7, 5]
    demand_equal(store)


def test_a_key_that_is_being_added_while_its_acknowledgement_is_forgotten_is_offered(tables: PostgresTables) -> None:
    """Its writer saw the acknowledgement, and who forgets that does not see its row."""
    store = created(tables)
    for isolation in ("read committed", "repeatable read"):
        store.acknowledge([1, 2])
        writer = tables.connect(isolation)
        writer.execute("INSERT INTO history SELECT 2, 'ranked', now(), 1")
        assert store.clean() == 2
        assert read(store) == []
        writer.commit()
        writer.close()
        assert read(store) == [2] == store.anti_join(EVERYTHING)
        demand_equal(store)
        tables.run("TRUNCATE history")


def test_truncating_covers_and_source(tables: PostgresTables) -> None:
    store = created(tables)
    tables.played(range(1, 6))
    tables.cover([1, 2, 3])
    tables.cover([3, 4], by="players")
    tables.run("TRUNCATE salts")
    assert read(store) == [5, 2, 1]
    tables.run("TRUNCATE players, history")
    assert read(store) == []
    assert store.counts().offered == 0
    old = tables.connect("repeatable read")
    with pytest.raises(psycopg.errors.RaiseException, match="READ COMMITTED"):
        old.execute("TRUNCATE salts")
    old.close()


def test_copies_are_captured(tables: PostgresTables) -> None:
    store = created(tables)
    with tables.connect() as writer:
        with writer.cursor().copy("COPY history FROM STDIN") as copy:
            for key in range(1, 2001):
                copy.write_row((key, "ranked", START.replace(tzinfo=None), 1))
        with writer.cursor().copy("COPY salts FROM STDIN") as copy:
            for key in range(3, 2001):
                copy.write_row((key, "good"))
    writer.close()
    assert read(store) == [2, 1]
    demand_equal(store)


def test_an_event_time_that_changes_is_seen(tables: PostgresTables) -> None:
    store = created(tables)
    tables.played([1, 2])
    tables.run("UPDATE history SET happened = happened + interval '1 day' WHERE match_id = 1")
    tables.run("UPDATE history SET happened = happened - interval '1 day' WHERE match_id = 2")
    for ask in (Ask(5, START), Ask(5, START.replace(day=2)), Ask(5, START.replace(year=2025, month=12, day=31))):
        assert read(store, ask) == store.anti_join(ask)
    tables.run("UPDATE history SET happened = NULL WHERE match_id = 1")
    tables.run("INSERT INTO history VALUES (3, 'ranked', 'infinity', 1), (4, 'ranked', '-infinity', 1)")
    assert read(store) == [4, 3, 2, 1]
    assert read(store, Ask(5, START)) == [4, 2, 1] == store.anti_join(Ask(5, START))


def test_writers_of_the_tables_need_no_rights_to_the_queue(tables: PostgresTables) -> None:
    store = created(tables)
    schema = tables.quoted(tables.schema)
    tables.run("CREATE ROLE writer")
    try:
        tables.run(f"GRANT USAGE ON SCHEMA {schema} TO writer; GRANT INSERT ON history, salts TO writer")
        tables.run("SET ROLE writer; CREATE TEMP TABLE pending_offers_salts (x int)")
        tables.run("INSERT INTO history VALUES (1, 'ranked', now(), 1), (2, 'ranked', now(), 1)")
        tables.run("INSERT INTO salts VALUES (1, 'good')")
        assert read(store) == [2]
    finally:
        tables.run("RESET ROLE; DROP OWNED BY writer; DROP ROLE writer")


def test_nothing_is_promised_without_an_index(tables: PostgresTables) -> None:
    tables.run("DROP INDEX players_match_id_idx")
    with pytest.raises(UserError, match="no index that begins with match_id") as refused:
        tables.open(tables.spec()).create()
    assert str(refused.value.hint).startswith("CREATE INDEX CONCURRENTLY")
    tables.run("CREATE VIEW seen AS SELECT * FROM history")
    spec = tables.spec()
    with pytest.raises(UserError, match="is not a table"):
        tables.open(tables.spec(covers=(type(spec.covers[0])("seen", None, None),))).check()
    with pytest.raises(UserError, match="only ever inserted"):
        tables.open(tables.spec(covers=(type(spec.covers[0])("salts", None, "true"),))).check()


def test_times_are_of_the_engine(tables: PostgresTables) -> None:
    """The view that the extension makes, as far as it is asked."""
    store = created(tables)
    tables.run(
        "CREATE TABLE pg_stat_statements AS SELECT '/* x */ ' || q AS query, c::bigint AS calls, t AS total_exec_time,"
        " (SELECT oid FROM pg_database WHERE datname = current_database()) AS dbid FROM (VALUES"
        " ('SELECT /* instep:queue:salts */ 1', 3, 30.0), ('SELECT /* instep:queue:salts */ 2', 1, 10.0),"
        " ('SELECT /* instep:queue:salts:legacy */ 1', 2, 9000.0), ('SELECT 1', 9, 9.0)) AS seen (q, c, t)"
    )
    assert [(each.comment, each.queries, each.mean.total_seconds()) for each in store.observe(START)] == [
        ("instep:queue:salts", 4, 0.01),
        ("instep:queue:salts:legacy", 2, 4.5),
    ]


def test_readers_and_writers_do_not_wait_for_a_backfill_or_each_other(tables: PostgresTables) -> None:
    """Two writers of the same keys, in opposite order, and everything else between their steps."""
    tables.played(range(1, 6))
    store = created(tables)
    one, other = tables.connect(), tables.connect()
    for connection in (one, other):
        connection.execute("SET lock_timeout = '5s'")
    one.execute("INSERT INTO history VALUES (10, 'ranked', now(), 1); INSERT INTO salts VALUES (1, 'good')")
    other.execute("INSERT INTO history VALUES (11, 'ranked', now(), 1); INSERT INTO players VALUES (2, 'good')")
    store.backfill(KEYS)
    one.execute("INSERT INTO history VALUES (11, 'ranked', now(), 1); INSERT INTO salts VALUES (2, 'good')")
    other.execute("INSERT INTO history VALUES (10, 'ranked', now(), 1); INSERT INTO players VALUES (1, 'good')")
    assert read(store) == [5, 4, 3, 2, 1]
    one.commit()
    assert read(store) == [11, 10, 5, 4, 3]
    other.commit()
    assert read(store) == [11, 10, 5, 4, 3]
    store.withdraw(store.read(EVERYTHING))
    one.close()
    other.close()


def test_a_server_that_is_away_is_no_fault_of_the_user(tables: PostgresTables) -> None:
    uri = tables.server.url(DATABASE).replace(str(tables.server.port), "1")
    store = type(tables.open(tables.spec()))(uri, "public", tables.spec())
    with pytest.raises(Transient) as away:
        store.exists()
    assert tables.server.password not in str(away.value)


def test_offers_that_are_not_settled_are_passed_over_in_the_index(tables: PostgresTables) -> None:
    """None of their rows is fetched, and none is confirmed."""
    store = created(tables)
    tables.played(range(1, 2_001))
    tables.played(range(2_001, 5_001), at=START + timedelta(days=1))
    tables.run("ANALYZE")
    ask = Ask(10, settled=START)
    with tables.connect() as connection:
        found = connection.execute(f"EXPLAIN (ANALYZE, TIMING OFF) {store.read_statement(ask)}").fetchall()
    plan = [str(line) for (line,) in found]
    assert any("Index Cond: (COALESCE(event_time" in line for line in plan), plan
    assert not any("Rows Removed by Filter" in line for line in plan), plan
    assert read(store, ask) == list(range(2_000, 1_990, -1))


def test_tables_may_have_partitions(tables: PostgresTables) -> None:
    tables.run("DROP TABLE history")
    columns = "match_id integer, kind text, happened timestamptz, account smallint"
    tables.run(f"CREATE TABLE history ({columns}) PARTITION BY RANGE (match_id); CREATE INDEX ON history (match_id)")
    tables.run("CREATE TABLE low PARTITION OF history FOR VALUES FROM (0) TO (5)")
    tables.run("CREATE TABLE high PARTITION OF history FOR VALUES FROM (5) TO (10)")
    store = created(tables, tables.spec(participants="account"))
    tables.played(range(2, 9))
    tables.cover([8])
    tables.run("UPDATE history SET match_id = 9 WHERE match_id = 2")
    assert read(store) == [9, 7, 6, 5, 4, 3]
    # Triggers are those of the table that a statement names.
    tables.run("INSERT INTO low VALUES (1, 'ranked', now(), 1)")
    assert store.compare(KEYS).missing == (1,)
    store.backfill(KEYS)
    demand_equal(store)
