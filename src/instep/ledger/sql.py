"""The ledger in a SQL database, through SQLAlchemy Core. What differs by dialect is in `SqlDialect`.

Each port method is one transaction. Rows that decide something are read `FOR UPDATE` first (SQLite
ignores that: its writers stand in line from BEGIN IMMEDIATE on), and every write about a slice is
guarded by (id, fence, worker).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

from sqlalchemy import (
    Connection,
    Engine,
    Row,
    and_,
    bindparam,
    case,
    delete,
    exists,
    func,
    insert,
    literal_column,
    or_,
    select,
    update,
)
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.sql.base import Executable

from instep.domain.counts import COUNT_FIELDS, Counts
from instep.domain.jobs import JOB_MOVES, MAX_ATTEMPTS, Claim, Job, JobPart, JobState, SliceState
from instep.domain.manifest import ManifestEntry
from instep.domain.refs import PartitionRef
from instep.domain.waves import Failure, SliceOutcome
from instep.errors import Conflict, Fenced, InstepError, Transient
from instep.ledger.port import LEASE_TTL_MS, Checkpoint, FailureRecord, Holder, Lease, NewPart
from instep.ledger.retries import (
    ATTEMPTS_OF_HALVES,
    SUSPECT_ATTEMPTS,
    Poisoned,
    SliceWork,
    demand_balance,
    may_be_tried_again,
    take_apart,
)
from instep.ledger.tables import (
    checkpoints,
    documents,
    failures,
    job_parts,
    jobs,
    leases,
    sequences,
    slice_work,
    slices,
    workers,
)

#: Databases bound the number of parameters of one statement.
_BATCH = 1_000

_OPEN_SLICES = (SliceState.PENDING.value, SliceState.PROCESSING.value)
# Literals, so that the planner sees the condition of the partial index.
_PROCESSING = slices.c.state == literal_column(f"'{SliceState.PROCESSING}'")


class SqlDialect(Protocol):
    """What the ledger needs of a database beyond portable SQL."""

    #: Binds job, partition, worker, now, enough (work), limit, least and most attempts; returns the claimed ids.
    claim: Executable
    #: Inserts manifest rows, replacing those of the same document.
    replace_documents: Executable

    def now(self, connection: Connection, /) -> int:
        """The ledger's clock, in milliseconds."""

    def explain(self, error: DBAPIError) -> InstepError | None:
        """The error as the caller should see it, or None when it is a fault in Instep itself."""


