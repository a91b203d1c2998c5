"""Workers that live, end or died, and what becomes of their slices and jobs."""

from __future__ import annotations

from collections.abc import Collection

from instep.domain.jobs import JobState
from instep.ledger.sweep import Swept
from tests.simulator.model import moves, slices, workers
from tests.simulator.model.tables import JobRow, SliceRow, Tables


def heartbeat(tables: Tables, worker_id: str, running: Collection[str]) -> int:
    row, now = tables.worker(worker_id), tables.now()
    row.heartbeat_at = now
    forgotten = [
        each
        for each in row.slices.values()
        if each.id not in running and abs(now - each.claimed_at) > tables.timing.heartbeat
    ]
    for each in forgotten:
        slices.to_pending(tables, each)
    return len(forgotten)


def retire(tables: Tables, worker_id: str) -> None:
    if worker_id in tables.workers:
        for each in list(tables.workers[worker_id].slices.values()):
            slices.to_pending(tables, each)
        workers.remove(tables, worker_id)


def evict(tables: Tables, worker_id: str) -> int:
    if worker_id not in tables.workers:
        return 0
    orphans = sorted(tables.workers[worker_id].slices.values(), key=_by_id)
    for each in orphans:
        slices.bad_end(tables, each, "its worker died")
    workers.remove(tables, worker_id)
    return len(orphans)


def _by_id(row: SliceRow) -> str:
    return row.id


def sweep(tables: Tables) -> Swept:
    """Slices of workers that are not registered need no look here: whatever removes a worker takes them."""
    _pull_back(tables)
    stale = tables.now() - tables.timing.stale
    silent = sorted(row.id for row in tables.workers.values() if row.heartbeat_at <= stale)
    taken = sum(evict(tables, worker_id) for worker_id in silent)
    ended = {}
    for job in tables.jobs.values():
        if job.state is JobState.STOPPING and _may_stop(tables, job):
            moves.stop(tables, job)
        elif job.state is JobState.INITIALIZING and not job.workers:
            moves.end(tables, job, JobState.FAILED, error="its worker died while it was planned")
        else:
            continue
        ended[job.id] = job.state
    return Swept(tuple(silent), taken, ended)


def _pull_back(tables: Tables) -> None:
    """What is said to have been, or to last, beyond this was written before the clock was set back. It starts again."""
    now = tables.now()
    for worker in tables.workers.values():
        worker.heartbeat_at = min(worker.heartbeat_at, now)
    for lease in tables.leases.values():
        lease.expires_at = min(lease.expires_at, now + tables.timing.lease)
    for job in tables.jobs.values():
        if not job.state.ended:
            job.updated_at = min(job.updated_at, now)
            job.stopping_at = None if job.stopping_at is None else min(job.stopping_at, now)


def _may_stop(tables: Tables, job: JobRow) -> bool:
    assert job.stopping_at is not None
    return not job.processing or job.stopping_at + tables.timing.grace <= tables.now()
