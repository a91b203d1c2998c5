"""The model of the ledger: every port method is one call under one lock."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

from instep.domain.buckets import BucketLoad
from instep.domain.clock import TIMING, Clock, Timing
from instep.domain.events import Collected, Event, Recorded
from instep.domain.instances import Instance, Reason
from instep.domain.jobs import Claim, Job, JobPart, JobState, OpenPart, SlicePlan, SliceState, SliceStatus
from instep.domain.manifest import ManifestEntry
from instep.domain.promotion_rules import Loss
from instep.domain.refs import Naming, PartitionRef
from instep.domain.state import State
from instep.domain.storable import LONGEST_ID, storable, storable_key
from instep.domain.wants import Want
from instep.domain.waves import SKIPPED, SliceOutcome
from instep.ledger.event_log import LogRow, Verified
from instep.ledger.key_lease_rules import KeyLeaseLedger, KeyLeaseRows
from instep.ledger.ledger import Checkpoint, FailureRecord, Holder, JobMark, Lease, NewPart, Swept, WorkerInfo
from instep.ledger.paging import FailurePlace, JobPlace, SlicePlace, SliceView
from instep.ledger.totals import Figures
from tests.simulator.model import (
    buckets,
    documents,
    figures,
    instances,
    jobs,
    leases,
    log,
    losses,
    pages,
    parts,
    recovery,
    slices,
    verifying,
    workers,
)
from tests.simulator.model.tables import Tables

T = TypeVar("T")


class ModelLedger(KeyLeaseLedger):
    """Implements `port.Ledger`. May be shared by threads; what a method calls checks first and changes then."""

    def __init__(self, clock: Clock, timing: Timing = TIMING, naming: Naming | None = None) -> None:
        self._tables = Tables(clock, timing)
        self._tables.state.naming = naming or Naming(str(uuid.uuid4()))
        self._lock = threading.RLock()

    def close(self) -> None:
        """Nothing is open."""

    def now(self) -> int:
        return self._tables.now()

    def naming(self) -> Naming:
        with self._lock:
            return self._tables.state.naming

    def present(self) -> int:
        with self._lock:
            return log.present(self._tables)

    # Workers.

    def register_worker(self, worker_id: str, *, kind: str, host: str, pid: int) -> None:
        with self._lock:
            workers.register(self._tables, worker_id, kind=kind, host=host, pid=pid)

    def heartbeat(self, worker_id: str, running: Collection[str]) -> int:
        with self._lock:
            return recovery.heartbeat(self._tables, worker_id, running)

    def workers(self) -> list[WorkerInfo]:
        with self._lock:
            return workers.every(self._tables)

    def retire_worker(self, worker_id: str) -> None:
        with self._lock:
            recovery.retire(self._tables, worker_id)

    def bury_worker(self, worker_id: str) -> int:
        with self._lock:
            return recovery.bury(self._tables, worker_id)

    def sweep(self) -> Swept:
        with self._lock:
            return recovery.sweep(self._tables)

    # Jobs.

    def begin_job(self, job_id: str, worker_id: str, configuration: Mapping[str, Any]) -> None:
        with self._lock:
            jobs.begin(self._tables, job_id, worker_id, configuration)

    def plan_job(self, job_id: str, parts: Sequence[NewPart], *, stagger: bool = False) -> None:
        with self._lock:
            jobs.plan(self._tables, job_id, parts, stagger=stagger)

    def count_lost(self, part: JobPart, loss: Loss, *, job_id: str) -> None:
        with self._lock:
            losses.count(self._tables, part, loss, job_id=job_id)

    def lost_lately(self, ref: PartitionRef, generation: str, *, window: int) -> Loss:
        with self._lock:
            return losses.lately(self._tables, ref, generation, window)

    def tell_listing(self, ref: PartitionRef, problem: str | None) -> None:
        with self._lock:
            self._tables.listing_problems.pop(ref, None)
            if problem is not None:
                self._tables.listing_problems[ref] = storable(problem)

    def listing_problem(self, ref: PartitionRef) -> str | None:
        with self._lock:
            return self._tables.listing_problems.get(ref)

    def extend_part(self, part: JobPart, slices: Sequence[SlicePlan], *, job_id: str) -> None:
        with self._lock:
            jobs.extend(self._tables, job_id, part, slices)

    def discard_job(self, job_id: str) -> None:
        with self._lock:
            jobs.discard(self._tables, job_id)

    def join_job(self, job_id: str, worker_id: str) -> None:
        with self._lock:
            jobs.join(self._tables, job_id, worker_id)

    def leave_job(self, job_id: str, worker_id: str, *, stop: str | None = None) -> JobState | None:
        with self._lock:
            return jobs.leave(self._tables, job_id, worker_id, stop_reason=_storable(stop))

    def start_job(self, job_id: str) -> None:
        with self._lock:
            jobs.start(self._tables, job_id)

    def request_stop(self, job_id: str, reason: str | None = None) -> JobState:
        with self._lock:
            return jobs.request_stop(self._tables, job_id, _storable(reason))

    def job(self, job_id: str) -> Job | None:
        with self._lock:
            row = self._tables.jobs.get(job_id)
            return jobs.view(self._tables, row) if row is not None else None

    def jobs(self, limit: int = 20) -> list[Job]:
        with self._lock:
            return jobs.newest(self._tables, limit)

    def job_page(
        self, *, states: Collection[JobState] = (), after: JobPlace | None = None, limit: int = 20
    ) -> list[Job]:
        with self._lock:
            return pages.jobs_after(self._tables, states, after, limit)

    def job_marks(self, newest: int) -> list[JobMark]:
        with self._lock:
            return jobs.marks(self._tables, newest)

    def unfinished_job(self, ref: PartitionRef, generation: str = "") -> Job | None:
        with self._lock:
            return jobs.unfinished(self._tables, (ref, generation))

    def latest_job(self, ref: PartitionRef, generation: str = "") -> Job | None:
        with self._lock:
            return jobs.latest(self._tables, (ref, generation))

    def open_parts(self, refs: Collection[PartitionRef]) -> list[OpenPart]:
        with self._lock:
            return jobs.open_parts(self._tables, refs)

    def wanted_stopped(self, refs: Collection[PartitionRef]) -> list[tuple[PartitionRef, str]]:
        with self._lock:
            return jobs.wanted_stopped(self._tables, refs)

    def figures(self) -> Figures:
        with self._lock:
            return figures.read(self._tables)

    # Leases.

    def acquire_lease(self, ref: PartitionRef, job_id: str, worker_id: str) -> Lease | Holder:
        with self._lock:
            return leases.acquire(self._tables, ref, job_id, worker_id)

    def renew_lease(self, lease: Lease) -> Lease:
        with self._lock:
            return leases.renew(self._tables, lease)

    def release_lease(self, lease: Lease) -> None:
        with self._lock:
            leases.release(self._tables, lease)

    def transfer_lease(self, lease: Lease, job_id: str, *, above: int = 0) -> Lease:
        with self._lock:
            return leases.transfer(self._tables, lease, job_id, above)

    # Parts.

    def new_instance(self, lease: Lease, reason: Reason, *, generation: str = "", by: str = "") -> str:
        with self._lock:
            return instances.new(self._tables, lease, reason, generation, by)

    def adopt_part(self, lease: Lease) -> JobPart:
        with self._lock:
            return parts.adopt(self._tables, lease)

    def begin_finish(self, job_id: str, ref: PartitionRef, worker_id: str) -> bool:
        with self._lock:
            return parts.begin_finish(self._tables, job_id, ref, worker_id)

    def finish_part(
        self,
        job_id: str,
        part: JobPart,
        state: JobState,
        *,
        worker_id: str,
        promote: bool = False,
        whole: bool = False,
        error: str | None = None,
        retry: bool = False,
    ) -> JobState:
        with self._lock:
            return parts.finish(
                self._tables,
                job_id,
                part,
                state,
                worker_id=worker_id,
                promote=promote,
                whole=whole,
                error=_storable(error),
                retry=retry,
            )

    # Slices.

    def claim(
        self,
        job_id: str,
        ref: PartitionRef,
        worker_id: str,
        *,
        work: int,
        limit: int,
        after: int = 0,
        together: bool = False,
    ) -> list[Claim]:
        with self._lock:
            return slices.claim(
                self._tables, job_id, ref, worker_id, work=work, limit=limit, after=after, together=together
            )

    def holds(self, claims: Sequence[Claim], worker_id: str) -> bool:
        with self._lock:
            return all(slices.held(self._tables, each.slice_id, each.fence, worker_id) for each in claims)

    def complete(self, part: JobPart, worker_id: str, outcomes: Sequence[SliceOutcome], *, job_id: str) -> None:
        with self._lock:
            slices.complete(self._tables, part, worker_id, outcomes, job_id=job_id)

    def absorb(self, part: JobPart, outcomes: Sequence[SliceOutcome], *, job_id: str) -> None:
        with self._lock:
            slices.absorb(self._tables, part, outcomes, job_id=job_id)

    def give_back(
        self, claims: Sequence[Claim], worker_id: str, *, error: str | None = None, spent: bool, delay: int = 0
    ) -> None:
        with self._lock:
            jobs.give_back(self._tables, claims, worker_id, error=_storable(error), spent=spent, delay=delay)

    def split(self, claim: Claim, worker_id: str) -> bool:
        with self._lock:
            return slices.split(self._tables, claim, worker_id)

    def slices(self, job_id: str, ref: PartitionRef, *, limit: int = 1_000) -> list[SliceStatus]:
        with self._lock:
            return slices.of_part(self._tables, job_id, ref, limit)

    def slice_page(
        self,
        job_id: str,
        *,
        refs: Collection[PartitionRef] | None = None,
        state: SliceState | None = None,
        after: SlicePlace | None = None,
        limit: int = 1_000,
    ) -> list[SliceView]:
        with self._lock:
            return pages.slices_after(self._tables, job_id, refs=refs, state=state, after=after, limit=limit)

    def slice_states(self, job_id: str) -> list[tuple[PartitionRef, int, SliceState]]:
        with self._lock:
            return pages.slice_states(self._tables, job_id)

    # What is indexed.

    def checkpoint(self, ref: PartitionRef, generation: str = "") -> Checkpoint | None:
        with self._lock:
            return self._tables.checkpoints.get((ref, generation))

    def checkpoints(self, ref: PartitionRef) -> list[Checkpoint]:
        with self._lock:
            return parts.checkpoints(self._tables, ref)

    def entity_checkpoints(self, entity: str) -> list[Checkpoint]:
        with self._lock:
            return parts.entity_checkpoints(self._tables, entity)

    def promoted(self, ref: PartitionRef) -> str | None:
        with self._lock:
            return self._tables.state.promoted.get(str(ref))

    def all_indexes(self) -> set[str]:
        with self._lock:
            return {row.part.physical for job in self._tables.jobs.values() for row in job.parts.values()}

    def indexes(self, entity: str) -> set[str]:
        with self._lock:
            return parts.indexes(self._tables, entity)

    def drop_partition(self, lease: Lease, *, by: str = "") -> None:
        with self._lock:
            parts.drop_partition(self._tables, lease, by)

    def manifest(self, instance: str) -> dict[str, ManifestEntry]:
        with self._lock:
            return documents.manifest(self._tables, instance)

    def versions(self, instance: str) -> dict[str, tuple[int, str]]:
        with self._lock:
            return documents.versions(self._tables, instance)

    def document(self, instance: str, document_id: str) -> ManifestEntry | None:
        with self._lock:
            return self._tables.documents.get(instance, {}).get(storable_key(document_id, LONGEST_ID))

    def sampled(self, instance: str, ids: Sequence[str]) -> list[ManifestEntry]:
        with self._lock:
            return documents.sampled(self._tables, instance, ids)

    def totals(self, instance: str) -> tuple[int, int, int]:
        with self._lock:
            return documents.totals(self._tables, instance)

    def oversized(self, instance: str, *, size: int, chunks: int | None, limit: int) -> tuple[int, list[ManifestEntry]]:
        with self._lock:
            return documents.oversized(self._tables, instance, size, chunks, limit)

    def bucket_loads(self, ref: PartitionRef, generation: str, instance: str) -> list[BucketLoad]:
        with self._lock:
            return buckets.loads(self._tables, ref, generation, instance)

    def failed_versions(self, ref: PartitionRef, generation: str = "") -> dict[str, str]:
        with self._lock:
            return documents.failed_versions(self._tables, (ref, generation))

    def failures(self, ref: PartitionRef | None = None, *, limit: int = 100) -> list[FailureRecord]:
        with self._lock:
            return documents.failures(self._tables, ref, limit)

    def failure_page(
        self, *, refs: Collection[PartitionRef] | None = None, after: FailurePlace | None = None, limit: int = 100
    ) -> list[FailureRecord]:
        with self._lock:
            return pages.failures_after(self._tables, refs, after, limit)

    def count_failures(self, ref: PartitionRef, generation: str = "", *, skipped: bool = False) -> int:
        with self._lock:
            found = self._tables.failures.get((ref, generation), {}).values()
            return sum((each.stage == SKIPPED) is skipped for each in found)

    # Events, and what follows from them.

    def append(self, events: Sequence[Event]) -> list[Recorded]:
        with self._lock:
            return log.append(self._tables, events)

    def events(self, after: int = 0, limit: int = 1_000) -> list[LogRow]:
        with self._lock:
            return log.rows(self._tables, after, limit)

    def canonical(self, ref: PartitionRef, generation: str = "") -> Instance | None:
        with self._lock:
            return self._tables.state.current(str(ref), generation)

    def instance(self, uuid: str) -> Instance | None:
        with self._lock:
            return self._tables.state.instances.get(uuid)

    def instances(self, ref: PartitionRef, limit: int = 100) -> list[Instance]:
        with self._lock:
            return instances.of(self._tables, ref, limit)

    def want(self, id: str) -> Want | None:
        with self._lock:
            return self._tables.state.wants.get(id)

    def wants(
        self,
        *,
        ref: PartitionRef | None = None,
        open_only: bool = False,
        after: str | None = None,
        limit: int = 100,
    ) -> list[Want]:
        with self._lock:
            return instances.wants(self._tables, ref, open_only=open_only, after=after, limit=limit)

    def startable_wants(self, refs: Collection[PartitionRef]) -> list[Want]:
        with self._lock:
            return instances.startable_wants(self._tables, refs)

    def state(self, *, at: int | None = None, sequence: int | None = None) -> State:
        with self._lock:
            return log.state(self._tables, at=at, sequence=sequence)

    def verify(self) -> Verified:
        with self._lock:
            return verifying.verify(self._tables)

    def rebuild_projections(self) -> Verified:
        with self._lock:
            return verifying.rebuild(self._tables)

    def part_of_epoch(self, ref: PartitionRef, epoch: int) -> tuple[str, JobPart] | None:
        with self._lock:
            return parts.of_epoch(self._tables, ref, epoch)

    def part_reaching(self, ref: PartitionRef, instance: str, watermark: int) -> tuple[str, JobPart] | None:
        with self._lock:
            return parts.reaching(self._tables, ref, instance, watermark)

    def collect(self, instances: Collection[str], wants: Collection[str]) -> None:
        with self._lock:
            if instances or wants:
                log.append(self._tables, [Collected(instances=tuple(instances), wants=tuple(wants))])

    # Keys of queues in hand.

    def _look_at_holds(self, work: Callable[[KeyLeaseRows], T]) -> T:
        with self._lock:
            return work(self._tables.holds)

    _change_holds = _look_at_holds


def _storable(text: str | None) -> str | None:
    return None if text is None else storable(text)