class SqlLedger:
    """Implements `port.Ledger`. May be shared by threads."""

    def __init__(self, engine: Engine, dialect: SqlDialect) -> None:
        self._engine = engine
        self._writer = engine.execution_options(write=True)
        self._dialect = dialect

    def close(self) -> None:
        self._engine.dispose()

    def now(self) -> int:
        with self._reading() as connection:
            return self._dialect.now(connection)

    @contextmanager
    def _transaction(self, engine: Engine) -> Iterator[Connection]:
        try:
            with engine.begin() as connection:
                yield connection
        except DBAPIError as error:
            known = self._dialect.explain(error)
            if known is None:
                raise
            raise known from error
        except PoolTimeout as error:
            raise Transient("the ledger has no free connection") from error

    def _reading(self) -> AbstractContextManager[Connection]:
        return self._transaction(self._engine)

    def _writing(self) -> AbstractContextManager[Connection]:
        return self._transaction(self._writer)

    # Workers.

    def register_worker(self, worker_id: str, *, host: str, pid: int) -> None:
        with self._writing() as connection:
            now = self._dialect.now(connection)
            connection.execute(delete(workers).where(workers.c.id == worker_id))
            connection.execute(
                insert(workers).values(id=worker_id, host=host, pid=pid, started_at=now, heartbeat_at=now)
            )

    def heartbeat(self, worker_id: str) -> None:
        with self._writing() as connection:
            now = self._dialect.now(connection)
            beat = connection.execute(update(workers).where(workers.c.id == worker_id).values(heartbeat_at=now))
            if beat.rowcount != 1:
                raise Fenced(f"worker {worker_id} is not registered")

    def retire_worker(self, worker_id: str) -> None:
        with self._writing() as connection:
            connection.execute(
                update(slices)
                .where(slices.c.worker_id == worker_id, _PROCESSING)
                .values(state=SliceState.PENDING.value, worker_id=None)
            )
            connection.execute(delete(workers).where(workers.c.id == worker_id))

    # Leases.

    def acquire_lease(self, ref: PartitionRef, worker_id: str) -> Lease | Holder:
        with self._writing() as connection:
            now = self._dialect.now(connection)
            row = connection.execute(select(leases).where(leases.c.ref == str(ref)).with_for_update()).one_or_none()
            if row is not None and row.worker_id is not None and now < row.expires_at:
                return Holder(ref, row.worker_id, row.host, row.pid, row.epoch, row.since, row.expires_at)
            who = connection.execute(
                select(workers.c.host, workers.c.pid).where(workers.c.id == worker_id)
            ).one_or_none()
            lease = Lease(ref, worker_id, row.epoch + 1 if row else 1, now + LEASE_TTL_MS)
            values = {
                "epoch": lease.epoch,
                "worker_id": worker_id,
                "host": who.host if who else "",
                "pid": who.pid if who else 0,
                "since": now,
                "expires_at": lease.expires_at,
            }
            if row is None:
                connection.execute(insert(leases).values(ref=str(ref), **values))
            else:
                connection.execute(update(leases).where(leases.c.ref == str(ref)).values(values))
            return lease

    def renew_lease(self, lease: Lease) -> Lease:
        with self._writing() as connection:
            now = self._dialect.now(connection)
            renewed = connection.execute(
                update(leases).where(*_held(lease), leases.c.expires_at > now).values(expires_at=now + LEASE_TTL_MS)
            )
            if renewed.rowcount != 1:
                raise Fenced(f"the lease of {lease.ref} was lost")
            return Lease(lease.ref, lease.worker_id, lease.epoch, now + LEASE_TTL_MS)

    def release_lease(self, lease: Lease) -> None:
        with self._writing() as connection:
            connection.execute(update(leases).where(*_held(lease)).values(worker_id=None))

    def break_lease(self, ref: PartitionRef, epoch: int) -> bool:
        with self._writing() as connection:
            broken = connection.execute(
                update(leases)
                .where(leases.c.ref == str(ref), leases.c.epoch == epoch, leases.c.worker_id.is_not(None))
                .values(worker_id=None)
            )
            return bool(broken.rowcount == 1)

    # Jobs.

    def next_sequence(self, ref: PartitionRef) -> int:
        with self._reading() as connection:
            return _last_sequence(connection, ref) + 1

    def create_job(self, job_id: str, parts: Sequence[NewPart], *, worker_id: str) -> None:
        with self._writing() as connection:
            for new in parts:
                _demand_epoch(connection, new.part)
            if connection.scalar(select(exists().where(jobs.c.id == job_id))):
                raise Conflict(f"there is a job {job_id} already")
            now = self._dialect.now(connection)
            connection.execute(
                insert(jobs).values(id=job_id, state=JobState.READY.value, worker_id=worker_id, created_at=now)
            )
            for position, new in enumerate(parts):
                _insert_part(connection, job_id, position, new)

    def job(self, job_id: str) -> Job | None:
        with self._reading() as connection:
            found = _load_jobs(connection, connection.execute(select(jobs).where(jobs.c.id == job_id)).all())
        return found[0] if found else None

    def jobs(self, limit: int = 20) -> list[Job]:
        newest = select(jobs).order_by(jobs.c.created_at.desc(), jobs.c.id.desc()).limit(limit)
        with self._reading() as connection:
            return _load_jobs(connection, connection.execute(newest).all())

    def unfinished_job(self, ref: PartitionRef) -> Job | None:
        open_slices = exists().where(slices.c.job_id == jobs.c.id, slices.c.state.in_(_OPEN_SLICES))
        fresh_part = exists().where(job_parts.c.job_id == jobs.c.id, job_parts.c.fresh)
        running = [state.value for state in JobState if not state.ended]
        unfinished = (
            select(jobs)
            .where(
                or_(
                    jobs.c.state.in_(running),
                    and_(jobs.c.state == JobState.STOPPED.value, or_(open_slices, fresh_part)),
                ),
                exists().where(job_parts.c.job_id == jobs.c.id, job_parts.c.ref == str(ref)),
            )
            .order_by(jobs.c.created_at.desc(), jobs.c.id.desc())
            .limit(1)
        )
        with self._reading() as connection:
            found = _load_jobs(connection, connection.execute(unfinished).all())
        return found[0] if found else None

    def adopt_job(self, job_id: str, lease: Lease) -> JobPart:
        with self._writing() as connection:
            held = connection.execute(select(leases.c.epoch).where(*_held(lease)).with_for_update()).one_or_none()
            if held is None:
                raise Fenced(f"the lease of {lease.ref} was lost")
            state = _state_of(connection, job_id)
            if state.ended and state is not JobState.STOPPED:
                raise Conflict(f"job {job_id} has ended: {state}")
            here = and_(job_parts.c.job_id == job_id, job_parts.c.ref == str(lease.ref))
            if connection.execute(update(job_parts).where(here).values(epoch=lease.epoch)).rowcount != 1:
                raise Conflict(f"job {job_id} has no part on {lease.ref}")
            if state is JobState.STOPPING:
                # Whoever was to finish stopping is gone.
                _set_state(connection, job_id, JobState.STOPPED, finished_at=self._dialect.now(connection))
            orphans = connection.execute(
                select(slices)
                .where(slices.c.job_id == job_id, slices.c.ref == str(lease.ref), _PROCESSING)
                .order_by(slices.c.id)
                .with_for_update()
            ).all()
            for orphan in orphans:
                self._bad_end(connection, orphan, "its worker died")
            return _part(connection.execute(select(job_parts).where(here)).one())

    def start_job(self, job_id: str) -> None:
        with self._writing() as connection:
            state = _state_of(connection, job_id)
            if state in (JobState.RUNNING, JobState.STOPPING):
                return
            _demand_move(job_id, state, JobState.RUNNING)
            now = self._dialect.now(connection)
            _set_state(
                connection,
                job_id,
                JobState.RUNNING,
                started_at=case((jobs.c.started_at.is_(None), now), else_=jobs.c.started_at),
                finished_at=None,
                error=None,
            )

    def request_stop(self, job_id: str) -> None:
        with self._writing() as connection:
            state = _state_of(connection, job_id)
            if JobState.STOPPING in JOB_MOVES[state]:
                _set_state(connection, job_id, JobState.STOPPING)

    def finish_job(
        self, job_id: str, state: JobState, *, error: str | None = None, promote: Sequence[JobPart] = ()
    ) -> None:
        if not state.ended:
            raise ValueError(f"{state} is not an end")
        with self._writing() as connection:
            before = _state_of(connection, job_id)
            if before is state:
                return
            for part in promote:
                _demand_epoch(connection, part)
            _demand_move(job_id, before, state)
            here = and_(slices.c.job_id == job_id, slices.c.state.in_(_OPEN_SLICES))
            durable = promote or state in (JobState.COMPLETED, JobState.COMPLETED_WITH_ERRORS)
            if durable and connection.scalar(select(exists().where(here))):
                raise Conflict(f"job {job_id} has open slices: it cannot be {state} or promoted")
            now = self._dialect.now(connection)
            if state is JobState.FAILED:
                connection.execute(
                    update(slices).where(here).values(state=SliceState.CANCELLED.value, worker_id=None, finished_at=now)
                )
            for part in promote:
                _promote(connection, job_id, part, now)
            if state is JobState.FAILED:
                _forget_unserved(connection, job_id)
            _set_state(connection, job_id, state, finished_at=now, error=error)

    # Slices.

    def claim(self, job_id: str, ref: PartitionRef, worker_id: str, *, work: int, limit: int) -> list[Claim]:
        with self._writing() as connection:
            values = {
                "job": job_id,
                "partition": str(ref),
                "worker": worker_id,
                "now": self._dialect.now(connection),
            }
            many = {"enough": max(1, work), "limit": limit, "least": 0, "most": SUSPECT_ATTEMPTS - 1}
            ids = connection.execute(self._dialect.claim, values | many).scalars().all()
            if not ids:
                one = {"enough": 1, "limit": min(1, limit), "least": SUSPECT_ATTEMPTS, "most": MAX_ATTEMPTS}
                ids = connection.execute(self._dialect.claim, values | one).scalars().all()
            rows: list[Row[Any]] = []
            for some in _batches(ids):
                rows += connection.execute(_CLAIMED, {"ids": some}).all()
        rows.sort(key=lambda row: (-row.priority, -row.work, row.number, row.id))
        return [
            Claim(
                row.id,
                row.job_id,
                ref,
                row.number,
                row.bucket,
                row.units,
                row.work,
                row.attempts,
                row.fence,
                row.payload,
            )
            for row in rows
        ]

    def holds(self, claims: Sequence[Claim], worker_id: str) -> bool:
        with self._reading() as connection:
            found = _slices_by_id(connection, (claim.slice_id for claim in claims), lock=False)
        return all(_is_held(found.get(claim.slice_id), claim.fence, worker_id) for claim in claims)

    def complete(self, part: JobPart, worker_id: str, outcomes: Sequence[SliceOutcome], *, job_id: str) -> None:
        with self._writing() as connection:
            _demand_epoch(connection, part)
            found = _slices_by_id(connection, (outcome.slice_id for outcome in outcomes), lock=True)
            new = [each for each in outcomes if not _is_replay(found.get(each.slice_id), each.fence, worker_id)]
            for outcome in new:
                demand_balance(outcome)
                row = found.get(outcome.slice_id)
                if row is None or row.job_id != job_id or not _is_held(row, outcome.fence, worker_id):
                    raise Fenced(f"slice {outcome.slice_id} was taken over")
            if not new:
                return
            now = self._dialect.now(connection)
            done = connection.execute(
                _COMPLETE,
                [
                    {"b_id": each.slice_id, "b_fence": each.fence, "b_worker": worker_id, "finished_at": now}
                    | each.counts.as_dict()
                    for each in new
                ],
            )
            if done.rowcount != len(new):
                raise Fenced(f"a slice of job {job_id} was taken over")
            self._write_manifest(connection, part, new)
            _write_failures(connection, part.ref, job_id, new, now)

    def _write_manifest(self, connection: Connection, part: JobPart, outcomes: Sequence[SliceOutcome]) -> None:
        removed = [{"b_instance": part.instance, "b_id": each} for outcome in outcomes for each in outcome.removed]
        if removed:
            connection.execute(
                delete(documents).where(
                    documents.c.instance == bindparam("b_instance"), documents.c.document_id == bindparam("b_id")
                ),
                removed,
            )
        entries = [{"instance": part.instance} | each._asdict() for outcome in outcomes for each in outcome.entries]
        if entries:
            connection.execute(self._dialect.replace_documents, entries)

    def give_back(self, claims: Sequence[Claim], worker_id: str, *, error: str | None = None, spent: bool) -> None:
        with self._writing() as connection:
            found = _slices_by_id(connection, (claim.slice_id for claim in claims), lock=True)
            for claim in claims:
                row = found.get(claim.slice_id)
                if row is None or not _is_held(row, claim.fence, worker_id):
                    continue
                if spent:
                    self._bad_end(connection, row, error)
                else:
                    _back_to_pending(connection, row, row.attempts, error)

    def _bad_end(self, connection: Connection, row: Row[Any], error: str | None) -> None:
        """One more attempt ended badly: back to PENDING, cut in two, or FAILED."""
        attempts = row.attempts + 1
        if may_be_tried_again(attempts):
            _back_to_pending(connection, row, attempts, error)
            return
        stored = connection.execute(select(slice_work).where(slice_work.c.slice_id == row.id)).one()
        whole = SliceWork(row.id, row.units, row.work, stored.lower_bound, stored.upper_bound, stored.payload)
        result = take_apart(whole, attempts, error)
        if isinstance(result, Poisoned):
            now = self._dialect.now(connection)
            _guarded_update(
                connection,
                row,
                {"state": SliceState.FAILED.value, "attempts": attempts, "finished_at": now, "error": result.error}
                | result.counts.as_dict(),
            )
            outcome = SliceOutcome(row.id, row.fence, result.counts, failures=result.failures)
            _write_failures(connection, PartitionRef.parse(row.ref), row.job_id, [outcome], now)
            return
        # The whole goes and its halves come in one transaction, so that totals stay right.
        connection.execute(delete(slice_work).where(slice_work.c.slice_id == row.id))
        connection.execute(delete(slices).where(*_guard(row)))
        for half in result:
            _insert_half(connection, row, half, error)

    # What is indexed.

    def checkpoint(self, ref: PartitionRef) -> Checkpoint | None:
        with self._reading() as connection:
            row = connection.execute(select(checkpoints).where(checkpoints.c.ref == str(ref))).one_or_none()
        if row is None:
            return None
        return Checkpoint(
            ref=ref,
            instance=row.instance,
            sequence=row.sequence,
            physical=row.physical,
            fingerprint=json.loads(row.fingerprint),
            buckets=row.buckets,
            watermark=row.watermark,
            job_id=row.job_id,
            updated_at=row.updated_at,
        )

    def manifest(self, instance: str) -> dict[str, ManifestEntry]:
        columns = [documents.c[name] for name in ManifestEntry._fields]
        with self._reading() as connection:
            rows = connection.execute(select(*columns).where(documents.c.instance == instance))
            return {row[1]: ManifestEntry._make(row) for row in rows}

    def totals(self, instance: str) -> tuple[int, int, int]:
        sums = select(func.count(), func.sum(documents.c.chunks), func.sum(documents.c.size))
        with self._reading() as connection:
            count, rows, size = connection.execute(sums.where(documents.c.instance == instance)).one()
        return int(count), int(rows or 0), int(size or 0)

    def failed_versions(self, ref: PartitionRef) -> dict[str, str]:
        with self._reading() as connection:
            rows = connection.execute(select(failures.c.uri, failures.c.version).where(failures.c.ref == str(ref)))
            return {row.uri: row.version for row in rows}

    def failures(self, ref: PartitionRef | None = None, *, limit: int = 100) -> list[FailureRecord]:
        newest = select(failures).order_by(failures.c.failed_at.desc(), failures.c.ref, failures.c.document_id)
        if ref is not None:
            newest = newest.where(failures.c.ref == str(ref))
        with self._reading() as connection:
            rows = connection.execute(newest.limit(limit)).all()
        return [FailureRecord(PartitionRef.parse(row.ref), *row[1:]) for row in rows]

    def count_failures(self, ref: PartitionRef) -> int:
        count = select(func.count()).select_from(failures).where(failures.c.ref == str(ref))
        with self._reading() as connection:
            return int(connection.scalar(count) or 0)


