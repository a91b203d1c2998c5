"""The ClickHouse target: the contract, in process (chdb), and what is ClickHouse's own."""

from __future__ import annotations

import fcntl
import itertools
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from instep.clickhouse import embedded, outdated_parts
from instep.clickhouse.session import FENCED, Overflow, explained, records
from instep.domain.columns import INT64, STRING, Column
from instep.domain.waves import Mark
from instep.errors import Away, Fenced, Transient, UserError
from instep.targets.clickhouse import ClickHouseTarget, journal, layout, staging
from instep.targets.clickhouse.journal import Journal, guard_values
from instep.targets.ownership import NotOurs, Owner
from instep.targets.table_target import TableChange, TableSpec
from instep.testing.ownership import OURS, THEIRS, TableOwnership
from instep.testing.table_rows import NODES, SPECS, Edge, Node, batch, change, nodes, put, staged
from instep.testing.table_target import TableTargetContract
from tests.contracts.target_in_short import ShortTableContract
from tests.targets.killed import stage_and_die


class Embedded:
    @pytest.fixture
    def target(self, tmp_path: Path) -> ClickHouseTarget:
        return ClickHouseTarget(str(tmp_path / "index"))


@pytest.mark.proof
class TestEmbedded(Embedded, TableTargetContract):
    """All of it."""


class TestEmbeddedInShort(Embedded, ShortTableContract):
    pass


