"""Clocks, rows and text of ledgers on any real server, which several processes share."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context

import pytest
from sqlalchemy import Connection, Engine, event, text
from sqlalchemy.exc import DBAPIError

from instep.domain.clock import TIMING
from instep.domain.events import WantCreated
from instep.domain.instances import InstanceState
from instep.domain.jobs import JobState, SliceState
from instep.domain.refs import PartitionRef
from instep.domain.wants import WantState
from instep.errors import Fenced, Transient
from instep.ledger import job_transitions, workers
from instep.ledger.dialects.dialect import ClaimRequest, Collision
from instep.ledger.leases import Lease
from instep.ledger.ledger import Ledger
from instep.ledger.open import open_ledger
from instep.ledger.open_server import server_at
from instep.ledger.parts import NewPart
from instep.ledger.transaction import IN_TRANSACTION, Transaction
from instep.system import SystemClock
from tests.contracts.ledger import (
    OTHER,
    REF,
    VirtualClock,
    claim_all,
    end,
    job_of,
    lease_of,
    outcome,
    plans,
    register,
    running,
)
from tests.contracts.ledger.building import complete_all, new_part
from tests.ledger.appenders import check_appenders
from tests.ledger.server_fixtures import ServerFixtures
from tests.servers.ledgers import LedgerDatabase


def _claim_and_complete(url: str, worker: str) -> list[str]:
    """As a worker on a server of its own would."""
    ledger = open_ledger(url, clock=SystemClock())
    ledger.workers.register(worker, kind="worker", host=worker, pid=1)
    ledger.jobs.join("job", worker)
    part = job_of(ledger).part(REF).part
    done: list[str] = []
    while claims := ledger.slices.claim("job", REF, worker, work=30, limit=10):
        ledger.workers.heartbeat(worker, [claim.slice_id for claim in claims])
        ledger.sweep()
        ledger.slices.complete(part, worker, list(map(outcome, claims)), job_id="job")
        done += [claim.slice_id for claim in claims]
    ledger.close()
    return done


def _build_thrice(ledger: Ledger, ref: PartitionRef, wanted: Sequence[PartitionRef]) -> JobState:
    """A first build, a refresh and a rebuild, each of which is wanted, and so is everything else."""
    for number in range(3):
        job_id, worker = f"{ref} {number}", f"worker of {ref}"
        ledger.events.append([WantCreated(want=job_id, refs=tuple(map(str, wanted)))])
        part = new_part(ledger, lease_of(ledger, worker, ref, job_id=job_id), fresh=number != 1)
        ledger.parts.plan(job_id, [NewPart(part, plans(2))])
        ledger.jobs.start(job_id)
        complete_all(ledger, part, worker, job_id)
        state = end(ledger, part, job_id, worker)
    return state


class ServerSharing(ServerFixtures):
    @pytest.mark.parametrize("how", ["join", "acquire"])
    def test_a_worker_evicted_while_it_waited_joins_no_job(
        self, database: LedgerDatabase, ledger: Ledger, monkeypatch: pytest.MonkeyPatch, how: str
    ) -> None:
        part = running(ledger, plans(2))
        register(ledger, "bob", "zed")
        ledger.jobs.join("job", "bob")
        other = database.open()
        asked = job_transitions.demand

        def waits(tx: Transaction, job_id: str) -> JobState:
            """Waits for the job's row, which another transaction holds; others find that it is silent."""
            other.workers.evict("zed")
            return asked(tx, job_id)

        calls: dict[str, Callable[[], object]] = {
            "join": partial(ledger.jobs.join, "job", "zed"),
            "acquire": partial(ledger.leases.acquire, OTHER, "job", "zed"),
        }
        with monkeypatch.context() as patch:
            patch.setattr(job_transitions, "demand", waits)
            with pytest.raises(Fenced, match="not registered"):
                calls[how]()
        other.close()
        assert database.execute("SELECT worker_id FROM job_workers ORDER BY 1") == [("ann",), ("bob",)]
        complete_all(ledger, part)
        assert end(ledger, part) is JobState.COMPLETED

    def test_a_worker_evicted_while_joining_leaves_nothing_behind(
        self, database: LedgerDatabase, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        running(ledger, plans(2))
        register(ledger, "zed")
        other, taken = database.open(), workers.take_part
        with ThreadPoolExecutor(1) as pool, monkeypatch.context() as patch:
            evictions: list[Future[int]] = []

            def takes_part(tx: Transaction, job_id: str, worker_id: str) -> None:
                taken(tx, job_id, worker_id)
                evictions.append(pool.submit(other.workers.evict, "zed"))
                with pytest.raises(TimeoutError):  # It has to wait for the end of this.
                    evictions[0].result(timeout=0.2)

            patch.setattr(workers, "take_part", takes_part)
            ledger.jobs.join("job", "zed")
            assert evictions[0].result() == 0
        other.close()
        assert database.execute("SELECT worker_id FROM job_workers") == [("ann",)]

    def test_a_membership_without_a_worker_does_not_block_finishing_and_is_swept(
        self, database: LedgerDatabase, ledger: Ledger
    ) -> None:
        """As older versions left them."""
        part = running(ledger, plans(2))
        complete_all(ledger, part)
        database.execute("INSERT INTO job_workers (job_id, worker_id) VALUES ('job', 'zed')")
        database.execute("UPDATE job_parts SET finisher = 'zed'")
        assert ledger.parts.begin_finish("job", REF, "ann")
        ledger.sweep()
        assert database.execute("SELECT worker_id FROM job_workers") == [("ann",)]
        ledger.jobs.leave("job", "ann", stop="gone")
        assert job_of(ledger).state is JobState.STOPPED

    @pytest.mark.proof
    def test_events_of_several_processes_are_seen_once_and_in_order(self, database: LedgerDatabase) -> None:
        check_appenders(database.url)

    def test_the_clock_is_the_servers_not_the_hosts(self, database: LedgerDatabase) -> None:
        ledger = open_ledger(database.url, clock=VirtualClock())  # far in the past
        before = time.time_ns() // 1_000_000
        part = running(ledger, plans(1))
        lease = ledger.leases.acquire(REF, "job", "ann")
        [claim] = claim_all(ledger)
        ledger.slices.complete(part, "ann", [outcome(claim)], job_id="job")
        job = job_of(ledger)
        [worker] = ledger.workers.all()
        [stamps] = database.execute("SELECT claimed_at, finished_at FROM slices")
        now = ledger.now()
        after = time.time_ns() // 1_000_000
        held_at = lease.expires_at - TIMING.lease
        moments = [job.created_at, held_at, job.started_at, *stamps, now]
        assert before <= worker.started_at
        assert all(isinstance(each, int) and before <= each <= after for each in moments), moments
        ledger.close()

    # Others on the same rows.

    def test_a_deadlock_is_a_collision(self, database: LedgerDatabase, watched: tuple[Ledger, Engine]) -> None:
        ledger, engine = watched
        register(ledger, "ann", "bob")
        met = threading.Barrier(2)
        failed: list[DBAPIError] = []

        def lock(*names: str) -> None:
            with engine.connect().execution_options(**IN_TRANSACTION) as connection:
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
        self, database: LedgerDatabase, watched: tuple[Ledger, Engine]
    ) -> None:
        ledger, engine = watched
        lease = lease_of(ledger, "ann")
        ledger.close()

        @event.listens_for(engine, "begin")
        def hurry(connection: Connection) -> None:
            connection.exec_driver_sql(self.shorten_lock_wait)

        other = server_at(database.address).engine(read_only=False)
        with other.connect().execution_options(**IN_TRANSACTION) as connection:
            connection.execute(text("SELECT 1 FROM leases FOR UPDATE"))
            with pytest.raises(Transient) as error:
                ledger.leases.renew(lease)
            assert not isinstance(error.value, Collision)
        other.dispose()
        assert isinstance(ledger.leases.renew(lease), Lease)

    def test_a_claim_locks_no_more_than_it_takes(
        self, database: LedgerDatabase, watched: tuple[Ledger, Engine]
    ) -> None:
        ledger, _ = watched
        running(ledger, plans(100))
        server = server_at(database.address)
        request = ClaimRequest("job", str(REF), "ann", enough=30, limit=1_000, after=0, least=0, most=1)
        other = server.engine(read_only=False)
        with other.connect().execution_options(**IN_TRANSACTION) as connection:
            assert len(server.dialect(None).claim(connection, request)) == 3
            # Not committed; the next ones are free all the same, without a wait.
            assert [each.rank for each in ledger.slices.claim("job", REF, "ann", work=30, limit=1_000)] == [3, 4, 5]
        other.dispose()
        assert [each.rank for each in ledger.slices.claim("job", REF, "ann", work=20, limit=1_000)] == [0, 1]

    def test_servers_share_a_job_and_do_every_slice_once(self, database: LedgerDatabase, ledger: Ledger) -> None:
        part = running(ledger, plans(60))
        with ProcessPoolExecutor(3, mp_context=get_context("spawn")) as pool:
            done = list(pool.map(_claim_and_complete, [database.url] * 3, ["bob", "cid", "dan"]))
        assert sorted(itertools.chain(*done)) == sorted(f"job.0.{number}" for number in range(60))
        assert job_of(ledger).slices == {SliceState.COMPLETED: 60}
        assert len(ledger.documents.entries(part.instance)) == 120
        end(ledger, part)

    @pytest.mark.proof
    def test_concurrent_jobs_leave_a_log_that_folds_to_the_stored_state(self, ledger: Ledger) -> None:
        refs = [PartitionRef.parse(f"Ticket@{number}") for number in range(4)]
        with ThreadPoolExecutor(len(refs)) as pool:
            assert list(pool.map(lambda ref: _build_thrice(ledger, ref, refs), refs)) == [JobState.COMPLETED] * len(
                refs
            )
        for ref in refs:
            newest, oldest = ledger.instances.newest(ref)
            assert (newest.state, newest.refreshes, newest.previous) == (InstanceState.LIVE, 0, oldest.uuid)
            assert (oldest.refreshes, oldest.left) == (1, True)
        assert {want.state for want in ledger.wants.newest()} == {WantState.SUCCESSFUL}
        assert ledger.events.verify().differences == ()

    # Text.

    def test_names_that_differ_in_case_only_are_different(self, ledger: Ledger) -> None:
        upper, lower = PartitionRef.parse("Document@global"), PartitionRef.parse("document@global")
        first, second = (lease_of(ledger, "ann", ref, job_id=str(ref)) for ref in (upper, lower))
        assert (first.epoch, second.epoch) == (1, 1)
        assert ledger.leases.renew(second).job_id == "document@global"

    def test_text_comes_back_as_it_was(self, ledger: Ledger) -> None:
        part = running(ledger, plans(1))
        [claim] = claim_all(ledger)
        odd = "żółw 🦊 'quoted' \"twice\" back\\slash %s :name {x} \t ~ " + "long " * 2_000
        done = outcome(claim, fail=[0])
        done = replace(done, failures=[each._replace(reason=odd) for each in done.failures])
        ledger.slices.complete(part, "ann", [done], job_id="job")
        assert [each.reason for each in ledger.failures.newest()] == [odd]