# Statements that are compiled once.

_CLAIMED = (
    select(slices, slice_work.c.payload)
    .join(slice_work, slice_work.c.slice_id == slices.c.id)
    .where(slices.c.id.in_(bindparam("ids", expanding=True)))
)

_COMPLETE = (
    update(slices)
    .where(
        slices.c.id == bindparam("b_id"),
        slices.c.fence == bindparam("b_fence"),
        slices.c.worker_id == bindparam("b_worker"),
        _PROCESSING,
    )
    .values(
        state=SliceState.COMPLETED.value,
        error=None,
        finished_at=bindparam("finished_at"),
        **{name: bindparam(name) for name in COUNT_FIELDS},
    )
)


def _batches(ids: Iterable[str]) -> Iterator[list[str]]:
    every = list(ids)
    for start in range(0, len(every), _BATCH):
        yield every[start : start + _BATCH]


# Fences.


def _held(lease: Lease) -> tuple[Any, ...]:
    return (leases.c.ref == str(lease.ref), leases.c.epoch == lease.epoch, leases.c.worker_id == lease.worker_id)


def _demand_epoch(connection: Connection, part: JobPart) -> None:
    """The part's epoch is the newest of its lease, and somebody holds that."""
    row = connection.execute(
        select(leases.c.epoch, leases.c.worker_id).where(leases.c.ref == str(part.ref)).with_for_update()
    ).one_or_none()
    if row is None or row.epoch != part.epoch or row.worker_id is None:
        raise Fenced(f"the lease of {part.ref} (epoch {part.epoch}) was lost")


