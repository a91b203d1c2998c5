"""Jobs: how they begin, stop and end, and how they are read with the counts of their slices."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Row,
    Select,
    and_,
    bindparam,
    case,
    delete,
    exists,
    func,
    insert,
    or_,
    select,
    union,
    update,
)

from instep.domain.counts import Counts
from instep.domain.jobs import (
    JOB_TRANSITIONS,
    STOPPED_BY,
    Job,
    JobPart,
    JobState,
    PartStatus,
    Phase,
    SliceState,
    by_people,
)
from instep.domain.refs import PartitionRef
from instep.domain.speed import NOTHING_LATELY, WINDOW, Lately
from instep.errors import Conflict
from instep.ledger import event_log, job_log, job_transitions, leases, workers
from instep.ledger.job_transitions import NOTHING_PLANNED
from instep.ledger.paging import one_of
from instep.ledger.slice_rows import PROCESSING
from instep.ledger.tables import job_parts, job_workers, jobs, slices
from instep.ledger.transaction import Store, Transaction, reads, writes

UNFINISHED: Final = [state.value for state in JobState if not state.ended or state is JobState.STOPPED]
#: Nothing ends as late as this.
_NEVER: Final = 2**62
_NEWEST_FIRST: Final = (jobs.c.created_at.desc(), jobs.c.id.desc())


class JobMark(NamedTuple):
    """A mark that changes with every change of a job or of one of its parts, but not by progress alone."""

    id: str
    state: JobState
    updated_at: int


class JobPlace(NamedTuple):
    """The place of a job in the order of all, for paging."""

    created_at: int
    id: str


class Jobs(Store):
    """Runs that build or advance instances. `Parts` plans and finishes what they consist of."""

    @writes
    def begin(self, tx: Transaction, job_id: str, worker_id: str, configuration: Mapping[str, Any]) -> None:
        """A new job, INITIALIZING; the worker takes part in it. Again it changes nothing. Raises `Fenced` for a
        worker that is not registered.
        """
        workers.demand_registered(tx, worker_id)
        if tx.connection.scalar(select(exists().where(jobs.c.id == job_id))):
            return
        now = tx.now()
        tx.connection.execute(
            insert(jobs).values(
                id=job_id,
                state=JobState.INITIALIZING.value,
                worker_id=worker_id,
                configuration=json.dumps(dict(configuration), sort_keys=True),
                created_at=event_log.present(tx),
                updated_at=now,
            )
        )
        workers.take_part(tx, job_id, worker_id)

    @writes
    def discard(self, tx: Transaction, job_id: str) -> None:
        """Forget a job that is INITIALIZING (there was nothing to do), and free its leases."""
        state = job_transitions.lock(tx, job_id)
        if state is None:
            return
        if state is not JobState.INITIALIZING:
            raise Conflict(f"job {job_id} is {state}: it cannot be forgotten any more")
        leases.free_all(tx, job_id)
        tx.connection.execute(delete(jobs).where(jobs.c.id == job_id))

    @writes
    def join(self, tx: Transaction, job_id: str, worker_id: str) -> None:
        """The worker takes part in the job. Again it changes nothing. Raises `Conflict` for a job that
        has ended (STOPPED aside) or does not exist, `Fenced` for a worker that is not registered.
        """
        state = job_transitions.demand(tx, job_id)
        workers.demand_registered(tx, worker_id)
        if state.ended and state is not JobState.STOPPED:
            raise Conflict(f"job {job_id} has ended: {state}")
        workers.take_part(tx, job_id, worker_id)

    @writes
    def leave(self, tx: Transaction, job_id: str, worker_id: str, *, stop: str | None = None) -> JobState | None:
        """The worker takes part no more; its slices of the job go back to PENDING unspent.

        If it was the last one, and `stop` gives a reason, a job that has not ended becomes STOPPED with
        that reason, and its leases are free. Returns the job's state; None for a job that is not there.
        """
        state = job_transitions.lock(tx, job_id)
        if state is None:
            return None
        workers.leave(tx, job_id, worker_id)
        if stop is None or state.ended or workers.count(tx, job_id):
            return state
        # The reason of a stop that was asked for stands.
        end(tx, job_id, JobState.STOPPED, **({} if state is JobState.STOPPING else {"error": stop}))
        return JobState.STOPPED

    @writes
    def start(self, tx: Transaction, job_id: str, *, whole: bool = False) -> None:
        """READY or STOPPED → RUNNING; no change when it runs already. `whole`: parts that had stopped by themselves are
        open again too; else only those that are adopted.
        """
        state = job_transitions.demand(tx, job_id)
        if whole:
            stopped = update(job_parts).where(job_parts.c.job_id == job_id, job_parts.c.state.is_(None))
            tx.connection.execute(stopped.values(error=None, finished_at=None))
        if state in (JobState.RUNNING, JobState.STOPPING):
            # A stop that was asked for stands.
            return
        job_transitions.demand_transition(job_id, state, JobState.RUNNING)
        if not tx.connection.scalar(select(exists().where(job_parts.c.job_id == job_id))):
            raise Conflict(NOTHING_PLANNED.format(job=job_id))
        first = case((jobs.c.started_at.is_(None), tx.now()), else_=jobs.c.started_at)
        job_transitions.set_state(
            tx, job_id, JobState.RUNNING, started_at=first, stopping_at=None, finished_at=None, error=None
        )

    @writes
    def request_stop(self, tx: Transaction, job_id: str, reason: str | None = None) -> JobState:
        """INITIALIZING, READY or RUNNING → STOPPING; STOPPED at once when no slice is in work. Pending
        slices stay PENDING, for a later run to resume. A job that has ended stays as it is; but what a person says of
        a stop (`domain.jobs.by_people`) replaces what else was said of it. Returns its state.
        """
        return request_stop(tx, job_id, reason)

    @writes
    def explain_stop(self, tx: Transaction, job_id: str, reason: str) -> None:
        """Replace the reason of a STOPPED job by why it was not resumed. A reason that a person gave stays."""
        _replace_reason(tx, job_id, reason, JobState.STOPPED)

    @reads
    def get(self, tx: Transaction, job_id: str) -> Job | None:
        """Read a job with its parts, and their counts and slices by one GROUP BY."""
        return _first(tx, tx.connection.execute(_JOB, {"b_job": job_id}).all())

    @reads
    def newest(self, tx: Transaction, limit: int = 20) -> list[Job]:
        """Newest first."""
        return load(tx, tx.connection.execute(select(jobs).order_by(*_NEWEST_FIRST).limit(limit)).all())

    @reads
    def page(
        self,
        tx: Transaction,
        *,
        states: Collection[JobState] = (),
        refs: Collection[PartitionRef] | None = None,
        after: JobPlace | None = None,
        limit: int = 20,
    ) -> list[Job]:
        """Newest first; of all states and partitions, unless some are named."""
        page = select(jobs).order_by(jobs.c.created_at.desc(), jobs.c.id.desc()).limit(limit)
        if states:
            page = page.where(jobs.c.state.in_(sorted(each.value for each in states)))
        if refs is not None:
            on_them = exists().where(job_parts.c.job_id == jobs.c.id, one_of(job_parts.c.ref, refs))
            page = page.where(on_them)
        if after is not None:
            older = jobs.c.created_at < after.created_at
            page = page.where(or_(older, and_(jobs.c.created_at == after.created_at, jobs.c.id < after.id)))
        return load(tx, tx.connection.execute(page).all())

    @reads
    def marks(self, tx: Transaction, newest: int) -> list[JobMark]:
        """Read the marks of the newest jobs, and of the newest that have not ended; newest first. Slices are not looked
        at: this may be asked several times a second.
        """
        rows = tx.connection.execute(_MARKS, {"b_newest": newest}).all()
        return [JobMark(row.id, JobState(row.state), row.updated_at) for row in sorted(rows, key=_age, reverse=True)]

    @reads
    def unfinished(self, tx: Transaction, ref: PartitionRef, generation: str = "") -> Job | None:
        """The newest job with an open part on this generation of `ref`: one that has not ended, or was STOPPED."""
        is_open = exists().where(*_part_on(ref, generation), job_parts.c.state.is_(None))
        return _newest_of(tx, jobs.c.state.in_(UNFINISHED), is_open)

    @reads
    def latest(self, tx: Transaction, ref: PartitionRef, generation: str = "") -> Job | None:
        """The newest job with a part on this generation of `ref`, ended or not."""
        return _newest_of(tx, exists().where(*_part_on(ref, generation)))


# States.


def request_stop(tx: Transaction, job_id: str, reason: str | None) -> JobState:
    state = job_transitions.demand(tx, job_id)
    if JobState.STOPPING in JOB_TRANSITIONS[state]:
        state = JobState.STOPPING
        job_transitions.set_state(tx, job_id, state, stopping_at=tx.now(), error=reason)
    elif by_people(reason):
        _replace_reason(tx, job_id, reason, JobState.STOPPING, JobState.STOPPED)
    if state is not JobState.STOPPING or in_work(tx, job_id):
        return state
    end(tx, job_id, JobState.STOPPED)
    return JobState.STOPPED


def _replace_reason(tx: Transaction, job_id: str, reason: str | None, *states: JobState) -> None:
    """Replace the reason of a job in one of these states, unless a person has given it."""
    others = or_(jobs.c.error.is_(None), ~jobs.c.error.startswith(STOPPED_BY))
    here = update(jobs).where(jobs.c.id == job_id, jobs.c.state.in_([state.value for state in states]), others)
    tx.connection.execute(here.values(error=reason, updated_at=tx.now()))


def end(tx: Transaction, job_id: str, state: JobState, **values: Any) -> None:
    """End a job: its leases are free, and it has no workers."""
    job_transitions.set_state(tx, job_id, state, finished_at=tx.now(), **values)
    leases.free_all(tx, job_id)
    tx.connection.execute(delete(job_workers).where(job_workers.c.job_id == job_id))


def in_work(tx: Transaction, job_id: str) -> bool:
    return bool(tx.connection.scalar(select(exists().where(slices.c.job_id == job_id, PROCESSING))))


# Reading.


def _age(row: Row[Any]) -> tuple[int, str]:
    return row.created_at, row.id


def _marks() -> Select[Any]:
    """Select the marks of jobs, first their ids, from indexes alone: otherwise MariaDB reads all jobs there ever were,
    and sorts them. With OR for UNION no database uses both indexes.
    """
    newest = select(jobs.c.id).order_by(*_NEWEST_FIRST).limit(bindparam("b_newest"))
    live = newest.where(jobs.c.state.in_([state.value for state in JobState if not state.ended]))
    ids = union(*(select(each.subquery(name)) for name, each in (("live", live), ("newest", newest)))).subquery("ids")
    return select(jobs.c.id, jobs.c.state, jobs.c.updated_at, jobs.c.created_at).join(ids, ids.c.id == jobs.c.id)


_MARKS: Final = _marks()
_JOB: Final = select(jobs).where(jobs.c.id == bindparam("b_job"))
_PARTS_IN_ORDER: Final = (
    select(job_parts)
    .where(job_parts.c.job_id.in_(bindparam("b_ids", expanding=True)))
    .order_by(job_parts.c.job_id, job_parts.c.position)
)


def _newest_of(tx: Transaction, *conditions: ColumnElement[bool]) -> Job | None:
    newest_of = select(jobs).where(*conditions).order_by(*_NEWEST_FIRST).limit(1)
    return _first(tx, tx.connection.execute(newest_of).all())


def _part_on(ref: PartitionRef, generation: str) -> tuple[ColumnElement[bool], ...]:
    return (job_parts.c.job_id == jobs.c.id, job_parts.c.ref == str(ref), job_parts.c.generation == generation)


def part_of(row: Row[Any]) -> JobPart:
    return JobPart(
        ref=PartitionRef.parse(row.ref),
        instance=row.instance,
        physical=row.physical,
        fingerprint=json.loads(row.fingerprint),
        buckets=row.buckets,
        epoch=row.epoch,
        base=row.base,
        fresh=row.fresh,
        revision=row.revision,
        inputs=tuple(json.loads(row.inputs)),
        generation=row.generation,
        target=row.target,
    )


def _first(tx: Transaction, rows: Sequence[Row[Any]]) -> Job | None:
    return next(iter(load(tx, rows)), None)


def load(tx: Transaction, rows: Sequence[Row[Any]]) -> list[Job]:
    ids = [row.id for row in rows]
    if not ids:
        return []
    parts: dict[str, list[Row[Any]]] = defaultdict(list)
    for part in tx.connection.execute(_PARTS_IN_ORDER, {"b_ids": ids}):
        parts[part.job_id].append(part)
    statistics: dict[tuple[str, str], list[Row[Any]]] = defaultdict(list)
    running = {row.id for row in rows if row.state == JobState.RUNNING.value}
    underway = _underway(tx, running) if running else {}
    told = job_log.phases(tx, running) if running else {}
    since = tx.now() - WINDOW if running else _NEVER
    for group in tx.dialect.statistics(tx.connection, ids, since):
        statistics[group.job_id, group.ref].append(group)
    return [
        Job(
            id=row.id,
            state=JobState(row.state),
            worker_id=row.worker_id,
            configuration=json.loads(row.configuration),
            created_at=row.created_at,
            started_at=row.started_at,
            updated_at=row.updated_at,
            finished_at=row.finished_at,
            error=row.error,
            parts=tuple(
                _status(
                    part,
                    statistics[row.id, part.ref],
                    runs=row.id in running,
                    underway=underway.get((row.id, part.ref), 0),
                    told=told.get((row.id, part.ref)),
                )
                for part in parts[row.id]
            ),
        )
        for row in rows
    ]


def _underway(tx: Transaction, job_ids: Collection[str]) -> dict[tuple[str, str], int]:
    """Units read in waves that have not ended, by job and partition: what was told of a slice that has is in that."""
    told = (
        select(slices.c.job_id, slices.c.ref, func.sum(job_workers.c.units).label("units"))
        .join(slices, and_(slices.c.id == job_workers.c.slice_id, slices.c.worker_id == job_workers.c.worker_id))
        .where(job_workers.c.job_id.in_(sorted(job_ids)), PROCESSING)
        .group_by(slices.c.job_id, slices.c.ref)
    )
    return {(row.job_id, row.ref): int(row.units) for row in tx.connection.execute(told)}


def _status(row: Row[Any], groups: Iterable[Row[Any]], *, runs: bool, underway: int, told: Phase | None) -> PartStatus:
    states: dict[SliceState, int] = {}
    units, counts, lately = 0, Counts(), NOTHING_LATELY
    for group in groups:
        state = SliceState(group.state)
        states[state] = group.number
        if runs and state is SliceState.COMPLETED and group.lately is not None:
            lately = Lately(int(group.lately), group.begun)
        units += int(group.planned)
        counts += Counts.from_dict(dict(group._mapping))
    return PartStatus(
        part=part_of(row),
        state=None if row.state is None else JobState(row.state),
        finished_at=row.finished_at,
        error=row.error,
        slices=states,
        units=units,
        counts=counts,
        lately=lately,
        underway=underway,
        told=told,
    )
