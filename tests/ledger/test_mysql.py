"""The ledger on MariaDB and MySQL: under the contract, and what else it has to stand."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import pytest
from sqlalchemy import Engine, RowMapping

from instep.domain.jobs import JobState, SliceState
from instep.errors import UserError
from instep.ledger.dialects.mysql import Mysql
from instep.ledger.ledger import Ledger
from instep.ledger.open import open_ledger
from instep.ledger.open_server import server_at
from instep.ledger.schema import upgrade
from instep.servers.address import server_address
from tests.contracts.ledger import REF, LedgerContract, VirtualClock, plans, running
from tests.contracts.ledger.building import START
from tests.ledger.intruders import SqlIntruder
from tests.ledger.log_statements import fill_log, log_statements
from tests.ledger.old_ledger import check_held, make_held_numbers, make_old_ledger
from tests.ledger.server_ledger import ContractInShort, ServerLedger
from tests.ledger.slices_many import statements_of, store_slices
from tests.servers.ledgers import LedgerDatabase
from tests.servers.mysql import PROGRAM


class MariadbFixtures:
    """Every handle has connections of its own to one database."""

    @pytest.fixture
    def database(self, mariadb: LedgerDatabase) -> LedgerDatabase:
        return mariadb

    @pytest.fixture
    def ledgers(self, clock: VirtualClock, database: LedgerDatabase) -> Iterator[Callable[[], Ledger]]:
        opened: list[Ledger] = []

        def another() -> Ledger:
            opened.append(database.open(clock))
            return opened[-1]

        yield another
        for ledger in opened:
            ledger.close()

    @pytest.fixture
    def intruder(self, database: LedgerDatabase) -> Iterator[SqlIntruder]:
        engine = server_at(database.address).engine(read_only=False)
        yield SqlIntruder(engine)
        engine.dispose()


@pytest.mark.long
class TestMariadbLedger(MariadbFixtures, LedgerContract):
    """All of the contract, which is for the most part about rules that are the same on every server."""


@pytest.mark.proof
class TestMariadbLedgerInShort(MariadbFixtures, ContractInShort):
    pass


class TestMariadbServer(ServerLedger):
    make_guest = ("CREATE USER guest IDENTIFIED BY 'guest-s3cret'",)
    claims_alone = False
    shorten_lock_wait = "SET SESSION innodb_lock_wait_timeout = 0"
    collation = "utf8mb4_nopad_bin"
    long_text = "longtext"
    schema = "DATABASE()"

    @pytest.fixture
    def database(self, mariadb: LedgerDatabase) -> LedgerDatabase:
        return mariadb

    def short_lock_wait(self, database: LedgerDatabase) -> Mysql:
        return Mysql(database.address, answer_seconds=2)

    def test_a_creation_that_was_interrupted_is_started_again(
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
            assert ledger.failures.newest() == []
            ledger.close()

    def test_an_upgrade_that_was_interrupted_among_its_texts_is_taken_up(
        self, database: LedgerDatabase, fresh: Callable[[], str]
    ) -> None:
        name = fresh()
        engine = server_at(server_address(database.server.url(name))).engine(read_only=False)
        make_old_ledger(engine)
        upgrade(engine, "0008")
        for statement in (
            "ALTER TABLE slices DROP FOREIGN KEY slices_job_id_fk",
            "ALTER TABLE workers CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin",
        ):
            database.server.execute(statement, database=name)
        open_ledger(database.server.url(name), clock=VirtualClock()).close()
        self._check_texts(engine)
        engine.dispose()

    def test_an_upgrade_that_was_interrupted_among_keys_of_queues_is_taken_up(
        self, database: LedgerDatabase, fresh: Callable[[], str]
    ) -> None:
        name = fresh()
        server = server_at(server_address(database.server.url(name)))
        engine = server.engine(read_only=False)
        make_held_numbers(engine)
        for statement in (
            "ALTER TABLE queue_holds MODIFY `key` VARBINARY(2001) NOT NULL",
            "UPDATE queue_holds SET `key` = CONCAT('i', UNHEX('8000000000000007'))"
            " WHERE `key` = '7' AND queue = 'salts'",
        ):
            database.server.execute(statement, database=name)
        open_ledger(database.server.url(name), clock=VirtualClock()).close()
        check_held(Ledger(engine, server.dialect(VirtualClock(START))))
        engine.dispose()

    def test_an_upgrade_that_was_interrupted_is_reported(
        self, database: LedgerDatabase, fresh: Callable[[], str]
    ) -> None:
        name = fresh()
        engine = server_at(server_address(database.server.url(name))).engine(read_only=False)
        make_old_ledger(engine)
        engine.dispose()
        database.server.execute("ALTER TABLE jobs ADD COLUMN configuration TEXT", database=name)
        with pytest.raises(UserError, match=r"(?s)upgrade of the ledger was interrupted.*instep adopt"):
            open_ledger(database.server.url(name), clock=VirtualClock())
        assert database.server.execute("SELECT COUNT(*) FROM jobs", database=name) == [(3,)]

    def test_a_claim_reads_the_pending_index_without_sorting(
        self, database: LedgerDatabase, watched: tuple[Ledger, Engine]
    ) -> None:
        ledger, engine = watched
        running(ledger, plans(1))
        store_slices(database)
        for work, limit in ((10, 1), (300, 1_000), (10**9, 1_000)):
            sent = statements_of(engine, partial(ledger.slices.claim, "job", REF, "ann", work=work, limit=limit))
            assert len(sent) >= 4
            for statement, parameters in sent:
                for row in _explained(engine, statement, parameters):
                    if row["table"] in ("slices", "slice_work"):
                        assert row["key"] in ("slices_pending", "PRIMARY"), row
                        assert "filesort" not in (row["Extra"] or ""), row

    def test_appending_and_reading_find_everything_by_index(
        self, database: LedgerDatabase, watched: tuple[Ledger, Engine]
    ) -> None:
        ledger, engine = watched
        fill_log(ledger)
        for table in ("events", "instances", "wants", "want_refs", "canonical", "served"):
            database.execute(f"ANALYZE TABLE {table}")
        said = log_statements(ledger, engine)
        for statement, parameters in said:
            for row in _explained(engine, statement, parameters):
                # A table of a row or two may be read as a whole.
                assert row["type"] != "ALL" or int(row["rows"]) < 10, (statement, dict(row))

    def test_statistics_read_the_slices_of_their_job_only_as_the_table_has_them(
        self, database: LedgerDatabase, watched: tuple[Ledger, Engine]
    ) -> None:
        ledger, engine = watched
        running(ledger, plans(2))
        sent = statements_of(engine, partial(ledger.jobs.get, "job"))
        [(statement, parameters)] = [each for each in sent if "GROUP BY position" in each[0]]
        rows = _explained(engine, statement, parameters)
        assert [(row["type"], row["key"]) for row in rows if row["table"] == "slices"] == [("range", "PRIMARY")]

    def test_a_job_whose_id_begins_like_that_of_another_counts_for_itself(self, ledger: Ledger) -> None:
        jobs = {"job": plans(2), "job.0": plans(3), "job/": plans(4)}
        for job_id, each in jobs.items():
            part = running(ledger, each, job_id=job_id)
            ledger.parts.finish(job_id, part, JobState.FAILED, worker_id="ann")
        found = {job.id: job.slices for job in ledger.jobs.newest()}
        assert found == {job_id: {SliceState.CANCELLED: len(each)} for job_id, each in jobs.items()}


if PROGRAM in os.environ:

    class TestMysqlLedger(TestMariadbLedger):
        """Where there is a MySQL: see `tests.servers.mysql`."""

        @pytest.fixture
        def database(self, mysql: LedgerDatabase) -> LedgerDatabase:
            return mysql

    class TestMysqlServer(TestMariadbServer):
        shorten_lock_wait = "SET SESSION innodb_lock_wait_timeout = 1"
        collation = "utf8mb4_0900_bin"

        @pytest.fixture
        def database(self, mysql: LedgerDatabase) -> LedgerDatabase:
            return mysql


def _explained(engine: Engine, statement: str, parameters: Any) -> Sequence[RowMapping]:
    # Newer versions of MySQL have another format, unless told otherwise.
    with engine.connect() as connection:
        return connection.exec_driver_sql(f"EXPLAIN FORMAT=TRADITIONAL {statement}", parameters).mappings().all()