def _is_held(row: Row[Any] | None, fence: int, worker_id: str) -> bool:
    return _is_in(SliceState.PROCESSING, row, fence, worker_id)


def _is_replay(row: Row[Any] | None, fence: int, worker_id: str) -> bool:
    """Completed under this very claim before: the reply was lost, the effect was not."""
    return _is_in(SliceState.COMPLETED, row, fence, worker_id)


def _is_in(state: SliceState, row: Row[Any] | None, fence: int, worker_id: str) -> bool:
    return row is not None and row.fence == fence and row.worker_id == worker_id and row.state == state.value


def _guard(row: Row[Any]) -> tuple[Any, ...]:
    return (slices.c.id == row.id, slices.c.fence == row.fence, slices.c.worker_id == row.worker_id, _PROCESSING)


def _guarded_update(connection: Connection, row: Row[Any], values: Mapping[str, Any]) -> None:
    if connection.execute(update(slices).where(*_guard(row)).values(values)).rowcount != 1:
        raise Fenced(f"slice {row.id} was taken over")


# Slices.


def _slices_by_id(connection: Connection, ids: Iterable[str], *, lock: bool) -> dict[str, Row[Any]]:
    found: dict[str, Row[Any]] = {}
    for some in _batches(ids):
        query = select(slices).where(slices.c.id.in_(some))
        for row in connection.execute(query.with_for_update() if lock else query):
            found[row.id] = row
    return found


