"""Pending queues in SQLite."""

from __future__ import annotations

import contextlib
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from instep.domain.pending_queue import KeyKind, KeyRange, QueueKey, QueueSpec
from instep.errors import Transient, UserError
from instep.queues.engines.queue_engine import Ask, PendingStore
from instep.queues.engines.sqlite import SqlitePending
from instep.queues.engines.sqlite import store as store_of_sqlite
from instep.queues.engines.triggered import literal
from tests.contracts.pending import PendingContract
from tests.contracts.pending_kinds import numbered
from tests.contracts.pending_tables import EVERYTHING, KEYS, START, UserTables, created, demand_equal, kind_of, read
from tests.contracts.pending_texts import TextsContract


class SqliteTables(UserTables):
    def __init__(self, path: Path, kind: KeyKind = KeyKind.INTEGER) -> None:
        self.path, self.kind = path, kind
        path.touch()
        self.create()

    def run(self, statement: str) -> None:
        with contextlib.closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            connection.execute(statement).fetchall()

    def quoted(self, name: str) -> str:
        return '"' + name.replace('"', '""') + '"'

    def create(self) -> None:
        names = self.names
        key, kind, happened, account, state = map(
            self.quoted, (names.key, names.kind, names.happened, names.account, names.state)
        )
        of = ("BIGINT", "INTEGER") if self.kind is KeyKind.INTEGER else ("VARCHAR(99)", "TEXT")
        self.run(f"CREATE TABLE {self.quoted(names.history)} ({key} {of[0]}, {kind} TEXT, {happened}, {account} INT)")
        for table in (names.salts, names.players):
            self.run(f"CREATE TABLE {self.quoted(table)} ({key} {of[1]}, {state} TEXT)")
        for table in (names.history, names.salts, names.players):
            self.run(f"CREATE INDEX {self.quoted(f'{table} by key')} ON {self.quoted(table)} ({key})")

    def open(self, spec: QueueSpec) -> PendingStore:
        return numbered(SqlitePending(self.path, spec))


@pytest.fixture
def tables(tmp_path: Path, request: pytest.FixtureRequest) -> SqliteTables:
    return SqliteTables(tmp_path / "tables.db", kind_of(request))


class TestContract(PendingContract):
    pass


class TestContractOfTexts(PendingContract):
    kind = KeyKind.TEXT


class SqliteTexts(SqliteTables):
    """Keys as they are, and not by numbers."""

    def literal(self, number: QueueKey) -> str:
        return "NULL" if number is None else literal(number)

    def open(self, spec: QueueSpec) -> PendingStore:
        return SqlitePending(self.path, spec)


