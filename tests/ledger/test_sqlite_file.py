"""A SQLite ledger as a file: made, opened, read only, locked, full, damaged, or another application's."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, literal, select

from instep.domain.jobs import MAX_ATTEMPTS, SliceState
from instep.errors import Transient, UserError
from instep.ledger.dialects.sqlite import SqliteDialect, sqlite_engine
from instep.ledger.ledger import Ledger
from instep.ledger.open import open_ledger
from instep.ledger.schema import bring_up
from instep.ledger.sweep import Swept
from tests.contracts.ledger import (
    REF,
    VirtualClock,
    change,
    claim_all,
    end,
    job_of,
    outcome,
    plan,
    plans,
    register,
    running,
    state_of_everything,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture
def ledger(path: Path) -> Iterator[Ledger]:
    opened = _open(path)
    yield opened
    opened.close()


def _open(path: Path, *, read_only: bool = False, timeout: str = "30") -> Ledger:
    return open_ledger(f"sqlite:///{path}?timeout={timeout}", clock=VirtualClock(), read_only=read_only)


def _execute(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path)
    with connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()


# Opening.


def test_the_folder_is_made_and_the_path_taken_literally(tmp_path: Path) -> None:
    path = tmp_path / "a?b=c" / "50%20 off" / "ledger ü#1%2F.db"
    _open(path).close()
    assert path.exists()


def test_the_written_state_is_there_after_reopening(path: Path, ledger: Ledger) -> None:
    part = running(ledger, plans(3))
    ledger.slices.complete(part, "ann", [outcome(claim, fail=[1]) for claim in claim_all(ledger)], job_id="job")
    end(ledger, part)
    before = state_of_everything(ledger, part)
    ledger.close()
    again = _open(path)
    assert state_of_everything(again, part) == before
    again.close()


def test_a_statement_is_compiled_once_for_all_ledgers_of_a_process(tmp_path: Path) -> None:
    """As many are opened as a notebook has runs."""
    found = []
    for name in ("one.db", "two.db"):
        engine = sqlite_engine(tmp_path / name)
        with engine.connect() as connection:
            context: Any = connection.execute(select(literal(1).label("only here"))).context
            found.append(context.cache_hit.name)
        engine.dispose()
    assert found == ["CACHE_MISS", "CACHE_HIT"]


def test_reading_a_ledger_that_does_not_exist_makes_nothing(tmp_path: Path) -> None:
    ledger = _open(tmp_path / "state" / "ledger.db", read_only=True)
    assert ledger.jobs.unfinished(REF) is None
    assert list(tmp_path.iterdir()) == []


def test_reading_a_ledger_leaves_its_file_as_it_was(path: Path, ledger: Ledger) -> None:
    part = running(ledger, plans(2))
    before = state_of_everything(ledger, part)
    ledger.close()
    content, files = path.read_bytes(), sorted(path.parent.iterdir())
    reader = _open(path, read_only=True)
    assert state_of_everything(reader, part) == before
    with pytest.raises(UserError, match="cannot be opened or written"):
        reader.workers.register("bob", kind="run", host="here", pid=1)
    reader.close()
    assert (path.read_bytes(), sorted(path.parent.iterdir())) == (content, files)


def test_a_reader_sees_commits_of_a_concurrent_writer(path: Path, ledger: Ledger) -> None:
    reader = _open(path, read_only=True)
    assert reader.jobs.newest() == []
    running(ledger, plans(1))
    assert [job.id for job in reader.jobs.newest()] == ["job"]
    reader.close()


def test_an_empty_file_is_an_empty_ledger(path: Path) -> None:
    path.touch()
    assert _open(path, read_only=True).jobs.newest() == []
    assert path.stat().st_size == 0
    ledger = _open(path)
    assert ledger.jobs.newest() == []
    ledger.close()


@pytest.mark.parametrize("read_only", [False, True])
def test_a_ledger_of_a_newer_instep_is_refused(path: Path, ledger: Ledger, read_only: bool) -> None:
    ledger.close()
    _execute(path, "UPDATE alembic_version SET version_num = '0099'")
    with pytest.raises(UserError, match="newer Instep") as refused:
        _open(path, read_only=read_only)
    assert "Upgrade" in str(refused.value)


def test_a_ledger_of_an_older_instep_is_not_read_before_a_run_migrated_it(path: Path, ledger: Ledger) -> None:
    ledger.close()
    _execute(path, "UPDATE alembic_version SET version_num = '0000'")
    with pytest.raises(UserError, match="older Instep"):
        _open(path, read_only=True)


@pytest.mark.parametrize("read_only", [False, True])
def test_a_database_of_something_else_is_refused_and_left_alone(path: Path, read_only: bool) -> None:
    _execute(path, "CREATE TABLE recipes (name TEXT)")
    with pytest.raises(UserError, match="not an Instep ledger"):
        _open(path, read_only=read_only)
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("recipes",)]
    connection.close()


@pytest.mark.parametrize("version", ["", "0001", "1975ea83b712"])
@pytest.mark.parametrize("read_only", [False, True])
def test_a_database_of_something_else_with_migrations_by_alembic_is_refused_too(
    path: Path, read_only: bool, version: str
) -> None:
    _execute(path, "CREATE TABLE jobs (name TEXT)")
    _execute(path, "CREATE TABLE alembic_version (version_num VARCHAR(32) PRIMARY KEY)")
    if version:
        _execute(path, f"INSERT INTO alembic_version VALUES ('{version}')")
    with pytest.raises(UserError, match="not an Instep ledger"):
        _open(path, read_only=read_only)
    connection = sqlite3.connect(path)
    tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    connection.close()
    assert tables == [("jobs",), ("alembic_version",)]


@pytest.mark.parametrize("read_only", [False, True])
def test_a_file_that_is_no_database_is_refused(path: Path, read_only: bool) -> None:
    path.write_bytes(b"These are not the bytes you are looking for. " * 100)
    with pytest.raises(UserError, match="not a ledger, or it is damaged") as refused:
        _open(path, read_only=read_only)
    assert str(path) in str(refused.value)


def test_damage_found_later_is_reported(path: Path, ledger: Ledger) -> None:
    running(ledger, plans(1))
    ledger.close()
    connection = sqlite3.connect(path)
    (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'jobs'").fetchone()
    (size,) = connection.execute("PRAGMA page_size").fetchone()
    connection.close()
    with path.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xa5" * size)
    damaged = _open(path)
    with pytest.raises(UserError, match="damaged"):
        damaged.jobs.newest()
    damaged.close()


@pytest.mark.parametrize("read_only", [False, True])
def test_a_folder_in_the_files_place_is_refused(path: Path, read_only: bool) -> None:
    path.mkdir()
    with pytest.raises(UserError, match="cannot be opened"):
        _open(path, read_only=read_only)


@pytest.mark.parametrize("read_only", [False, True])
def test_a_file_in_the_folders_place_is_refused(tmp_path: Path, read_only: bool) -> None:
    (tmp_path / "state").write_text("a file")
    path = tmp_path / "state" / "ledger.db"
    if read_only:
        assert _open(path, read_only=True).jobs.newest() == []
        return
    with pytest.raises(UserError, match="folder cannot be made"):
        _open(path)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("mssql://ann:s3cret@db/instep", "'mssql' are not supported"),
        ("oracle+oracledb://ann:s3cret@db/instep", "'oracle\\+oracledb' are not supported"),
        ("sqlite+aiosqlite:///s3cret.db", "'sqlite\\+aiosqlite' are not supported"),
        ("sqlite://", "path of a file"),
        ("sqlite:///:memory:", "path of a file"),
        ("s3cret", "cannot be read"),
        ("", "cannot be read"),
        ("sqlite://ann:s3cret@host:port/x", "path of a file"),
        ("sqlite:///folder/", "path of a file"),
        ("sqlite:///x.db?timeout=s3cret", "only option"),
        ("sqlite:///x.db?key=s3cret", "only option"),
    ],
)
def test_an_unusable_url_is_refused_without_repeating_it(url: str, says: str) -> None:
    with pytest.raises(UserError, match=says) as refused:
        open_ledger(url, clock=VirtualClock())
    assert "sqlite:///" in str(refused.value), "says what a good one looks like"
    assert "s3cret" not in str(refused.value)


# Locked and full.


def test_a_ledger_locked_by_another_program_cannot_be_opened(path: Path) -> None:
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("CREATE TABLE t (x)")
    other.execute("DROP TABLE t")
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(UserError, match="locked by another process"):
        _open(path, timeout="0.05")
    other.close()
    _open(path).close()


def test_a_lock_in_mid_run_is_transient_and_changes_nothing(path: Path, ledger: Ledger) -> None:
    part = running(ledger, plans(2))
    short_lock_wait = _open(path, timeout="0.05")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    before = state_of_everything(short_lock_wait, part)
    with pytest.raises(Transient):
        claim_all(short_lock_wait)
    assert state_of_everything(short_lock_wait, part) == before
    other.execute("ROLLBACK")
    assert len(claim_all(short_lock_wait)) == 2
    other.close()
    short_lock_wait.close()


def test_a_full_disk_undoes_the_whole_write_with_a_hint(path: Path) -> None:
    engine = sqlite_engine(path)
    pages = {"max": 0}

    @event.listens_for(engine, "connect")
    def limit(connection: sqlite3.Connection, _: object) -> None:
        if pages["max"]:
            connection.execute(f"PRAGMA max_page_count = {pages['max']}")

    bring_up(engine, str(path))
    ledger = Ledger(engine, SqliteDialect(VirtualClock(), str(path)))
    part = running(ledger, [plan(0, range(2_000))])
    claims = claim_all(ledger)
    before = state_of_everything(ledger, part)
    with engine.connect() as connection:
        pages["max"] = int(connection.exec_driver_sql("PRAGMA page_count").scalar_one()) + 5
    engine.dispose()
    with pytest.raises(UserError, match="disk is full") as full:
        ledger.slices.complete(part, "ann", list(map(outcome, claims)), job_id="job")
    assert "Free some space" in str(full.value)
    assert state_of_everything(ledger, part) == before
    assert ledger.slices.holds(claims, "ann")
    pages["max"] = 0
    engine.dispose()
    ledger.slices.complete(part, "ann", list(map(outcome, claims)), job_id="job")
    assert len(ledger.documents.entries(part.instance)) == 2_000
    ledger.close()


# What only the tables show.


def test_a_split_slice_leaves_no_row_behind_and_its_halves_name_it(path: Path, ledger: Ledger) -> None:
    running(ledger, [plan(0, range(5))])
    for _ in range(MAX_ATTEMPTS):
        ledger.slices.give_back(claim_all(ledger), "ann", error="died", spent=True)
    ledger.slices.give_back(claim_all(ledger), "ann", spent=True)
    assert job_of(ledger, "job").slices == {SliceState.PENDING: 2}
    connection = sqlite3.connect(path)
    rows = connection.execute(
        "SELECT id, split_from, lower_bound, upper_bound, error, rank, fence "
        "FROM slices JOIN slice_work ON slice_id = id"
    ).fetchall()
    edge = change(2).document_id
    assert sorted(rows) == [
        ("job.0.0a", "job.0.0", "", edge, "died", 0, MAX_ATTEMPTS + 1),
        ("job.0.0b", "job.0.0", edge, "", "died", 0, MAX_ATTEMPTS + 1),
    ]
    assert connection.execute("SELECT count(*) FROM slice_work").fetchone() == (2,)
    connection.close()


def test_a_sweep_ends_slices_whose_worker_is_not_registered(path: Path, ledger: Ledger) -> None:
    """A claim that came between the two steps of an eviction: no method of the ledger leaves that behind."""
    running(ledger, plans(2))
    claims = claim_all(ledger)
    _execute(path, "DELETE FROM workers")
    assert ledger.sweep() == Swept(slices=2)
    assert job_of(ledger).slices == {SliceState.PENDING: 2}
    register(ledger, "bob")
    again = claim_all(ledger, "bob")
    assert [(each.attempts, each.fence) for each in again] == [(1, 2), (1, 2)]
    assert not ledger.slices.holds(claims, "ann")


def test_the_database_itself_refuses_unknown_states_and_unbalanced_counts(path: Path, ledger: Ledger) -> None:
    running(ledger, plans(1))
    for statement in (
        "UPDATE jobs SET state = 'DONE'",
        "UPDATE slices SET state = 'DONE'",
        "UPDATE job_parts SET state = 'RUNNING'",
        "UPDATE slices SET read = 1",
    ):
        with pytest.raises(sqlite3.IntegrityError):
            _execute(path, statement)