def _back_to_pending(connection: Connection, row: Row[Any], attempts: int, error: str | None) -> None:
    values = {"state": SliceState.PENDING.value, "worker_id": None, "attempts": attempts, "error": error}
    _guarded_update(connection, row, values)


def _insert_half(connection: Connection, whole: Row[Any], half: SliceWork, error: str | None) -> None:
    connection.execute(
        insert(slices).values(
            id=half.id,
            job_id=whole.job_id,
            ref=whole.ref,
            number=whole.number,
            bucket=whole.bucket,
            units=half.units,
            work=half.work,
            priority=whole.priority,
            state=SliceState.PENDING.value,
            attempts=ATTEMPTS_OF_HALVES,
            fence=0,
            error=error,
            split_from=whole.id,
        )
    )
    connection.execute(
        insert(slice_work).values(
            slice_id=half.id, lower_bound=half.lower, upper_bound=half.upper, payload=half.payload
        )
    )


# Jobs and their parts.


def _last_sequence(connection: Connection, ref: PartitionRef) -> int:
    return connection.scalar(select(sequences.c.last).where(sequences.c.ref == str(ref))) or 0


def _take_sequence(connection: Connection, ref: PartitionRef) -> int:
    taken = connection.execute(
        update(sequences).where(sequences.c.ref == str(ref)).values(last=sequences.c.last + 1)
    ).rowcount
    if not taken:
        connection.execute(insert(sequences).values(ref=str(ref), last=1))
    return _last_sequence(connection, ref)


