"""`port.Ledger` in a SQL database: every method is one transaction around a function of a sister module."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext, suppress
from typing import Any, Final, TypeVar

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from instep.domain.breaker import Backoff
from instep.domain.buckets import BucketLoad
from instep.domain.clock import TIMING, Timing
from instep.domain.events import Collected, Event, Recorded
from instep.domain.instances import Instance, Reason
from instep.domain.jobs import Claim, Job, JobPart, JobState, OpenPart, SlicePlan, SliceState, SliceStatus
from instep.domain.manifest import ManifestEntry
from instep.domain.promotion_rules import Loss
from instep.domain.refs import Naming, PartitionRef
from instep.domain.state import State
from instep.domain.wants import Want
from instep.domain.waves import SliceOutcome
from instep.errors import InstepError, Transient
from instep.ledger import (
    buckets,
    completion,
    event_rows,
    figures,
    instance_events,
    jobs,
    leases,
    losses,
    manifest,
    open_parts,
    pages,
    projections,
    slices,
    snapshots,
    sweep,
    verification,
    workers,
)
from instep.ledger import parts as part_rows
from instep.ledger.dialects.dialect import Collision, SqlDialect
from instep.ledger.event_log import LogRow, Verified
from instep.ledger.key_lease_rows import SqlHolds
from instep.ledger.key_lease_rules import KeyLeaseLedger, KeyLeaseRows
from instep.ledger.ledger import Checkpoint, FailureRecord, Holder, JobMark, Lease, NewPart, Swept, WorkerInfo
from instep.ledger.paging import FailurePlace, JobPlace, SlicePlace, SliceView
from instep.ledger.totals import Figures
from instep.ledger.transaction import IN_TRANSACTION, Transaction

T = TypeVar("T")

#: How often a transaction that collided with another is tried, and how long it pauses in between.
_TRIES: Final = 6
_PAUSES: Final = Backoff(0.005, 0.2, random.random, "full")


class SqlLedger(KeyLeaseLedger):
    """Implements `port.Ledger`. May be shared by threads."""

    def __init__(self, engine: Engine, dialect: SqlDialect, timing: Timing = TIMING) -> None:
        self._reader = engine
        self._writer = engine.execution_options(write=True, **(IN_TRANSACTION if dialect.autocommit else {}))
        # For what is one statement: a write only where a statement is not a transaction of its own.
        self._single = engine.execution_options() if dialect.autocommit else self._writer
        # All statements of a transaction see the same moment; on SQLite they do anyway.
        is_server = engine.dialect.name != "sqlite"
        self._steady = engine.execution_options(isolation_level="REPEATABLE READ") if is_server else engine
        self._dialect = dialect
        self._timing = timing

    def close(self) -> None:
        self._reader.dispose()

    def now(self) -> int:
        return self._read(Transaction.now)

    def naming(self) -> Naming:
        return self._read(lambda tx: event_rows.head(tx.connection).naming)

    def present(self) -> int:
        return self._read(event_rows.present)

    # Workers.

    def register_worker(self, worker_id: str, *, kind: str, host: str, pid: int) -> None:
        self._write(lambda tx: workers.register(tx, worker_id, kind, host, pid))

    def heartbeat(self, worker_id: str, running: Collection[str]) -> int:
        return self._write(lambda tx: workers.heartbeat(tx, worker_id, running))

    def workers(self) -> list[WorkerInfo]:
        return self._read(workers.every)

    def retire_worker(self, worker_id: str) -> None:
        self._write(lambda tx: workers.retire(tx, worker_id))

    def bury_worker(self, worker_id: str) -> int:
        return self._write(lambda tx: workers.bury(tx, worker_id))

    def sweep(self) -> Swept:
        return self._write(sweep.sweep)

    # Jobs.

    def begin_job(self, job_id: str, worker_id: str, configuration: Mapping[str, Any]) -> None:
        self._write(lambda tx: jobs.begin(tx, job_id, worker_id, configuration))

    def plan_job(self, job_id: str, parts: Sequence[NewPart], *, stagger: bool = False) -> None:
        self._write(lambda tx: part_rows.plan(tx, job_id, parts, stagger))

    def count_lost(self, part: JobPart, loss: Loss, *, job_id: str) -> None:
        self._write(lambda tx: losses.count(tx, part, loss, job_id))

    def lost_lately(self, ref: PartitionRef, generation: str, *, window: int) -> Loss:
        return self._read(lambda tx: losses.lately(tx, ref, generation, window))

    def tell_listing(self, ref: PartitionRef, problem: str | None) -> None:
        self._write(lambda tx: losses.tell_listing(tx, ref, problem))

    def listing_problem(self, ref: PartitionRef) -> str | None:
        return self._read(lambda tx: losses.listing_problem(tx, ref))

    def extend_part(self, part: JobPart, slices: Sequence[SlicePlan], *, job_id: str) -> None:
        self._write(lambda tx: part_rows.extend(tx, job_id, part, slices))

    def discard_job(self, job_id: str) -> None:
        self._write(lambda tx: jobs.discard(tx, job_id))

    def join_job(self, job_id: str, worker_id: str) -> None:
        self._write(lambda tx: jobs.join(tx, job_id, worker_id))

    def leave_job(self, job_id: str, worker_id: str, *, stop: str | None = None) -> JobState | None:
        return self._write(lambda tx: jobs.leave(tx, job_id, worker_id, stop))

    def start_job(self, job_id: str) -> None:
        self._write(lambda tx: jobs.start(tx, job_id))

    def request_stop(self, job_id: str, reason: str | None = None) -> JobState:
        return self._write(lambda tx: jobs.request_stop(tx, job_id, reason))

    def job(self, job_id: str) -> Job | None:
        return self._read(lambda tx: jobs.job(tx, job_id))

    def jobs(self, limit: int = 20) -> list[Job]:
        return self._read(lambda tx: jobs.newest(tx, limit))

    def job_page(
        self, *, states: Collection[JobState] = (), after: JobPlace | None = None, limit: int = 20
    ) -> list[Job]:
        return self._read(lambda tx: pages.jobs_after(tx, states, after, limit))

    def job_marks(self, newest: int) -> list[JobMark]:
        return self._read(lambda tx: jobs.marks(tx, newest))

    def unfinished_job(self, ref: PartitionRef, generation: str = "") -> Job | None:
        return self._read(lambda tx: jobs.unfinished(tx, ref, generation))

    def latest_job(self, ref: PartitionRef, generation: str = "") -> Job | None:
        return self._read(lambda tx: jobs.latest(tx, ref, generation))

    def open_parts(self, refs: Collection[PartitionRef]) -> list[OpenPart]:
        return self._read(lambda tx: open_parts.find(tx, refs))

    def wanted_stopped(self, refs: Collection[PartitionRef]) -> list[tuple[PartitionRef, str]]:
        return self._read(lambda tx: open_parts.wanted_stopped(tx, refs))

    def figures(self) -> Figures:
        return self._read(figures.read)

    # Leases.

    def acquire_lease(self, ref: PartitionRef, job_id: str, worker_id: str) -> Lease | Holder:
        return self._write(lambda tx: leases.acquire(tx, ref, job_id, worker_id))

    def renew_lease(self, lease: Lease) -> Lease:
        return self._write(lambda tx: leases.renew(tx, lease))

    def release_lease(self, lease: Lease) -> None:
        self._write(lambda tx: leases.release(tx, lease))

    def transfer_lease(self, lease: Lease, job_id: str, *, above: int = 0) -> Lease:
        return self._write(lambda tx: leases.transfer(tx, lease, job_id, above))

    # Parts.

    def new_instance(self, lease: Lease, reason: Reason, *, generation: str = "", by: str = "") -> str:
        return self._write(lambda tx: instance_events.new_instance(tx, lease, reason, generation, by))

    def adopt_part(self, lease: Lease) -> JobPart:
        return self._write(lambda tx: part_rows.adopt(tx, lease))

    def begin_finish(self, job_id: str, ref: PartitionRef, worker_id: str) -> bool:
        return self._write(lambda tx: part_rows.begin_finish(tx, job_id, ref, worker_id))

    def finish_part(
        self,
        job_id: str,
        part: JobPart,
        state: JobState,
        *,
        worker_id: str,
        promote: bool = False,
        whole: bool = False,
        error: str | None = None,
        retry: bool = False,
    ) -> JobState:
        return self._write(
            lambda tx: part_rows.finish(
                tx, job_id, part, state, worker_id=worker_id, promote=promote, whole=whole, error=error, retry=retry
            )
        )

    def part_of_epoch(self, ref: PartitionRef, epoch: int) -> tuple[str, JobPart] | None:
        return self._read(lambda tx: part_rows.part_of_epoch(tx, ref, epoch))

    def part_reaching(self, ref: PartitionRef, instance: str, watermark: int) -> tuple[str, JobPart] | None:
        return self._read(lambda tx: part_rows.part_reaching(tx, ref, instance, watermark))

    # Slices.

    def claim(
        self,
        job_id: str,
        ref: PartitionRef,
        worker_id: str,
        *,
        work: int,
        limit: int,
        after: int = 0,
        together: bool = False,
    ) -> list[Claim]:
        return self._run(
            self._single,
            lambda tx: slices.claim(tx, job_id, ref, worker_id, work=work, limit=limit, after=after, together=together),
        )

    def holds(self, claims: Sequence[Claim], worker_id: str) -> bool:
        return self._read(lambda tx: slices.holds(tx, claims, worker_id))

    def complete(self, part: JobPart, worker_id: str, outcomes: Sequence[SliceOutcome], *, job_id: str) -> None:
        engine = self._writer if any(map(completion.writes_rows, outcomes)) else self._single
        try:
            self._run(engine, lambda tx: completion.complete(tx, part, worker_id, outcomes, job_id))
        except completion.PartlyDone:
            self._write(lambda tx: completion.complete_rest(tx, part, worker_id, outcomes, job_id))

    def absorb(self, part: JobPart, outcomes: Sequence[SliceOutcome], *, job_id: str) -> None:
        self._write(lambda tx: completion.absorb(tx, part, outcomes, job_id))

    def give_back(
        self, claims: Sequence[Claim], worker_id: str, *, error: str | None = None, spent: bool, delay: int = 0
    ) -> None:
        self._write(lambda tx: jobs.give_back(tx, claims, worker_id, error=error, spent=spent, delay=delay))

    def split(self, claim: Claim, worker_id: str) -> bool:
        return self._write(lambda tx: slices.split(tx, claim, worker_id))

    def slices(self, job_id: str, ref: PartitionRef, *, limit: int = 1_000) -> list[SliceStatus]:
        return self._read(lambda tx: slices.of_part(tx, job_id, ref, limit))

    def slice_page(
        self,
        job_id: str,
        *,
        refs: Collection[PartitionRef] | None = None,
        state: SliceState | None = None,
        after: SlicePlace | None = None,
        limit: int = 1_000,
    ) -> list[SliceView]:
        return self._read(lambda tx: pages.slices_after(tx, job_id, refs=refs, state=state, after=after, limit=limit))

    def slice_states(self, job_id: str) -> list[tuple[PartitionRef, int, SliceState]]:
        return self._read(lambda tx: pages.slice_states(tx, job_id))

    # What is indexed.

    def checkpoint(self, ref: PartitionRef, generation: str = "") -> Checkpoint | None:
        return self._read(lambda tx: manifest.checkpoint(tx, ref, generation))

    def checkpoints(self, ref: PartitionRef) -> list[Checkpoint]:
        return self._read(lambda tx: manifest.all_checkpoints(tx, ref))

    def entity_checkpoints(self, entity: str) -> list[Checkpoint]:
        return self._read(lambda tx: manifest.entity_checkpoints(tx, entity))

    def promoted(self, ref: PartitionRef) -> str | None:
        return self._read(lambda tx: projections.some_promoted(tx.connection, [str(ref)])).get(str(ref))

    def all_indexes(self) -> set[str]:
        return self._read(part_rows.all_indexes)

    def indexes(self, entity: str) -> set[str]:
        return self._read(lambda tx: part_rows.indexes(tx, entity))

    def drop_partition(self, lease: Lease, *, by: str = "") -> None:
        self._write(lambda tx: part_rows.drop_partition(tx, lease, by))

    def manifest(self, instance: str) -> dict[str, ManifestEntry]:
        return self._read(lambda tx: manifest.entries(tx, instance))

    def versions(self, instance: str) -> dict[str, tuple[int, str]]:
        return self._read(lambda tx: manifest.versions(tx, instance))

    def document(self, instance: str, document_id: str) -> ManifestEntry | None:
        return self._read(lambda tx: manifest.entry(tx, instance, document_id))

    def sampled(self, instance: str, ids: Sequence[str]) -> list[ManifestEntry]:
        return self._read(lambda tx: manifest.sampled(tx, instance, ids))

    def totals(self, instance: str) -> tuple[int, int, int]:
        return self._read(lambda tx: manifest.totals(tx, instance))

    def oversized(self, instance: str, *, size: int, chunks: int | None, limit: int) -> tuple[int, list[ManifestEntry]]:
        return self._read(lambda tx: manifest.oversized(tx, instance, size, chunks, limit))

    def bucket_loads(self, ref: PartitionRef, generation: str, instance: str) -> list[BucketLoad]:
        return self._read(lambda tx: buckets.loads(tx, ref, generation, instance))

    def failed_versions(self, ref: PartitionRef, generation: str = "") -> dict[str, str]:
        return self._read(lambda tx: manifest.failed_versions(tx, ref, generation))

    def failures(self, ref: PartitionRef | None = None, *, limit: int = 100) -> list[FailureRecord]:
        return self._read(lambda tx: manifest.failure_records(tx, ref, limit))

    def failure_page(
        self, *, refs: Collection[PartitionRef] | None = None, after: FailurePlace | None = None, limit: int = 100
    ) -> list[FailureRecord]:
        return self._read(lambda tx: pages.failures_after(tx, refs, after, limit))

    def count_failures(self, ref: PartitionRef, generation: str = "", *, skipped: bool = False) -> int:
        return self._read(lambda tx: manifest.count_failures(tx, ref, generation, skipped=skipped))

    # Events, and what follows from them.

    def append(self, events: Sequence[Event]) -> list[Recorded]:
        return self._write(lambda tx: instance_events.demand(tx, events))

    def collect(self, instances: Collection[str], wants: Collection[str]) -> None:
        if instances or wants:
            self.append([Collected(instances=tuple(instances), wants=tuple(wants))])

    def events(self, after: int = 0, limit: int = 1_000) -> list[LogRow]:
        return self._read(lambda tx: event_rows.rows(tx.connection, after, limit))

    def canonical(self, ref: PartitionRef, generation: str = "") -> Instance | None:
        return self._read(lambda tx: projections.current(tx.connection, ref, generation))

    def instance(self, uuid: str) -> Instance | None:
        return self._read(lambda tx: projections.instance(tx.connection, uuid))

    def instances(self, ref: PartitionRef, limit: int = 100) -> list[Instance]:
        return self._read(lambda tx: projections.newest(tx.connection, ref, limit))

    def want(self, id: str) -> Want | None:
        return self._read(lambda tx: projections.want(tx.connection, id))

    def wants(
        self,
        *,
        ref: PartitionRef | None = None,
        open_only: bool = False,
        after: str | None = None,
        limit: int = 100,
    ) -> list[Want]:
        return self._read(lambda tx: projections.newest_wants(tx.connection, ref, open_only, after, limit))

    def startable_wants(self, refs: Collection[PartitionRef]) -> list[Want]:
        return self._read(lambda tx: projections.startable_wants(tx.connection, refs, event_rows.present(tx)))

    def state(self, *, at: int | None = None, sequence: int | None = None) -> State:
        return self._read(lambda tx: snapshots.state(tx.connection, at=at, sequence=sequence))

    def verify(self) -> Verified:
        return self._run(self._steady, lambda tx: verification.verify(tx.connection))

    def rebuild_projections(self) -> Verified:
        return self._write(lambda tx: verification.rebuild(tx.connection))

    # Keys of queues in hand.

    def _look_at_holds(self, work: Callable[[KeyLeaseRows], T]) -> T:
        return self._read(lambda tx: work(SqlHolds(tx)))

    def _change_holds(self, work: Callable[[KeyLeaseRows], T]) -> T:
        return self._write(lambda tx: work(SqlHolds(tx)))

    # What else lives in the ledger's database.

    def look(self, work: Callable[[Transaction], T]) -> T:
        """`work`, which only reads."""
        return self._read(work)

    def change(self, work: Callable[[Transaction], T]) -> T:
        """`work` in a transaction."""
        return self._write(work)

    # Transactions.

    def _read(self, work: Callable[[Transaction], T]) -> T:
        return self._run(self._reader, work)

    def _write(self, work: Callable[[Transaction], T]) -> T:
        done: list[Transaction] = []

        def noted(tx: Transaction) -> T:
            done[:] = [tx]
            return work(tx)

        result = self._run(self._writer, noted)
        due = snapshots.due(*done[0].appended)
        if due is not None:
            self._snapshot(due)
        return result

    def _snapshot(self, sequence: int) -> None:
        # What was appended is committed. Without the snapshot a replay takes longer, that is all.
        with suppress(InstepError):
            made = self._read(lambda tx: snapshots.make(tx.connection, sequence))
            self._run(self._writer, lambda tx: snapshots.keep(tx.connection, made))

    def _run(self, engine: Engine, work: Callable[[Transaction], T]) -> T:
        """`work` in a transaction; again when it collided with another one, and so had no effect.

        Two that insert the same row collide too: the second then finds what the first one made.
        """
        for tried in range(1, _TRIES):
            try:
                return self._once(engine, work)
            except (Collision, IntegrityError):
                time.sleep(_PAUSES.pause(tried))
        return self._once(engine, work)

    def _once(self, engine: Engine, work: Callable[[Transaction], T]) -> T:
        # With autocommit every statement is its own commit.
        alone = engine is self._single and self._dialect.autocommit
        committing = False
        try:
            with engine.connect() as connection, nullcontext() if alone else connection.begin():
                committing = alone
                result = work(Transaction(connection, self._dialect, self._timing))
                committing = engine is not self._reader and engine is not self._steady
        except DBAPIError as error:
            known = self._dialect.explain(error, committing=committing)
            if known is None:
                raise
            raise known from error
        except PoolTimeout as error:
            raise Transient("the ledger has no free connection") from error
        return result
