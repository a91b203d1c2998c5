"""The migrations, `tables.py` and a ledger made by `open_ledger` have one and the same schema."""

from __future__ import annotations

import re
from pathlib import Path

from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from instep.ledger.dialects.sqlite import SqliteDialect, sqlite_engine
from instep.ledger.ledger import Ledger
from instep.ledger.schema import bring_up, upgrade
from instep.ledger.tables import HEAD, metadata
from tests.contracts.ledger.building import START, VirtualClock
from tests.ledger.old_ledger import (
    check_held,
    check_migrated,
    check_requests,
    make_held_numbers,
    make_old_ledger,
    make_old_requests,
)


def _schema(path: Path, *, migrate: bool) -> dict[str, list[str]]:
    """What the database says of each table and index: its lines, in any order (new columns come last)."""
    engine = sqlite_engine(path)
    if migrate:
        upgrade(engine)
    else:
        bring_up(engine, str(path))
    with engine.connect() as connection:
        rows = connection.exec_driver_sql("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").all()
        assert connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar_one() == HEAD
    engine.dispose()
    return {name: _lines(sql) for name, sql in rows if name != "alembic_version"}


def _lines(sql: str) -> list[str]:
    """A table that was made again has its name in quotation marks; a column that was added shares the last line."""
    plain = re.sub(r'^CREATE TABLE "(\w+)"', r"CREATE TABLE \1", sql)
    lines = re.split(r"\n|, (?=\w+ [A-Z]+)", plain)
    return sorted(re.sub(r"\s+", " ", line).strip(" ,") for line in lines if line.strip())


def test_a_migrated_ledger_and_a_new_one_have_the_same_schema(tmp_path: Path) -> None:
    migrated = _schema(tmp_path / "migrated.db", migrate=True)
    created = _schema(tmp_path / "created.db", migrate=False)
    assert migrated == created
    assert set(metadata.tables) < set(created)


def test_alembic_finds_no_difference_between_migrations_and_tables(tmp_path: Path) -> None:
    engine = sqlite_engine(tmp_path / "migrated.db")
    upgrade(engine)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_server_default": True})
        assert compare_metadata(context, metadata) == []
    engine.dispose()


def test_head_is_the_newest_migration() -> None:
    config = Config()
    config.set_main_option("script_location", "instep.ledger:migrations")
    scripts = ScriptDirectory.from_config(config)
    assert scripts.get_heads() == [HEAD]
    revisions = [script.revision for script in scripts.walk_revisions()]
    assert revisions == sorted(revisions, reverse=True), "revisions are compared as text: they must sort"


def test_a_ledger_of_the_first_schema_comes_over_with_its_data(tmp_path: Path) -> None:
    engine = sqlite_engine(tmp_path / "ledger.db")
    make_old_ledger(engine)
    bring_up(engine, "here")
    check_migrated(Ledger(engine, SqliteDialect(VirtualClock(START + 40), "here")))
    with engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA foreign_key_check").all() == []
        assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar_one() == 1
    engine.dispose()


def test_keys_that_consumers_have_in_hand_come_over(tmp_path: Path) -> None:
    engine = sqlite_engine(tmp_path / "ledger.db")
    make_held_numbers(engine)
    bring_up(engine, "here")
    check_held(Ledger(engine, SqliteDialect(VirtualClock(START), "here")))
    engine.dispose()


def test_open_requests_of_handlers_come_over_as_wants(tmp_path: Path) -> None:
    engine = sqlite_engine(tmp_path / "ledger.db")
    make_old_requests(engine)
    bring_up(engine, "here")
    check_requests(Ledger(engine, SqliteDialect(VirtualClock(START), "here")))
    engine.dispose()
