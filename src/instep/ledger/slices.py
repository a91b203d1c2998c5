"""Slices: the hot table. Claims and completions are prepared statements; what ends badly is rare."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from sqlalchemy import Row, Select, bindparam, delete, exists, insert, select, update

from instep.domain.jobs import Claim, JobPart, SliceState, SliceStatus
from instep.domain.refs import PartitionRef
from instep.domain.retries import (
    ATTEMPTS_OF_HALVES,
    LONGEST_DELAY,
    SUSPECT_ATTEMPTS,
    SUSPECTS,
    TOGETHER,
    Poisoned,
    SliceWork,
    Stuck,
    demand_balance,
    halves,
    take_apart,
)
from instep.domain.waves import SliceOutcome
from instep.errors import Fenced
from instep.ledger import documents, failures, job_transitions, leases, part_stops
from instep.ledger.dialects.dialect import ClaimRequest, CompleteRequest
from instep.ledger.paging import beyond, on
from instep.ledger.plans import Plans
from instep.ledger.slice_rows import (
    PENDING,
    back_to_pending,
    is_in,
    lock,
    one_more,
    tried_and_worn_out,
)
from instep.ledger.tables import job_parts, job_workers, slice_work, slices
from instep.ledger.transaction import Database, Store, Transaction, batches, reads, writes, writes_at_once

# By their ids alone: with a condition on the worker, PostgreSQL compares each of them with all that this has in work.
_FENCES: Final[Select[Any]] = select(slices.c.id, slices.c.state, slices.c.fence, slices.c.worker_id).where(
    slices.c.id.in_(bindparam("b_ids", expanding=True))
)

_TELL: Final = (
    update(job_workers)
    .where(job_workers.c.job_id == bindparam("b_job"), job_workers.c.worker_id == bindparam("b_worker"))
    .values(slice_id=bindparam("b_id"), units=bindparam("b_n"))
)


class SlicePlace(NamedTuple):
    """The place of a slice among those of its job, for paging. Halves of one have its number."""

    ref: str
    number: int
    id: str


class SliceView(NamedTuple):
    """A slice without its work. `worker_id`: its present or last worker."""

    ref: PartitionRef
    number: int
    id: str
    bucket: int
    state: SliceState
    units: int
    work: int
    attempts: int
    worker_id: str | None
    claimed_at: int | None
    finished_at: int | None
    error: str | None

    @property
    def place(self) -> SlicePlace:
        return SlicePlace(str(self.ref), self.number, self.id)


_SLICE = [slices.c[name] for name in SliceView._fields]


class PartlyDone(Exception):
    """Raised when not every slice could be completed: roll back and find out the reason."""


class Slices(Store):
    """The units of work of jobs. Each write about one shows the fence under which it was claimed."""

    def __init__(self, database: Database, plans: Plans) -> None:
        super().__init__(database)
        self._plans = plans

    @writes_at_once
    def claim(
        self,
        tx: Transaction,
        job_id: str,
        ref: PartitionRef,
        worker_id: str,
        *,
        work: int,
        limit: int,
        after: int = 0,
        together: bool = False,
    ) -> list[Claim]:
        """Claim PENDING slices that are claimable now, in the order of rank, in one statement.

        Stops once `work` is reached (at least one slice, at most `limit`). Each claimed slice gets
        fence + 1. Slices of a rank below `after` are passed over: a hint that spares the database the
        rows which are gone from there; when it finds nothing, all ranks are looked at. Empty when nothing
        is claimable, the job is not RUNNING, the partition's lease is not the job's, or the worker is not
        registered.

        A slice that ended badly twice is claimed alone, when no others are left: it may be what killed its
        workers. Those come first that have not been alone yet. One that is worn out is claimed so as well: not to
        be run, but to be looked up in the target, and completed if it is there; else it is given back `spent`.

        `together`: nothing is claimed alone, as is right for slices that are read in one go. Those that ended badly
        `MAX_ATTEMPTS` times are claimed when no others are left.
        """
        # Without a transaction of its own: at most one of the statements finds something.
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

    @reads
    def holds(self, tx: Transaction, claims: Sequence[Claim], worker_id: str) -> bool:
        """Whether every claim is still this worker's, under its fence."""
        found: dict[str, Row[Any]] = {}
        for some in batches(each.slice_id for each in claims):
            found.update((row.id, row) for row in tx.connection.execute(_FENCES, {"b_ids": some}))
        return all(is_in(SliceState.PROCESSING, found.get(each.slice_id), each.fence, worker_id) for each in claims)

    def complete(self, part: JobPart, worker_id: str, outcomes: Sequence[SliceOutcome], *, job_id: str) -> None:
        """Complete slices with counts, manifest rows and failures, all or none, in one transaction; the list may be
        empty.

        Counts replace, they never add up over retries. Raises `Fenced`, changing nothing, if any
        slice was taken over or the part's epoch is not the lease's any more. Again under the same
        claims (a lost reply) it changes nothing. Raises `ValueError` for counts that do not add up.
        """
        run = self._database.write if any(map(_writes_rows, outcomes)) else self._database.write_at_once
        try:
            run(lambda tx: _complete(tx, part, worker_id, outcomes, job_id))
        except PartlyDone:
            self._database.write(lambda tx: _complete_rest(tx, part, worker_id, outcomes, job_id))

    @writes
    def give_back(
        self,
        tx: Transaction,
        claims: Sequence[Claim],
        worker_id: str,
        *,
        error: str | None = None,
        spent: bool,
        delay: int = 0,
    ) -> str | None:
        """Slices back to PENDING, claimable after `delay` milliseconds. `spent`: they have ended badly, with this
        `error` (None: the one before stays). A slice that was claimed worn out is then split in two or, when it
        is a single unit, FAILED; its document is a failure for the last error. If it is one of rows, it stays whole and
        its part stops (`Parts.stop`) with a reason that names it and the error, which is returned; then no PENDING
        slice of the part has attempts behind it any more. Slices that were taken over are left alone.
        """
        # Jobs are locked before slices.
        for job in sorted({each.job_id for each in claims if spent and each.worn_out}):
            job_transitions.lock(tx, job)
        stuck = _give_back(tx, self._plans, claims, worker_id, error=error, spent=spent, delay=delay)
        for (job, ref), reason in stuck.items():
            part_stops.stop(tx, job, ref, reason, by=None, alone=())
        return next(iter(stuck.values()), None)

    @writes
    def reset_attempts(self, tx: Transaction, part: JobPart, *, job_id: str) -> None:
        """Count no attempts of the part's PENDING slices any more: what went wrong was not theirs. Raises `Fenced` if
        the part's epoch is not the lease's any more.
        """
        leases.demand_epoch(tx, job_id, part)
        _reset_attempts(tx, [(job_id, str(part.ref))])

    @writes
    def split(self, tx: Transaction, claim: Claim, worker_id: str) -> bool:
        """A claimed slice that proves too long is cut in two PENDING halves, recorded as split from it.
        False, and no change, for a slice of one unit, one of rows, or one that was taken over.
        """
        row = lock(tx, [claim.slice_id]).get(claim.slice_id)
        if row is None or not is_in(SliceState.PROCESSING, row, claim.fence, worker_id):
            return False
        cut = halves(_works_of(tx, self._plans, [row])[row.id])
        if cut is None:
            return False
        _replace(tx, row, cut, _HalfState(row.attempts, row.claimable_at, row.error))
        return True

    @writes_at_once
    def tell(self, tx: Transaction, claim: Claim, worker_id: str, units: int) -> None:
        """So many units were read in the wave that this slice is one of. It counts in `PartStatus.underway` as long as
        the worker has the slice in work, and replaces what it told before.
        """
        tx.connection.execute(
            _TELL, {"b_job": claim.job_id, "b_worker": worker_id, "b_id": claim.slice_id, "b_n": units}
        )

    @writes
    def forget_work(self, tx: Transaction, job_id: str, ref: PartitionRef) -> None:
        """Forget what the slices of a part were to do, if it has ended."""
        ended = exists().where(
            job_parts.c.job_id == job_id, job_parts.c.ref == str(ref), job_parts.c.state.is_not(None)
        )
        of_it = select(slices.c.id).where(slices.c.job_id == job_id, slices.c.ref == str(ref), ended)
        tx.connection.execute(delete(slice_work).where(slice_work.c.slice_id.in_(of_it)))

    @reads
    def of_part(self, tx: Transaction, job_id: str, ref: PartitionRef, *, limit: int = 1_000) -> list[SliceStatus]:
        """The first so many slices of a part, by their numbers. The payload is empty if it was forgotten."""
        first = (
            select(
                slices.c.number, slices.c.state, slices.c.units, slices.c.attempts, slices.c.error, slice_work.c.payload
            )
            .outerjoin(slice_work, slice_work.c.slice_id == slices.c.id)
            .where(slices.c.job_id == job_id, slices.c.ref == str(ref))
            .order_by(slices.c.number, slices.c.id)
            .limit(limit)
        )
        found = tx.connection.execute(first)
        return [SliceStatus(row[0], SliceState(row[1]), *row[2:5], row.payload or b"") for row in found]

    @reads
    def page(
        self,
        tx: Transaction,
        job_id: str,
        *,
        refs: Collection[PartitionRef] | None = None,
        state: SliceState | None = None,
        after: SlicePlace | None = None,
        limit: int = 1_000,
    ) -> list[SliceView]:
        """Read a page of slices, by partition, number and id."""
        page = select(*_SLICE).where(slices.c.job_id == job_id)
        page = page.order_by(slices.c.ref, slices.c.number, slices.c.id).limit(limit)
        page = on(page, slices.c.ref, refs)
        if state is not None:
            page = page.where(slices.c.state == state.value)
        if after is not None:
            page = page.where(beyond((slices.c.ref, slices.c.number, slices.c.id), after))
        return [_slice(row) for row in tx.connection.execute(page)]

    @reads
    def states(self, tx: Transaction, job_id: str) -> list[tuple[PartitionRef, int, SliceState]]:
        """Partition, number and state of each slice, in the order of `page`."""
        query = select(slices.c.ref, slices.c.number, slices.c.state).where(slices.c.job_id == job_id)
        rows = tx.connection.execute(query.order_by(slices.c.ref, slices.c.number, slices.c.id)).all()
        refs = {ref: PartitionRef.parse(ref) for ref in {row[0] for row in rows}}
        states = {state.value: state for state in SliceState}
        return [(refs[ref], number, states[state]) for ref, number, state in rows]


