"""Parts of jobs: planned together, finished one by one."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from sqlalchemy import Row, exists, func, insert, or_, select, update

from instep.domain.events import DependencyMissed
from instep.domain.jobs import JobPart, JobState, SlicePlan, SliceState, end_of_job
from instep.domain.planning import claim_order, claimable_at
from instep.domain.promotion_rules import NO_LOSS, Loss
from instep.domain.refs import PartitionRef
from instep.domain.seen import Seen
from instep.errors import Conflict, Fenced
from instep.ledger import checkpoints as checkpoint_rows
from instep.ledger import failures as failure_rows
from instep.ledger import instances as instance_rows
from instep.ledger import job_transitions, part_stops, retention, slice_rows, workers
from instep.ledger import jobs as job_rows
from instep.ledger import leases as lease_rows
from instep.ledger import seen as seen_rows
from instep.ledger.leases import Lease
from instep.ledger.plans import Plans, payload_of
from instep.ledger.slice_rows import PENDING, PROCESSING
from instep.ledger.tables import PART_ENDS, checkpoints, instances, job_parts, jobs, slice_work, slices
from instep.ledger.transaction import Database, Store, Transaction, reads, writes

#: Payloads that are in memory at once.
_PAYLOADS: Final = 50


@dataclass(frozen=True, slots=True)
class NewPart:
    """A partition's share of a new job: what it builds, its slices, and what it cannot be built without. `lost` is what
    it removes without a request to; `allowed`: a person has permitted any loss. `seen`: what is to be known of a table
    when the part is served.
    """

    part: JobPart
    slices: Sequence[SlicePlan]
    missed: Sequence[DependencyMissed] = ()
    lost: Loss = NO_LOSS
    allowed: bool = False
    seen: Seen | None = None


class Parts(Store):
    """The parts of jobs: the share of one partition in a job. Each write about one shows the epoch of the partition's
    lease.
    """

    def __init__(self, database: Database, plans: Plans) -> None:
        super().__init__(database)
        self._plans = plans

    def plan(self, job_id: str, parts: Sequence[NewPart], *, stagger: bool = False) -> None:
        """Store parts and slices; INITIALIZING → READY, in one transaction. Shows each part's epoch.

        `rank` is given by priority, then largest work first (LPT), then number. The first half of the
        slices in that order is claimable at once; with `stagger` the rest becomes claimable one by one over
        the stagger time, else at once too. Raises `Fenced` without the leases, `Conflict` if the job is not
        INITIALIZING.

        Appends for each part, in the order given, what its instance becomes: Building for a fresh part, of the window
        (0, target], else Refreshing, of (the checkpoint's watermark, target]. The target is the part's, else now (never
        less than the job's `created_at`); and never less than the floor. Then what the parts miss: these wait for it
        from the beginning. `Conflict`, and no change, when an instance cannot become that, or would wait for itself.
        """
        found = [replace(each, slices=self._plans.written(job_id, each.slices)) for each in parts]
        self._plan(job_id, found, stagger=stagger)
        self._plans.clear()

    @writes
    def _plan(self, tx: Transaction, job_id: str, parts: Sequence[NewPart], *, stagger: bool) -> None:
        state = job_transitions.demand(tx, job_id)
        job_transitions.demand_transition(job_id, state, JobState.READY)
        for new in sorted(parts, key=lambda each: str(each.part.ref)):
            lease_rows.demand_epoch(tx, job_id, new.part)
        for position, new in enumerate(parts):
            _insert(tx, job_id, position, new)
        planned = [
            (f"{job_id}.{position}.{each.index}", new.part.ref, each)
            for position, new in enumerate(parts)
            for each in new.slices
        ]
        _insert_slices(tx, job_id, planned, tx.timing.stagger if stagger else 0)
        tx.dialect.planned(tx.connection, len(planned))
        job_transitions.set_state(tx, job_id, JobState.READY)
        missed = [each for new in parts for each in new.missed]
        instance_rows.begin(tx, job_id, [new.part for new in parts], missed, _created_at(tx, job_id))

    def extend(self, part: JobPart, more: Sequence[SlicePlan], *, job_id: str, seen: Seen | None = None) -> None:
        """More slices, behind those that it has, which have to be done: of what came after the part was planned. They
        are claimable at once, and the part has no elected finisher any more. `seen`: what is then to be known in place
        of what was planned; None: the same. Raises `Fenced` if the part's epoch is not the lease's any more, `Conflict`
        if the part has open slices or has ended, or if the job is not RUNNING.
        """
        self._extend(part, self._plans.written(job_id, more), job_id=job_id, seen=seen)

    @writes
    def _extend(
        self, tx: Transaction, part: JobPart, more: Sequence[SlicePlan], *, job_id: str, seen: Seen | None
    ) -> None:
        state = job_transitions.demand(tx, job_id)
        stored = _stored(tx, job_id, part)
        lease_rows.demand_epoch(tx, job_id, part)
        if state is not JobState.RUNNING or stored.state is not None or _has_open_slices(tx, job_id, part.ref):
            raise Conflict(f"the part of job {job_id} on {part.ref} cannot be extended")
        last = select(func.max(slices.c.number)).where(slices.c.job_id == job_id, slices.c.ref == str(part.ref))
        found = tx.connection.scalar(last)
        first = 0 if found is None else found + 1
        numbered = [replace(each, index=first + each.index) for each in more]
        named = [(f"{job_id}.{stored.position}.{each.index}", part.ref, each) for each in numbered]
        _insert_slices(tx, job_id, named, 0)
        _update(tx, job_id, part.ref, finisher=None)
        if seen is not None:
            seen_rows.forget(tx, job_id, part)
            seen_rows.plan(tx, job_id, part, seen)
        job_transitions.touch(tx, job_id)

    @writes
    def adopt(self, tx: Transaction, lease: Lease) -> JobPart:
        """Continue the part of the lease's job under a new lease: it gets the new epoch and is returned.

        No worker was left in the job when the lease was taken, so slices still PROCESSING have ended badly.
        A job left STOPPING becomes STOPPED. Its elected finisher stays elected while it takes part. One that had
        stopped by itself has no error any more. Raises `Fenced` without the lease, `Conflict` when the job has ended
        otherwise, or the part has.
        """
        job_id = lease.job_id
        state = job_transitions.lock(tx, job_id)
        lease_rows.demand(tx, lease)
        if state is None or (state.ended and state is not JobState.STOPPED):
            raise Conflict(f"job {job_id} has ended: {state}")
        row = lock_open(tx, job_id, lease.ref)
        if row is None:
            raise Conflict(f"job {job_id} has no open part on {lease.ref}")
        if state is JobState.STOPPING:
            # The worker that was to finish stopping is gone. The lease is the adopter's: it stays.
            job_transitions.set_state(tx, job_id, JobState.STOPPED, finished_at=tx.now())
        else:
            job_transitions.touch(tx, job_id)
        _update(tx, job_id, lease.ref, epoch=lease.epoch, error=None, finished_at=None)
        here = (slices.c.job_id == job_id, slices.c.ref == str(lease.ref))
        slice_rows.end_badly(tx, slice_rows.lock_processing(tx, *here), workers.DIED)
        adopted = select(job_parts).where(job_parts.c.job_id == job_id, job_parts.c.ref == str(lease.ref))
        return job_rows.part_of(tx.connection.execute(adopted).one())

    @writes
    def stop(
        self,
        tx: Transaction,
        job_id: str,
        ref: PartitionRef,
        reason: str,
        *,
        by: str | None = None,
        alone: Collection[str] = (),
    ) -> bool:
        """The part stops by itself, with this error: nothing of it is begun any more, what is in work ends, then its
        lease is free, and who adopts it goes on. Other parts go on; a job of which nothing else is open begins to stop
        (`Jobs.request_stop`). Again it changes nothing, but that the lease is free by then.

        `by`: the worker that leaves the part; its slices go back to PENDING unspent. `alone`: the part stops only if
        no other workers than these take part in the job. Returns whether it has stopped; False if it has ended, or if
        its job has ended or is to stop.
        """
        return part_stops.stop(tx, job_id, ref, reason, by=by, alone=alone)

    @writes
    def begin_finish(self, tx: Transaction, job_id: str, ref: PartitionRef, worker_id: str) -> bool:
        """Whether this worker is to finish the part: no slice of it is open, and no other worker does it that
        still takes part in the job. Again it is still true.
        """
        row = lock_open(tx, job_id, ref)
        if row is None or _has_open_slices(tx, job_id, ref) or _is_finished_by_another(tx, row, worker_id):
            return False
        _update(tx, job_id, ref, finisher=worker_id)
        return True

    def finish(
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
        """End a part as COMPLETED, COMPLETED_WITH_ERRORS or FAILED, and free its lease. `promote` makes it
        the checkpoint of the partition's generation in the same transaction; manifest rows of the instance it
        replaces are dropped, and if the job has read the `whole` source, so are failures that it has not
        met. When FAILED, its open slices are CANCELLED and the manifest of a fresh instance that is not served is
        dropped. The last part to end ends the job (`end_of_job`), which has no workers then; its state is
        returned.
        Again with the same state (a lost reply) it changes nothing.

        Appends what became of the instance, of the part's counts and the checkpoint's new watermark (the part's target,
        else the job's `created_at`; of the same instance never less than the one before): fresh and promoted, it is
        Live and served; promoted otherwise, it is Refreshed. Not promoted, the build or the refresh has failed, by
        `error` (else by the part's state), whatever `state` says; with `retry`, wants go on waiting for the next one.
        That is not appended when the instance is not in work by this job any more. What a refresh has seen whose slices
        are all done is known even so: its writes stay, and the next job begins behind them.

        Raises `Fenced` if the part's epoch is not its lease's any more or another worker finishes it,
        `Conflict` for open slices in a part that is to be completed or promoted, a job that was stopped, or an instance
        that does not take what is to be promoted (what it waited for has failed, say). The part stays open then.
        """
        after = self._finish(
            job_id, part, state, worker_id=worker_id, promote=promote, whole=whole, error=error, retry=retry
        )
        if after.ended:
            self._plans.clear()
        return after

    @writes
    def _finish(
        self,
        tx: Transaction,
        job_id: str,
        part: JobPart,
        state: JobState,
        *,
        worker_id: str,
        promote: bool,
        whole: bool,
        error: str | None,
        retry: bool,
    ) -> JobState:
        if state not in PART_ENDS:
            raise ValueError(f"{state} is not an end of a part")
        before = job_transitions.demand(tx, job_id)
        stored = _stored(tx, job_id, part)
        if stored.state == state:
            return before
        if stored.state is not None:
            raise Conflict(f"the part of job {job_id} on {part.ref} has ended: {stored.state}")
        lease_rows.demand_epoch(tx, job_id, part)
        if _is_finished_by_another(tx, stored, worker_id):
            raise Fenced(f"another worker finishes the part of job {job_id} on {part.ref}")
        durable = promote or state is not JobState.FAILED
        if durable and before is not JobState.RUNNING:
            raise Conflict(f"job {job_id} is {before}: its part on {part.ref} cannot become {state}")
        if durable and _has_open_slices(tx, job_id, part.ref):
            raise Conflict(f"the part of job {job_id} on {part.ref} has open slices: it cannot be {state} or promoted")
        if promote:
            if whole:
                failure_rows.forget_unmet(tx, part, job_id)
            _promote(tx, job_id, part, stored)
        if state is JobState.FAILED:
            _cancel(tx, job_id, part.ref)
            checkpoint_rows.drop_unserved(tx, part)
        lease_rows.release(tx, Lease(part.ref, job_id, part.epoch, 0))
        _update(tx, job_id, part.ref, state=state.value, finished_at=tx.now(), error=error)
        after = _end_job(tx, job_id, before)
        if not promote:
            stays = not part.fresh and state is not JobState.FAILED and not _has_undone_slices(tx, job_id, part.ref)
            (seen_rows.serve if stays else seen_rows.forget)(tx, job_id, part)
            instance_rows.fail(tx, job_id, part, error or f"its part of job {job_id} is {state}", retry=retry)
        return after

    @reads
    def of_epoch(self, tx: Transaction, ref: PartitionRef, epoch: int) -> tuple[str, JobPart] | None:
        """The job, and its part, that wrote rows of this `_version`: that which has the least epoch from `epoch` on,
        because a part's epoch grows while it is worked on. None if that was forgotten.
        """
        later = select(job_parts).where(job_parts.c.ref == str(ref), job_parts.c.epoch >= epoch)
        row = tx.connection.execute(later.order_by(job_parts.c.epoch).limit(1)).one_or_none()
        forgotten = retention.read(tx, ref)
        if row is None or (forgotten and forgotten.hides_epoch(epoch, row.epoch)):
            return None
        return row.job_id, job_rows.part_of(row)

    @reads
    def reaching(self, tx: Transaction, ref: PartitionRef, instance: str, watermark: int) -> tuple[str, JobPart] | None:
        """The job, and its part, that brought what has this watermark into an instance: the first whose target is not
        below it. One that failed counts only if there is no other: what it had to do was done by the next. None if that
        was forgotten.
        """
        here = (job_parts.c.ref == str(ref), job_parts.c.instance == instance, job_parts.c.target >= watermark)
        failed = func.coalesce(job_parts.c.state, "") == JobState.FAILED.value
        # One after the other: ordered by both, what is found would have to be sorted.
        for which in (~failed, failed):
            first = select(job_parts).where(*here, which).order_by(job_parts.c.epoch).limit(1)
            row = tx.connection.execute(first).one_or_none()
            if row is not None:
                forgotten = retention.read(tx, ref)
                if forgotten and forgotten.hides_watermark(watermark, row.epoch, fresh=row.fresh):
                    return None
                return row.job_id, job_rows.part_of(row)
        return None


# Planning.


def _insert(tx: Transaction, job_id: str, position: int, new: NewPart) -> None:
    part = new.part
    if part.fresh:
        numbered = select(instances.c.sequence).where(instances.c.uuid == part.instance)
    else:
        here = (checkpoints.c.ref == str(part.ref), checkpoints.c.generation == part.generation)
        numbered = select(checkpoints.c.sequence).where(*here)
    tx.connection.execute(
        insert(job_parts).values(
            job_id=job_id,
            ref=str(part.ref),
            position=position,
            instance=part.instance,
            sequence=tx.connection.scalar(numbered) or 0,
            physical=part.physical,
            fingerprint=json.dumps(dict(part.fingerprint), sort_keys=True),
            buckets=part.buckets,
            epoch=part.epoch,
            base=part.base,
            fresh=part.fresh,
            priority=max((each.priority for each in new.slices), default=0),
            revision=part.revision,
            inputs=json.dumps(part.inputs),
            generation=part.generation,
            target=part.target,
            lost_units=new.lost.units,
            lost_rows=new.lost.rows,
            allowed=new.allowed,
        )
    )
    seen_rows.plan(tx, job_id, part, new.seen)


def _insert_slices(
    tx: Transaction, job_id: str, planned: Sequence[tuple[str, PartitionRef, SlicePlan]], stagger: int
) -> None:
    if not planned:
        return
    ranked = [planned[at] for at in claim_order([each for *_, each in planned])]
    now, count = tx.now(), len(ranked)
    hot = [
        {
            "id": slice_id,
            "job_id": job_id,
            "ref": str(ref),
            "number": each.index,
            "bucket": each.bucket,
            "units": each.units,
            "work": each.work,
            "priority": each.priority,
            "rank": rank,
            "claimable_at": claimable_at(rank, count, now, stagger),
            "state": SliceState.PENDING.value,
            "attempts": 0,
            "fence": 0,
        }
        for rank, (slice_id, ref, each) in enumerate(ranked)
    ]
    tx.connection.execute(insert(slices), hot)
    for start in range(0, count, _PAYLOADS):
        cold = [
            {"slice_id": slice_id, "lower_bound": each.lower, "upper_bound": each.upper, "payload": payload_of(each)}
            for slice_id, _, each in ranked[start : start + _PAYLOADS]
        ]
        tx.connection.execute(insert(slice_work), cold)


# Finishing.


def fail_open(tx: Transaction, row: Row[Any], error: str, before: JobState) -> None:
    """Fail an open part that has no worker; another event records the end of its instance."""
    part = job_rows.part_of(row)
    _cancel(tx, row.job_id, part.ref)
    checkpoint_rows.drop_unserved(tx, part)
    seen_rows.forget(tx, row.job_id, part)
    _update(tx, row.job_id, part.ref, state=JobState.FAILED.value, finished_at=tx.now(), error=error)
    _end_job(tx, row.job_id, before)


def _promote(tx: Transaction, job_id: str, part: JobPart, stored: Row[Any]) -> None:
    """Serve the part's instance. Raises `Conflict` when it cannot be."""
    reached = _created_at(tx, job_id) if stored.target is None else stored.target
    watermark = instance_rows.watermark(tx, part, reached)
    # First, for it may take long to drop a manifest: appends of others should not wait for that.
    checkpoint_rows.move(tx, part, job_id, sequence=stored.sequence, watermark=watermark)
    seen_rows.serve(tx, job_id, part)
    instance_rows.succeed(tx, job_id, part, watermark)


def _created_at(tx: Transaction, job_id: str) -> int:
    return int(tx.connection.execute(select(jobs.c.created_at).where(jobs.c.id == job_id)).scalar_one())


def _stored(tx: Transaction, job_id: str, part: JobPart) -> Row[Any]:
    here = (job_parts.c.job_id == job_id, job_parts.c.ref == str(part.ref), job_parts.c.instance == part.instance)
    row = tx.connection.execute(select(job_parts).where(*here).with_for_update()).one_or_none()
    if row is None:
        raise Conflict(f"job {job_id} has no such part on {part.ref}")
    return row


def _is_finished_by_another(tx: Transaction, row: Row[Any], worker_id: str) -> bool:
    """Whether another worker of the job was elected; one that has left does not block finishing."""
    return row.finisher not in (None, worker_id) and workers.takes_part(tx, row.job_id, row.finisher)


def _cancel(tx: Transaction, job_id: str, ref: PartitionRef) -> None:
    tx.connection.execute(
        update(slices)
        .where(slices.c.job_id == job_id, slices.c.ref == str(ref), or_(PENDING, PROCESSING))
        .values(state=SliceState.CANCELLED.value, worker_id=None, finished_at=tx.now())
    )


def _end_job(tx: Transaction, job_id: str, before: JobState) -> JobState:
    """The last part to end ends the job; what went wrong in the parts went wrong in it."""
    of_it = select(job_parts.c.state, job_parts.c.error).where(job_parts.c.job_id == job_id)
    rows = tx.connection.execute(of_it.order_by(job_parts.c.position)).all()
    state = end_of_job(None if row.state is None else JobState(row.state) for row in rows)
    if state is None:
        return part_stops.apply(tx, job_id, before)
    job_rows.end(tx, job_id, state, error=next((row.error for row in rows if row.error), None))
    return state


def _has_open_slices(tx: Transaction, job_id: str, ref: PartitionRef) -> bool:
    here = (slices.c.job_id == job_id, slices.c.ref == str(ref))
    return bool(tx.connection.scalar(select(or_(exists().where(*here, PENDING), exists().where(*here, PROCESSING)))))


def _has_undone_slices(tx: Transaction, job_id: str, ref: PartitionRef) -> bool:
    undone = slices.c.state.in_([SliceState.FAILED.value, SliceState.CANCELLED.value])
    here = (slices.c.job_id == job_id, slices.c.ref == str(ref))
    return bool(tx.connection.scalar(select(exists().where(*here, undone))))


def lock_open(tx: Transaction, job_id: str, ref: PartitionRef) -> Row[Any] | None:
    here = (job_parts.c.job_id == job_id, job_parts.c.ref == str(ref), job_parts.c.state.is_(None))
    return tx.connection.execute(select(job_parts).where(*here).with_for_update()).one_or_none()


def _update(tx: Transaction, job_id: str, ref: PartitionRef, **values: Any) -> None:
    here = (job_parts.c.job_id == job_id, job_parts.c.ref == str(ref))
    tx.connection.execute(update(job_parts).where(*here).values(**values))
