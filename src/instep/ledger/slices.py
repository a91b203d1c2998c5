"""Slices: the hot table. Claims and completions are prepared statements; what ends badly is rare."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from sqlalchemy import ColumnElement, Row, Select, bindparam, delete, insert, literal_column, select, update

from instep.domain.jobs import Claim, SliceState, SliceStatus, tries_of
from instep.domain.refs import PartitionRef
from instep.domain.waves import SliceOutcome
from instep.ledger import manifest
from instep.ledger.dialects.dialect import ClaimRequest
from instep.ledger.slice_retries import (
    ATTEMPTS_OF_HALVES,
    LONGEST_DELAY,
    SUSPECT_ATTEMPTS,
    SUSPECTS,
    TOGETHER,
    Poisoned,
    SliceWork,
    Stuck,
    halves,
    take_apart,
)
from instep.ledger.tables import job_parts, slice_work, slices
from instep.ledger.transaction import Transaction, batches

# Literals, so that the planner sees the condition of the partial index.
PENDING: Final[ColumnElement[bool]] = slices.c.state == literal_column(f"'{SliceState.PENDING}'")
PROCESSING: Final[ColumnElement[bool]] = slices.c.state == literal_column(f"'{SliceState.PROCESSING}'")

# By their ids alone: with a condition on the worker, PostgreSQL compares each of them with all that this has in work.
_FENCES: Final[Select[Any]] = select(slices.c.id, slices.c.state, slices.c.fence, slices.c.worker_id).where(
    slices.c.id.in_(bindparam("b_ids", expanding=True))
)


def may_be_claimed(at: ColumnElement[int], now: ColumnElement[int]) -> ColumnElement[bool]:
    """Now: its time has come, or was said by a clock that has been set back since."""
    return ~at.between(now + 1, now + LONGEST_DELAY)


# The life of a claim.


def claim(
    tx: Transaction,
    job_id: str,
    ref: PartitionRef,
    worker_id: str,
    *,
    work: int,
    limit: int,
    after: int,
    together: bool,
) -> list[Claim]:
    """Without a transaction of its own: at most one of the statements finds something."""
    every = ClaimRequest(job_id, str(ref), worker_id, max(1, work), limit, 0, 0, SUSPECT_ATTEMPTS - 1)
    alone = replace(every, enough=1, limit=min(1, limit))
    requests = [replace(alone, least=least, most=most) for least, most in SUSPECTS]
    if together:
        every, last = (replace(every, least=least, most=most) for least, most in TOGETHER)
        requests = [last]
    requests.insert(0, every)
    if after > 0:
        requests.insert(0, replace(every, after=after))
    for request in requests:
        if rows := tx.dialect.claim(tx.connection, request):
            claims = [Claim(row[0], job_id, ref, *row[1:]) for row in rows]
            claims.sort(key=lambda each: (each.rank, each.slice_id))
            return claims
    return []


def holds(tx: Transaction, claims: Sequence[Claim], worker_id: str) -> bool:
    found: dict[str, Row[Any]] = {}
    for some in batches(each.slice_id for each in claims):
        found.update((row.id, row) for row in tx.connection.execute(_FENCES, {"b_ids": some}))
    return all(is_in(SliceState.PROCESSING, found.get(each.slice_id), each.fence, worker_id) for each in claims)


def give_back(
    tx: Transaction, claims: Sequence[Claim], worker_id: str, *, error: str | None, spent: bool, delay: int
) -> dict[str, str]:
    """Returns the jobs that have to stop, and why."""
    found = lock(tx, (each.slice_id for each in claims))
    held = [
        found[each.slice_id]
        for each in claims
        if is_in(SliceState.PROCESSING, found.get(each.slice_id), each.fence, worker_id)
    ]
    if not held:
        return {}
    at = {"claimable_at": tx.now() + min(delay, LONGEST_DELAY)}
    if not spent:
        _back_to_pending(tx, held, at)
        return {}
    tried, worn_out = _by_wear(held)
    _back_to_pending(tx, tried, at | _one_more(error))
    return _take_apart(tx, worn_out, error, at["claimable_at"])


def split(tx: Transaction, claim: Claim, worker_id: str) -> bool:
    row = lock(tx, [claim.slice_id]).get(claim.slice_id)
    if row is None or not is_in(SliceState.PROCESSING, row, claim.fence, worker_id):
        return False
    cut = halves(_works_of(tx, [row])[row.id])
    if cut is None:
        return False
    _replace(tx, row, cut, _HalfState(row.attempts, row.claimable_at, row.error))
    return True


def of_part(tx: Transaction, job_id: str, ref: PartitionRef, limit: int) -> list[SliceStatus]:
    first = (
        select(slices.c.number, slices.c.state, slices.c.units, slices.c.attempts, slices.c.error, slice_work.c.payload)
        .join(slice_work, slice_work.c.slice_id == slices.c.id)
        .where(slices.c.job_id == job_id, slices.c.ref == str(ref))
        .order_by(slices.c.number, slices.c.id)
        .limit(limit)
    )
    return [SliceStatus(row[0], SliceState(row[1]), *row[2:]) for row in tx.connection.execute(first)]


# What is taken from workers.


def lock_processing(tx: Transaction, *conditions: ColumnElement[bool]) -> Sequence[Row[Any]]:
    """Slices in work, locked in one order by all: that of the index which has only them."""
    in_work = select(slices).where(PROCESSING, *conditions).order_by(slices.c.worker_id, slices.c.job_id, slices.c.id)
    return tx.connection.execute(in_work.with_for_update(of=slices)).all()


def give_back_all(tx: Transaction, *conditions: ColumnElement[bool]) -> int:
    """Slices in work go back without a spent attempt; returns how many."""
    back = update(slices).where(PROCESSING, *conditions).values(state=SliceState.PENDING.value, worker_id=None)
    return tx.connection.execute(back).rowcount


def end_badly(tx: Transaction, rows: Sequence[Row[Any]], error: str) -> int:
    """The holder of these locked slices is gone: back to PENDING. What is worn out it looked up, and did not run."""
    tried, worn_out = _by_wear(rows)
    _back_to_pending(tx, tried, _one_more(error))
    _back_to_pending(tx, worn_out, {})
    return len(rows)


def _by_wear(rows: Sequence[Row[Any]]) -> tuple[list[Row[Any]], list[Row[Any]]]:
    """Those that were run, and those that were worn out before."""
    tried, worn_out = list[Row[Any]](), list[Row[Any]]()
    for row in rows:
        (worn_out if row.attempts >= tries_of(row.units) else tried).append(row)
    return tried, worn_out


def _one_more(error: str | None) -> dict[str, Any]:
    """A try has ended badly. Without an error, that of the try before it stays."""
    return {"attempts": slices.c.attempts + 1} | ({"error": error} if error else {})


def _back_to_pending(tx: Transaction, rows: Sequence[Row[Any]], values: Mapping[str, Any]) -> None:
    """They are locked, and in work."""
    for some in batches(row.id for row in rows):
        back = update(slices).where(slices.c.id.in_(some))
        tx.connection.execute(back.values(state=SliceState.PENDING.value, worker_id=None, **values))


def _take_apart(tx: Transaction, rows: Sequence[Row[Any]], error: str | None, claimable_at: int) -> dict[str, str]:
    """Returns the jobs that have to stop, and why."""
    works, stop, stuck = _works_of(tx, rows), dict[str, str](), list[Row[Any]]()
    for row in rows:
        last = error or row.error
        result = take_apart(works[row.id], PartitionRef.parse(row.ref), row.attempts, last)
        if isinstance(result, Stuck):
            stop.setdefault(row.job_id, result.reason)
            stuck.append(row)
        elif isinstance(result, Poisoned):
            _fail(tx, row, result)
        else:
            _replace(tx, row, result, _HalfState(ATTEMPTS_OF_HALVES, claimable_at, last))
    _back_to_pending(tx, stuck, {"claimable_at": claimable_at} | ({"error": error} if error else {}))
    _begin_anew(tx, {(row.job_id, row.ref) for row in stuck})
    return stop


def _begin_anew(tx: Transaction, parts: Iterable[tuple[str, str]]) -> None:
    """Whatever is PENDING in these parts of jobs."""
    for job_id, ref in sorted(parts):
        here = (slices.c.job_id == job_id, slices.c.ref == ref, PENDING, slices.c.attempts > 0)
        tx.connection.execute(update(slices).where(*here).values(attempts=0))


def _fail(tx: Transaction, row: Row[Any], result: Poisoned) -> None:
    values = {
        "state": SliceState.FAILED.value,
        "finished_at": tx.now(),
        "error": result.error,
    }
    tx.connection.execute(update(slices).where(slices.c.id == row.id).values(values | result.counts.as_dict()))
    outcome = SliceOutcome(row.id, row.fence, result.counts, failures=result.failures).storable()
    in_part = select(job_parts.c.generation).where(job_parts.c.job_id == row.job_id, job_parts.c.ref == row.ref)
    key = row.ref, tx.connection.execute(in_part).scalar_one()
    manifest.write_failures(tx, key, row.job_id, [outcome])


# Cutting.


@dataclass(frozen=True, slots=True)
class _HalfState:
    attempts: int
    claimable_at: int
    error: str | None


def _works_of(tx: Transaction, rows: Sequence[Row[Any]]) -> dict[str, SliceWork]:
    found: dict[str, Row[Any]] = {}
    for some in batches(row.id for row in rows):
        stored = tx.connection.execute(select(slice_work).where(slice_work.c.slice_id.in_(some)))
        found.update((each.slice_id, each) for each in stored)
    works = ((row, found[row.id]) for row in rows)
    return {
        row.id: SliceWork(row.id, row.units, row.work, stored.lower_bound, stored.upper_bound, stored.payload)
        for row, stored in works
    }


def _replace(tx: Transaction, whole: Row[Any], cut: Iterable[SliceWork], state: _HalfState) -> None:
    """The whole goes and its halves come in one transaction, so that totals stay right."""
    tx.connection.execute(delete(slice_work).where(slice_work.c.slice_id == whole.id))
    tx.connection.execute(delete(slices).where(slices.c.id == whole.id))
    kept = ("job_id", "ref", "number", "bucket", "priority", "rank", "fence")
    for half in cut:
        tx.connection.execute(
            insert(slices).values(
                id=half.id,
                units=half.units,
                work=half.work,
                state=SliceState.PENDING.value,
                attempts=state.attempts,
                claimable_at=state.claimable_at,
                error=state.error,
                split_from=whole.id,
                **{name: whole._mapping[name] for name in kept},
            )
        )
        tx.connection.execute(
            insert(slice_work).values(
                slice_id=half.id, lower_bound=half.lower, upper_bound=half.upper, payload=half.payload
            )
        )


# Fences.


def lock(tx: Transaction, ids: Iterable[str]) -> dict[str, Row[Any]]:
    found: dict[str, Row[Any]] = {}
    for some in batches(sorted(ids)):
        query = select(slices).where(slices.c.id.in_(some)).order_by(slices.c.id).with_for_update()
        found.update((row.id, row) for row in tx.connection.execute(query))
    return found


def is_in(state: SliceState, row: Row[Any] | None, fence: int, worker_id: str) -> bool:
    return row is not None and row.fence == fence and row.worker_id == worker_id and row.state == state.value
