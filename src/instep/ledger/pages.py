"""Pages of jobs, slices and failures: each begins after the last item of the one before."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, or_, select

from instep.domain.jobs import Job, JobState, SliceState
from instep.domain.refs import PartitionRef
from instep.ledger.jobs import load
from instep.ledger.ledger import FailureRecord
from instep.ledger.paging import FailurePlace, JobPlace, SlicePlace, SliceView
from instep.ledger.tables import failures, jobs, slices
from instep.ledger.transaction import Transaction

_SLICE = [slices.c[name] for name in SliceView._fields]
_FAILURE = [failures.c[name] for name in FailureRecord._fields]


def jobs_after(tx: Transaction, states: Collection[JobState], after: JobPlace | None, limit: int) -> list[Job]:
    page = select(jobs).order_by(jobs.c.created_at.desc(), jobs.c.id.desc()).limit(limit)
    if states:
        page = page.where(jobs.c.state.in_(sorted(each.value for each in states)))
    if after is not None:
        older = jobs.c.created_at < after.created_at
        page = page.where(or_(older, and_(jobs.c.created_at == after.created_at, jobs.c.id < after.id)))
    return load(tx, tx.connection.execute(page).all())


def slices_after(
    tx: Transaction,
    job_id: str,
    *,
    refs: Collection[PartitionRef] | None,
    state: SliceState | None,
    after: SlicePlace | None,
    limit: int,
) -> list[SliceView]:
    page = select(*_SLICE).where(slices.c.job_id == job_id)
    page = page.order_by(slices.c.ref, slices.c.number, slices.c.id).limit(limit)
    page = _of(page, slices.c.ref, refs)
    if state is not None:
        page = page.where(slices.c.state == state.value)
    if after is not None:
        page = page.where(_beyond((slices.c.ref, slices.c.number, slices.c.id), after))
    return [_slice(row) for row in tx.connection.execute(page)]


def slice_states(tx: Transaction, job_id: str) -> list[tuple[PartitionRef, int, SliceState]]:
    """References and states are few, and looked up: there may be 50,000 slices."""
    query = select(slices.c.ref, slices.c.number, slices.c.state).where(slices.c.job_id == job_id)
    rows = tx.connection.execute(query.order_by(slices.c.ref, slices.c.number, slices.c.id)).all()
    refs = {ref: PartitionRef.parse(ref) for ref in {row[0] for row in rows}}
    states = {state.value: state for state in SliceState}
    return [(refs[ref], number, states[state]) for ref, number, state in rows]


def failures_after(
    tx: Transaction, refs: Collection[PartitionRef] | None, after: FailurePlace | None, limit: int
) -> list[FailureRecord]:
    tie = (failures.c.ref, failures.c.generation, failures.c.document_id)
    page = _of(select(*_FAILURE).order_by(failures.c.failed_at.desc(), *tie).limit(limit), failures.c.ref, refs)
    if after is not None:
        same = and_(failures.c.failed_at == after.failed_at, _beyond(tie, after[1:]))
        page = page.where(or_(failures.c.failed_at < after.failed_at, same))
    return [FailureRecord(PartitionRef.parse(row[0]), *row[1:]) for row in tx.connection.execute(page)]


def _of(page: Select[Any], column: ColumnElement[str], refs: Collection[PartitionRef] | None) -> Select[Any]:
    return page if refs is None else page.where(column.in_(sorted(map(str, refs))))


def _beyond(columns: Sequence[ColumnElement[Any]], values: Sequence[Any]) -> ColumnElement[bool]:
    """(a, b, c) > (x, y, z), written out: not all databases read an index for a comparison of rows."""
    column, value = columns[0], values[0]
    beyond: ColumnElement[bool] = column > value
    return beyond if len(columns) == 1 else or_(beyond, and_(column == value, _beyond(columns[1:], values[1:])))


def _slice(row: Any) -> SliceView:
    ref, number, id, bucket, state, *rest = row
    return SliceView(PartitionRef.parse(ref), number, id, bucket, SliceState(state), *rest)
