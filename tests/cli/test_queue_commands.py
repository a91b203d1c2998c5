"""`instep queue …`: the whole story on each engine; and on SQLite what it prints, refuses, and reads."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import instep
from instep.cli import main
from instep.errors import UserError
from instep.ledger.key_leases import KeyFailure
from instep.queues.engines.queue_engine import Comparison
from instep.queues.engines.sqlite import SqlitePending
from instep.queues.engines.sqlite import store as store_of_sqlite
from instep.queues.key_ranges import Parts
from instep.queues.open import PARTS
from tests.cli.queue_tables import PENDING, Tables, chdb_tables, postgres_tables, sqlite_tables
from tests.cli.saying import answer, said
from tests.doubles.clock import VirtualClock

#: An hour after everything that happened in these tables.
NOW = 1_800_000_000_000


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def tables(folder: Path, clock: VirtualClock) -> Tables:
    """On SQLite, with a project."""
    made = sqlite_tables(folder)
    made.project(folder)
    return made


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(each) for each in text.splitlines()]


def shrink(folder: Path) -> None:
    """The declaration has two covers less."""
    file = folder / "instep.yaml"
    file.write_text(file.read_text().replace(", {table: also}, {table: also, where: id < 0}]", "]"))


def switched(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("create", "backfill", "verify", "switch"):
        said(capsys, "queue", command, "bills")


@pytest.mark.parametrize("make", [sqlite_tables, pytest.param(chdb_tables, marks=pytest.mark.long), postgres_tables])
def test_the_story_of_a_queue(
    make: Callable[[Path], Tables],
    folder: Path,
    clock: VirtualClock,
    capsys: pytest.CaptureFixture[str],
    given: Callable[..., None],
) -> None:
    clock.milliseconds = NOW
    tables = make(folder)
    tables.project(folder)
    said(capsys, "queue", "create", "bills")
    tables.run("INSERT INTO items VALUES (1001, '2026-01-01 00:00:00')")
    tables.run("INSERT INTO also VALUES (1000)")
    filled = answer(capsys, "queue", "backfill", "bills")
    assert (filled["keys"], filled["pending"]) == (1001, 10)
    verdict = answer(capsys, "queue", "verify", "bills")
    assert (verdict["equal"], verdict["pending"], verdict["missing"], verdict["surplus"]) == (True, 10, 0, 0)
    assert [each["key"] for each in lines(said(capsys, "queue", "next", "bills"))] == [1001, *PENDING[1:]]
    assert "reads the queue from now on" in said(capsys, "queue", "switch", "bills")
    work = lines(said(capsys, "queue", "next", "bills", "-n", "3", "--lease", "5m"))
    assert [each["key"] for each in work] == [1001, 900, 800]
    others = answer(capsys, "queue", "next", "bills", "-n", "1", "--lease", "5m")
    assert [each["key"] for each in others] == [700]
    given(work[0], {**work[1], "result": "whatever"})
    assert "2 acked" in said(capsys, "queue", "ack", "bills")
    given({**work[2], "error": "HTTP 500"})
    assert "1 failed" in said(capsys, "queue", "fail", "bills")
    tables.run("INSERT INTO done VALUES (1002, 0)")
    tables.run("INSERT INTO items VALUES (1002, '2026-01-01 00:00:00')")
    assert [each["key"] for each in lines(said(capsys, "queue", "next", "bills", "-n", "2"))] == [1002, 600]
    assert answer(capsys, "queue", "verify", "bills")["equal"]
    status = answer(capsys, "queue", "status", "bills")
    assert (status["phase"], status["reads"], status["oldest_key"]) == ("switched", "queue", 100)
    assert (status["leased"]["keys"], status["retrying"]["keys"], status["parked"]["keys"]) == (1, 1, 0)
    assert status["garbage"]["items"] == 1
    assert answer(capsys, "queue", "drop-done", "bills")["rows"] >= 0
    shrink(folder)
    for command in ("create", "verify"):
        assert "another declaration" in said(capsys, "queue", command, "bills", code=1)
    assert "has changed since it was created" in said(capsys, "queue", "next", "bills", code=1)
    assert "is dropped" in said(capsys, "queue", "drop", "bills", "--yes")
    tables.run("INSERT INTO also VALUES (1003)")  # Nothing is left that would stand in its way.
    assert answer(capsys, "queue", "status", "bills")["phase"] == "declared"


def test_every_phase_names_the_next_one_and_refuses_early_steps(
    tables: Tables, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "Next: instep queue create bills" in said(capsys, "queue", "status", "bills")
    assert "instep queue create bills" in said(capsys, "queue", "backfill", "bills", code=1)
    assert "instep queue create bills" in said(capsys, "queue", "next", "bills", code=1)
    assert "Next: instep queue backfill bills" in said(capsys, "queue", "create", "bills")
    assert "instep queue backfill bills" in said(capsys, "queue", "verify", "bills", code=1)
    assert "is not backfilled" in said(capsys, "queue", "switch", "bills", code=1)
    assert "Next: instep queue verify bills" in said(capsys, "queue", "backfill", "bills")
    assert "was not compared" in said(capsys, "queue", "switch", "bills", code=1)
    assert "Next: instep queue switch bills" in said(capsys, "queue", "verify", "bills")
    said(capsys, "queue", "switch", "bills")
    assert "phase      switched" in said(capsys, "queue", "status", "bills")
    assert "anti-join from now on" in said(capsys, "queue", "switch", "bills", "--back")
    assert "phase      verified" in said(capsys, "queue", "status", "bills")


def test_commands_about_entities_point_to_those_about_queues(
    tables: Tables, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in ("plan", "run", "status", "worker"):
        shown = said(capsys, command, code=64)
        assert "there are no entities in this project, only queues: bills" in shown, command
        assert "instep queue status bills" in shown


def test_an_old_or_unequal_comparison_is_none(
    tables: Tables, clock: VirtualClock, capsys: pytest.CaptureFixture[str]
) -> None:
    switched(capsys)
    said(capsys, "queue", "switch", "bills", "--back")
    clock.sleep(25 * 3600)
    assert "more than a day ago" in said(capsys, "queue", "switch", "bills", code=1)
    tables.run("DELETE FROM pending_offers_bills WHERE key IN (300, 400)")
    shown = said(capsys, "queue", "verify", "bills", code=2)
    assert "2 missing, 0 surplus" in shown
    assert "missing: 300, 400" in shown
    assert "differed from its anti-join" in said(capsys, "queue", "switch", "bills", code=1)
    repaired = answer(capsys, "queue", "verify", "bills", "--repair")
    assert (repaired["equal"], repaired["repaired"]) == (True, 2)
    said(capsys, "queue", "switch", "bills")


def test_a_momentary_difference_is_not_reported(
    tables: Tables, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    switched(capsys)
    compare, looks = SqlitePending.compare, list[int]()

    def racing(store: SqlitePending, keys: Any) -> Comparison:
        """Sees a key that is written just then."""
        looks.append(1)
        found = compare(store, keys)
        return replace(found, missing=(77,), missing_count=1) if len(looks) == 1 else found

    monkeypatch.setattr(SqlitePending, "compare", racing)
    verdict = answer(capsys, "queue", "verify", "bills")
    assert (verdict["equal"], verdict["raced"], verdict["missing"]) == (True, 1, 0)
    assert len(looks) > 1


def test_keys_in_hand_are_no_difference_however_many(
    tables: Tables, capsys: pytest.CaptureFixture[str], given: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queue names some of them in each comparison."""
    monkeypatch.setattr(store_of_sqlite, "NAMED", 300)
    tables.run("DELETE FROM done")
    switched(capsys)
    work = lines(said(capsys, "queue", "next", "bills", "-n", "50000", "--lease", "5m"))
    given(*work)
    said(capsys, "queue", "fail", "bills", "--error", "down")
    tables.run("INSERT INTO items SELECT id + 1000, at FROM items WHERE id <= 1000")
    given(*(work := lines(said(capsys, "queue", "next", "bills", "-n", "50000", "--lease", "5m"))))
    said(capsys, "queue", "fail", "bills", "--error", "down")
    # Reading withdraws what is at rest.
    assert said(capsys, "queue", "next", "bills") == ""
    verdict = answer(capsys, "queue", "verify", "bills")
    assert (verdict["equal"], verdict["held"], verdict["pending"]) == (True, 1990, 1990)


