"""Pending queues in ClickHouse, in this process; what differs on a server is in its own file."""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from instep.clickhouse.location import Location
from instep.clickhouse.session import Session, literal, quoted, records
from instep.domain.pending_queue import KeyKind, KeyRange, QueueKey, QueueSpec
from instep.errors import Transient, UserError
from instep.queues.engines.clickhouse import reading
from instep.queues.engines.clickhouse import store as engine
from instep.queues.engines.clickhouse.store import ClickHousePending
from instep.queues.engines.clickhouse.tables import Tables, spent_sql
from instep.queues.engines.queue_engine import Ask, PendingStore
from tests.contracts.pending import HOSTILE, PendingContract
from tests.contracts.pending_events import EVENTS, expected, happen
from tests.contracts.pending_kinds import key_of, numbered
from tests.contracts.pending_tables import EVERYTHING, KEYS, UserTables, created, demand_equal, kind_of, read
from tests.contracts.pending_texts import TextsContract
from tests.waiting import until


class ClickHouseTables(UserTables):
    insert_only = True

    def __init__(self, uri: str, kind: KeyKind = KeyKind.INTEGER) -> None:
        self.uri, self.kind = uri, kind
        self.create()

    def run(self, statement: str) -> None:
        with Location.of(self.uri).session() as session:
            session.command(statement)

    def quoted(self, name: str) -> str:
        return quoted(name)

    def create(self) -> None:
        names = self.names
        key, kind, happened, account, state = map(
            quoted, (names.key, names.kind, names.happened, names.account, names.state)
        )
        of = {KeyKind.INTEGER: "Int64", KeyKind.TEXT: "String", KeyKind.UUID: "UUID"}[self.kind]
        columns = f"{key} {of}, {kind} LowCardinality(String), {happened} DateTime('UTC'), {account} UInt32"
        self.run(f"CREATE TABLE {quoted(names.history)} ({columns}) ENGINE = MergeTree ORDER BY ({account}, {key})")
        for table in (names.salts, names.players):
            self.run(
                f"CREATE TABLE {quoted(table)} ({key} {of}, {state} String) ENGINE = ReplacingMergeTree ORDER BY {key}"
            )

    def drop(self) -> None:
        """Everything, and views first: what they feed could not be written any more."""
        everything = "SELECT name FROM system.tables WHERE database = 'default' ORDER BY engine != 'MaterializedView'"
        with Location.of(self.uri).session() as session:
            for each in records(session, everything):
                session.command(f"DROP TABLE {quoted(each['name'])} SYNC")

    def open(self, spec: QueueSpec) -> PendingStore:
        return numbered(ClickHousePending(self.uri, spec))

    def literal(self, number: QueueKey) -> str:
        key = key_of(self.kind, number)
        return str(key) if self.kind is KeyKind.INTEGER else literal(key)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all: opening one takes longer than what most tests do in it."""
    return tmp_path_factory.mktemp("clickhouse")


@pytest.fixture
def tables(folder: Path, request: pytest.FixtureRequest) -> Iterator[ClickHouseTables]:
    made = ClickHouseTables(str(folder), kind_of(request))
    yield made
    made.drop()


@pytest.mark.proof
class TestClickHouse(PendingContract):
    #: chdb looks for files by the name of a table, and takes braces for a choice of names.
    hostile = replace(HOSTILE, history='his"to`ry%s', players="play ers")


@pytest.mark.proof
class TestClickHouseOfTexts(TestClickHouse):
    kind = KeyKind.TEXT


@pytest.mark.proof
class TestClickHouseOfUuids(TestClickHouse):
    kind = KeyKind.UUID


class ClickHouseTexts(ClickHouseTables):
    """Keys as they are, and not by numbers."""

    def literal(self, number: QueueKey) -> str:
        return literal(number)

    def open(self, spec: QueueSpec) -> PendingStore:
        return ClickHousePending(self.uri, spec)


class TestTexts(TextsContract):
    @pytest.fixture
    def texts(self, folder: Path) -> Iterator[ClickHouseTexts]:
        made = ClickHouseTexts(str(folder), KeyKind.TEXT)
        yield made
        made.drop()

    def test_strings_that_are_no_texts_are_garbage(self, texts: ClickHouseTexts, store: PendingStore) -> None:
        texts.run("INSERT INTO history SELECT unhex(arrayJoin(['ff', '610062', 'eda080'])), 'ranked', now(), 1")
        texts.played(["a"])
        store.backfill(KeyRange())
        assert read(store) == ["a"] == store.anti_join(EVERYTHING)
        assert store.garbage()["history"] == 3

    @pytest.mark.parametrize("kind", ["FixedString(8)", "UUID", "Int64"])
    def test_columns_of_other_types_are_refused(self, texts: ClickHouseTexts, kind: str) -> None:
        texts.run("DROP TABLE salts SYNC")
        texts.run(f"CREATE TABLE salts (match_id {kind}, state String) ENGINE = ReplacingMergeTree ORDER BY match_id")
        with pytest.raises(UserError, match=r"match_id of salts is .*, and not a text"):
            texts.open(texts.spec()).check()

    def test_a_column_may_have_few_values_and_nulls(self, texts: ClickHouseTexts) -> None:
        texts.run("DROP TABLE history SYNC")
        columns = "match_id LowCardinality(Nullable(String)), kind String, happened DateTime('UTC'), account UInt32"
        texts.run(f"CREATE TABLE history ({columns}) ENGINE = MergeTree ORDER BY account")
        store = texts.open(replace(texts.spec(), keys=KeyRange()))
        texts.run("INSERT INTO history VALUES ('early', 'ranked', now(), 1), (NULL, 'ranked', now(), 1)")
        store.create()
        store.backfill(KeyRange())
        texts.run("INSERT INTO history VALUES ('late', 'ranked', now(), 1), (NULL, 'ranked', now(), 1)")
        assert read(store) == ["late", "early"] == store.anti_join(EVERYTHING)
        assert store.garbage()["history"] == 0


@pytest.mark.parametrize("kind", ["Int64", "UUID", "String"])
def test_a_row_without_a_key_is_no_garbage(folder: Path, kind: str) -> None:
    of = {"Int64": KeyKind.INTEGER, "UUID": KeyKind.UUID, "String": KeyKind.TEXT}[kind]
    tables = ClickHouseTables(str(folder), of)
    tables.run("DROP TABLE history SYNC")
    columns = f"match_id Nullable({kind}), kind String, happened DateTime('UTC'), account UInt32"
    tables.run(f"CREATE TABLE history ({columns}) ENGINE = MergeTree ORDER BY account")
    tables.run("INSERT INTO history VALUES (NULL, 'ranked', now(), 1)")
    store = tables.open(replace(tables.spec(), keys=KeyRange(0, 9) if kind == "Int64" else KeyRange()))
    store.create()
    assert store.garbage() == {"history": 0, "salts": 0, "players": 0}
    tables.drop()


def test_backfill_reads_and_cleaning_race_with_live_writes(tables: ClickHouseTables) -> None:
    """Whatever the interleaving: in the end the queue is what the anti-join says."""
    tables.played(range(1, 2_001))
    tables.cover(range(1, 1_001))
    store = created(tables)
    written = threading.Event()

    def write() -> None:
        try:
            for number in range(6):
                keys = range(1 + number * 150, 301 + number * 150)
                tables.cover(keys)
                tables.played(range(1_500, 2_301))
                tables.uncover([key for key in keys if key % 3 == 0])
                tables.cover([key for key in keys if key % 2 == 0], by=tables.names.players)
                store.acknowledge([2_300 - number])
        finally:
            written.set()

    writer = threading.Thread(target=write)
    writer.start()
    while not written.is_set():
        store.backfill(KEYS)
        read(store)
        store.clean()
    writer.join()
    store.backfill(KEYS)
    demand_equal(store)
    assert len(read(store)) > 100


def test_a_finally_covered_key_needs_no_history(tables: ClickHouseTables) -> None:
    """With a backfill that ended between its statements, and live events behind it, before it is repeated."""
    both = tables.spec().covers
    spec = tables.spec(covers=(both[0], replace(both[1], uncovered=None)))
    early, late = [each for each in EVENTS[:5] if each != "-players"], [each for each in EVENTS if each != "-players"]
    orders: dict[int, tuple[str, ...]] = dict(enumerate(itertools.product(early, early, late), start=1))
    store = tables.open(spec)
    happen(tables, store, orders, 0)
    happen(tables, store, orders, 1)
    store.create()
    tables.run(store.backfill_statements(KEYS)[0])
    happen(tables, store, orders, 2)
    wanted = sorted((key for key, order in orders.items() if expected(order)), reverse=True)
    for _ in range(2):
        done = store.backfill(KEYS)
        assert (done.keys, done.pending) == (
            sum("seen" in order or "+players" in order for order in orders.values()),
            len(wanted),
        )
        assert read(store) == wanted
        demand_equal(store)
    store.acknowledge(wanted)
    tables.played([*wanted, *(key for key, order in orders.items() if "+players" in order)])
    assert read(store) == []
    store.reopen(wanted)
    assert read(store) == wanted


def test_a_backfill_that_ended_before_its_last_statement_is_made_whole_by_the_next(tables: ClickHouseTables) -> None:
    """What covered a key may be nowhere but in the truth then, and a late row of the source offers the key."""
    store = tables.open(tables.spec())
    tables.played(range(1, 301))
    tables.cover(range(101, 301))
    store.create()
    for sql in store.backfill_statements(KEYS)[:-1]:
        tables.run(sql)
    tables.played(range(201, 401))
    assert set(read(store)) > {*range(1, 101), *range(301, 401)}
    store.backfill(KEYS)
    assert set(read(store)) == {*range(1, 101), *range(301, 401)}
    demand_equal(store)


def test_unchanged_covers_are_not_queried_again_for_a_minute(tables: ClickHouseTables) -> None:
    now = 0.0
    store = ClickHousePending(tables.uri, tables.spec(), clock=lambda: now)
    store.create()
    tables.played(range(1, 11))
    assert read(store) == list(range(10, 0, -1))
    # Events are heard of at once, from the offers.
    tables.cover([9])
    store.acknowledge([8])
    assert read(store) == [10, *range(7, 0, -1)]
    tables.uncover([9])
    assert read(store) == [10, 9, *range(7, 0, -1)]
    # But not that others have cleaned the offers, and that the source wrote the key again.
    tables.cover([10])
    tables.open(tables.spec()).clean()
    tables.played([10])
    now = 59.0
    assert read(store) == [10, 9, *range(7, 0, -1)]
    assert store.confirm([10, 9]) == {9}
    now = 60.0
    assert read(store) == [9, *range(7, 0, -1)]


def test_keys_are_distinguished_wherever_they_lie(tables: ClickHouseTables) -> None:
    """The touched ones are bits of rows: beside each other, far apart, and below nothing."""
    keys = [-(2**62) - 1, -65, -64, -1, 0, 63, 64, 65, 127, 128, 2**31, 2**62 + 63]
    store = tables.open(replace(tables.spec(), keys=KeyRange(-(2**62) - 3, 2**62 + 63)))
    store.create()
    tables.played(keys)
    for number in range(len(keys)):
        covered = keys[number::2]
        tables.cover(covered)
        store.clean()  # So that the offers know of no cover any more.
        tables.played(keys)
        wanted = sorted(set(keys) - set(covered), reverse=True)
        assert read(store) == wanted
        tables.uncover(covered)
        assert read(store) == sorted(keys, reverse=True)


def test_the_truth_is_asked_of_touched_keys_alone(tables: ClickHouseTables, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not of their neighbours, nor for what lies between: rows of the touched ones are read in a range."""
    asked: list[int] = []

    def looked_up(session: Session, names: Tables, keys: Collection[int]) -> dict[int, reading.Truth]:
        asked.extend(keys)
        return really(session, names, keys)

    really = reading.looked_up
    monkeypatch.setattr(reading, "looked_up", looked_up)
    store = tables.open(replace(tables.spec(), keys=KeyRange(-1, 63_999)))
    store.create()
    tables.cover([5 * 64 + 1, 7 * 64 + 2])
    store.clean()
    tables.played([4 * 64 + 1, 6 * 64 + 1, 6 * 64 + 2, 7 * 64 + 1, 7 * 64 + 2])
    assert read(store) == [7 * 64 + 1, 6 * 64 + 2, 6 * 64 + 1, 4 * 64 + 1]
    assert asked == [7 * 64 + 2]