# Those that are done.


def _writes_rows(outcome: SliceOutcome) -> bool:
    """Whether there is more to write than the slice itself."""
    return bool(outcome.entries or outcome.removed or outcome.failures)


def _complete(tx: Transaction, part: JobPart, worker_id: str, outcomes: Sequence[SliceOutcome], job_id: str) -> None:
    """Complete slices. Raises `PartlyDone` when not all of them are still this worker's; the transaction must not be
    committed.
    """
    if not outcomes:
        leases.demand_epoch_unlocked(tx, job_id, part)
        return
    for outcome in outcomes:
        demand_balance(outcome)
    request = CompleteRequest(job_id, str(part.ref), part.epoch, worker_id, outcomes)
    if tx.dialect.complete(tx.connection, request) != len(outcomes):
        raise PartlyDone
    if rows := [each.storable() for each in outcomes if _writes_rows(each)]:
        documents.record(tx, part, job_id, rows)


def _complete_rest(
    tx: Transaction, part: JobPart, worker_id: str, outcomes: Sequence[SliceOutcome], job_id: str
) -> None:
    """Complete slices, but those completed under this very claim already: a reply was lost, the effect was not."""
    found = lock(tx, (each.slice_id for each in outcomes))
    rest = [
        each for each in outcomes if not is_in(SliceState.COMPLETED, found.get(each.slice_id), each.fence, worker_id)
    ]
    if not rest:
        return
    leases.demand_epoch_unlocked(tx, job_id, part)
    for outcome in rest:
        row = found.get(outcome.slice_id)
        if row is None or row.job_id != job_id or not is_in(SliceState.PROCESSING, row, outcome.fence, worker_id):
            raise Fenced(f"slice {outcome.slice_id} was taken over")
    try:
        _complete(tx, part, worker_id, rest, job_id)
    except PartlyDone:
        raise Fenced(f"the lease of {part.ref} (epoch {part.epoch}) was lost") from None


