"""Jobs: their moves from state to state, and how they look from outside."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from instep.domain.jobs import JOB_TRANSITIONS, Claim, Job, JobPart, JobState, OpenPart, SlicePlan, by_people
from instep.domain.planning import claim_order, claimable_at
from instep.domain.refs import PartitionRef
from instep.domain.seen import Seen
from instep.errors import Conflict
from instep.ledger.job_transitions import NOTHING_PLANNED
from instep.ledger.jobs import JobMark
from instep.ledger.parts import NewPart
from tests.simulator.model import instances, leases, log, moves, parts, slices, workers
from tests.simulator.model.tables import Generation, JobRow, SliceRow, Tables


def begin(tables: Tables, job_id: str, worker_id: str, configuration: Mapping[str, Any]) -> None:
    tables.worker(worker_id)
    if job_id not in tables.jobs:
        now = tables.now()
        tables.jobs[job_id] = JobRow(job_id, worker_id, dict(configuration), log.present(tables), now)
        workers.take_part(tables, tables.jobs[job_id], worker_id)


def plan(tables: Tables, job_id: str, new_parts: Sequence[NewPart], *, stagger: bool) -> None:
    job = tables.job(job_id)
    if job.state is not JobState.INITIALIZING:
        raise Conflict(f"job {job_id} is {job.state}: it was planned already")
    for new in new_parts:
        leases.demand_epoch(tables, new.part, job_id)
    instances.begin(tables, job, new_parts)
    now = tables.now()
    for new in new_parts:
        parts.insert(tables, job, new)
    planned = [(position, new.part.ref, each) for position, new in enumerate(new_parts) for each in new.slices]
    spread = tables.timing.stagger if stagger else 0
    for rank, place in enumerate(claim_order([each for _, _, each in planned])):
        position, ref, each = planned[place]
        start = claimable_at(rank, len(planned), now, spread)
        slices.insert(tables, SliceRow(f"{job_id}.{position}.{each.index}", job_id, ref, each, rank, start))
    moves.move(tables, job, JobState.READY)


def extend(tables: Tables, job_id: str, part: JobPart, more: Sequence[SlicePlan], seen: Seen | None) -> None:
    job = tables.job(job_id)
    leases.demand_epoch(tables, part, job_id)
    row = job.parts[part.ref]
    if job.state is not JobState.RUNNING or row.state is not None or row.open_slices:
        raise Conflict(f"the part of job {job_id} on {part.ref} cannot be extended")
    of_it = [each for each in tables.slices.values() if (each.job_id, each.ref) == (job_id, part.ref)]
    first = max((each.plan.index for each in of_it), default=-1) + 1
    position = list(job.parts).index(part.ref)
    for rank, place in enumerate(claim_order(more)):
        each = replace(more[place], index=first + more[place].index)
        id = f"{job_id}.{position}.{each.index}"
        slices.insert(tables, SliceRow(id, job_id, part.ref, each, rank, tables.now()))
    row.finisher = None
    row.seen = row.seen if seen is None else seen


def discard(tables: Tables, job_id: str) -> None:
    job = tables.jobs.get(job_id)
    if job is None:
        return
    if job.state is not JobState.INITIALIZING:
        raise Conflict(f"job {job_id} is {job.state}: it cannot be discarded")
    for worker_id in list(job.workers):
        workers.leave(tables, job, worker_id)
    leases.free_all_of(tables, job_id)
    del tables.jobs[job_id]


def join(tables: Tables, job_id: str, worker_id: str) -> None:
    tables.worker(worker_id)
    job = tables.job(job_id)
    if job.state.ended and job.state is not JobState.STOPPED:
        raise Conflict(f"job {job_id} has ended: {job.state}")
    workers.take_part(tables, job, worker_id)


def leave(tables: Tables, job_id: str, worker_id: str, *, stop_reason: str | None) -> JobState | None:
    job = tables.jobs.get(job_id)
    if job is None:
        return None
    if worker_id in tables.workers:
        for row in [each for each in tables.workers[worker_id].slices.values() if each.job_id == job_id]:
            slices.to_pending(tables, row)
    workers.leave(tables, job, worker_id)
    if stop_reason is not None and not job.workers and not job.state.ended:
        # The reason of a stop that was asked for stands.
        error = job.error if job.state is JobState.STOPPING else stop_reason
        moves.end(tables, job, JobState.STOPPED, error=error)
    return job.state


def start(tables: Tables, job_id: str, *, whole: bool = False) -> None:
    job = tables.job(job_id)
    if whole:
        for each in job.parts.values():
            if each.state is None:
                each.error = each.finished_at = None
    # A stop that was asked for stands.
    if job.state in (JobState.RUNNING, JobState.STOPPING):
        return
    if JobState.RUNNING not in JOB_TRANSITIONS[job.state]:
        raise Conflict(f"job {job_id} is {job.state}: it cannot become {JobState.RUNNING}")
    if not job.parts:
        raise Conflict(NOTHING_PLANNED.format(job=job_id))
    moves.move(tables, job, JobState.RUNNING)
    job.stopping_at = job.finished_at = job.error = None
    if job.started_at is None:
        job.started_at = job.updated_at


def request_stop(tables: Tables, job_id: str, reason: str | None) -> JobState:
    job = tables.job(job_id)
    moves.request_stop(tables, job, reason)
    return job.state


def explain_stop(tables: Tables, job_id: str, reason: str) -> None:
    job = tables.jobs.get(job_id)
    if job is not None and job.state is JobState.STOPPED and not by_people(job.error):
        job.updated_at, job.error = tables.now(), reason


def give_back(
    tables: Tables, claims: Sequence[Claim], worker_id: str, *, error: str | None, spent: bool, delay: int
) -> str | None:
    stuck = slices.give_back(tables, claims, worker_id, error=error, spent=spent, delay=delay)
    for (job_id, ref), reason in stuck.items():
        parts.stop(tables, job_id, ref, reason)
    return next(iter(stuck.values()), None)


def newest(tables: Tables, limit: int) -> list[Job]:
    return [view(tables, job) for job in sorted(tables.jobs.values(), key=_age, reverse=True)[:limit]]


def marks(tables: Tables, newest_jobs: int) -> list[JobMark]:
    jobs = sorted(tables.jobs.values(), key=_age, reverse=True)
    live = [job for job in jobs if not job.state.ended]
    shown = {job.id for job in (*jobs[:newest_jobs], *live[:newest_jobs])}
    return [JobMark(job.id, job.state, job.updated_at) for job in jobs if job.id in shown]


def unfinished(tables: Tables, key: Generation) -> Job | None:
    """A job with an open part has not ended, or was STOPPED."""
    return _newest_on(tables, tables.open_parts.get(key[0], {}).values(), key)


def latest(tables: Tables, key: Generation) -> Job | None:
    return _newest_on(tables, tables.jobs.values(), key)


def _newest_on(tables: Tables, jobs: Iterable[JobRow], key: Generation) -> Job | None:
    ref, _ = key
    found = max((job for job in jobs if ref in job.parts and job.parts[ref].key == key), key=_age, default=None)
    return view(tables, found) if found else None


def _age(job: JobRow) -> tuple[int, str]:
    return job.created_at, job.id


def view(tables: Tables, job: JobRow) -> Job:
    return Job(
        id=job.id,
        state=job.state,
        worker_id=job.worker_id,
        configuration=job.configuration,
        created_at=job.created_at,
        started_at=job.started_at,
        updated_at=job.updated_at,
        finished_at=job.finished_at,
        error=job.error,
        parts=tuple(parts.status(tables, job, each) for each in job.parts.values()),
    )


def open_parts(tables: Tables, refs: Collection[PartitionRef]) -> list[OpenPart]:
    found = [
        parts.as_open(tables, job, job.parts[ref])
        for ref in set(refs)
        for job in tables.open_parts.get(ref, {}).values()
        if not job.state.ended
    ]
    return sorted(found, key=lambda each: (-each.priority, -each.head, str(each.part.ref), each.job_id))


def wanted_stopped(tables: Tables, refs: Collection[PartitionRef]) -> list[tuple[PartitionRef, str]]:
    stopped = {
        job.parts[ref].key
        for ref in refs
        for job in tables.open_parts.get(ref, {}).values()
        if job.state is JobState.STOPPED or (job.state is JobState.RUNNING and job.parts[ref].error is not None)
    }
    now = log.present(tables)
    return sorted(
        (ref, generation)
        for ref, generation in stopped
        if any(each.due is None or each.due <= now for each in tables.state.open_wants(str(ref), generation))
    )