def test_a_backfill_continues_where_it_was(
    tables: Tables, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said(capsys, "queue", "create", "bills")
    monkeypatch.setitem(PARTS, "sqlite", Parts(100))
    backfill, ranges = SqlitePending.backfill, list[int]()

    def interrupted(store: SqlitePending, keys: Any) -> Any:
        ranges.append(keys.after)
        if len(ranges) == 2:
            raise KeyboardInterrupt
        return backfill(store, keys)

    monkeypatch.setattr(SqlitePending, "backfill", interrupted)
    assert main(["queue", "backfill", "bills"]) == 130
    status = said(capsys, "queue", "status", "bills")
    assert "phase      backfilling" in status
    assert "10% of the key range, 100 keys" in status
    filled = answer(capsys, "queue", "backfill", "bills")
    assert (filled["keys"], filled["resumed_at"]) == (1000, 100)
    assert ranges[:3] == [0, 100, 100]
    assert answer(capsys, "queue", "verify", "bills")["equal"]
    again = answer(capsys, "queue", "backfill", "bills")
    assert (again["keys"], again["pending"], again["resumed_at"]) == (1000, 10, None)
    assert len(lines(said(capsys, "queue", "next", "bills"))) == 10


def test_statements_are_printed_and_not_run(tables: Tables, capsys: pytest.CaptureFixture[str]) -> None:
    shown = said(capsys, "queue", "create", "bills", "--sql")
    assert "CREATE TRIGGER" in shown
    assert answer(capsys, "queue", "status", "bills")["phase"] == "declared"
    said(capsys, "queue", "create", "bills")
    assert "INSERT" in said(capsys, "queue", "backfill", "bills", "--sql")
    assert answer(capsys, "queue", "status", "bills")["phase"] == "created"
    assert "NOT EXISTS" in answer(capsys, "queue", "next", "bills", "--sql", "-n", "7")[0]


def test_lines_that_cannot_be_read_are_named_and_the_others_done(
    tables: Tables, capsys: pytest.CaptureFixture[str], given: Callable[..., None]
) -> None:
    switched(capsys)
    (work,) = lines(said(capsys, "queue", "next", "bills", "-n", "1", "--lease", "5m"))
    bad = ["garbage", '{"fence": 1}', '{"key": "7"}', '{"key": true}', "[7]", '{"key": 900, "fence": "x"}', ""]
    given(*bad, work, {"key": 900, "fence": 99}, {"key": 10**30})
    shown = said(capsys, "queue", "ack", "bills", code=3)
    assert "1 acked, 8 refused" in shown
    for number, why in [
        (1, "is not JSON"),
        (2, '"key" is missing'),
        (3, 'key "7": the queue has no such keys: they are of another type'),
        (4, '"key" must be a whole number of 64 bits'),
        (5, "must be an object such as"),
        (6, 'key 900: "fence" must be a whole number'),
        (9, "key 900: it is not leased"),
        (10, '"key" must be a whole number of 64 bits'),
    ]:
        assert f"line {number}: {why}" in shown
    given({**work, "key": 800, "error": 7}, *bad[:1])
    found = json.loads(said(capsys, "queue", "fail", "bills", "--json", code=3).partition("\n}\n")[0] + "\n}")
    assert [each["line"] for each in found["lines"]] == [1, 2]
    given()
    assert "nothing was done" in said(capsys, "queue", "ack", "bills")


def test_parked_keys_are_shown_and_retried(
    tables: Tables, clock: VirtualClock, capsys: pytest.CaptureFixture[str]
) -> None:
    switched(capsys)
    with instep.load().queue("bills") as queue:
        for _ in range(12):
            queue.fail([KeyFailure(500, None, "HTTP 500")])
            clock.sleep(25 * 3600)
    assert "HTTP 500" in said(capsys, "queue", "status", "bills", "--parked")
    assert answer(capsys, "queue", "status", "bills")["parked"]["keys"] == 1
    assert 500 not in [each["key"] for each in lines(said(capsys, "queue", "next", "bills"))]
    assert "no key is named" in said(capsys, "queue", "unpark", "bills", code=1)
    assert answer(capsys, "queue", "unpark", "bills", "500", "7") == {
        "name": "bills",
        "unparked": [500],
        "not_parked": [7],
    }
    assert "0 keys to be tried again" in said(capsys, "queue", "unpark", "bills", "--all")
    given_again = lines(said(capsys, "queue", "next", "bills", "-n", "10"))
    assert [(each["key"], each["last_error"]) for each in given_again if "attempts" in each] == [(500, "HTTP 500")]


def test_only_the_parked_keys_that_are_named_are_retried(
    tables: Tables, clock: VirtualClock, capsys: pytest.CaptureFixture[str]
) -> None:
    switched(capsys)
    with instep.load().queue("bills") as queue:
        for _ in range(12):
            queue.fail([KeyFailure(500, None, "HTTP 500"), KeyFailure(600, None, "HTTP 500")])
            clock.sleep(25 * 3600)
    assert answer(capsys, "queue", "unpark", "bills", "500")["unparked"] == [500]
    assert answer(capsys, "queue", "status", "bills")["parked"]["keys"] == 1
    assert answer(capsys, "queue", "unpark", "bills", "--all")["unparked"] == [600]


def test_the_error_of_one_line_wins_over_that_of_the_command(
    tables: Tables, clock: VirtualClock, capsys: pytest.CaptureFixture[str], given: Callable[..., None]
) -> None:
    switched(capsys)
    own, silent = lines(said(capsys, "queue", "next", "bills", "-n", "2", "--lease", "5m"))
    given({**own, "error": "HTTP 500"}, silent)
    said(capsys, "queue", "fail", "bills", "--error", "down")
    clock.sleep(25 * 3600)
    found = lines(said(capsys, "queue", "next", "bills", "-n", "50"))
    errors = {each["key"]: each["last_error"] for each in found if "last_error" in each}
    assert errors == {own["key"]: "HTTP 500", silent["key"]: "down"}


def test_keys_of_the_participants_that_are_named(
    folder: Path, tables: Tables, capsys: pytest.CaptureFixture[str]
) -> None:
    tables.run("ALTER TABLE items ADD COLUMN who INTEGER")
    tables.run("UPDATE items SET who = id / 100")
    file = folder / "instep.yaml"
    file.write_text(file.read_text().replace("key: id", "key: id\n    participants: who"))
    switched(capsys)
    for mode in ([], ["--legacy"]):
        found = lines(said(capsys, "queue", "next", "bills", "--participants", "3,7", *mode))
        assert {each["key"] for each in found} == {300, 700}


def test_a_queue_is_dropped_only_when_that_is_confirmed(tables: Tables, capsys: pytest.CaptureFixture[str]) -> None:
    said(capsys, "queue", "create", "bills")
    assert "Confirm with --yes" in said(capsys, "queue", "drop", "bills", code=1)
    assert answer(capsys, "queue", "status", "bills")["phase"] == "created"
    said(capsys, "queue", "drop", "bills", "--yes")
    assert answer(capsys, "queue", "status", "bills")["phase"] == "declared"


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("table: done", "table: dome", "there is no table dome"),
        ("key: id", "key: at", "and not an integer of 64 bits"),
        ("key: id", "key: no", "items has no column no"),
        ("ok = 1", "okay = 1", "no such column: okay"),
        ("sqlite:///shop.db", "sqlite:///nowhere.db", "nowhere.db"),
    ],
)
def test_the_doctor_and_create_refuse_an_impossible_queue(
    folder: Path, tables: Tables, capsys: pytest.CaptureFixture[str], old: str, new: str, says: str
) -> None:
    file = folder / "instep.yaml"
    file.write_text(file.read_text().replace(old, new))
    assert says in said(capsys, "queue", "create", "bills", code=1)
    shown = said(capsys, "check", code=1)
    assert says in shown
    assert "Spark" not in shown