class TestTexts(TextsContract):
    @pytest.fixture
    def texts(self, tmp_path: Path) -> SqliteTexts:
        return SqliteTexts(tmp_path / "texts.db", KeyKind.TEXT)

    def test_values_of_other_types_are_no_texts(self, texts: SqliteTexts, store: PendingStore) -> None:
        """A column takes bytes all the same, and a text may have a zero in it."""
        texts.run("INSERT INTO history VALUES (x'61', 'ranked', 1, 1), ('a' || char(0) || 'b', 'ranked', 1, 1)")
        texts.played(["a"])
        store.backfill(KeyRange())
        assert read(store) == ["a"] == store.anti_join(EVERYTHING)
        assert store.garbage()["history"] == 2

    def test_a_text_that_is_no_utf_8_stops_no_page(self, texts: SqliteTexts, store: PendingStore) -> None:
        """As the lowest, the highest and a middle one, before live capture and after it."""
        broken = ("00ff", "62ff", "fffe", "e282")
        for each in broken[:2]:
            texts.run(f"INSERT INTO history VALUES (CAST(x'{each}' AS TEXT), 'ranked', 1, 1)")
        texts.played(["a", "c", "d\U0001f600"])
        bounds = store.bounds()
        assert bounds is not None
        last: QueueKey | None = bounds.after
        while (upto := store.edge(KeyRange(last, bounds.upto), 1)) is not None:
            store.backfill(KeyRange(last, upto))
            last = upto
        store.backfill(KeyRange(last, bounds.upto))
        for each in broken[2:]:
            texts.run(f"INSERT INTO history VALUES (CAST(x'{each}' AS TEXT), 'ranked', 1, 1)")
        for limit in (1, 2, 100):
            assert store.read(Ask(limit))[0].key == "d\U0001f600"
        assert read(store) == ["d\U0001f600", "c", "a"] == store.anti_join(EVERYTHING)
        compared = store.compare(KeyRange())
        assert (compared.missing_count, compared.surplus_count) == (0, 0)

    def test_a_database_in_another_encoding_is_refused(self, tmp_path: Path) -> None:
        """Its order of texts is that of UTF-16, which puts some characters elsewhere."""
        path = tmp_path / "wide.db"
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("PRAGMA encoding = 'UTF-16le'")
            connection.execute("CREATE TABLE other (id)")
        texts = SqliteTexts(path, KeyKind.TEXT)
        with pytest.raises(UserError, match="its texts are in UTF-16le"):
            texts.open(texts.spec()).check()

    @pytest.mark.parametrize("collation", ["NOCASE", "RTRIM"])
    def test_a_column_that_takes_different_texts_for_equal_is_refused(self, texts: SqliteTexts, collation: str) -> None:
        texts.run("DROP TABLE salts")
        texts.run(f"CREATE TABLE salts (match_id TEXT COLLATE {collation} PRIMARY KEY, state TEXT)")
        with pytest.raises(UserError, match="treats different texts as equal"):
            texts.open(texts.spec()).check()

    def test_an_index_in_another_order_is_none(self, texts: SqliteTexts) -> None:
        texts.run("DROP TABLE salts")
        texts.run("CREATE TABLE salts (match_id TEXT, state TEXT)")
        texts.run("CREATE INDEX other ON salts (match_id COLLATE NOCASE)")
        with pytest.raises(UserError, match="no index that begins with match_id"):
            texts.open(texts.spec()).check()


KEY = st.integers(1, 4)
STATE = st.sampled_from(["good", "bad"])
#: Anything that may happen to the tables; a key has several rows, and rows move from one key to another.
STATEMENTS = st.one_of(
    st.builds(
        "INSERT INTO history VALUES ({}, '{}', '2026-01-0{}', 1)".format,
        KEY,
        st.sampled_from(["ranked", "private"]),
        KEY,
    ),
    st.builds("UPDATE history SET match_id = {} WHERE match_id = {}".format, KEY, KEY),
    st.builds("UPDATE history SET kind = 'private', happened = '2026-01-0{}' WHERE match_id = {}".format, KEY, KEY),
    st.builds("DELETE FROM history WHERE match_id <= {}".format, KEY),
    st.builds("INSERT INTO {} VALUES ({}, '{}')".format, st.sampled_from(["salts", "players"]), KEY, STATE),
    st.builds("UPDATE salts SET match_id = {}, state = '{}' WHERE match_id = {}".format, KEY, STATE, KEY),
    st.builds("REPLACE INTO players VALUES ({}, '{}')".format, KEY, STATE),
    st.builds("DELETE FROM {} WHERE match_id >= {}".format, st.sampled_from(["salts", "players"]), KEY),
)


@given(statements=st.lists(STATEMENTS, min_size=5, max_size=25))
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_offers_are_exact(tables: SqliteTables, statements: list[str]) -> None:
    with contextlib.closing(sqlite3.connect(tables.path, isolation_level=None)) as writer:
        writer.execute("PRAGMA synchronous = OFF")
        writer.execute("DROP TABLE players")
        writer.execute("CREATE TABLE players (match_id INTEGER PRIMARY KEY, state TEXT) WITHOUT ROWID")
        store = created(tables)
        writer.execute("BEGIN")
        for statement in ("DELETE FROM history", "DELETE FROM salts", *statements):
            with contextlib.suppress(sqlite3.IntegrityError):
                writer.execute(statement)
        writer.execute("COMMIT")
    compared = store.compare(KEYS)
    assert (compared.missing, compared.surplus) == ((), ())
    for day in range(1, 5):
        ask = Ask(10, datetime(2026, 1, day, tzinfo=UTC))
        assert read(store, ask) == store.anti_join(ask)


