"""Recovery: what silent workers left behind. Some short reads when there is nothing to do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Column, ColumnElement, Row, and_, exists, or_, select, update

from instep.domain.jobs import JobState
from instep.ledger import jobs as job_rows
from instep.ledger import slice_rows
from instep.ledger import workers as worker_rows
from instep.ledger.tables import job_parts, jobs, leases, slices, workers
from instep.ledger.transaction import Transaction, batches

_UNSETTLED = (JobState.INITIALIZING.value, JobState.STOPPING.value)


@dataclass(frozen=True, slots=True)
class Swept:
    """The findings of a sweep: workers that were silent for too long, slices taken from them (or from no worker), and
    jobs that it ended, by their new states.
    """

    workers: tuple[str, ...] = ()
    slices: int = 0
    jobs: Mapping[str, JobState] = field(default_factory=dict)


def sweep(tx: Transaction) -> Swept:
    _pull_back_jobs(tx)
    unsettled = _lock_unsettled(tx)
    _pull_back(tx, leases.c.expires_at, tx.now() + tx.timing.lease, leases.c.job_id.is_not(None))
    _pull_back(tx, workers.c.heartbeat_at, tx.now())
    silent = _silent_workers(tx)
    worker_rows.clear_away(tx)
    taken = sum(worker_rows.evict(tx, worker_id) for worker_id in silent)
    registered = exists().where(workers.c.id == slices.c.worker_id)
    taken += slice_rows.end_badly(tx, slice_rows.lock_processing(tx, ~registered), worker_rows.DIED)
    return Swept(tuple(silent), taken, _end_unsettled(tx, unsettled))


def _pull_back_jobs(tx: Transaction) -> None:
    live = jobs.c.state.in_([state.value for state in JobState if not state.ended])
    for column in (jobs.c.updated_at, jobs.c.stopping_at):
        _pull_back(tx, column, tx.now(), live)


def _pull_back(tx: Transaction, column: Column[int], latest: int, *conditions: ColumnElement[bool]) -> None:
    """Set times that lie in the future, written before the clock was set back, to the latest possible one: else a state
    would stay unchanged for as long as the clock was wrong by.
    """
    key = next(iter(column.table.primary_key))
    beyond = (column > latest, *conditions)
    if found := tx.connection.scalars(select(key).where(*beyond).order_by(key)).all():
        for some in batches(found):
            tx.connection.execute(update(column.table).where(key.in_(some), *beyond).values({column: latest}))


def _lock_unsettled(tx: Transaction) -> list[Row[Any]]:
    """Lock unsettled jobs before anything else: jobs come first in the order of locks."""
    # Older versions let a job run that was stopped before it was planned.
    empty = and_(jobs.c.state == JobState.RUNNING.value, ~exists().where(job_parts.c.job_id == jobs.c.id))
    query = select(jobs.c.id, jobs.c.state, jobs.c.stopping_at).where(or_(jobs.c.state.in_(_UNSETTLED), empty))
    return list(tx.connection.execute(query.order_by(jobs.c.id).with_for_update()))


def _silent_workers(tx: Transaction) -> list[str]:
    silent = select(workers.c.id).where(workers.c.heartbeat_at <= tx.now() - tx.timing.stale)
    # A heartbeat that comes just now waits here, and then finds no row; or it came first, and is seen.
    return list(tx.connection.scalars(silent.order_by(workers.c.id).with_for_update()))


def _end_unsettled(tx: Transaction, unsettled: Iterable[Row[Any]]) -> dict[str, JobState]:
    ended: dict[str, JobState] = {}
    for row in unsettled:
        if row.state == JobState.INITIALIZING:
            if worker_rows.count(tx, row.id) == 0:
                job_rows.end(tx, row.id, JobState.FAILED, error="its worker died while it was planned")
                ended[row.id] = JobState.FAILED
            continue
        if (row.stopping_at or 0) + tx.timing.grace <= tx.now():
            slice_rows.give_back_all(tx, slices.c.job_id == row.id)
        if not job_rows.in_work(tx, row.id):
            job_rows.end(tx, row.id, JobState.STOPPED)
            ended[row.id] = JobState.STOPPED
    return ended
