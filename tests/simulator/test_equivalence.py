"""Random operations on the ledger in SQLite and on its model: the answers never differ."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from instep.domain.clock import TIMING
from instep.domain.instances import Reason
from instep.domain.jobs import Claim, JobPart, JobState, SlicePlan, SliceStatus
from instep.domain.refs import PartitionRef
from instep.domain.rows import decode_row_slice
from instep.domain.waves import SliceOutcome
from instep.errors import InstepError
from instep.ledger.leases import Lease
from instep.ledger.ledger import Ledger
from instep.ledger.parts import NewPart
from tests.contracts.ledger import OTHER, REF, VirtualClock, outcome, part_of, plan
from tests.contracts.ledger.row_slices import row_plan, written
from tests.doubles.ledger import MemoryLedger
from tests.ledger.all_events import KINDS, About
from tests.simulator.model import ModelLedger

_NAMES = ["ann", "bob", "cid"]
_WORKERS = st.sampled_from(_NAMES)
_REFS = st.sampled_from([REF, OTHER])
_DOCUMENTS = st.lists(st.integers(0, 9), min_size=1, max_size=5, unique=True)
_Drawn = tuple[list[int], int, int]
_SLICES = st.lists(st.tuples(_DOCUMENTS, st.integers(1, 30), st.sampled_from([20, 40])), min_size=3, max_size=6)
_ENDS = st.sampled_from([JobState.COMPLETED, JobState.COMPLETED_WITH_ERRORS, JobState.FAILED])
_MOVES = ["join", "leave", "last", "start", "stop", "explain", "discard"]
_TIMES = st.sampled_from([1, TIMING.stagger // 2, TIMING.grace - 1, TIMING.heartbeat, TIMING.stale - 1, TIMING.lease])


class TwoLedgers(RuleBasedStateMachine):
    """Old leases, parts and claims stay in use: they are the zombies."""

    @initialize()
    def open(self) -> None:
        self.clock = VirtualClock()
        self.sql: Ledger = MemoryLedger(self.clock)
        self.model: Ledger = ModelLedger(self.clock, naming=self.sql.naming())
        self.leases: list[Lease] = []
        self.parts: list[tuple[str, JobPart]] = []
        self.claims: list[Claim] = []
        self.jobs: list[str] = []
        self.wanted = 0
        self.last = 0
        for worker in _NAMES:
            self._register(worker)
        # Something to work on from the first step.
        self._begin("ann", {ref: [([n, n + 1, n + 2], 10 + n, 20) for n in range(5)] for ref in (REF, OTHER)})
        for worker in _NAMES:
            self._join("job-1", worker)

    def teardown(self) -> None:
        self.both(lambda ledger: ledger.events.state())
        verified = self.both(lambda ledger: ledger.events.verify())
        assert (verified.events, verified.skipped, verified.differences) == (self.last, {}, ())

    def both(self, call: Callable[[Ledger], Any], *, reason: bool = False) -> Any:
        """What both answer; of an error its type, or the reason too."""
        answers = [_answer(call, ledger, reason=reason) for ledger in (self.sql, self.model)]
        assert answers[0] == answers[1]
        return answers[0]

    # Time and workers.

    @rule(data=st.data(), milliseconds=_TIMES, living=st.sets(_WORKERS, min_size=1), swept=st.booleans())
    def time_passes(self, data: st.DataObject, milliseconds: int, living: set[str], swept: bool) -> None:
        self.clock.advance(milliseconds)
        known = [claim.slice_id for claim in self.claims[-6:]]
        running = data.draw(st.sets(st.sampled_from(known))) if known else set()
        for worker in sorted(living):
            self._heartbeat(worker, running)
        if swept:
            self.both(lambda ledger: ledger.sweep())

    def _heartbeat(self, worker: str, running: set[str]) -> None:
        self.both(lambda ledger: ledger.workers.heartbeat(worker, running))

    @precondition(lambda self: len(self.model.workers.all()) < len(_NAMES))
    @rule(worker=_WORKERS)
    def register(self, worker: str) -> None:
        self._register(worker)

    def _register(self, worker: str) -> None:
        self.both(lambda ledger: ledger.workers.register(worker, kind="run", host="here", pid=7))

    @precondition(lambda self: self.claims)
    @rule(worker=_WORKERS, what=st.sampled_from(["retire", "evict"]))
    def worker_ends(self, worker: str, what: str) -> None:
        if what == "retire":
            self.both(lambda ledger: ledger.workers.retire(worker))
        else:
            self.both(lambda ledger: ledger.workers.evict(worker))

    # Jobs.

    @precondition(lambda self: len(self.model.open_parts.on([REF, OTHER])) < 2)
    @rule(
        worker=_WORKERS,
        slices=st.dictionaries(_REFS, st.one_of(_SLICES, _SLICES, st.just([])), min_size=1),
        fresh=st.booleans(),
        stagger=st.booleans(),
        planned=st.sampled_from([True, True, True, False]),
        rows=st.booleans(),
        behind=st.sampled_from([None, 0, 5_000]),
    )
    def begin(
        self,
        worker: str,
        slices: dict[PartitionRef, list[_Drawn]],
        fresh: bool,
        stagger: bool,
        planned: bool,
        rows: bool,
        behind: int | None,
    ) -> None:
        target = None if behind is None else self.clock.now() - behind
        self._begin(worker, slices, fresh=fresh, stagger=stagger, planned=planned, rows=rows, target=target)

    def _begin(
        self,
        worker: str,
        slices: Mapping[PartitionRef, list[_Drawn]],
        *,
        fresh: bool = True,
        stagger: bool = False,
        planned: bool = True,
        rows: bool = False,
        target: int | None = None,
    ) -> None:
        job_id = f"job-{len(self.jobs) + 1}"
        self.jobs.append(job_id)
        self.both(lambda ledger: ledger.jobs.begin(job_id, worker, {"number": len(self.jobs)}))
        parts = []
        for ref, some in slices.items():
            lease = self._acquire(ref, job_id, worker)
            if isinstance(lease, Lease):
                part = replace(part_of(lease, instance=self._instance(lease, fresh), fresh=fresh), target=target)
                parts.append(NewPart(part, _row_plans(some) if rows else _plans(some)))
        if planned:
            self._plan(job_id, parts, stagger)

    def _instance(self, lease: Lease, fresh: bool) -> str:
        """The one to build or refresh; if that is in work or missing, one that cannot be."""
        current = self.model.instances.canonical(lease.ref)
        if fresh:
            found = self.both(lambda ledger: ledger.instances.new(lease, Reason.REBUILD, by=lease.job_id))
            return found if isinstance(found, str) else "unknown"
        return "unknown" if current is None else current.uuid

    def _plan(self, job_id: str, parts: list[NewPart], stagger: bool) -> None:
        if self.both(lambda ledger: ledger.parts.plan(job_id, parts, stagger=stagger)) is None:
            self.parts += [(job_id, new.part) for new in parts]
            self.both(lambda ledger: ledger.jobs.start(job_id))

    def _join(self, job_id: str, worker: str) -> None:
        self.both(lambda ledger: ledger.jobs.join(job_id, worker))

    @precondition(lambda self: self.parts)
    @rule(data=st.data())
    def plan_again(self, data: st.DataObject) -> None:
        """Too late, or by a zombie."""
        job_id, part = data.draw(st.sampled_from(self.parts[-3:]))
        self.both(lambda ledger: ledger.parts.plan(job_id, [NewPart(part, [])]))

    @precondition(lambda self: self.jobs)
    @rule(data=st.data(), worker=_WORKERS, what=st.sampled_from(_MOVES))
    def move(self, data: st.DataObject, worker: str, what: str) -> None:
        job_id = data.draw(st.sampled_from(self.jobs[-3:]))
        moves: dict[str, Callable[[Ledger], Any]] = {
            "join": lambda ledger: ledger.jobs.join(job_id, worker),
            "leave": lambda ledger: ledger.jobs.leave(job_id, worker),
            "last": lambda ledger: ledger.jobs.leave(job_id, worker, stop="left by all"),
            "start": lambda ledger: ledger.jobs.start(job_id),
            "stop": lambda ledger: ledger.jobs.request_stop(job_id, "enough"),
            "explain": lambda ledger: ledger.jobs.explain_stop(job_id, "it is refused"),
            "discard": lambda ledger: ledger.jobs.discard(job_id),
        }
        self.both(moves[what])

    # Leases.

    def _acquire(self, ref: PartitionRef, job_id: str, worker: str) -> Any:
        answer = self.both(lambda ledger: ledger.leases.acquire(ref, job_id, worker))
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
            self.both(lambda ledger: ledger.leases.release(lease))
        elif what == "renew":
            self.both(lambda ledger: ledger.leases.renew(lease))
        else:
            job_id = data.draw(st.sampled_from(self.jobs))
            answer = self.both(lambda ledger: ledger.leases.transfer(lease, job_id))
            if isinstance(answer, Lease):
                self.leases.append(answer)

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def adopt(self, data: st.DataObject) -> None:
        lease = data.draw(st.sampled_from(self.leases[-2:]))
        self._adopt(lease)

    @precondition(lambda self: self.parts)
    @rule(ref=_REFS, worker=_WORKERS)
    def take_over(self, ref: PartitionRef, worker: str) -> None:
        """As a service would: continue what is unfinished."""
        job = self.both(lambda ledger: ledger.jobs.unfinished(ref))
        if job is not None:
            lease = self._acquire(ref, job.id, worker)
            if isinstance(lease, Lease):
                self._adopt(lease)

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), unlikely=st.integers(0, 3))
    def drop(self, data: st.DataObject, unlikely: int) -> None:
        lease = data.draw(st.sampled_from(self.leases[-2:]))
        if not unlikely:
            self.both(lambda ledger: ledger.partitions.drop(lease, by="cid"))

    def _adopt(self, lease: Lease) -> None:
        part = self.both(lambda ledger: ledger.parts.adopt(lease))
        if isinstance(part, JobPart):
            self.parts.append((lease.job_id, part))
            self.both(lambda ledger: ledger.jobs.start(lease.job_id))

    # Slices.

    @precondition(lambda self: self.parts)
    @rule(data=st.data(), worker=_WORKERS, work=st.integers(0, 60), limit=st.integers(0, 4), after=st.integers(0, 5))
    def claim(self, data: st.DataObject, worker: str, work: int, limit: int, after: int) -> None:
        job_id, part = data.draw(st.sampled_from(self.parts[-3:]))
        together = data.draw(st.booleans())
        self.claims += self.both(
            lambda ledger: ledger.slices.claim(
                job_id, part.ref, worker, work=work, limit=limit, after=after, together=together
            )
        )

    def _drawn_claims(self, data: st.DataObject) -> list[Claim]:
        return data.draw(st.lists(st.sampled_from(self.claims[-6:]), min_size=1, max_size=3, unique=True))

    @precondition(lambda self: self.claims and self.parts)
    @rule(data=st.data(), worker=_WORKERS, fail=st.lists(st.integers(0, 9), max_size=2), version=st.integers(1, 3))
    def complete(self, data: st.DataObject, worker: str, fail: list[int], version: int) -> None:
        claims = self._drawn_claims(data)
        _, part = data.draw(st.sampled_from(self.parts[-3:]))
        outcomes = [_outcome(claim, fail, f"v{version}") for claim in claims]
        self.both(lambda ledger: ledger.slices.complete(part, worker, outcomes, job_id=claims[0].job_id))

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), worker=_WORKERS, spent=st.booleans(), delay=st.sampled_from([0, 0, 1_000]))
    def give_back(self, data: st.DataObject, worker: str, spent: bool, delay: int) -> None:
        claims = self._drawn_claims(data)
        self.both(lambda ledger: ledger.slices.give_back(claims, worker, error="died", spent=spent, delay=delay))

    @precondition(lambda self: self.parts)
    @rule(data=st.data())
    def reset_attempts(self, data: st.DataObject) -> None:
        job_id, part = data.draw(st.sampled_from(self.parts[-3:]))
        self.both(lambda ledger: ledger.slices.reset_attempts(part, job_id=job_id))

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), worker=_WORKERS)
    def split(self, data: st.DataObject, worker: str) -> None:
        claim = data.draw(st.sampled_from(self.claims[-6:]))
        self.both(lambda ledger: ledger.slices.split(claim, worker))

    @precondition(lambda self: self.model.open_parts.on([REF, OTHER]))
    @rule(
        data=st.data(),
        worker=_WORKERS,
        how=st.sampled_from(["with failures", "badly", "split", "claim", "well"]),
        together=st.booleans(),
    )
    def work(self, data: st.DataObject, worker: str, how: str, together: bool) -> None:
        """A turn at what there is to do, so that parts come to their end."""
        found = data.draw(st.sampled_from(self.model.open_parts.on([REF, OTHER])))
        job_id, part = found.job_id, found.part
        self._join(job_id, worker)
        claims = self.both(
            lambda ledger: ledger.slices.claim(job_id, part.ref, worker, work=20, limit=3, together=together)
        )
        self.claims += claims
        if how == "badly":
            self.both(lambda ledger: ledger.slices.give_back(claims, worker, error="out of memory", spent=True))
        elif how == "split" and claims:
            self.both(lambda ledger: ledger.slices.split(claims[0], worker))
        elif how != "claim":
            outcomes = [_outcome(claim, range(6) if "failures" in how else ()) for claim in claims]
            self.both(lambda ledger: ledger.slices.complete(part, worker, outcomes, job_id=job_id))

    # Parts.

    @precondition(lambda self: self.parts)
    @rule(data=st.data(), worker=_WORKERS, end=_ENDS, elect=st.booleans(), promote=st.booleans(), retry=st.booleans())
    def finish(self, data: st.DataObject, worker: str, end: JobState, elect: bool, promote: bool, retry: bool) -> None:
        job_id, part = data.draw(st.sampled_from(self.parts[-3:]))
        if elect:
            self.both(lambda ledger: ledger.parts.begin_finish(job_id, part.ref, worker))
        error = f"by {worker}" if elect else None
        self.both(
            lambda ledger: ledger.parts.finish(
                job_id, part, end, worker_id=worker, promote=promote, error=error, retry=retry
            )
        )

    # Instances and wants.

    def _known(self) -> list[str]:
        """UUIDs, the newest first."""
        return [each.uuid for ref in (REF, OTHER) for each in self.model.instances.newest(ref, 4)] or ["unknown"]

    @rule(data=st.data(), kinds=st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=3))
    def append(self, data: st.DataObject, kinds: list[str]) -> None:
        events = []
        for kind in kinds:
            self.wanted += 1
            uuid, ref = data.draw(st.sampled_from(self._known())), data.draw(_REFS)
            old = f"want-{data.draw(st.integers(max(1, self.wanted - 4), self.wanted))}"
            about = About(uuid, ref, self.jobs[-1], old, f"want-{self.wanted}", self.clock.now())
            events.append(KINDS[kind](about))
        self.both(lambda ledger: ledger.events.append(events), reason=True)

    @rule(data=st.data(), everything=st.booleans())
    def collect(self, data: st.DataObject, everything: bool) -> None:
        known = self._known()
        instances = data.draw(st.lists(st.sampled_from(known), max_size=2))
        wants = [each.id for each in self.model.wants.newest() if each.state.ended][:2]
        if everything:
            old = [self.model.instances.get(each) for each in known]
            instances = [each.uuid for each in old if each is not None and each.left]
        self.both(lambda ledger: ledger.events.collect(instances, wants), reason=True)

    @rule(ago=st.integers(0, TIMING.lease), share=st.floats(0, 1))
    def look_back(self, ago: int, share: float) -> None:
        self.both(lambda ledger: ledger.events.state(at=self.clock.now() - ago))
        self.both(lambda ledger: ledger.events.state(sequence=round(self.last * share)))

    @rule()
    def rebuild(self) -> None:
        assert self.both(lambda ledger: ledger.events.rebuild_projections()).differences == ()

    # What readers see.

    @invariant()
    def readers_see_the_same(self) -> None:
        self.both(lambda ledger: ledger.jobs.newest())
        self.both(lambda ledger: ledger.workers.all())
        self.both(lambda ledger: ledger.open_parts.on([REF, OTHER]))
        self.both(lambda ledger: ledger.open_parts.wanted_stopped([REF, OTHER]))
        self.both(lambda ledger: ledger.failures.newest())
        for ref in (REF, OTHER):
            self._partition_is_the_same(ref)
        for job_id, part in self.parts[-2:]:
            self.both(partial(_slices, job_id=job_id, ref=part.ref))
        for instance in sorted({part.instance for _, part in self.parts[-4:]}):
            self._instance_is_the_same(instance)

    def _partition_is_the_same(self, ref: PartitionRef) -> None:
        self.both(lambda ledger: (ledger.jobs.unfinished(ref), ledger.jobs.latest(ref)))
        self.both(
            lambda ledger: (
                ledger.checkpoints.of_partition(ref),
                ledger.partitions.promoted(ref),
                ledger.partitions.indexes(ref.entity),
            )
        )
        self.both(lambda ledger: (ledger.checkpoints.of_entity(ref.entity), ledger.checkpoints.entities()))
        self.both(
            lambda ledger: (
                ledger.instances.canonical(ref),
                ledger.instances.canonical(ref, "v2"),
                ledger.instances.newest(ref),
            )
        )
        self.both(lambda ledger: ledger.wants.newest(ref=ref, open_only=True))
        self.both(lambda ledger: (ledger.failures.count(ref), ledger.failures.versions(ref)))

    def _instance_is_the_same(self, instance: str) -> None:
        self.both(
            lambda ledger: (
                ledger.documents.entries(instance),
                ledger.documents.versions(instance),
                ledger.documents.totals(instance),
            )
        )

    @invariant()
    def logs_are_the_same(self) -> None:
        new = self.both(lambda ledger: ledger.events.rows(self.last))
        self.last += len(new)
        self.both(lambda ledger: ledger.wants.newest())
        for _, part in self.parts[-2:]:
            self.both(lambda ledger, part=part: ledger.parts.of_epoch(part.ref, part.epoch))  # type: ignore[misc]  # the default binds the loop's value
            self.both(lambda ledger, part=part: ledger.parts.reaching(part.ref, part.instance, 0))  # type: ignore[misc]  # as above

    @invariant()
    def holders_are_the_same(self) -> None:
        pairs = [(claim, worker) for claim in self.claims[-6:] for worker in _NAMES]
        self.both(lambda ledger: [ledger.slices.holds([claim], worker) for claim, worker in pairs])

    @invariant()
    def counts_balance(self) -> None:
        assert all(job.counts.balanced for job in self.model.jobs.newest())


def _plans(drawn: Sequence[_Drawn]) -> list[SlicePlan]:
    return [
        plan(index, documents, work=work, priority=priority) for index, (documents, work, priority) in enumerate(drawn)
    ]


def _row_plans(drawn: Sequence[_Drawn]) -> list[SlicePlan]:
    return [
        row_plan(index, len(drawn), units=len(documents), work=work, priority=priority)
        for index, (documents, work, priority) in enumerate(drawn)
    ]


def _outcome(claim: Claim, fail: Sequence[int], version: str = "v1") -> SliceOutcome:
    return written(claim) if decode_row_slice(claim.payload) else outcome(claim, fail=fail, version=version)


def _slices(ledger: Ledger, job_id: str, ref: PartitionRef) -> list[SliceStatus]:
    return ledger.slices.of_part(job_id, ref)


def _answer(call: Callable[[Ledger], Any], ledger: Ledger, *, reason: bool) -> Any:
    try:
        return call(ledger)
    except InstepError as error:
        return (type(error), str(error)) if reason else type(error)


TwoLedgers.TestCase.settings = settings(
    max_examples=12, stateful_step_count=25, suppress_health_check=[HealthCheck.too_slow]
)
TestTwoLedgers = pytest.mark.proof(TwoLedgers.TestCase)