def test_a_name_that_is_not_declared(tables: Tables, capsys: pytest.CaptureFixture[str]) -> None:
    assert "Declared: bills." in said(capsys, "queue", "next", "bill", code=1)
    with pytest.raises(UserError, match="Declared: bills"):
        instep.load().queue("bill")


@pytest.mark.parametrize("on", ["postgresql://ann:hunter2@127.0.0.1:1/x", "clickhouse://ann:hunter2@127.0.0.1:1/x"])
@pytest.mark.parametrize("command", [["status"], ["create"], ["next", "--json"]])
def test_a_password_never_shows(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    on: str,
    command: list[str],
) -> None:
    """Not even of a server that is not there."""
    monkeypatch.setenv("INSTEP_DEBUG", "")
    Tables(on, lambda _: None).project(folder)
    code = main(["queue", command[0], "bills", *command[1:]])
    shown = capsys.readouterr()
    assert code in (1, 75)
    assert "127.0.0.1" in shown.err
    assert "hunter2" not in shown.out + shown.err


def test_a_password_never_shows_of_a_server_that_is_there(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tables = postgres_tables(folder)
    tables.project(folder)
    assert "hunter2" in (folder / "instep.yaml").read_text()
    for arguments, code in [
        (["check"], 0),
        (["queue", "create", "bills", "--sql"], 0),
        (["queue", "create", "bills"], 0),
        (["queue", "status", "bills", "--json"], 0),
        (["queue", "switch", "bills"], 1),
        (["queue", "observe", "bills"], 1),
    ]:
        assert main(arguments) == code
        shown = capsys.readouterr()
        assert "hunter2" not in shown.out + shown.err
    tables.run("ALTER TABLE done RENAME TO gone")
    for arguments in (["check", "--json"], ["queue", "backfill", "bills"]):
        assert main(arguments) == 1
        shown = capsys.readouterr()
        assert "127.0.0.1" in shown.out + shown.err
        assert "hunter2" not in shown.out + shown.err
