"""Parts of jobs: continued by others, finished by one, and how they look from outside."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from instep.domain.jobs import (
    FINISHING,
    JOB_TRANSITIONS,
    JobPart,
    JobState,
    OpenPart,
    PartStatus,
    Phase,
    SliceState,
    end_of_job,
)
from instep.domain.refs import PartitionRef
from instep.domain.speed import NOTHING_LATELY
from instep.errors import Conflict, Fenced
from instep.ledger.checkpoints import Checkpoint
from instep.ledger.leases import Lease
from instep.ledger.parts import NewPart
from tests.simulator.model import documents, instances, leases, moves, slices, workers
from tests.simulator.model.tables import JobRow, PartRow, Tables

_UNDONE = (SliceState.FAILED, SliceState.CANCELLED)


def insert(tables: Tables, job: JobRow, new: NewPart) -> None:
    part = new.part
    priority = max((each.priority for each in new.slices), default=0)
    job.parts[part.ref] = PartRow(
        part, _sequence_of(tables, part), priority, lost=new.lost, allowed=new.allowed, seen=new.seen
    )
    tables.open_parts.setdefault(part.ref, {})[job.id] = job


def _sequence_of(tables: Tables, part: JobPart) -> int:
    if part.fresh:
        return tables.state.instances[part.instance].sequence
    served = tables.checkpoints.get((part.ref, part.generation))
    return served.sequence if served else 0


def adopt(tables: Tables, lease: Lease) -> JobPart:
    if leases.held(tables, lease) is None:
        raise Fenced(f"the lease of {lease.ref} was lost")
    job = tables.job(lease.job_id)
    if job.state.ended and job.state is not JobState.STOPPED:
        raise Conflict(f"job {job.id} has ended: {job.state}")
    row = job.parts.get(lease.ref)
    if row is None or row.state is not None:
        raise Conflict(f"job {job.id} has no open part on {lease.ref}")
    row.part, row.error, row.finished_at = replace(row.part, epoch=lease.epoch), None, None
    for _, orphan in sorted(row.processing.items()):
        slices.bad_end(tables, orphan, "its worker died")
    # The worker that was to finish stopping is gone. The lease stays: its holder is about to start the job.
    moves.move(tables, job, JobState.STOPPED if job.state is JobState.STOPPING else job.state)
    if job.state is JobState.STOPPED and job.finished_at is None:
        job.finished_at = job.updated_at
    return row.part


def checkpoints(tables: Tables, ref: PartitionRef) -> list[Checkpoint]:
    return [each for key, each in sorted(tables.checkpoints.items()) if key[0] == ref]


def describe_checkpoint(tables: Tables, known: Checkpoint, fingerprint: Mapping[str, str]) -> None:
    found = tables.checkpoints.get((known.ref, known.generation))
    if found is not None and found.instance == known.instance:
        tables.checkpoints[known.ref, known.generation] = replace(found, fingerprint=dict(fingerprint))


def entity_checkpoints(tables: Tables, entity: str) -> list[Checkpoint]:
    return [each for key, each in sorted(tables.checkpoints.items()) if key[0].entity == entity]


def indexes(tables: Tables, entity: str) -> set[str]:
    begun = {
        job.parts[ref].part.physical
        for ref, jobs in tables.open_parts.items()
        if ref.entity == entity
        for job in jobs.values()
    }
    return begun | {each.physical for each in entity_checkpoints(tables, entity)}


def begin_finish(tables: Tables, job_id: str, ref: PartitionRef, worker_id: str) -> bool:
    job = tables.jobs.get(job_id)
    row = job.parts.get(ref) if job is not None else None
    if job is None or row is None or row.state is not None or row.open_slices:
        return False
    if row.finisher not in (None, worker_id) and row.finisher in job.workers:
        return False
    row.finisher = worker_id
    return True


def finish(
    tables: Tables,
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
    if not state.ended or state is JobState.STOPPED:
        raise ValueError(f"{state} is not an end of a part")
    job = tables.job(job_id)
    row = job.parts.get(part.ref)
    if row is None or row.part.instance != part.instance:
        raise Conflict(f"job {job_id} has no such part on {part.ref}")
    if row.state is state:
        return job.state
    _demand_finish(tables, job, row, part, state, worker_id=worker_id, promote=promote)
    if promote:
        _promote(tables, job, row)
        if whole:
            documents.forget_unmet(tables, row.key, job_id)
    else:
        if not part.fresh and state is not JobState.FAILED and not any(row.slices[each] for each in _UNDONE):
            _keep_seen(tables, row)
        instances.failed(tables, job, row.part, error or f"its part of job {job_id} is {state}", retry=retry)
    if state is JobState.FAILED:
        slices.cancel_open(tables, job_id, part.ref)
        documents.forget_unserved(tables, part)
    row.state, row.finished_at, row.error = state, tables.now(), error
    del tables.open_parts[part.ref][job_id]
    tables.leases[part.ref].job_id = None
    _end_of_job(tables, job)
    return job.state


def stop(
    tables: Tables, job_id: str, ref: PartitionRef, reason: str, *, by: str | None = None, alone: Collection[str] = ()
) -> bool:
    job = tables.job(job_id)
    row = job.parts.get(ref)
    for each in list(row.processing.values()) if row is not None else ():
        if each.worker_id == by:
            slices.to_pending(tables, each)
    if row is None or row.state is not None:
        return False
    if row.error is None:
        if JobState.STOPPING not in JOB_TRANSITIONS[job.state] or (alone and job.workers - set(alone)):
            return False
        row.error, row.finished_at = reason, tables.now()
    apply_stops(tables, job)
    return True


def apply_stops(tables: Tables, job: JobRow) -> None:
    still = [each for each in job.parts.values() if each.state is None]
    to_stop = job.state is JobState.STOPPING or JobState.STOPPING in JOB_TRANSITIONS[job.state]
    if to_stop and all(each.error is not None for each in still):
        moves.request_stop(tables, job, still[0].error)
        return
    moves.move(tables, job, job.state)
    for each in still:
        if each.error is not None and not each.processing:
            leases.free_of(tables, each.part.ref, job.id)


def drop_partition(tables: Tables, lease: Lease, by: str) -> None:
    if leases.held(tables, lease) is None:
        raise Fenced(f"the lease of {lease.ref} was lost")
    ref = lease.ref
    for job in list(tables.open_parts.get(ref, {}).values()):
        _fail_open(tables, job, job.parts[ref], f"{ref} was dropped")
    for each in checkpoints(tables, ref):
        tables.documents.pop(each.instance, None)
        del tables.checkpoints[ref, each.generation]
        tables.seen.pop((ref, each.generation), None)
    for key in [each for each in tables.failures if each[0] == ref]:
        del tables.failures[key]
    instances.dropped(tables, ref, by)


def _fail_open(tables: Tables, job: JobRow, row: PartRow, error: str) -> None:
    """End a part without workers; another event says what became of its instance."""
    slices.cancel_open(tables, job.id, row.part.ref)
    documents.forget_unserved(tables, row.part)
    row.state, row.finished_at, row.error = JobState.FAILED, tables.now(), error
    del tables.open_parts[row.part.ref][job.id]
    _end_of_job(tables, job)


def _demand_finish(
    tables: Tables, job: JobRow, row: PartRow, part: JobPart, state: JobState, *, worker_id: str, promote: bool
) -> None:
    ref = part.ref
    if row.state is not None:
        raise Conflict(f"the part of job {job.id} on {ref} has ended: {row.state}")
    leases.demand_epoch(tables, part, job.id)
    if row.finisher not in (None, worker_id) and row.finisher in job.workers:
        raise Fenced(f"worker {row.finisher} finishes {ref}")
    if state is JobState.FAILED and not promote:
        return
    if job.state is not JobState.RUNNING:
        raise Conflict(f"job {job.id} is {job.state}: its part on {ref} cannot be {state} or promoted")
    if row.open_slices:
        raise Conflict(f"job {job.id} has open slices on {ref}: it cannot be {state} or promoted")


def _end_of_job(tables: Tables, job: JobRow) -> None:
    end = end_of_job(each.state for each in job.parts.values())
    if end is None:
        apply_stops(tables, job)
    else:
        moves.end(tables, job, end, error=next((each.error for each in job.parts.values() if each.error), None))


def _promote(tables: Tables, job: JobRow, row: PartRow) -> None:
    part = row.part
    replaced = tables.checkpoints.get(row.key)
    # A job that waited long for its lease was made before another that has ended since.
    reached = job.created_at if part.target is None else part.target
    watermark = max(reached, instances.watermark(tables, part))
    rejected = instances.promoted(tables, job, row, watermark)
    if rejected is not None:
        raise Conflict(rejected.reason)
    if replaced is not None and replaced.instance != part.instance:
        tables.documents.pop(replaced.instance, None)
    tables.checkpoints[row.key] = Checkpoint(
        ref=part.ref,
        instance=part.instance,
        sequence=row.sequence,
        physical=part.physical,
        fingerprint=dict(part.fingerprint),
        buckets=part.buckets,
        watermark=watermark,
        job_id=job.id,
        updated_at=tables.now(),
        generation=part.generation,
    )
    _keep_seen(tables, row)


def _keep_seen(tables: Tables, row: PartRow) -> None:
    if row.seen is not None:
        tables.seen[row.key] = (row.part.instance, row.seen)


def status(tables: Tables, job: JobRow, row: PartRow) -> PartStatus:
    return PartStatus(
        part=row.part,
        state=row.state,
        finished_at=row.finished_at,
        error=row.error,
        slices={state: number for state, number in row.slices.items() if number},
        units=row.units,
        counts=row.counts,
        lately=row.completed.lately(tables.now()) if job.state is JobState.RUNNING else NOTHING_LATELY,
        underway=workers.underway(tables, job, row.processing) if job.state is JobState.RUNNING else 0,
        told=_told(job, row) if job.state is JobState.RUNNING else None,
    )


def _told(job: JobRow, row: PartRow) -> Phase | None:
    told = [each.kind for each in job.log if each.ref == str(row.part.ref) and each.kind in FINISHING]
    return Phase(told[-1]) if told else None


def as_open(tables: Tables, job: JobRow, row: PartRow) -> OpenPart:
    head, lease = row.pending.head(tables.now()), tables.leases.get(row.part.ref)
    return OpenPart(
        job_id=job.id,
        job_state=job.state,
        part=row.part,
        priority=row.priority,
        head=head.work if head is not None else 0,
        pending=row.slices[SliceState.PENDING],
        processing=row.slices[SliceState.PROCESSING],
        held=lease is not None and lease.job_id == job.id and leases.is_kept(tables, lease),
        workers=len(job.workers),
        error=row.error,
    )


def of_epoch(tables: Tables, ref: PartitionRef, epoch: int) -> tuple[str, JobPart] | None:
    found = [(job.parts[ref].part, job.id) for job in tables.jobs.values() if ref in job.parts]
    part, job_id = min(
        ((each, job_id) for each, job_id in found if each.epoch >= epoch),
        key=lambda pair: pair[0].epoch,
        default=(None, ""),
    )
    forgotten = tables.forgotten.get(str(ref))
    if part is None or (forgotten and forgotten.hides_epoch(epoch, part.epoch)):
        return None
    return job_id, part


def reaching(tables: Tables, ref: PartitionRef, instance: str, watermark: int) -> tuple[str, JobPart] | None:
    found = [
        (row.state is JobState.FAILED, row.part.epoch, job.id)
        for job in tables.jobs.values()
        if (row := job.parts.get(ref)) is not None
        and row.part.instance == instance
        and row.part.target is not None
        and row.part.target >= watermark
    ]
    if not found:
        return None
    *_, job_id = min(found)
    part, forgotten = tables.jobs[job_id].parts[ref].part, tables.forgotten.get(str(ref))
    if forgotten and forgotten.hides_watermark(watermark, part.epoch, fresh=part.fresh):
        return None
    return job_id, part