def _insert_part(connection: Connection, job_id: str, position: int, new: NewPart) -> None:
    part, ref = new.part, str(new.part.ref)
    if part.fresh:
        sequence = _take_sequence(connection, part.ref)
    else:
        sequence = connection.scalar(select(checkpoints.c.sequence).where(checkpoints.c.ref == ref)) or 0
    connection.execute(
        insert(job_parts).values(
            job_id=job_id,
            ref=ref,
            position=position,
            instance=part.instance,
            sequence=sequence,
            physical=part.physical,
            fingerprint=json.dumps(dict(part.fingerprint), sort_keys=True),
            buckets=part.buckets,
            epoch=part.epoch,
            base=part.base,
            fresh=part.fresh,
        )
    )
    if not new.slices:
        return
    ids = [f"{job_id}.{position}.{plan.index}" for plan in new.slices]
    connection.execute(
        insert(slices),
        [
            {
                "id": slice_id,
                "job_id": job_id,
                "ref": ref,
                "number": plan.index,
                "bucket": plan.bucket,
                "units": plan.units,
                "work": plan.work,
                "priority": plan.priority,
                "state": SliceState.PENDING.value,
                "attempts": 0,
                "fence": 0,
            }
            for slice_id, plan in zip(ids, new.slices, strict=True)
        ],
    )
    connection.execute(
        insert(slice_work),
        [
            {"slice_id": slice_id, "lower_bound": plan.lower, "upper_bound": plan.upper, "payload": plan.payload}
            for slice_id, plan in zip(ids, new.slices, strict=True)
        ],
    )


def _state_of(connection: Connection, job_id: str) -> JobState:
    state = connection.scalar(select(jobs.c.state).where(jobs.c.id == job_id).with_for_update())
    if state is None:
        raise Conflict(f"there is no job {job_id}")
    return JobState(state)


def _set_state(connection: Connection, job_id: str, state: JobState, **values: Any) -> None:
    connection.execute(update(jobs).where(jobs.c.id == job_id).values(state=state.value, **values))


def _demand_move(job_id: str, before: JobState, after: JobState) -> None:
    if after not in JOB_MOVES[before]:
        raise Conflict(f"job {job_id} is {before}: it cannot become {after}")


