"""What ledgers on every real server have in common beyond the contract: opening, outages, errors, processes."""

from __future__ import annotations

import itertools
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import get_context
from typing import ClassVar

import pytest
from sqlalchemy import Connection, Engine, event, text
from sqlalchemy.exc import DBAPIError

from instep.domain.jobs import SliceState
from instep.domain.refs import PartitionRef
from instep.domain.server_address import server_address
from instep.domain.timing import TIMING
from instep.errors import InstepError, Transient, Unknown, UserError
from instep.ledger.memory import MemoryLedger
from instep.ledger.open import open_ledger
from instep.ledger.port import Lease, Ledger
from instep.ledger.schema import upgrade
from instep.ledger.server import Server as LedgerServer
from instep.ledger.server import server_at
from instep.ledger.sql.dialect import ClaimRequest, Collision
from instep.ledger.sql.ledger import SqlLedger
from instep.ledger.tables import HEAD
from instep.system import SystemClock
from tests.contracts.ledger import (
    REF,
    START,
    VirtualClock,
    claim_all,
    complete_all,
    end,
    job_of,
    lease_of,
    outcome,
    plans,
    register,
    running,
    state_of_everything,
)
from tests.ledger.old_ledger import check_migrated, make_old_ledger
from tests.servers.ledgers import LedgerDatabase
from tests.servers.process import Server

_numbers = itertools.count(1)


def _open_all(urls: list[str]) -> int:
    for url in urls:
        open_ledger(url, clock=SystemClock()).close()
    return len(urls)


def _claim_and_complete(url: str, worker: str) -> list[str]:
    """As a worker on a server of its own would."""
    ledger = open_ledger(url, clock=SystemClock())
    ledger.register_worker(worker, kind="worker", host=worker, pid=1)
    ledger.join_job("job", worker)
    part = job_of(ledger).part(REF).part
    done: list[str] = []
    while claims := ledger.claim("job", REF, worker, work=30, limit=10):
        ledger.heartbeat(worker, [claim.slice_id for claim in claims])
        ledger.sweep()
        ledger.complete(part, worker, list(map(outcome, claims)), job_id="job")
        done += [claim.slice_id for claim in claims]
    ledger.close()
    return done