@pytest.mark.proof
class TestOwnership(Embedded, TableOwnership):
    def test_a_record_of_earlier_versions_takes_owners(self, target: ClickHouseTarget) -> None:
        index = self.names[0]
        self.make(target, index)
        target.promote("Document", index, 5)
        with target.session(alone=True) as session:
            session.command("ALTER TABLE instep.instep_aliases DROP COLUMN owner")
        before = target.owned_by(Owner(OURS.id, frozenset({index})))
        assert before.mine("Document")
        before.promote("Document", index, 5)
        assert target.owner_of("Document") == OURS.id

    def test_a_view_of_no_ledger_is_left_alone(self, target: ClickHouseTarget) -> None:
        """It may be a person's own."""
        ours, index = target.owned_by(OURS), self.names[0]
        self.make(ours, index)
        with target.session(alone=True) as session:
            session.command("CREATE VIEW instep.Document AS SELECT 1 AS one")
        with pytest.raises(NotOurs):
            ours.promote("Document", index, 1)
        assert asked(target, "SELECT one FROM instep.Document") == [{"one": 1}]
        ours.claim("Document", of="")
        ours.promote("Document", index, 1)
        assert (ours.served("Document"), ours.owner_of("Document")) == (index, OURS.id)

    def test_a_half_created_index_belongs_to_its_creator(
        self, target: ClickHouseTarget, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ours, theirs, index = target.owned_by(OURS), target.owned_by(THEIRS), self.names[0]
        with monkeypatch.context() as patch:
            patch.setattr(layout, "encode_specs", lambda _: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                self.make(ours, index)
        assert not ours.exists(index)
        assert ours.leftovers("Document", idle_seconds=60) == []
        assert theirs.leftovers("Document", idle_seconds=0) == []
        assert ours.leftovers("Document", idle_seconds=0) == [index]
        ours.drop(index)
        assert asked(target, "SELECT name FROM system.tables WHERE database = 'instep'") == []


@pytest.fixture
def target(tmp_path: Path) -> ClickHouseTarget:
    made = ClickHouseTarget(str(tmp_path / "index"))
    made.create("Node__1", SPECS)
    return made


def asked(target: ClickHouseTarget, sql: str) -> list[dict[str, Any]]:
    """What any client of ClickHouse would be told."""
    with target.session() as session:
        return records(session, sql)


def parts(target: ClickHouseTarget) -> int:
    sql = "SELECT count() AS n FROM system.parts WHERE database = 'instep' AND table = 'Node__1' AND active"
    return int(asked(target, sql)[0]["n"])


def slip_in(target: ClickHouseTarget, base: int, *rows: Node) -> None:
    """What a zombie does on a server when it was not stopped: an insert after later ones."""
    (file,) = staging.decode(staged(target, "Node__1", base, *rows))
    with target.session() as session:
        sql = target._insert_sql("Node__1", NODES, file.path)
        session.load(sql, layout.staged_structure(NODES), [file.path], **guard_values("", 2**40, base, ()))


# -- which row stays ---------------------------------------------------------------------------


@pytest.mark.parametrize("upkeep", [False, True], ids=["no upkeep", "upkeep"])
def test_the_best_row_stays_in_any_order_of_inserts(target: ClickHouseTarget, upkeep: bool) -> None:
    """The best first: by version, then not deleted, then the later base."""
    ranked = [
        (1, Node(0, None, 8, deleted=True)),
        (3, Node(0, "later base", 7)),
        (1, Node(0, "earlier base", 7)),
        (9, Node(0, None, 7, deleted=True)),
        (9, Node(0, "older version", 6)),
    ]
    orders = [order for n in (2, 3) for order in itertools.permutations(range(5), n)]
    for step in range(3):
        for base in {base for base, _ in ranked}:
            rows = [
                ranked[order[step]][1]._replace(id=key)
                for key, order in enumerate(orders)
                if step < len(order) and ranked[order[step]][0] == base
            ]
            if rows:
                slip_in(target, base, *rows)
        if upkeep:
            target.maintain("Node__1", full=True)
            assert parts(target) == 1
        best = {key: ranked[min(order[: step + 1])][1] for key, order in enumerate(orders)}
        assert nodes(target, "Node__1") == {key: row.title for key, row in best.items() if not row.deleted}


def test_a_zombie_that_slips_in_late_changes_nothing(target: ClickHouseTarget) -> None:
    old = target.fence("Node__1", 1)
    put(target, "Node__1", Node(1, "new", 20), Node(2, None, 20, deleted=True), epoch=2, attempt="1")
    put(target, "Node__1", Node(3, "same version", 10), epoch=3, attempt="2")
    for upkeep in (False, True):
        slip_in(target, old, Node(1, "zombie", 10), Node(2, "zombie", 10), Node(3, "zombie", 10))
        if upkeep:
            target.maintain("Node__1", full=True)
        assert nodes(target, "Node__1") == {1: "new", 3: "same version"}


@pytest.mark.parametrize("by", ["epoch", "fence"])
def test_the_statement_that_inserts_refuses_a_zombie_by_itself(
    target: ClickHouseTarget, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """Paused between the check and the insert, as on a server."""
    base = target.fence("Node__1", 1)
    part = staged(target, "Node__1", base, Node(1, "zombie", 1))
    target.fence("Node__1", *((2,) if by == "epoch" else (1, [Mark("it's", 2, b"")])))
    monkeypatch.setattr(Journal, "refuse", lambda *_, **__: None)
    with pytest.raises(Fenced):
        target.commit("Node__1", base=base, epoch=1, attempt="1", staged=[part], marks=[Mark("it's", 1, b"")])
    assert asked(target, "SELECT count() AS n FROM instep.Node__1") == [{"n": 0}]
    assert target.committed("Node__1", base, ["it's"]) == {}


# -- inserts -----------------------------------------------------------------------------------


def test_a_file_of_many_batches_becomes_one_part_once(
    target: ClickHouseTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit that broke off before its record is sent again: what is in is recognised by its token."""
    base = target.fence("Node__1", 1)
    changes = (each for n in range(100) for each in change([Node(10 * n + k, "x", 1) for k in range(10)]))
    part = target.writer("Node__1", base).stage(changes)
    monkeypatch.setattr(staging, "remove", lambda _: None)

    def commit() -> None:
        target.commit("Node__1", base=base, epoch=1, attempt="1", staged=[part], marks=[])

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "commit", lambda *_: (_ for _ in ()).throw(Transient("killed")))
        with pytest.raises(Transient):
            commit()
    commit()
    assert asked(target, "SELECT count() AS n FROM instep.Node__1") == [{"n": 1000}]
    assert parts(target) == 1


def test_a_task_splits_its_files_to_the_limit_of_one_insert(
    target: ClickHouseTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "INSERT_ROWS", 40)
    base = target.fence("Node__1", 1)
    part = target.writer("Node__1", base).stage(change([Node(n, "x", 1) for n in range(100)]))
    assert len(staging.decode(part)) == 3
    target.commit("Node__1", base=base, epoch=1, attempt="1", staged=[part], marks=[])
    assert (target.rows("Node__1"), parts(target)) == (100, 3)


def test_inserts_that_run_at_once_have_about_the_same_to_do() -> None:
    def shared(files: int, rows: int) -> list[int]:
        found = [staging.StagedFile("", str(number), rows, rows) for number in range(files)]
        made = staging.inserts(found, 2)
        assert [each for some in made for each in some] == found
        return [sum(each.rows for each in some) for some in made]

    assert shared(24, 208_000) == [832_000] * 6
    assert shared(20, 250_000) == [750_000, 1_000_000, 750_000] * 2
    assert shared(2, 400_000) == [400_000] * 2
    assert shared(3, 1_000) == [3_000]


def test_files_of_many_tasks_become_few_parts(target: ClickHouseTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "INSERT_ROWS", 40)
    base = target.fence("Node__1", 1)
    parts_of_tasks = [
        staged(target, "Node__1", base, *(Node(10 * task + n, "x", 1) for n in range(10)), Edge(task, task, 1))
        for task in range(10)
    ]
    target.commit("Node__1", base=base, epoch=1, attempt="1", staged=parts_of_tasks, marks=[])
    assert (target.rows("Node__1"), target.rows("Node__1", "AUTHOR")) == (100, 10)
    assert parts(target) == 3


def test_staged_files_go_with_the_commit_and_with_upkeep(tmp_path: Path, target: ClickHouseTarget) -> None:
    put(target, "Node__1", Node(1, "one", 1), epoch=1, attempt="1")
    folder = tmp_path / "index" / "staging" / "Node__1"
    assert list(folder.iterdir()) == []
    staged(target, "Node__1", 1, Node(2, "two", 1))

    def broken() -> Iterator[TableChange]:
        yield from change([Node(3, "x", 1)])
        raise KeyError

    with pytest.raises(KeyError):
        target.writer("Node__1", 1).stage(broken())
    assert len(list(folder.iterdir())) == 1
    target.maintain("Node__1")
    assert len(list(folder.iterdir())) == 1
    ClickHouseTarget(target.uri, keep_seconds=0).maintain("Node__1")
    assert list(folder.iterdir()) == []


def test_what_killed_tasks_staged_goes_after_a_day(tmp_path: Path, target: ClickHouseTarget) -> None:
    """By the clock of their store, and of dropped builds of the same ledger too; never what another ledger staged."""
    names = {each: f"Node__{each}" for each in ("0a0a0a0a_11111111", "0a0a0a0a_22222222", "0b0b0b0b_33333333")}
    ours, dropped, theirs = names.values()
    hour = 3600
    places: dict[tuple[str, int], Path] = {}
    for name in names.values():
        target.create(name, SPECS)
        folder = tmp_path / "index" / "staging" / name
        for age in (1, 25):
            if name == ours and age == 25:
                stage_and_die(target, name, 1)
            else:
                staged(target, name, 1, Node(2, "two", 1))
            (path,) = set(folder.iterdir()) - set(places.values())
            moment = time.time() - age * hour
            os.utime(path, (moment, moment))
            places[name, age] = path
    target.drop(dropped)
    target.maintain(ours)
    assert [key for key, path in places.items() if path.exists()] == [
        (ours, 1),
        (dropped, 1),
        (theirs, 1),
        (theirs, 25),
    ]
    assert sum(path.is_file() for path in (tmp_path / "index" / "staging").rglob("*")) == 4


def test_a_clock_that_is_ahead_sweeps_nothing_of_a_live_worker(
    target: ClickHouseTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    (file,) = staging.decode(staged(target, "Node__1", 1, Node(2, "two", 1)))
    ahead = time.time() + 100 * 24 * 3600
    monkeypatch.setattr(time, "time", lambda: ahead)
    target.maintain("Node__1")
    assert Path(file.path).exists()
    assert len(list(Path(file.path).parent.iterdir())) == 1  # Nothing of how the clock was asked for.


@pytest.mark.proof
def test_many_small_commits_leave_few_parts_and_a_short_journal(target: ClickHouseTarget) -> None:
    eager = ClickHouseTarget(target.uri, keep_seconds=0)
    for number in range(20):
        put(eager, "Node__1", Node(number % 7, f"{number}", number), epoch=number + 1, attempt=f"{number}")
        eager.maintain("Node__1")
    assert parts(target) <= 14
    assert asked(target, "SELECT count() AS n FROM instep.Node__1__instep")[0]["n"] <= 3
    assert nodes(target, "Node__1") == {n % 7: f"{n}" for n in range(13, 20)}


def test_upkeep_forgets_epochs_that_are_over_and_no_other(target: ClickHouseTarget) -> None:
    base = put(target, "Node__1", Node(1, "old", 1), epoch=1, attempt="1", marks=[Mark("s", 1, b"1")])
    put(target, "Node__1", Node(1, "new", 2), epoch=2, attempt="2", marks=[Mark("s", 2, b"2")])
    ClickHouseTarget(target.uri, keep_seconds=0).maintain("Node__1")
    assert asked(target, "SELECT DISTINCT epoch FROM instep.Node__1__instep WHERE entry = 'commit'") == [{"epoch": 2}]
    assert target.committed("Node__1", base, ["s"]) == {"s": b"2"}
    with pytest.raises(Fenced):
        put(target, "Node__1", Node(1, "zombie", 3), epoch=1, attempt="late")
    assert nodes(target, "Node__1") == {1: "new"}


def test_large_parts_are_merged_in_one_go_and_not_along_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By an engine that is open for a moment only, they would be begun again and again."""
    monkeypatch.setattr(layout, "_MERGED_ALONG", 1)
    target = ClickHouseTarget(str(tmp_path / "index"))
    target.create("Node__1", SPECS)
    for number in range(12):
        put(target, "Node__1", Node(number, "x", 1), epoch=1, attempt=f"{number}")
    target.maintain("Node__1")
    with target.session(alone=True) as session:
        session.command("OPTIMIZE TABLE instep.Node__1")  # as the engine by itself would
    assert parts(target) == 12
    put(target, "Node__1", Node(12, "x", 1), epoch=1, attempt="12")
    target.maintain("Node__1")
    assert parts(target) < 12
    before = parts(target)
    put(target, "Node__1", Node(13, "x", 1), epoch=1, attempt="13")
    with target.session(alone=True) as session:
        session.command("OPTIMIZE TABLE instep.Node__1")
    assert parts(target) == before + 1


def test_short_lives_of_the_engine_leave_few_files(target: ClickHouseTarget) -> None:
    """A server removes outdated parts minutes later. An engine that is open for a moment has to before it closes."""
    mine, settings = "default.mine", "old_parts_lifetime = 77"
    with target.session() as session:
        session.command("CREATE TABLE default.instep_queue_truth_q (n Int64) ENGINE = MergeTree ORDER BY n")
        session.command(f"CREATE TABLE {mine} (n Int64) ENGINE = MergeTree ORDER BY n SETTINGS {settings}")
    counts = []
    for life in range(16):
        put(target, "Node__1", Node(life % 3, f"{life}", life), epoch=1, attempt=f"{life}")
        with target.session(alone=True) as session:
            for table in ("instep.Node__1", "instep.Node__1__instep", "default.instep_queue_truth_q", mine):
                if table.startswith("default"):
                    session.command(f"INSERT INTO {table} VALUES ({life})")
                session.command(f"OPTIMIZE TABLE {table} FINAL")
        embedded._end()
        counts.append(
            {
                table: sum(len(files) for folder in folders for _, _, files in os.walk(folder))
                for table, folders in data_folders(target).items()
            }
        )
    embedded._end()
    most = [max(each[table] for each in counts) for table in counts[0] if table != "mine"]
    assert max(most) <= 16 * (outdated_parts._MOST + 3), counts
    assert counts[-1]["mine"] > 16 * 16  # Others have reasons of their own to keep theirs.
    assert settings in asked(target, f"SHOW CREATE TABLE {mine}")[0]["statement"]
    assert "old_parts_lifetime" not in asked(target, "SHOW CREATE TABLE instep.Node__1")[0]["statement"]
    assert nodes(target, "Node__1") == {0: "15", 1: "13", 2: "14"}
    assert asked(target, "SELECT count() AS n FROM default.instep_queue_truth_q") == [{"n": 16}]


def data_folders(target: ClickHouseTarget) -> dict[str, list[str]]:
    sql = "SELECT name, data_paths FROM system.tables WHERE engine LIKE '%MergeTree'"
    return {each["name"]: each["data_paths"] for each in asked(target, sql)}


def test_a_life_that_only_reads_pays_for_no_upkeep(target: ClickHouseTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[Any] = []
    monkeypatch.setattr(embedded, "remove_outdated", done.append)
    embedded._end()
    done.clear()
    assert target.rows("Node__1") == 0
    embedded._end()
    assert done == []
    put(target, "Node__1", Node(1, "one", 1), epoch=1, attempt="1")
    embedded._end()
    assert len(done) == 1


# -- readers -----------------------------------------------------------------------------------


def test_a_plain_select_is_right_at_every_moment(target: ClickHouseTarget) -> None:
    """From views: no FINAL to forget, nothing deleted, nothing twice, the promoted instance only."""
    rows = "SELECT id, title, _instance FROM instep.Node ORDER BY id"
    put(target, "Node__1", Node(1, "old", 1), Node(2, "gone", 1), Edge(1, 5, 1), epoch=1, attempt="1")
    target.promote("Node", "Node__1", 1)
    put(target, "Node__1", Node(1, "new", 2), Node(2, None, 2, deleted=True), Edge(1, 6, 2), epoch=1, attempt="2")
    assert parts(target) == 2
    assert asked(target, rows) == [{"id": 1, "title": "new", "_instance": "i"}]
    assert asked(target, "SELECT id, user FROM instep.Node__AUTHOR") == [{"id": 1, "user": 6}]
    assert list(asked(target, "SELECT * FROM instep.Node")[0]) == [
        "id",
        "path",
        "title",
        "_ref",
        "_instance",
        "_version",
    ]
    target.create("Node__2", [NODES])
    put(target, "Node__2", Node(9, "other", 1), epoch=1, attempt="1", instance="j")
    assert len(asked(target, rows)) == 1
    target.promote("Node", "Node__2", 2)
    assert asked(target, rows) == [{"id": 9, "title": "other", "_instance": "j"}]
    with pytest.raises(UserError):
        asked(target, "SELECT * FROM instep.Node__AUTHOR")
    target.promote("Node", None, 3)
    with pytest.raises(UserError):
        asked(target, rows)


def test_a_promotion_that_broke_off_is_repaired_by_the_next(
    target: ClickHouseTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(target, "Node__1", Node(1, "one", 1), epoch=1, attempt="1")
    with monkeypatch.context() as patch:
        patch.setattr(journal, "_show", lambda *_: (_ for _ in ()).throw(Transient("killed")))
        with pytest.raises(Transient):
            target.promote("Node", "Node__1", 1)
    assert target.served("Node") is None, "readers find nothing yet"
    target.promote("Node", "Node__1", 1)
    assert target.served("Node") == "Node__1"
    assert asked(target, "SELECT count() AS n FROM instep.Node") == [{"n": 1}]


def test_an_alias_that_is_a_table_is_a_user_error(target: ClickHouseTarget) -> None:
    target.create("Node", [NODES])
    with pytest.raises(UserError, match="Node"):
        target.promote("Node", "Node__1", 1)
    assert target.rows("Node") == 0


def test_names_that_only_quoting_saves(target: ClickHouseTarget) -> None:
    odd = TableSpec("", (Column("a`b", INT64), Column("c.d", STRING), Column("e\\`", STRING)), ("a`b",), "c.d")
    target.create("a.b=c@d__1", [odd])
    base = target.within("it's\\ \t").fence("a.b=c@d__1", 1, [Mark("'; DROP TABLE x --", 1, b"")])
    row = {"a`b": 1, "c.d": "1/", "e\\`": "x' OR 1=1"}
    part = target.writer("a.b=c@d__1", base).stage(iter([TableChange("", batch(odd, [row]))]))
    target.within("it's\\ \t").commit("a.b=c@d__1", base=base, epoch=1, attempt="'\\", staged=[part], marks=[])
    target.promote("a.b=c@d", "a.b=c@d__1", 1)
    assert target.read("a.b=c@d__1", where=row, columns=list(row)).to_pylist() == [row]
    target.delete_scope("a.b=c@d__1", "1/", epoch=1)
    assert target.rows("a.b=c@d__1") == 0
    target.drop("a.b=c@d__1")


# -- the place ---------------------------------------------------------------------------------


@pytest.mark.proof
def test_another_process_gets_its_turn_or_a_clear_error(
    target: ClickHouseTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (
        "import sys; from instep.targets.clickhouse import ClickHouseTarget\n"
        "print(ClickHouseTarget(sys.argv[1]).rows('Node__1'))"
    )

    def other() -> str:
        done = subprocess.run([sys.executable, "-c", code, target.uri], capture_output=True, text=True, check=False)
        return done.stdout.strip() + done.stderr.strip()

    put(target, "Node__1", Node(1, "one", 1), epoch=1, attempt="1")
    # No session is open any more: the other waits out what this process lingers, and says nothing but its answer.
    assert other() == "1"
    embedded._end()
    with Path(target.uri, "engine.lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        monkeypatch.setattr(embedded, "TIMEOUT_SECONDS", 0.05)
        with pytest.raises(Away, match="another process"):
            target.rows("Node__1")
    assert target.rows("Node__1") == 1


def test_the_engine_stays_open_until_another_process_waits_for_it(
    target: ClickHouseTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "_TURN_SECONDS", 0.0)
    monkeypatch.setattr(embedded._ENGINE, "watch", lambda: None)
    embedded._end()
    target.rows("Node__1")
    assert embedded._ENGINE.folder == Path(target.uri)
    with Path(target.uri, "engine.waiting").open("ab") as waiting:
        fcntl.flock(waiting, fcntl.LOCK_SH)
        target.rows("Node__1")
    assert embedded._ENGINE.folder is None


def test_two_folders_in_one_process(tmp_path: Path) -> None:
    targets = [ClickHouseTarget(str(tmp_path / name)) for name in "ab"]
    for number, each in enumerate(targets):
        each.create("Node__1", SPECS)
        put(each, "Node__1", Node(number, "x", 1), epoch=1, attempt="1")
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda n: nodes(targets[n % 2], "Node__1"), range(12)))
    assert found == [{0: "x"}, {1: "x"}] * 6


def test_a_place_that_cannot_be_written_is_for_the_user(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserError, match="file"):
        ClickHouseTarget(str(tmp_path / "file" / "below")).check()
    target = ClickHouseTarget(str(tmp_path / "good"), staging=str(tmp_path / "file" / "staging"))
    with pytest.raises(UserError, match="staging"):
        target.check()


def test_a_server_that_is_not_there_is_away_and_its_password_stays_secret(tmp_path: Path) -> None:
    target = ClickHouseTarget("http://anna:open-sesame@127.0.0.1:9/db", staging=str(tmp_path))
    with pytest.raises(Away) as caught:
        target.check()
    shown = f"{caught.value}{caught.value.__cause__}{target!r}"
    assert "127.0.0.1:9/db" in shown
    assert "sesame" not in shown
    for wrong in ("ftp://anna:open-sesame@host/db", "http://", "http://anna:open-sesame@host:x/db"):
        with pytest.raises(UserError) as refused:
            ClickHouseTarget(wrong, staging=str(tmp_path)).check()
        assert "sesame" not in str(refused.value)
    with pytest.raises(UserError, match="staging"):
        ClickHouseTarget("http://anna:open-sesame@host/db")


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("Code: 243. DB::Exception: Cannot reserve 1.00 MiB, not enough space. (NOT_ENOUGH_SPACE)", UserError),
        ("Code: 516. DB::Exception: anna: Authentication failed. (AUTHENTICATION_FAILED)", UserError),
        ("Code: 252. DB::Exception: Too many parts (300). (TOO_MANY_PARTS)", Transient),
        ("Code: 241. DB::Exception: Memory limit exceeded. (MEMORY_LIMIT_EXCEEDED)", Overflow),
        (f"Code: 395. DB::Exception: {FENCED}: while executing 'FUNCTION throwIf'", Fenced),
        ("Connection refused", Away),
    ],
)
def test_errors_of_clickhouse_have_the_right_kind(said: str, kind: type[Exception]) -> None:
    assert type(explained(said, "here")) is kind


def test_importing_the_target_imports_nothing_heavy() -> None:
    code = (
        "import sys, instep.targets.clickhouse, instep.targets.lance\n"
        "assert not {'chdb', 'clickhouse_connect', 'pyarrow', 'lance', 'fsspec', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_index_of_which_a_table_was_dropped_is_gone_and_can_be_made_again(tmp_path: Path) -> None:
    target = ClickHouseTarget(str(tmp_path / "index"))
    target.create("Node__1", SPECS)
    assert target.exists("Node__1")
    with target.session(alone=True) as session:
        session.command("DROP TABLE instep.Node__1 SYNC")
    assert not target.exists("Node__1")
    target.create("Node__1", SPECS)
    assert (target.exists("Node__1"), target.rows("Node__1")) == (True, 0)