def _promote(connection: Connection, job_id: str, part: JobPart, now: int) -> None:
    ref = str(part.ref)
    stored = connection.execute(
        select(job_parts.c.sequence, jobs.c.created_at)
        .join(jobs, jobs.c.id == job_parts.c.job_id)
        .where(job_parts.c.job_id == job_id, job_parts.c.ref == ref, job_parts.c.instance == part.instance)
    ).one_or_none()
    if stored is None:
        raise Conflict(f"job {job_id} has no such part on {ref}")
    replaced = connection.scalar(select(checkpoints.c.instance).where(checkpoints.c.ref == ref))
    if replaced is not None and replaced != part.instance:
        connection.execute(delete(documents).where(documents.c.instance == replaced))
    connection.execute(delete(checkpoints).where(checkpoints.c.ref == ref))
    connection.execute(
        insert(checkpoints).values(
            ref=ref,
            instance=part.instance,
            sequence=stored.sequence,
            physical=part.physical,
            fingerprint=json.dumps(dict(part.fingerprint), sort_keys=True),
            buckets=part.buckets,
            watermark=stored.created_at,
            job_id=job_id,
            updated_at=now,
        )
    )


def _forget_unserved(connection: Connection, job_id: str) -> None:
    """Drop the manifest of instances that a failed job began and that are not served."""
    served = exists().where(checkpoints.c.instance == job_parts.c.instance)
    begun = select(job_parts.c.instance).where(job_parts.c.job_id == job_id, job_parts.c.fresh, ~served)
    connection.execute(delete(documents).where(documents.c.instance.in_(begun)))


def _part(row: Row[Any]) -> JobPart:
    return JobPart(
        ref=PartitionRef.parse(row.ref),
        instance=row.instance,
        physical=row.physical,
        fingerprint=json.loads(row.fingerprint),
        buckets=row.buckets,
        epoch=row.epoch,
        base=row.base,
        fresh=row.fresh,
    )


def _load_jobs(connection: Connection, rows: Sequence[Row[Any]]) -> list[Job]:
    """Jobs with their parts, and with counts and states summed over their slices."""
    ids = [row.id for row in rows]
    if not ids:
        return []
    parts: dict[str, list[JobPart]] = {each: [] for each in ids}
    in_order = select(job_parts).where(job_parts.c.job_id.in_(ids)).order_by(job_parts.c.job_id, job_parts.c.position)
    for row in connection.execute(in_order):
        parts[row.job_id].append(_part(row))
    states: dict[str, dict[SliceState, int]] = {each: {} for each in ids}
    counts = dict.fromkeys(ids, Counts())
    summed = (
        select(slices.c.job_id, slices.c.state, func.count(), *(func.sum(slices.c[name]) for name in COUNT_FIELDS))
        .where(slices.c.job_id.in_(ids))
        .group_by(slices.c.job_id, slices.c.state)
    )
    for job_id, state, number, *sums in connection.execute(summed):
        states[job_id][SliceState(state)] = number
        counts[job_id] += Counts(*map(int, sums))
    return [
        Job(
            id=row.id,
            state=JobState(row.state),
            created_at=row.created_at,
            started_at=row.started_at,
            finished_at=row.finished_at,
            error=row.error,
            counts=counts[row.id],
            slices=states[row.id],
            parts=tuple(parts[row.id]),
        )
        for row in rows
    ]


# Failures.


def _write_failures(
    connection: Connection, ref: PartitionRef, job_id: str, outcomes: Sequence[SliceOutcome], now: int
) -> None:
    """What was written or removed has no failure any more; what failed has one more attempt."""
    known: dict[str, int] = {
        row.document_id: row.attempts
        for row in connection.execute(
            select(failures.c.document_id, failures.c.attempts).where(failures.c.ref == str(ref))
        )
    }
    cured = {each.document_id for outcome in outcomes for each in outcome.entries}
    cured.update(each for outcome in outcomes for each in outcome.removed)
    failed: dict[str, Failure] = {each.document_id: each for outcome in outcomes for each in outcome.failures}
    gone = known.keys() & (cured | failed.keys())
    if gone:
        connection.execute(
            delete(failures).where(failures.c.ref == bindparam("b_ref"), failures.c.document_id == bindparam("b_id")),
            [{"b_ref": str(ref), "b_id": each} for each in sorted(gone)],
        )
    if failed:
        connection.execute(
            insert(failures),
            [
                each._asdict()
                | {
                    "ref": str(ref),
                    "attempts": (0 if each.document_id in cured else known.get(each.document_id, 0)) + 1,
                    "job_id": job_id,
                    "failed_at": now,
                }
                for each in failed.values()
            ],
        )