# Those that ended badly.


def _give_back(
    tx: Transaction,
    plans: Plans,
    claims: Sequence[Claim],
    worker_id: str,
    *,
    error: str | None,
    spent: bool,
    delay: int,
) -> dict[tuple[str, PartitionRef], str]:
    """Returns the parts of jobs that have to stop, and why."""
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
        back_to_pending(tx, held, at)
        return {}
    tried, worn_out = tried_and_worn_out(held)
    back_to_pending(tx, tried, at | one_more(error))
    return _take_apart(tx, plans, worn_out, error, at["claimable_at"])


def _take_apart(
    tx: Transaction, plans: Plans, rows: Sequence[Row[Any]], error: str | None, claimable_at: int
) -> dict[tuple[str, PartitionRef], str]:
    works, stop, stuck = _works_of(tx, plans, rows), dict[tuple[str, PartitionRef], str](), list[Row[Any]]()
    for row in rows:
        last, ref = error or row.error, PartitionRef.parse(row.ref)
        result = take_apart(works[row.id], ref, row.attempts, last)
        if isinstance(result, Stuck):
            stop.setdefault((row.job_id, ref), result.reason)
            stuck.append(row)
        elif isinstance(result, Poisoned):
            _fail(tx, row, result)
        else:
            _replace(tx, row, result, _HalfState(ATTEMPTS_OF_HALVES, claimable_at, last))
    back_to_pending(tx, stuck, {"claimable_at": claimable_at} | ({"error": error} if error else {}))
    _reset_attempts(tx, {(row.job_id, row.ref) for row in stuck})
    return stop


