"""Workers: their rows, and which jobs they take part in."""

from __future__ import annotations

from collections.abc import Mapping

from instep.domain.jobs import Claim
from instep.ledger.workers import WorkerInfo
from tests.simulator.model.tables import JobRow, SliceRow, Tables, WorkerRow


def register(tables: Tables, worker_id: str, *, kind: str, host: str, pid: int) -> None:
    now, known = tables.now(), tables.workers.get(worker_id)
    row = WorkerRow(worker_id, kind, host, pid, now, now)
    if known is not None:
        row.job_ids, row.slices, row.told = known.job_ids, known.slices, known.told
    tables.workers[worker_id] = row


def take_part(tables: Tables, job: JobRow, worker_id: str) -> None:
    tables.worker(worker_id).job_ids.add(job.id)
    job.workers.add(worker_id)


def leave(tables: Tables, job: JobRow, worker_id: str) -> None:
    job.workers.discard(worker_id)
    if worker_id in tables.workers:
        tables.workers[worker_id].job_ids.discard(job.id)
        tables.workers[worker_id].told.pop(job.id, None)


def tell(tables: Tables, claim: Claim, worker_id: str, units: int) -> None:
    row = tables.workers.get(worker_id)
    if row is not None and claim.job_id in row.job_ids:
        row.told[claim.job_id] = claim.slice_id, units


def underway(tables: Tables, job: JobRow, processing: Mapping[str, SliceRow]) -> int:
    """Units read in waves of a part that have not ended."""
    rows = [tables.workers[each] for each in job.workers if each in tables.workers]
    told = [(row.id, *row.told[job.id]) for row in rows if job.id in row.told]
    return sum(
        units for worker_id, name, units in told if name in processing and processing[name].worker_id == worker_id
    )


def remove(tables: Tables, worker_id: str) -> None:
    row = tables.workers.pop(worker_id)
    for job_id in row.job_ids:
        tables.jobs[job_id].workers.discard(worker_id)


def every(tables: Tables) -> list[WorkerInfo]:
    return [_info(row) for row in sorted(tables.workers.values(), key=_oldest_first)]


def of_job(tables: Tables, job: JobRow) -> tuple[WorkerInfo, ...]:
    return tuple(map(_info, sorted((tables.workers[each] for each in job.workers), key=_oldest_first)))


def _oldest_first(row: WorkerRow) -> tuple[int, str]:
    return row.started_at, row.id


def _info(row: WorkerRow) -> WorkerInfo:
    in_work = row.slices.values()
    return WorkerInfo(
        id=row.id,
        kind=row.kind,
        host=row.host,
        pid=row.pid,
        started_at=row.started_at,
        heartbeat_at=row.heartbeat_at,
        job_ids=tuple(sorted(row.job_ids)),
        refs=tuple(sorted({each.ref for each in in_work}, key=str)),
        slices=len(in_work),
        busy_since=min((each.claimed_at for each in in_work), default=None),
    )
