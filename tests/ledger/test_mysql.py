"""The ledger on MariaDB: under the contract, and what else it has to stand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest
from sqlalchemy import Engine

from instep.domain.server_address import server_address
from instep.errors import UserError
from instep.ledger.mysql import Mysql
from instep.ledger.open import open_ledger
from instep.ledger.port import Ledger
from instep.ledger.schema import upgrade
from instep.ledger.server import server_at
from instep.ledger.sql.ledger import SqlLedger
from tests.contracts.ledger import REF, LedgerContract, VirtualClock, plans, running
from tests.ledger.intruders import SqlIntruder
from tests.ledger.log_statements import fill_log, log_statements
from tests.ledger.old_ledger import make_old_ledger
from tests.ledger.server_ledger import ServerLedger
from tests.ledger.slices_many import statements_of, store_slices
from tests.servers.ledgers import LedgerDatabase


class TestMariadbLedger(LedgerContract):
    """Every handle has connections of its own to one database."""

    @pytest.fixture
    def ledgers(self, clock: VirtualClock, mariadb: LedgerDatabase) -> Iterator[Callable[[], Ledger]]:
        opened: list[Ledger] = []

        def another() -> Ledger:
            opened.append(mariadb.open(clock))
            return opened[-1]

        yield another
        for ledger in opened:
            ledger.close()

    @pytest.fixture
    def intruder(self, mariadb: LedgerDatabase) -> Iterator[SqlIntruder]:
        engine = server_at(mariadb.address).engine(read_only=False)
        yield SqlIntruder(engine)
        engine.dispose()


class TestMariadbServer(ServerLedger):
    make_guest = ("CREATE USER guest IDENTIFIED BY 'guest-s3cret'",)
    claims_alone = False
    be_impatient = "SET SESSION innodb_lock_wait_timeout = 0"

    @pytest.fixture
    def database(self, mariadb: LedgerDatabase) -> LedgerDatabase:
        return mariadb

    def impatient(self, database: LedgerDatabase) -> Mysql:
        return Mysql(database.address, answer_seconds=2)

    def test_a_creation_that_was_interrupted_is_begun_anew(
        self, database: LedgerDatabase, fresh: Callable[[], str]
    ) -> None:
        name = fresh()
        address = server_address(database.server.url(name))
        engine = server_at(address).engine(read_only=False)
        upgrade(engine, "0001")
        engine.dispose()
        for torn in (
            "ALTER TABLE jobs ADD COLUMN configuration TEXT",  # stopped in mid-migration
            "DROP TABLE failures; DELETE FROM alembic_version",  # stopped before the first was done
        ):
            for statement in torn.split("; "):
                database.server.execute(statement, database=name)
            ledger = open_ledger(database.server.url(name), clock=VirtualClock())
            assert ledger.failures() == []
            ledger.close()

    def test_an_upgrade_that_was_interrupted_is_said_so(
        self, database: LedgerDatabase, fresh: Callable[[], str]
    ) -> None:
        name = fresh()
        engine = server_at(server_address(database.server.url(name))).engine(read_only=False)
        make_old_ledger(engine)
        engine.dispose()
        database.server.execute("ALTER TABLE jobs ADD COLUMN configuration TEXT", database=name)
        with pytest.raises(UserError, match="upgrade of the ledger was interrupted"):
            open_ledger(database.server.url(name), clock=VirtualClock())
        assert database.server.execute("SELECT COUNT(*) FROM jobs", database=name) == [(3,)]

    def test_a_claim_reads_the_index_of_what_is_pending_and_sorts_nothing(
        self, database: LedgerDatabase, watched: tuple[SqlLedger, Engine]
    ) -> None:
        ledger, engine = watched
        running(ledger, plans(1))
        store_slices(database)
        for work, limit in ((10, 1), (300, 1_000), (10**9, 1_000)):
            sent = statements_of(engine, partial(ledger.claim, "job", REF, "ann", work=work, limit=limit))
            assert len(sent) >= 4
            with engine.connect() as connection:
                for statement, parameters in sent:
                    rows = connection.exec_driver_sql(f"EXPLAIN {statement}", parameters).mappings().all()
                    for row in rows:
                        if row["table"] in ("slices", "slice_work"):
                            assert row["key"] in ("slices_pending", "PRIMARY"), row
                            assert "filesort" not in (row["Extra"] or ""), row

    def test_appending_and_reading_find_everything_by_index(
        self, database: LedgerDatabase, watched: tuple[SqlLedger, Engine]
    ) -> None:
        ledger, engine = watched
        fill_log(ledger)
        for table in ("events", "instances", "wants", "want_refs", "canonical", "served"):
            database.execute(f"ANALYZE TABLE {table}")
        said = log_statements(ledger, engine)
        with engine.connect() as connection:
            for statement, parameters in said:
                rows = connection.exec_driver_sql(f"EXPLAIN {statement}", parameters).mappings().all()
                for row in rows:
                    # A table of a row or two may be read as a whole.
                    assert row["type"] != "ALL" or int(row["rows"]) < 10, (statement, dict(row))
