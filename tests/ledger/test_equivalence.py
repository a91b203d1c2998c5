"""Random operations on the SQLite ledger and on the one in memory: the answers never differ."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from instep.domain.jobs import Claim, JobPart, JobState, end_of_job
from instep.errors import InstepError
from instep.ledger.memory import MemoryLedger
from instep.ledger.open import open_ledger
from instep.ledger.port import LEASE_TTL_MS, Lease, Ledger, NewPart
from tests.contracts.ledger import REF, VirtualClock, outcome, part_of, plan

_WORKERS = st.sampled_from(["ann", "bob"])
_DOCUMENTS = st.lists(st.integers(0, 9), min_size=1, max_size=5, unique=True)


class TwoLedgers(RuleBasedStateMachine):
    """Old leases, parts and claims stay in use: they are the zombies."""

    @initialize()
    def open(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.clock = VirtualClock()
        self.sql: Ledger = open_ledger(f"sqlite:///{self.folder}/ledger.db", clock=self.clock)
        self.memory: Ledger = MemoryLedger(self.clock)
        self.leases: list[Lease] = []
        self.parts: list[JobPart] = []
        self.claims: list[Claim] = []
        self.jobs = 0

    def teardown(self) -> None:
        self.sql.close()
        shutil.rmtree(self.folder)

    def both(self, call: Callable[[Ledger], Any]) -> Any:
        answers = [_answer(call, ledger) for ledger in (self.sql, self.memory)]
        assert answers[0] == answers[1]
        return answers[0]

    @rule(milliseconds=st.sampled_from([1, 1_000, LEASE_TTL_MS - 1_001, LEASE_TTL_MS]))
    def time_passes(self, milliseconds: int) -> None:
        self.clock.advance(milliseconds)

    @rule(worker=_WORKERS, what=st.sampled_from(["register", "heartbeat", "retire"]))
    def worker_lives(self, worker: str, what: str) -> None:
        if what == "register":
            self.both(lambda ledger: ledger.register_worker(worker, host="here", pid=7))
        elif what == "heartbeat":
            self.both(lambda ledger: ledger.heartbeat(worker))
        else:
            self.both(lambda ledger: ledger.retire_worker(worker))

    @rule(worker=_WORKERS, by_force=st.booleans())
    def acquire(self, worker: str, by_force: bool) -> None:
        answer = self.both(lambda ledger: ledger.acquire_lease(REF, worker))
        if by_force and not isinstance(answer, Lease):
            assert self.both(lambda ledger: ledger.break_lease(REF, answer.epoch))
            answer = self.both(lambda ledger: ledger.acquire_lease(REF, worker))
        if isinstance(answer, Lease):
            self.leases.append(answer)

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), what=st.sampled_from(["renew", "release", "break"]))
    def use_lease(self, data: st.DataObject, what: str) -> None:
        lease = data.draw(st.sampled_from(self.leases))
        if what == "renew":
            self.both(lambda ledger: ledger.renew_lease(lease))
        elif what == "release":
            self.both(lambda ledger: ledger.release_lease(lease))
        else:
            self.both(lambda ledger: ledger.break_lease(REF, lease.epoch))

    @precondition(lambda self: self.leases)
    @rule(
        data=st.data(),
        fresh=st.booleans(),
        slices=st.lists(st.tuples(_DOCUMENTS, st.integers(1, 30), st.sampled_from([20, 40])), max_size=4),
    )
    def create(self, data: st.DataObject, fresh: bool, slices: list[tuple[list[int], int, int]]) -> None:
        lease = data.draw(st.sampled_from(self.leases[-2:]))
        self.jobs += 1
        job_id = f"job-{self.jobs}"
        part = part_of(lease, instance=f"instance-{self.jobs if fresh else 1}", fresh=fresh)
        planned = [
            plan(index, documents, work=work, priority=priority)
            for index, (documents, work, priority) in enumerate(slices)
        ]
        if self.both(lambda ledger: ledger.create_job(job_id, [NewPart(part, planned)], worker_id="ann")) is None:
            self.parts.append(part)
            self.both(lambda ledger: ledger.start_job(job_id))

    @precondition(lambda self: self.jobs)
    @rule(data=st.data(), what=st.sampled_from(["start", "stop", "stopped", "fail"]))
    def move(self, data: st.DataObject, what: str) -> None:
        job_id = f"job-{data.draw(st.integers(1, self.jobs))}"
        if what == "start":
            self.both(lambda ledger: ledger.start_job(job_id))
        elif what == "stop":
            self.both(lambda ledger: ledger.request_stop(job_id))
        else:
            end = JobState.STOPPED if what == "stopped" else JobState.FAILED
            self.both(lambda ledger: ledger.finish_job(job_id, end, error=what))

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def adopt(self, data: st.DataObject) -> None:
        lease = data.draw(st.sampled_from(self.leases[-2:]))
        job = self.both(lambda ledger: ledger.unfinished_job(REF))
        if job is not None:
            part = self.both(lambda ledger: ledger.adopt_job(job.id, lease))
            if isinstance(part, JobPart):
                self.parts.append(part)
                self.both(lambda ledger: ledger.start_job(job.id))

    @precondition(lambda self: self.jobs)
    @rule(data=st.data(), worker=_WORKERS, work=st.integers(0, 60), limit=st.integers(0, 4))
    def claim(self, data: st.DataObject, worker: str, work: int, limit: int) -> None:
        job_id = f"job-{data.draw(st.integers(max(1, self.jobs - 1), self.jobs))}"
        self.claims += self.both(lambda ledger: ledger.claim(job_id, REF, worker, work=work, limit=limit))

    def _drawn_claims(self, data: st.DataObject) -> list[Claim]:
        return data.draw(st.lists(st.sampled_from(self.claims[-6:]), min_size=1, max_size=3, unique=True))

    @precondition(lambda self: self.claims and self.parts)
    @rule(data=st.data(), worker=_WORKERS, fail=st.lists(st.integers(0, 9), max_size=2), version=st.integers(1, 3))
    def complete(self, data: st.DataObject, worker: str, fail: list[int], version: int) -> None:
        claims = self._drawn_claims(data)
        part = data.draw(st.sampled_from(self.parts[-2:]))
        outcomes = [outcome(claim, fail=fail, version=f"v{version}") for claim in claims]
        self.both(lambda ledger: ledger.complete(part, worker, outcomes, job_id=claims[0].job_id))

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), worker=_WORKERS, spent=st.booleans())
    def give_back(self, data: st.DataObject, worker: str, spent: bool) -> None:
        claims = self._drawn_claims(data)
        self.both(lambda ledger: ledger.give_back(claims, worker, error="died", spent=spent))

    @precondition(lambda self: self.parts)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        job_id = f"job-{data.draw(st.integers(1, self.jobs))}"
        part = data.draw(st.sampled_from(self.parts[-2:]))
        job = self.both(lambda ledger: ledger.job(job_id))
        end = end_of_job(job.slices, job.counts) if job else None
        state = end or JobState.COMPLETED
        self.both(lambda ledger: ledger.finish_job(job_id, state, promote=[part]))

    @invariant()
    def readers_see_the_same(self) -> None:
        self.both(lambda ledger: ledger.jobs())
        self.both(lambda ledger: ledger.unfinished_job(REF))
        self.both(lambda ledger: ledger.checkpoint(REF))
        self.both(lambda ledger: ledger.next_sequence(REF))
        self.both(lambda ledger: ledger.failures())
        self.both(lambda ledger: (ledger.count_failures(REF), ledger.failed_versions(REF)))
        self.both(lambda ledger: [ledger.holds([claim], who) for claim in self.claims[-6:] for who in ("ann", "bob")])
        for instance in {"instance-1", f"instance-{self.jobs}"}:
            self.manifests_are_the_same(instance)

    def manifests_are_the_same(self, instance: str) -> None:
        self.both(lambda ledger: (ledger.manifest(instance), ledger.totals(instance)))

    @invariant()
    def counts_balance(self) -> None:
        assert all(job.counts.balanced for job in self.memory.jobs())


def _answer(call: Callable[[Ledger], Any], ledger: Ledger) -> Any:
    try:
        return call(ledger)
    except InstepError as error:
        return type(error)


TwoLedgers.TestCase.settings = settings(
    max_examples=12, stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestTwoLedgers = TwoLedgers.TestCase