def test_a_read_that_passes_over_many_covered_keys_has_them_cleaned_away(tables: ClickHouseTables) -> None:
    """However soon after they were covered: ClickHouse itself takes minutes."""
    store = created(tables)
    tables.played(range(1, 1_201))
    tables.cover(range(101, 1_201))
    assert store.counts().withdrawn == 1_100
    assert read(store, Ask(100)) == list(range(100, 0, -1))
    until(lambda: store.counts().withdrawn == 0)
    assert store.counts().offered == 100
    demand_equal(store)


def test_a_read_waits_for_no_cleaning_and_begins_it_once(
    tables: ClickHouseTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While ClickHouse does not come to it, keys that were covered stay hidden, and those uncovered since are given."""
    begun = 0

    def begin(session: Session, names: Tables) -> None:
        nonlocal begun
        begun += 1
        really(session, names)

    def stopped(offer: str, covers: Sequence[str]) -> str:
        """Asked for when the rows of each key are merged, and what is spent is to be dropped."""
        tables.run("SYSTEM STOP MERGES instep_queue_offers_salts")
        return spent_sql(offer, covers)

    really = engine.begin
    monkeypatch.setattr(engine, "begin", begin)
    monkeypatch.setattr("instep.queues.engines.clickhouse.store.spent_sql", stopped)
    store = created(tables)
    tables.played(range(1, 1_201))
    tables.cover(range(101, 1_201))
    assert read(store, Ask(100)) == list(range(100, 0, -1))
    tables.uncover([600])
    tables.cover([50])
    tables.played([601])
    for _ in range(2):
        assert read(store, Ask(100)) == [600, *range(100, 50, -1), *range(49, 0, -1)]
    assert (begun, store.counts().withdrawn) == (1, 1_100)
    tables.run("SYSTEM START MERGES instep_queue_offers_salts")
    until(lambda: store.counts().withdrawn < 1_000)
    assert read(store, Ask(100)) == [600, *range(100, 50, -1), *range(49, 0, -1)]
    demand_equal(store)


def test_blocked_cleaning_blocks_no_read(tables: ClickHouseTables) -> None:
    store = created(tables)
    tables.played(range(1, 1_201))
    tables.cover(range(101, 1_201))
    tables.run("SYSTEM STOP MERGES instep_queue_offers_salts")
    assert read(store, Ask(100)) == list(range(100, 0, -1))
    with pytest.raises(Transient, match="Cancelled merging parts"):
        store.clean()
    tables.run("SYSTEM START MERGES instep_queue_offers_salts")
    assert store.clean() > 0
    assert (store.counts().offered, store.counts().withdrawn) == (100, 0)


def test_one_page_reaches_beyond_entries_too_few_to_clean(
    tables: ClickHouseTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages: list[int] = []

    def page_sql(names: Tables, ask: Ask, rows: int) -> str:
        pages.append(rows)
        return really(names, ask, rows)

    really = reading.page_sql
    monkeypatch.setattr(reading, "page_sql", page_sql)
    store = created(tables)
    tables.played(range(1, 1_101))
    tables.cover(range(101, 1_101))
    assert read(store, Ask(100)) == list(range(100, 0, -1))
    assert len(pages) == 1
    assert store.counts().withdrawn == 1_000


def test_rows_that_stand_above_others_leave_once_no_insert_can_be_under_way(
    tables: ClickHouseTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = created(tables)
    tables.played([1, 2, 3])
    tables.cover([1, 2])
    tables.uncover([1, 2, 9])
    tables.cover([1], by=tables.names.players)
    store.clean()
    assert (store.counts().offered, store.counts().withdrawn) == (2, 1)
    monkeypatch.setattr(engine, "_QUIET", "INTERVAL -1 MINUTE")
    assert store.clean() == 2
    assert (store.counts().offered, store.counts().withdrawn) == (2, 0)
    tables.uncover([1], by=tables.names.players)
    tables.played([9])
    assert read(store) == [9, 3, 2, 1]
    demand_equal(store)


#: Of a cover with versions of its own: what is said of a key, and as of which moment. Two moments have both.
_STATEMENTS = [("good", 1), ("lost", 1), ("good", 2), ("lost", 2), ("seen", 0), ("+players", 0), ("-players", 0)]


def _by_version(
    tables: ClickHouseTables, engine: str = "ReplacingMergeTree(created_at) ORDER BY match_id"
) -> QueueSpec:
    names = tables.names
    tables.run(f"DROP TABLE {names.salts} SYNC")
    columns = "match_id Int64, region UInt8, gone UInt8, state String, created_at DateTime('UTC')"
    tables.run(f"CREATE TABLE {names.salts} ({columns}) ENGINE = {engine}")
    salts, players = tables.spec().covers
    return tables.spec(covers=(replace(salts, version="created_at"), players))


def _said(tables: ClickHouseTables, said: tuple[str, int], keys: list[int]) -> None:
    state, version = said
    if state == "seen":
        tables.played(keys)
    elif state.endswith("players"):
        tables.cover(keys, by=tables.names.players, state="good" if state[0] == "+" else "lost")
    elif keys:
        rows = ", ".join(f"({key}, '{state}', {version})" for key in keys)
        tables.run(f"INSERT INTO {tables.names.salts} (match_id, state, created_at) VALUES {rows}")


@pytest.mark.parametrize("live", [0, 1, 3])
def test_a_version_of_the_table_decides_in_whatever_order_rows_come(tables: ClickHouseTables, live: int) -> None:
    """Live and before, read in between or not: what FINAL says of the table is what is given."""
    orders = list(enumerate(itertools.product(_STATEMENTS, repeat=3), start=1))
    store = tables.open(_by_version(tables))
    for step in range(3):
        if step == live:
            store.create()
        elif step > live:
            read(store)
        for said in _STATEMENTS:
            _said(tables, said, [key for key, order in orders if order[step] == said])
    store.create()
    store.backfill(KEYS)
    demand_equal(store)
    assert store.compare(KEYS).surplus_count == 0
    store.clean()
    demand_equal(store)
    # Late, and long before what is known: nothing changes but for keys that were unknown.
    _said(tables, ("lost", 0), [key for key, _ in orders])
    tables.played([key for key, _ in orders])
    demand_equal(store)
    given = read(store)
    _said(tables, ("good", 3), given[::2])
    assert store.counts().offered == len(given[1::2])
    assert read(store) == given[1::2]
    demand_equal(store)


@pytest.mark.parametrize(
    ("engine", "version", "said"),
    [
        ("ReplacingMergeTree(created_at) ORDER BY match_id", None, "Add `version: created_at`"),
        ("ReplacingMergeTree ORDER BY match_id", "created_at", "Leave `version` out"),
        ("ReplacingMergeTree(created_at) ORDER BY match_id", "region", "Add `version: created_at`"),
        ("ReplacingMergeTree(created_at) ORDER BY (region, match_id)", "created_at", "Order .* by match_id alone"),
        ("ReplacingMergeTree ORDER BY (match_id, region)", None, "Order .* by match_id alone"),
        ("ReplacingMergeTree(created_at, gone) ORDER BY match_id", "created_at", "without that column"),
    ],
)
def test_a_cover_that_is_taken_back_says_which_row_of_a_key_is_the_latest(
    tables: ClickHouseTables, engine: str, version: str | None, said: str
) -> None:
    spec = _by_version(tables, engine)
    store = tables.open(replace(spec, covers=(replace(spec.covers[0], version=version),)))
    with pytest.raises(UserError) as refused:
        store.check()
    assert re.search(said, refused.value.hint or "")
    with pytest.raises(UserError):
        store.create()