def _reset_attempts(tx: Transaction, parts: Iterable[tuple[str, str]]) -> None:
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
    failures.write(tx, key, row.job_id, [outcome])


# Cutting.


@dataclass(frozen=True, slots=True)
class _HalfState:
    attempts: int
    claimable_at: int
    error: str | None


def _works_of(tx: Transaction, plans: Plans, rows: Sequence[Row[Any]]) -> dict[str, SliceWork]:
    """The work of these slices, by value: it may be cut."""
    found: dict[str, Row[Any]] = {}
    for some in batches(row.id for row in rows):
        stored = tx.connection.execute(select(slice_work).where(slice_work.c.slice_id.in_(some)))
        found.update((each.slice_id, each) for each in stored)
    works = ((row, found[row.id]) for row in rows)
    return {
        row.id: SliceWork(
            row.id, row.units, row.work, stored.lower_bound, stored.upper_bound, plans.by_value(stored.payload)
        )
        for row, stored in works
    }


def _replace(tx: Transaction, whole: Row[Any], cut: Iterable[SliceWork], state: _HalfState) -> None:
    """Replace a slice by its halves in one transaction, so that totals stay right."""
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


def _slice(row: Any) -> SliceView:
    ref, number, id, bucket, state, *rest = row
    return SliceView(PartitionRef.parse(ref), number, id, bucket, SliceState(state), *rest)
