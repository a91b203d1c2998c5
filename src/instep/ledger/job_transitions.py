"""The state changes of jobs."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import bindparam, select, update

from instep.domain.jobs import JOB_TRANSITIONS, JobState
from instep.errors import Conflict
from instep.ledger.tables import jobs
from instep.ledger.transaction import Transaction

#: Why a job that was stopped before it was planned does nothing more.
NOTHING_PLANNED: Final = "job {job} was stopped before it was planned: there is nothing in it to be done"


_LOCKED: Final = select(jobs.c.state).where(jobs.c.id == bindparam("b_job")).with_for_update()


def lock(tx: Transaction, job_id: str) -> JobState | None:
    state = tx.connection.scalar(_LOCKED, {"b_job": job_id})
    return None if state is None else JobState(state)


def demand(tx: Transaction, job_id: str) -> JobState:
    state = lock(tx, job_id)
    if state is None:
        raise Conflict(f"there is no job {job_id}")
    return state


def demand_transition(job_id: str, before: JobState, after: JobState) -> None:
    if after not in JOB_TRANSITIONS[before]:
        raise Conflict(f"job {job_id} is {before}: it cannot become {after}")


def set_state(tx: Transaction, job_id: str, state: JobState, **values: Any) -> None:
    changed = update(jobs).where(jobs.c.id == job_id)
    tx.connection.execute(changed.values(state=state.value, updated_at=tx.now(), **values))


def touch(tx: Transaction, job_id: str) -> None:
    tx.connection.execute(update(jobs).where(jobs.c.id == job_id).values(updated_at=tx.now()))
