"""The ledger in memory: the same behaviour, for simulations and for a `plan` before anything exists."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from instep.domain.clock import Clock
from instep.domain.counts import Counts
from instep.domain.jobs import JOB_MOVES, Claim, Job, JobPart, JobState, SlicePlan, SliceState
from instep.domain.manifest import ManifestEntry
from instep.domain.refs import PartitionRef
from instep.domain.waves import Failure, SliceOutcome
from instep.errors import Conflict, Fenced
from instep.ledger.port import LEASE_TTL_MS, Checkpoint, FailureRecord, Holder, Lease, NewPart
from instep.ledger.retries import (
    ATTEMPTS_OF_HALVES,
    SUSPECT_ATTEMPTS,
    Poisoned,
    SliceWork,
    demand_balance,
    may_be_tried_again,
    take_apart,
)


@dataclass(slots=True)
class _Job:
    id: str
    state: JobState
    created_at: int
    started_at: int | None = None
    finished_at: int | None = None
    error: str | None = None


@dataclass(slots=True)
class _Part:
    part: JobPart
    sequence: int


@dataclass(slots=True)
class _Slice:
    job_id: str
    ref: PartitionRef
    plan: SlicePlan
    state: SliceState = SliceState.PENDING
    attempts: int = 0
    fence: int = 0
    worker_id: str | None = None
    counts: Counts = field(default_factory=Counts)

    def held(self, fence: int, worker_id: str) -> bool:
        return self.state is SliceState.PROCESSING and self.fence == fence and self.worker_id == worker_id


@dataclass(slots=True)
class _Worker:
    host: str
    pid: int
    heartbeat_at: int


@dataclass(slots=True)
class _Lease:
    epoch: int
    worker_id: str | None
    host: str
    pid: int
    since: int
    expires_at: int


class MemoryLedger:
    """Implements `port.Ledger`. May be shared by threads; each method checks first and changes then."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.RLock()
        self._workers: dict[str, _Worker] = {}
        self._leases: dict[PartitionRef, _Lease] = {}
        self._sequences: dict[PartitionRef, int] = {}
        self._jobs: dict[str, _Job] = {}
        self._parts: dict[str, dict[PartitionRef, _Part]] = {}
        self._slices: dict[str, _Slice] = {}
        self._checkpoints: dict[PartitionRef, Checkpoint] = {}
        self._documents: dict[str, dict[str, ManifestEntry]] = {}
        self._failures: dict[tuple[PartitionRef, str], FailureRecord] = {}

    def close(self) -> None:
        """Nothing is open."""

    def now(self) -> int:
        return self._clock.now()

    # Workers.

    def register_worker(self, worker_id: str, *, host: str, pid: int) -> None:
        with self._lock:
            self._workers[worker_id] = _Worker(host, pid, self.now())

    def heartbeat(self, worker_id: str) -> None:
        with self._lock:
            if worker_id not in self._workers:
                raise Fenced(f"worker {worker_id} is not registered")
            self._workers[worker_id].heartbeat_at = self.now()

    def retire_worker(self, worker_id: str) -> None:
        with self._lock:
            for each in self._slices.values():
                if each.state is SliceState.PROCESSING and each.worker_id == worker_id:
                    each.state, each.worker_id = SliceState.PENDING, None
            self._workers.pop(worker_id, None)

    # Leases.

    def acquire_lease(self, ref: PartitionRef, worker_id: str) -> Lease | Holder:
        with self._lock:
            now, held = self.now(), self._leases.get(ref)
            if held is not None and held.worker_id is not None and now < held.expires_at:
                return Holder(ref, held.worker_id, held.host, held.pid, held.epoch, held.since, held.expires_at)
            who = self._workers.get(worker_id, _Worker("", 0, now))
            lease = Lease(ref, worker_id, held.epoch + 1 if held else 1, now + LEASE_TTL_MS)
            self._leases[ref] = _Lease(lease.epoch, worker_id, who.host, who.pid, now, lease.expires_at)
            return lease

    def renew_lease(self, lease: Lease) -> Lease:
        with self._lock:
            now, held = self.now(), self._held(lease)
            if held is None or now >= held.expires_at:
                raise Fenced(f"the lease of {lease.ref} was lost")
            held.expires_at = now + LEASE_TTL_MS
            return replace(lease, expires_at=held.expires_at)

    def release_lease(self, lease: Lease) -> None:
        with self._lock:
            held = self._held(lease)
            if held is not None:
                held.worker_id = None

    def break_lease(self, ref: PartitionRef, epoch: int) -> bool:
        with self._lock:
            held = self._leases.get(ref)
            if held is None or held.epoch != epoch or held.worker_id is None:
                return False
            held.worker_id = None
            return True

    def _held(self, lease: Lease) -> _Lease | None:
        held = self._leases.get(lease.ref)
        return held if held and held.epoch == lease.epoch and held.worker_id == lease.worker_id else None

    def _demand_epoch(self, part: JobPart) -> None:
        held = self._leases.get(part.ref)
        if held is None or held.epoch != part.epoch or held.worker_id is None:
            raise Fenced(f"the lease of {part.ref} (epoch {part.epoch}) was lost")

    # Jobs.

    def next_sequence(self, ref: PartitionRef) -> int:
        with self._lock:
            return self._sequences.get(ref, 0) + 1

    def create_job(self, job_id: str, parts: Sequence[NewPart], *, worker_id: str) -> None:
        with self._lock:
            for new in parts:
                self._demand_epoch(new.part)
            if job_id in self._jobs:
                raise Conflict(f"there is a job {job_id} already")
            self._jobs[job_id] = _Job(job_id, JobState.READY, self.now())
            self._parts[job_id] = {}
            for position, new in enumerate(parts):
                ref = new.part.ref
                self._parts[job_id][ref] = _Part(new.part, self._sequence_of(new.part))
                for plan in new.slices:
                    self._slices[f"{job_id}.{position}.{plan.index}"] = _Slice(job_id, ref, plan)

    def _sequence_of(self, part: JobPart) -> int:
        if part.fresh:
            self._sequences[part.ref] = self._sequences.get(part.ref, 0) + 1
            return self._sequences[part.ref]
        served = self._checkpoints.get(part.ref)
        return served.sequence if served else 0

    def job(self, job_id: str) -> Job | None:
        with self._lock:
            job = self._jobs.get(job_id)
            return self._view(job) if job else None

    def jobs(self, limit: int = 20) -> list[Job]:
        with self._lock:
            return [self._view(job) for job in self._newest()[:limit]]

    def unfinished_job(self, ref: PartitionRef) -> Job | None:
        with self._lock:
            for job in self._newest():
                if ref not in self._parts[job.id]:
                    continue
                if not job.state.ended or (job.state is JobState.STOPPED and self._has_work_left(job)):
                    return self._view(job)
            return None

    def _has_work_left(self, job: _Job) -> bool:
        fresh = any(stored.part.fresh for stored in self._parts[job.id].values())
        return fresh or bool(self._open_slices(job.id))

    def _newest(self) -> list[_Job]:
        return sorted(self._jobs.values(), key=lambda job: (job.created_at, job.id), reverse=True)

    def _of_job(self, job_id: str) -> dict[str, _Slice]:
        return {slice_id: each for slice_id, each in self._slices.items() if each.job_id == job_id}

    def _open_slices(self, job_id: str) -> list[_Slice]:
        return [each for each in self._of_job(job_id).values() if not each.state.ended]

    def _view(self, job: _Job) -> Job:
        states: dict[SliceState, int] = {}
        counts = Counts()
        for each in self._of_job(job.id).values():
            states[each.state] = states.get(each.state, 0) + 1
            counts += each.counts
        return Job(
            id=job.id,
            state=job.state,
            created_at=job.created_at,
            started_at=job.started_at,
            finished_at=job.finished_at,
            error=job.error,
            counts=counts,
            slices=states,
            parts=tuple(stored.part for stored in self._parts[job.id].values()),
        )

    def _the_job(self, job_id: str) -> _Job:
        if job_id not in self._jobs:
            raise Conflict(f"there is no job {job_id}")
        return self._jobs[job_id]

    def adopt_job(self, job_id: str, lease: Lease) -> JobPart:
        with self._lock:
            if self._held(lease) is None:
                raise Fenced(f"the lease of {lease.ref} was lost")
            job = self._the_job(job_id)
            if job.state.ended and job.state is not JobState.STOPPED:
                raise Conflict(f"job {job_id} has ended: {job.state}")
            stored = self._parts[job_id].get(lease.ref)
            if stored is None:
                raise Conflict(f"job {job_id} has no part on {lease.ref}")
            stored.part = replace(stored.part, epoch=lease.epoch)
            if job.state is JobState.STOPPING:
                job.state, job.finished_at = JobState.STOPPED, self.now()
            for slice_id, each in sorted(self._of_job(job_id).items()):
                if each.ref == lease.ref and each.state is SliceState.PROCESSING:
                    self._bad_end(slice_id, each, "its worker died")
            return stored.part

    def start_job(self, job_id: str) -> None:
        with self._lock:
            job = self._the_job(job_id)
            if job.state in (JobState.RUNNING, JobState.STOPPING):
                return
            _demand_move(job, JobState.RUNNING)
            job.state, job.finished_at, job.error = JobState.RUNNING, None, None
            if job.started_at is None:
                job.started_at = self.now()

    def request_stop(self, job_id: str) -> None:
        with self._lock:
            job = self._the_job(job_id)
            if JobState.STOPPING in JOB_MOVES[job.state]:
                job.state = JobState.STOPPING

    def finish_job(
        self, job_id: str, state: JobState, *, error: str | None = None, promote: Sequence[JobPart] = ()
    ) -> None:
        if not state.ended:
            raise ValueError(f"{state} is not an end")
        with self._lock:
            job = self._the_job(job_id)
            if job.state is state:
                return
            for part in promote:
                self._demand_epoch(part)
            _demand_move(job, state)
            still_open = self._open_slices(job_id)
            if still_open and (promote or state in (JobState.COMPLETED, JobState.COMPLETED_WITH_ERRORS)):
                raise Conflict(f"job {job_id} has open slices: it cannot be {state} or promoted")
            for part in promote:
                stored = self._parts[job_id].get(part.ref)
                if stored is None or stored.part.instance != part.instance:
                    raise Conflict(f"job {job_id} has no such part on {part.ref}")
            if state is JobState.FAILED:
                for each in still_open:
                    each.state, each.worker_id = SliceState.CANCELLED, None
            for part in promote:
                self._promote(job, part)
            if state is JobState.FAILED:
                self._forget_unserved(job_id)
            job.state, job.finished_at, job.error = state, self.now(), error

    def _forget_unserved(self, job_id: str) -> None:
        served = {each.instance for each in self._checkpoints.values()}
        for stored in self._parts[job_id].values():
            if stored.part.fresh and stored.part.instance not in served:
                self._documents.pop(stored.part.instance, None)

    def _promote(self, job: _Job, part: JobPart) -> None:
        replaced = self._checkpoints.get(part.ref)
        if replaced is not None and replaced.instance != part.instance:
            self._documents.pop(replaced.instance, None)
        self._checkpoints[part.ref] = Checkpoint(
            ref=part.ref,
            instance=part.instance,
            sequence=self._parts[job.id][part.ref].sequence,
            physical=part.physical,
            fingerprint=dict(part.fingerprint),
            buckets=part.buckets,
            watermark=job.created_at,
            job_id=job.id,
            updated_at=self.now(),
        )

    # Slices.

    def claim(self, job_id: str, ref: PartitionRef, worker_id: str, *, work: int, limit: int) -> list[Claim]:
        with self._lock:
            job = self._jobs.get(job_id)
            if job is None or job.state is not JobState.RUNNING:
                return []
            pending = sorted(
                (-each.plan.priority, -each.plan.work, each.plan.index, slice_id, each.attempts)
                for slice_id, each in self._of_job(job_id).items()
                if each.ref == ref and each.state is SliceState.PENDING
            )
            ordinary = [each for each in pending if each[-1] < SUSPECT_ATTEMPTS]
            claims: list[Claim] = []
            reached = 0
            for _, _, _, slice_id, _ in (ordinary or pending[:1])[:limit]:
                if claims and reached >= work:
                    break
                claims.append(self._claim(slice_id, worker_id))
                reached += claims[-1].work
            return claims

    def _claim(self, slice_id: str, worker_id: str) -> Claim:
        each = self._slices[slice_id]
        each.state, each.worker_id, each.fence = SliceState.PROCESSING, worker_id, each.fence + 1
        plan = each.plan
        return Claim(
            slice_id=slice_id,
            job_id=each.job_id,
            ref=each.ref,
            index=plan.index,
            bucket=plan.bucket,
            units=plan.units,
            work=plan.work,
            attempts=each.attempts,
            fence=each.fence,
            payload=plan.payload,
        )

    def _is_held(self, slice_id: str, fence: int, worker_id: str) -> bool:
        return slice_id in self._slices and self._slices[slice_id].held(fence, worker_id)

    def holds(self, claims: Sequence[Claim], worker_id: str) -> bool:
        with self._lock:
            return all(self._is_held(claim.slice_id, claim.fence, worker_id) for claim in claims)

    def complete(self, part: JobPart, worker_id: str, outcomes: Sequence[SliceOutcome], *, job_id: str) -> None:
        with self._lock:
            self._demand_epoch(part)
            new = [outcome for outcome in outcomes if not self._is_replay(outcome, worker_id)]
            for outcome in new:
                demand_balance(outcome)
                held = self._is_held(outcome.slice_id, outcome.fence, worker_id)
                if not held or self._slices[outcome.slice_id].job_id != job_id:
                    raise Fenced(f"slice {outcome.slice_id} was taken over")
            for outcome in new:
                each = self._slices[outcome.slice_id]
                each.state, each.counts = SliceState.COMPLETED, outcome.counts
            manifest = self._documents.setdefault(part.instance, {})
            for outcome in new:
                for removed in outcome.removed:
                    manifest.pop(removed, None)
            for outcome in new:
                manifest.update((entry.document_id, entry) for entry in outcome.entries)
            self._forget_failures(part.ref, new)
            self._record_failures(part.ref, job_id, (each for outcome in new for each in outcome.failures))

    def _is_replay(self, outcome: SliceOutcome, worker_id: str) -> bool:
        each = self._slices.get(outcome.slice_id)
        return (
            each is not None
            and each.state is SliceState.COMPLETED
            and each.fence == outcome.fence
            and each.worker_id == worker_id
        )

    def give_back(self, claims: Sequence[Claim], worker_id: str, *, error: str | None = None, spent: bool) -> None:
        with self._lock:
            for claim in claims:
                if not self._is_held(claim.slice_id, claim.fence, worker_id):
                    continue
                each = self._slices[claim.slice_id]
                if spent:
                    self._bad_end(claim.slice_id, each, error)
                else:
                    each.state, each.worker_id = SliceState.PENDING, None

    def _bad_end(self, slice_id: str, each: _Slice, error: str | None) -> None:
        each.attempts += 1
        if may_be_tried_again(each.attempts):
            each.state, each.worker_id = SliceState.PENDING, None
            return
        plan = each.plan
        whole = SliceWork(slice_id, plan.units, plan.work, plan.lower, plan.upper, plan.payload)
        result = take_apart(whole, each.attempts, error)
        if isinstance(result, Poisoned):
            each.state, each.counts = SliceState.FAILED, result.counts
            self._record_failures(each.ref, each.job_id, result.failures)
            return
        del self._slices[slice_id]
        for half in result:
            part = replace(
                plan, lower=half.lower, upper=half.upper, units=half.units, work=half.work, payload=half.payload
            )
            self._slices[half.id] = _Slice(each.job_id, each.ref, part, attempts=ATTEMPTS_OF_HALVES)

    # Failures.

    def _forget_failures(self, ref: PartitionRef, outcomes: Iterable[SliceOutcome]) -> None:
        for outcome in outcomes:
            for document in (*(entry.document_id for entry in outcome.entries), *outcome.removed):
                self._failures.pop((ref, document), None)

    def _record_failures(self, ref: PartitionRef, job_id: str, failed: Iterable[Failure]) -> None:
        now = self.now()
        # One call is one attempt, however often it names a document.
        for each in {failure.document_id: failure for failure in failed}.values():
            before = self._failures.get((ref, each.document_id))
            self._failures[ref, each.document_id] = FailureRecord(
                ref=ref,
                document_id=each.document_id,
                uri=each.uri,
                version=each.version,
                stage=each.stage,
                reason=each.reason,
                attempts=before.attempts + 1 if before else 1,
                job_id=job_id,
                failed_at=now,
            )

    # What is indexed.

    def checkpoint(self, ref: PartitionRef) -> Checkpoint | None:
        with self._lock:
            return self._checkpoints.get(ref)

    def manifest(self, instance: str) -> dict[str, ManifestEntry]:
        with self._lock:
            return {entry.uri: entry for entry in self._documents.get(instance, {}).values()}

    def totals(self, instance: str) -> tuple[int, int, int]:
        with self._lock:
            entries = self._documents.get(instance, {}).values()
            return len(entries), sum(entry.chunks for entry in entries), sum(entry.size for entry in entries)

    def failed_versions(self, ref: PartitionRef) -> dict[str, str]:
        with self._lock:
            return {record.uri: record.version for record in self._failures.values() if record.ref == ref}

    def failures(self, ref: PartitionRef | None = None, *, limit: int = 100) -> list[FailureRecord]:
        with self._lock:
            records = [record for record in self._failures.values() if ref is None or record.ref == ref]
        records.sort(key=lambda record: (-record.failed_at, str(record.ref), record.document_id))
        return records[:limit]

    def count_failures(self, ref: PartitionRef) -> int:
        with self._lock:
            return sum(1 for record in self._failures.values() if record.ref == ref)


def _demand_move(job: _Job, after: JobState) -> None:
    if after not in JOB_MOVES[job.state]:
        raise Conflict(f"job {job.id} is {job.state}: it cannot become {after}")
