"""The ledger on PostgreSQL: under the contract, and what else it has to stand."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from sqlalchemy import Engine, inspect

from instep.errors import UserError
from instep.ledger.dialects.postgres import Postgres
from instep.ledger.ledger import Ledger
from instep.ledger.open import open_ledger
from instep.ledger.open_server import server_at
from instep.servers.address import server_address
from tests.contracts.ledger import REF, LedgerContract, VirtualClock, plans, running
from tests.ledger.intruders import SqlIntruder
from tests.ledger.log_statements import fill_log, log_statements
from tests.ledger.server_ledger import ServerLedger
from tests.ledger.slices_many import statements_of, store_slices
from tests.servers.ledgers import LedgerDatabase


class PostgresFixtures:
    """Every handle has connections of its own to one database."""

    @pytest.fixture
    def ledgers(self, clock: VirtualClock, postgres: LedgerDatabase) -> Iterator[Callable[[], Ledger]]:
        opened: list[Ledger] = []

        def another() -> Ledger:
            opened.append(postgres.open(clock))
            return opened[-1]

        yield another
        for ledger in opened:
            ledger.close()

    @pytest.fixture
    def intruder(self, postgres: LedgerDatabase) -> Iterator[SqlIntruder]:
        engine = server_at(postgres.address).engine(read_only=False)
        yield SqlIntruder(engine)
        engine.dispose()


@pytest.mark.proof
class TestPostgresLedger(PostgresFixtures, LedgerContract):
    """All of the contract."""


class TestPostgresServer(ServerLedger):
    make_guest = ("CREATE ROLE guest LOGIN PASSWORD 'guest-s3cret'",)
    claims_alone = True
    shorten_lock_wait = "SET LOCAL lock_timeout = '10ms'"
    collation = "C"
    long_text = "text"
    schema = "current_schema()"

    @pytest.fixture
    def database(self, postgres: LedgerDatabase) -> LedgerDatabase:
        return postgres

    def short_lock_wait(self, database: LedgerDatabase) -> Postgres:
        return Postgres(database.address, answer_seconds=2)

    def test_a_claim_reads_the_pending_index_and_sorts_nothing_else(
        self, database: LedgerDatabase, watched: tuple[Ledger, Engine]
    ) -> None:
        ledger, engine = watched
        running(ledger, plans(1))
        store_slices(database)
        database.execute("ANALYZE slices")
        for work, limit in ((10, 1), (300, 1_000), (10**9, 1_000)):
            [(statement, parameters)] = statements_of(engine, partial(_claim, ledger, work, limit))
            with engine.connect() as connection:
                explained = connection.exec_driver_sql(f"EXPLAIN (FORMAT JSON) {statement}", parameters)
                _check_plan(explained.scalar_one()[0]["Plan"])
                # What it would be once the server has prepared it, for any parameters.
                general, names = _numbered(statement)
                connection.exec_driver_sql(f"PREPARE claim AS {general}")
                connection.exec_driver_sql("SET plan_cache_mode = force_generic_plan")
                given = ", ".join("NULL" if parameters[name] is None else repr(parameters[name]) for name in names)
                explained = connection.exec_driver_sql(f"EXPLAIN (FORMAT JSON) EXECUTE claim ({given})")
                _check_plan(explained.scalar_one()[0]["Plan"])
                connection.rollback()
                connection.exec_driver_sql("DEALLOCATE claim")
                connection.exec_driver_sql("RESET plan_cache_mode")
                connection.commit()

    @pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
    def test_a_database_that_does_not_hold_every_text_is_refused(
        self, database: LedgerDatabase, fresh: Callable[[], str], encoding: str
    ) -> None:
        name = fresh()
        database.server.execute(f"DROP DATABASE {name}")
        database.server.execute(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING '{encoding}' LOCALE 'C'")
        for read_only in (False, True):
            with pytest.raises(UserError, match=f"encoding {encoding}, which does not hold every text"):
                open_ledger(database.server.url(name), clock=VirtualClock(), read_only=read_only)
        engine = server_at(server_address(database.server.url(name))).engine(read_only=False)
        assert inspect(engine).get_table_names() == []
        engine.dispose()

    def test_pgclientencoding_changes_nothing(self, database: LedgerDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
        ledger = open_ledger(database.url, clock=VirtualClock())
        ledger.workers.register("日本語 🎉", kind="run", host="here", pid=1)
        assert [each.id for each in ledger.workers.all()] == ["日本語 🎉"]
        ledger.close()

    def test_a_large_job_is_in_the_statistics_as_soon_as_it_is_planned(
        self, database: LedgerDatabase, watched: tuple[Ledger, Engine]
    ) -> None:
        ledger, _ = watched
        database.execute("ANALYZE slices")
        running(ledger, plans(600))
        assert database.execute("SELECT reltuples FROM pg_class WHERE relname = 'slices'") == [(600.0,)]

    def test_appending_and_reading_find_everything_by_index(
        self, database: LedgerDatabase, watched: tuple[Ledger, Engine]
    ) -> None:
        ledger, engine = watched
        fill_log(ledger)
        database.execute("ANALYZE")
        said = log_statements(ledger, engine)
        with engine.connect() as connection:
            # Some tables here are small enough to be read as a whole: not unless there is no other way.
            connection.exec_driver_sql("SET enable_seqscan = off")
            for statement, parameters in said:
                explained = connection.exec_driver_sql(f"EXPLAIN (FORMAT JSON) {statement}", parameters)
                nodes = list(_nodes(explained.scalar_one()[0]["Plan"]))
                assert "Seq Scan" not in {node["Node Type"] for node in nodes}, (statement, nodes)
            connection.exec_driver_sql("RESET enable_seqscan")


def _claim(ledger: Ledger, work: int, limit: int) -> None:
    assert ledger.slices.claim("job", REF, "ann", work=work, limit=limit)


def _numbered(statement: str) -> tuple[str, list[str]]:
    """With $1, $2 … in place of the driver's parameters, and whose place each takes."""
    names: list[str] = []

    def place(match: re.Match[str]) -> str:
        if match[1] not in names:
            names.append(match[1])
        return f"${names.index(match[1]) + 1}"

    return re.sub(r"%\((\w+)\)s", place, statement), names


def _check_plan(plan: dict[str, Any]) -> None:
    """`slices` and `slice_work` are read by index only, and no row of theirs is sorted to be found."""
    nodes = list(_nodes(plan))
    assert "slices_pending" in {node.get("Index Name") for node in nodes}, plan
    for node in nodes:
        if node["Node Type"] in ("Seq Scan", "Sort"):
            below = {each.get("Relation Name") for each in _nodes(node)}
            assert not below & {"slices", "slice_work"}, node


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for each in plan.get("Plans", []):
        yield from _nodes(each)