class ServerLedger:
    """Inherit it and give the fixture `database`."""

    #: How the server makes a user who may log in, and nothing else.
    make_guest: ClassVar[tuple[str, ...]]
    #: A claim is one statement by itself here: when the connection is lost, nobody knows whether it was done.
    claims_alone: ClassVar[bool]
    #: How a session is told to wait for a lock as briefly as possible.
    be_impatient: ClassVar[str]

    @pytest.fixture
    def database(self) -> LedgerDatabase:
        raise NotImplementedError

    @pytest.fixture
    def server(self, database: LedgerDatabase) -> Iterator[Server]:
        """To be killed: it is up again for the next test."""
        yield database.server
        database.server.revive()

    @pytest.fixture
    def fresh(self, database: LedgerDatabase) -> Iterator[Callable[[], str]]:
        """Names of new, empty databases."""
        names: list[str] = []

        def another() -> str:
            names.append(f"fresh_{next(_numbers)}")
            database.server.execute(f"CREATE DATABASE {names[-1]}")
            return names[-1]

        yield another
        for name in names:
            database.server.execute(f"DROP DATABASE {name}")

    @pytest.fixture
    def ledger(self, database: LedgerDatabase) -> Iterator[Ledger]:
        opened = database.open()
        yield opened
        opened.close()

    @pytest.fixture
    def watched(self, database: LedgerDatabase) -> Iterator[tuple[SqlLedger, Engine]]:
        """A ledger and the engine below it."""
        server = server_at(database.address)
        engine = server.engine(read_only=False)
        yield SqlLedger(engine, server.dialect(None)), engine
        engine.dispose()

    def impatient(self, database: LedgerDatabase) -> LedgerServer:
        """A server whose silence is not borne for long."""
        raise NotImplementedError

    # The clock.

    def test_the_clock_is_the_servers_whatever_the_hosts_says(self, database: LedgerDatabase) -> None:
        ledger = open_ledger(database.url, clock=VirtualClock())  # far in the past
        before = time.time_ns() // 1_000_000
        part = running(ledger, plans(1))
        lease = ledger.acquire_lease(REF, "job", "ann")
        [claim] = claim_all(ledger)
        ledger.complete(part, "ann", [outcome(claim)], job_id="job")
        job = job_of(ledger)
        [worker] = ledger.workers()
        [stamps] = database.execute("SELECT claimed_at, finished_at FROM slices")
        now = ledger.now()
        after = time.time_ns() // 1_000_000
        held_at = lease.expires_at - TIMING.lease
        moments = [job.created_at, held_at, job.started_at, *stamps, now]
        assert before <= worker.started_at
        assert all(isinstance(each, int) and before <= each <= after for each in moments), moments
        ledger.close()

    # Opening.

    def test_reading_a_ledger_that_does_not_exist_makes_nothing(
        self, database: LedgerDatabase, fresh: Callable[[], str]
    ) -> None:
        url = database.server.url(fresh())
        for _ in range(2):
            assert isinstance(open_ledger(url, clock=VirtualClock(), read_only=True), MemoryLedger)
        open_ledger(url, clock=VirtualClock()).close()
        reader = open_ledger(url, clock=VirtualClock(), read_only=True)
        assert isinstance(reader, SqlLedger)
        assert reader.jobs() == []
        with pytest.raises(InstepError):
            register(reader, "ann")
        assert reader.workers() == []
        reader.close()

    def test_a_database_of_something_else_is_refused_and_left_alone(
        self, database: LedgerDatabase, fresh: Callable[[], str]
    ) -> None:
        name = fresh()
        database.server.execute("CREATE TABLE recipes (name VARCHAR(9))", database=name)
        for read_only in (False, True):
            with pytest.raises(UserError, match="not an Instep ledger"):
                open_ledger(database.server.url(name), clock=VirtualClock(), read_only=read_only)
        assert database.server.execute("SELECT name FROM recipes", database=name) == []

    def test_a_ledger_of_another_instep_is_refused_where_it_must_be(
        self, database: LedgerDatabase, fresh: Callable[[], str]
    ) -> None:
        name = fresh()
        url = database.server.url(name)
        open_ledger(url, clock=VirtualClock()).close()
        database.server.execute("UPDATE alembic_version SET version_num = '0099'", database=name)
        for read_only in (False, True):
            with pytest.raises(UserError, match="newer Instep"):
                open_ledger(url, clock=VirtualClock(), read_only=read_only)
        database.server.execute("UPDATE alembic_version SET version_num = '0001'", database=name)
        with pytest.raises(UserError, match="older Instep"):
            open_ledger(url, clock=VirtualClock(), read_only=True)

    def test_processes_that_bring_one_ledger_up_at_once_all_succeed(
        self, database: LedgerDatabase, fresh: Callable[[], str]
    ) -> None:
        urls = [database.server.url(fresh()) for _ in range(3)]
        with ProcessPoolExecutor(3, mp_context=get_context("spawn")) as pool:
            assert list(pool.map(_open_all, [urls] * 3)) == [3] * 3

    def test_a_ledger_of_the_first_schema_comes_over_with_its_data(
        self, database: LedgerDatabase, fresh: Callable[[], str]
    ) -> None:
        address = server_address(database.server.url(fresh()))
        server = server_at(address)
        engine = server.engine(read_only=False)
        make_old_ledger(engine)
        open_ledger(database.server.url(address.database), clock=VirtualClock()).close()
        check_migrated(SqlLedger(engine, server.dialect(VirtualClock(START + 40))))
        engine.dispose()

    def test_an_empty_ledger_of_the_first_schema_comes_over(
        self, database: LedgerDatabase, fresh: Callable[[], str]
    ) -> None:
        address = server_address(database.server.url(fresh()))
        engine = server_at(address).engine(read_only=False)
        upgrade(engine, "0001")
        engine.dispose()
        ledger = open_ledger(database.server.url(address.database), clock=VirtualClock())
        assert ledger.jobs() == []
        ledger.close()
        versions = database.server.execute("SELECT version_num FROM alembic_version", database=address.database)
        assert list(versions) == [(HEAD,)]

    # What the user can mend.

    def _refusal(self, url: str, *secrets: str) -> str:
        with pytest.raises(UserError) as refused:
            open_ledger(url, clock=VirtualClock())
        chain: BaseException | None = refused.value
        while chain is not None:
            assert not any(secret in f"{chain!s} {chain!r}" for secret in ("s3cret", *secrets)), chain
            chain = None if chain.__suppress_context__ and chain.__cause__ is None else chain.__cause__
        return str(refused.value)

    def test_a_wrong_password_is_said_so(self, database: LedgerDatabase) -> None:
        for url in (
            database.server.url(password="s3cret-too"),
            database.server.url(user="mallory"),
            database.url.replace(f":{Server.password}", ""),
        ):
            said = self._refusal(url)
            assert "refused the user or the password" in said
            assert f"127.0.0.1:{database.server.port}/ledger" in said
            assert "mallory" not in said

    def test_an_unknown_database_is_said_so(self, database: LedgerDatabase) -> None:
        assert "no such database" in self._refusal(database.server.url("atlantis"))

    def test_a_server_that_does_not_listen_is_named(self, database: LedgerDatabase) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))  # taken, and nobody listens
            port = probe.getsockname()[1]
            said = self._refusal(database.url.replace(f":{database.server.port}/", f":{port}/"))
        assert f"127.0.0.1:{port}/ledger: the ledger cannot be reached" in said
        assert "Connection refused" in said

    def test_a_host_that_does_not_exist_is_named(self, database: LedgerDatabase) -> None:
        said = self._refusal(database.url.replace("127.0.0.1", "no-such-host.invalid"))
        assert "no-such-host.invalid" in said
        assert "cannot be reached" in said

    def test_an_unknown_option_is_named(self, database: LedgerDatabase) -> None:
        assert "colour" in self._refusal(f"{database.url}?colour=s3cret")

    def test_a_user_without_rights_is_told_so(self, database: LedgerDatabase, fresh: Callable[[], str]) -> None:
        name = fresh()
        for statement in self.make_guest:
            database.server.execute(statement)
        try:
            said = self._refusal(database.server.url(name, user="guest", password="guest-s3cret"))
        finally:
            database.server.execute("DROP USER guest")
        assert "may not do this" in said

    # Outages.

    def test_a_restart_between_calls_is_not_noticed(self, server: Server, ledger: Ledger) -> None:
        part = running(ledger, plans(4))
        claims = claim_all(ledger)
        server.restart()
        assert ledger.holds(claims, "ann")
        server.restart()
        ledger.complete(part, "ann", list(map(outcome, claims)), job_id="job")
        server.restart()
        end(ledger, part)

    def test_an_outage_is_transient_and_then_over(self, server: Server, ledger: Ledger) -> None:
        part = running(ledger, plans(4))
        claims = claim_all(ledger)
        before = state_of_everything(ledger, part)
        server.kill()
        calls: list[Callable[[], object]] = [
            ledger.now,
            ledger.jobs,
            lambda: claim_all(ledger),
            lambda: ledger.heartbeat("ann", []),
            lambda: ledger.complete(part, "ann", list(map(outcome, claims)), job_id="job"),
            ledger.sweep,
        ]
        for call in calls:
            with pytest.raises(Transient, match=rf"127\.0\.0\.1:{server.port}/ledger: .*cannot be reached") as error:
                call()
            assert server.password not in str(error.value)
        server.restart()
        assert state_of_everything(ledger, part) == before
        ledger.complete(part, "ann", list(map(outcome, claims)), job_id="job")
        end(ledger, part)

    def test_a_kill_in_mid_transaction_undoes_all_of_it(
        self, server: Server, watched: tuple[SqlLedger, Engine]
    ) -> None:
        ledger, engine = watched
        part = running(ledger, plans(4))
        claims = claim_all(ledger)
        before = state_of_everything(ledger, part)
        for statement in ("'COMPLETED'", "INSERT INTO documents"):
            with _killed_at(engine, statement, server), pytest.raises(Transient, match=r"connection .* was lost"):
                ledger.complete(part, "ann", list(map(outcome, claims)), job_id="job")
            server.restart()
            assert state_of_everything(ledger, part) == before
        ledger.complete(part, "ann", list(map(outcome, claims)), job_id="job")
        end(ledger, part)

    def test_a_kill_at_the_commit_is_unknown_and_the_call_can_be_repeated(
        self, server: Server, watched: tuple[SqlLedger, Engine]
    ) -> None:
        ledger, engine = watched
        part = running(ledger, plans(4))
        claims = claim_all(ledger)

        @event.listens_for(engine, "commit", once=True)
        def kill(_: Connection) -> None:
            server.kill()

        with pytest.raises(Unknown) as error:
            ledger.complete(part, "ann", list(map(outcome, claims)), job_id="job")
        assert server.password not in str(error.value)
        server.restart()
        ledger.complete(part, "ann", list(map(outcome, claims)), job_id="job")
        assert job_of(ledger).slices == {SliceState.COMPLETED: 4}
        end(ledger, part)

    def test_a_kill_during_a_claim_loses_no_slice(self, server: Server, watched: tuple[SqlLedger, Engine]) -> None:
        ledger, engine = watched
        part = running(ledger, plans(4))
        with (
            _killed_at(engine, "UPDATE slices", server),
            pytest.raises(Unknown if self.claims_alone else Transient),
        ):
            claim_all(ledger)
        server.restart()
        complete_all(ledger, part)
        end(ledger, part)

    def test_a_server_that_hangs_is_given_up(self, server: Server, database: LedgerDatabase) -> None:
        ledger = database.open(server=self.impatient(database))
        part = running(ledger, plans(2))
        server.pause()
        with pytest.raises(Transient):
            claim_all(ledger)
        server.resume()
        complete_all(ledger, part)
        end(ledger, part)
        ledger.close()

    # Others on the same rows.

    def test_a_deadlock_is_a_collision(self, database: LedgerDatabase, watched: tuple[SqlLedger, Engine]) -> None:
        ledger, engine = watched
        register(ledger, "ann", "bob")
        met = threading.Barrier(2)
        failed: list[DBAPIError] = []

        def lock(*names: str) -> None:
            with engine.connect() as connection:
                try:
                    for name in names:
                        connection.execute(text(f"SELECT 1 FROM workers WHERE id = '{name}' FOR UPDATE"))
                        if name == names[0]:
                            met.wait(30)
                except DBAPIError as error:
                    failed.append(error)

        other = threading.Thread(target=lock, args=("bob", "ann"))
        other.start()
        lock("ann", "bob")
        other.join()
        [error] = failed
        assert isinstance(server_at(database.address).dialect(None).explain(error, committing=False), Collision)

    def test_a_lock_that_is_not_given_back_is_transient(
        self, database: LedgerDatabase, watched: tuple[SqlLedger, Engine]
    ) -> None:
        ledger, engine = watched
        lease = lease_of(ledger, "ann")
        ledger.close()

        @event.listens_for(engine, "begin")
        def hurry(connection: Connection) -> None:
            connection.exec_driver_sql(self.be_impatient)

        other = server_at(database.address).engine(read_only=False)
        with other.connect() as connection:
            connection.execute(text("SELECT 1 FROM leases FOR UPDATE"))
            with pytest.raises(Transient) as error:
                ledger.renew_lease(lease)
            assert not isinstance(error.value, Collision)
        other.dispose()
        assert isinstance(ledger.renew_lease(lease), Lease)

    def test_a_claim_locks_no_more_than_it_takes(
        self, database: LedgerDatabase, watched: tuple[SqlLedger, Engine]
    ) -> None:
        ledger, _ = watched
        running(ledger, plans(100))
        server = server_at(database.address)
        request = ClaimRequest("job", str(REF), "ann", enough=30, limit=1_000, after=0, least=0, most=1)
        other = server.engine(read_only=False)
        with other.connect() as connection:
            assert len(server.dialect(None).claim(connection, request)) == 3
            # Not committed; the next ones are free all the same, and nobody waits.
            assert [each.rank for each in ledger.claim("job", REF, "ann", work=30, limit=1_000)] == [3, 4, 5]
        other.dispose()
        assert [each.rank for each in ledger.claim("job", REF, "ann", work=20, limit=1_000)] == [0, 1]

    def test_servers_share_a_job_and_do_every_slice_once(self, database: LedgerDatabase, ledger: Ledger) -> None:
        part = running(ledger, plans(60))
        with ProcessPoolExecutor(3, mp_context=get_context("spawn")) as pool:
            done = list(pool.map(_claim_and_complete, [database.url] * 3, ["bob", "cid", "dan"]))
        assert sorted(itertools.chain(*done)) == sorted(f"job.0.{number}" for number in range(60))
        assert job_of(ledger).slices == {SliceState.COMPLETED: 60}
        assert len(ledger.manifest("instance-1")) == 120
        end(ledger, part)

    # Text.

    def test_names_that_differ_in_case_only_are_different(self, ledger: Ledger) -> None:
        upper, lower = PartitionRef.parse("Document@global"), PartitionRef.parse("document@global")
        first, second = (lease_of(ledger, "ann", ref, job_id=str(ref)) for ref in (upper, lower))
        assert (first.epoch, second.epoch) == (1, 1)
        assert ledger.renew_lease(second).job_id == "document@global"

    def test_text_comes_back_as_it_was(self, ledger: Ledger) -> None:
        part = running(ledger, plans(1))
        [claim] = claim_all(ledger)
        odd = "żółw 🦊 'quoted' \"twice\" back\\slash %s :name {x} \t ~ " + "long " * 2_000
        done = outcome(claim, fail=[0])
        done = replace(done, failures=[each._replace(reason=odd) for each in done.failures])
        ledger.complete(part, "ann", [done], job_id="job")
        assert [each.reason for each in ledger.failures()] == [odd]


@contextmanager
def _killed_at(engine: Engine, beginning: str, server: Server) -> Iterator[None]:
    """The server is killed when a statement like this is about to be sent."""

    def look(_: Connection, __: object, statement: str, *rest: object) -> None:
        if beginning in statement:
            server.kill()

    event.listen(engine, "before_cursor_execute", look)
    yield
    event.remove(engine, "before_cursor_execute", look)
