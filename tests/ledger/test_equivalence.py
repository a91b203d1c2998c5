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

from instep.domain.jobs import Claim, JobPart, JobState
from instep.domain.refs import PartitionRef
from instep.domain.timing import TIMING
from instep.errors import InstepError
from instep.ledger.memory import MemoryLedger
from instep.ledger.open import open_ledger
from instep.ledger.port import Lease, Ledger, NewPart
from tests.contracts.ledger import OTHER, REF, VirtualClock, outcome, part_of, plan

_WORKERS = st.sampled_from(["ann", "bob", "cid"])
_REFS = st.sampled_from([REF, OTHER])
_DOCUMENTS = st.lists(st.integers(0, 9), min_size=1, max_size=5, unique=True)
_SLICES = st.lists(st.tuples(_DOCUMENTS, st.integers(1, 30), st.sampled_from([20, 40])), max_size=4)
_ENDS = st.sampled_from([JobState.COMPLETED, JobState.COMPLETED_WITH_ERRORS, JobState.FAILED])
#: Just before and just at everything that has an end.
_TIMES = st.sampled_from(
    [1, TIMING.stagger // 2, TIMING.heartbeat, TIMING.grace - 1, TIMING.stale - 1_001, TIMING.lease - 1, TIMING.lease]
)


class TwoLedgers(RuleBasedStateMachine):
    """Old leases, parts and claims stay in use: they are the zombies."""

    @initialize()
    def open(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.clock = VirtualClock()
        self.sql: Ledger = open_ledger(f"sqlite:///{self.folder}/ledger.db", clock=self.clock)
        self.memory: Ledger = MemoryLedger(self.clock)
        self.leases: list[Lease] = []
        self.parts: list[tuple[str, JobPart]] = []
        self.claims: list[Claim] = []
        self.jobs: list[str] = []
        for worker in ("ann", "bob"):
            self._register(worker)

    def teardown(self) -> None:
        self.sql.close()
        shutil.rmtree(self.folder)

    def both(self, call: Callable[[Ledger], Any]) -> Any:
        answers = [_answer(call, ledger) for ledger in (self.sql, self.memory)]
        assert answers[0] == answers[1]
        return answers[0]

    # Time and workers.

    @rule(milliseconds=_TIMES)
    def time_passes(self, milliseconds: int) -> None:
        self.clock.advance(milliseconds)

    @rule(worker=_WORKERS)
    def register(self, worker: str) -> None:
        self._register(worker)

    def _register(self, worker: str) -> None:
        self.both(lambda ledger: ledger.register_worker(worker, kind="run", host="here", pid=7))

    @rule(data=st.data(), worker=_WORKERS)
    def heartbeat(self, data: st.DataObject, worker: str) -> None:
        known = [claim.slice_id for claim in self.claims[-6:]]
        running = data.draw(st.sets(st.sampled_from(known))) if known else set()
        self.both(lambda ledger: ledger.heartbeat(worker, running))

    @rule(worker=_WORKERS, what=st.sampled_from(["retire", "bury"]))
    def worker_ends(self, worker: str, what: str) -> None:
        if what == "retire":
            self.both(lambda ledger: ledger.retire_worker(worker))
        else:
            self.both(lambda ledger: ledger.bury_worker(worker))

    @rule()
    def sweep(self) -> None:
        self.both(lambda ledger: ledger.sweep())

    # Jobs.

    @rule(worker=_WORKERS, refs=st.lists(_REFS, min_size=1, max_size=2, unique=True))
    def begin(self, worker: str, refs: list[PartitionRef]) -> None:
        job_id = f"job-{len(self.jobs) + 1}"
        self.jobs.append(job_id)
        self.both(lambda ledger: ledger.begin_job(job_id, worker, {"number": len(self.jobs)}))
        for ref in refs:
            self._acquire(ref, job_id, worker)

    @precondition(lambda self: self.jobs)
    @rule(data=st.data(), slices=st.lists(_SLICES, min_size=2, max_size=2), fresh=st.booleans(), stagger=st.booleans())
    def plan(
        self, data: st.DataObject, slices: list[list[tuple[list[int], int, int]]], fresh: bool, stagger: bool
    ) -> None:
        job_id = data.draw(st.sampled_from(self.jobs[-2:]))
        held = {lease.ref: lease for lease in self.leases if lease.job_id == job_id}
        parts = [
            NewPart(
                part_of(lease, instance=f"{lease.ref.entity} of {job_id if fresh else 'job-1'}", fresh=fresh),
                [
                    plan(index, documents, work=work, priority=priority)
                    for index, (documents, work, priority) in enumerate(some)
                ],
            )
            for lease, some in zip(held.values(), slices, strict=False)
        ]
        if parts and self.both(lambda ledger: ledger.plan_job(job_id, parts, stagger=stagger)) is None:
            self.parts += [(job_id, new.part) for new in parts]
            self.both(lambda ledger: ledger.start_job(job_id))

    @precondition(lambda self: self.jobs)
    @rule(data=st.data(), worker=_WORKERS, what=st.sampled_from(["join", "leave", "last", "start", "stop", "discard"]))
    def move(self, data: st.DataObject, worker: str, what: str) -> None:
        job_id = data.draw(st.sampled_from(self.jobs[-3:]))
        moves: dict[str, Callable[[Ledger], Any]] = {
            "join": lambda ledger: ledger.join_job(job_id, worker),
            "leave": lambda ledger: ledger.leave_job(job_id, worker),
            "last": lambda ledger: ledger.leave_job(job_id, worker, stop="left by all"),
            "start": lambda ledger: ledger.start_job(job_id),
            "stop": lambda ledger: ledger.request_stop(job_id, "enough"),
            "discard": lambda ledger: ledger.discard_job(job_id),
        }
        self.both(moves[what])

    # Leases.

    def _acquire(self, ref: PartitionRef, job_id: str, worker: str) -> Any:
        answer = self.both(lambda ledger: ledger.acquire_lease(ref, job_id, worker))
        if isinstance(answer, Lease):
            self.leases.append(answer)
        return answer

    @precondition(lambda self: self.jobs)
    @rule(data=st.data(), ref=_REFS, worker=_WORKERS)
    def acquire(self, data: st.DataObject, ref: PartitionRef, worker: str) -> None:
        self._acquire(ref, data.draw(st.sampled_from(self.jobs[-2:])), worker)

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), what=st.sampled_from(["renew", "release", "transfer"]))
    def use_lease(self, data: st.DataObject, what: str) -> None:
        lease = data.draw(st.sampled_from(self.leases[-4:]))
        if what == "release":
            self.both(lambda ledger: ledger.release_lease(lease))
        elif what == "renew":
            self.both(lambda ledger: ledger.renew_lease(lease))
        else:
            job_id = data.draw(st.sampled_from(self.jobs))
            answer = self.both(lambda ledger: ledger.transfer_lease(lease, job_id))
            if isinstance(answer, Lease):
                self.leases.append(answer)

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def adopt(self, data: st.DataObject) -> None:
        lease = data.draw(st.sampled_from(self.leases[-2:]))
        self._adopt(lease)

    @rule(ref=_REFS, worker=_WORKERS)
    def take_over(self, ref: PartitionRef, worker: str) -> None:
        """As a service would: continue what is unfinished."""
        job = self.both(lambda ledger: ledger.unfinished_job(ref))
        if job is not None:
            lease = self._acquire(ref, job.id, worker)
            if isinstance(lease, Lease):
                self._adopt(lease)

    def _adopt(self, lease: Lease) -> None:
        part = self.both(lambda ledger: ledger.adopt_part(lease))
        if isinstance(part, JobPart):
            self.parts.append((lease.job_id, part))
            self.both(lambda ledger: ledger.start_job(lease.job_id))

    # Slices.

    @precondition(lambda self: self.parts)
    @rule(data=st.data(), worker=_WORKERS, work=st.integers(0, 60), limit=st.integers(0, 4), after=st.integers(0, 5))
    def claim(self, data: st.DataObject, worker: str, work: int, limit: int, after: int) -> None:
        job_id, part = data.draw(st.sampled_from(self.parts[-3:]))
        self.claims += self.both(
            lambda ledger: ledger.claim(job_id, part.ref, worker, work=work, limit=limit, after=after)
        )

    def _drawn_claims(self, data: st.DataObject) -> list[Claim]:
        return data.draw(st.lists(st.sampled_from(self.claims[-6:]), min_size=1, max_size=3, unique=True))

    @precondition(lambda self: self.claims and self.parts)
    @rule(data=st.data(), worker=_WORKERS, fail=st.lists(st.integers(0, 9), max_size=2), version=st.integers(1, 3))
    def complete(self, data: st.DataObject, worker: str, fail: list[int], version: int) -> None:
        claims = self._drawn_claims(data)
        _, part = data.draw(st.sampled_from(self.parts[-3:]))
        outcomes = [outcome(claim, fail=fail, version=f"v{version}") for claim in claims]
        self.both(lambda ledger: ledger.complete(part, worker, outcomes, job_id=claims[0].job_id))

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), worker=_WORKERS, spent=st.booleans(), delay=st.sampled_from([0, 0, 1_000]))
    def give_back(self, data: st.DataObject, worker: str, spent: bool, delay: int) -> None:
        claims = self._drawn_claims(data)
        self.both(lambda ledger: ledger.give_back(claims, worker, error="died", spent=spent, delay=delay))

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), worker=_WORKERS)
    def split(self, data: st.DataObject, worker: str) -> None:
        claim = data.draw(st.sampled_from(self.claims[-6:]))
        self.both(lambda ledger: ledger.split(claim, worker))

    @precondition(lambda self: self.parts)
    @rule(data=st.data(), worker=_WORKERS, spent=st.booleans())
    def work(self, data: st.DataObject, worker: str, spent: bool) -> None:
        """A worker's turn that goes well, so that parts come to their end, or badly."""
        job_id, part = data.draw(st.sampled_from(self.parts[-3:]))
        claims = self.both(lambda ledger: ledger.claim(job_id, part.ref, worker, work=99, limit=9))
        self.claims += claims
        if spent:
            self.both(lambda ledger: ledger.give_back(claims, worker, error="out of memory", spent=True))
        else:
            self.both(lambda ledger: ledger.complete(part, worker, list(map(outcome, claims)), job_id=job_id))

    # Parts.

    @precondition(lambda self: self.parts)
    @rule(data=st.data(), worker=_WORKERS, end=_ENDS, elect=st.booleans(), promote=st.booleans())
    def finish(self, data: st.DataObject, worker: str, end: JobState, elect: bool, promote: bool) -> None:
        job_id, part = data.draw(st.sampled_from(self.parts[-3:]))
        if elect:
            self.both(lambda ledger: ledger.begin_finish(job_id, part.ref, worker))
        self.both(
            lambda ledger: ledger.finish_part(
                job_id, part, end, worker_id=worker, promote=promote, error=f"by {worker}"
            )
        )

    # What readers see.

    @invariant()
    def readers_see_the_same(self) -> None:
        self.both(lambda ledger: ledger.jobs())
        self.both(lambda ledger: ledger.workers())
        self.both(lambda ledger: ledger.open_parts([REF, OTHER]))
        self.both(lambda ledger: ledger.failures())
        for ref in (REF, OTHER):
            self._partition_is_the_same(ref)
        for instance in sorted({part.instance for _, part in self.parts[-4:]}):
            self._instance_is_the_same(instance)

    def _partition_is_the_same(self, ref: PartitionRef) -> None:
        self.both(lambda ledger: (ledger.unfinished_job(ref), ledger.latest_job(ref)))
        self.both(lambda ledger: (ledger.checkpoint(ref), ledger.next_sequence(ref)))
        self.both(lambda ledger: (ledger.count_failures(ref), ledger.failed_versions(ref)))

    def _instance_is_the_same(self, instance: str) -> None:
        self.both(lambda ledger: (ledger.manifest(instance), ledger.totals(instance)))

    @invariant()
    def holders_are_the_same(self) -> None:
        pairs = [(claim, worker) for claim in self.claims[-6:] for worker in ("ann", "bob", "cid")]
        self.both(lambda ledger: [ledger.holds([claim], worker) for claim, worker in pairs])

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