def test_a_fraction_is_no_key(tables: SqliteTables) -> None:
    """A column of integers takes it, and texts."""
    store = created(tables)
    tables.run("INSERT INTO history VALUES (1, 'ranked', 1, 1), (1.5, 'ranked', 1, 1), ('x', 'ranked', 1, 1)")
    tables.run("INSERT INTO history VALUES (2, 'ranked', 1, 1), (NULL, 'ranked', 1, 1)")
    store.backfill(KeyRange())
    assert read(store) == [2, 1] == store.anti_join(EVERYTHING)
    assert store.garbage()["history"] == 2
    demand_equal(store, KeyRange())


def test_entries_that_became_false_unseen_are_surplus_and_not_offered(tables: SqliteTables) -> None:
    """Rows were written while the triggers were away."""
    store = created(tables)
    tables.played([1, 2])
    with contextlib.closing(sqlite3.connect(tables.path)) as connection:
        triggers = connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall()
    for (name,) in triggers:
        tables.run(f"DROP TRIGGER {tables.quoted(name)}")
    tables.cover([2])
    compared = store.compare(KEYS)
    assert (compared.surplus, compared.surplus_count) == ((2,), 1)
    assert read(store) == [1]
    assert store.compare(KEYS).surplus == (), "who reads withdraws it"


#: As texts, seconds, and milliseconds; and what has none.
_TIMES = ["'2026-01-01T00:00:00Z'", "1767225600", "1767225600.5", "NULL", "'soon'", "1767225600000", "1767225600500.0"]


def test_what_was_acknowledged_is_forgotten_when_the_source_has_no_row_of_it(
    tables: SqliteTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_of_sqlite, "PAGE", 2)
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


def test_times_are_texts_or_numbers(tables: SqliteTables) -> None:
    store = created(tables)
    for key, happened in enumerate(_TIMES, 1):
        tables.run(f"INSERT INTO history VALUES ({key}, 'ranked', {happened}, 1)")
    assert read(store, Ask(9, START)) == [6, 5, 4, 2, 1] == store.anti_join(Ask(9, START))
    assert read(store, Ask(9, START + timedelta(seconds=1))) == [7, 6, 5, 4, 3, 2, 1]
    moments = {offer.key: offer.event_time for offer in store.read(EVERYTHING)}
    half = START + timedelta(seconds=0.5)
    assert moments == {1: START, 2: START, 3: half, 4: None, 5: None, 6: START, 7: half}


def test_nothing_is_promised_without_an_index_or_a_file(tables: SqliteTables, tmp_path: Path) -> None:
    tables.run('DROP INDEX "players by key"')
    with pytest.raises(UserError, match="no index that begins with match_id") as refused:
        tables.open(tables.spec()).create()
    assert str(refused.value.hint).startswith("CREATE INDEX")
    with pytest.raises(UserError, match="no such database"):
        SqlitePending(tmp_path / "nowhere.db", tables.spec()).create()
    assert not (tmp_path / "nowhere.db").exists()
    with pytest.raises(UserError, match="no log"):
        tables.open(tables.spec()).observe(START)


def test_another_writer_is_not_a_fault_of_the_user(tables: SqliteTables, monkeypatch: pytest.MonkeyPatch) -> None:
    store = created(tables)
    monkeypatch.setattr("instep.queues.engines.sqlite.store._SECONDS", 0.0)
    with contextlib.closing(sqlite3.connect(tables.path, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        with pytest.raises(Transient):
            store.acknowledge([1])
