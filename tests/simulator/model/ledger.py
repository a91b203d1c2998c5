"""The model of the ledger: every method of its stores is one call under one lock."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from instep.document_state import pieces
from instep.domain.buckets import BucketLoad
from instep.domain.clock import TIMING, Clock, Timing
from instep.domain.events import Collected, Event, Recorded
from instep.domain.instances import Instance, Reason
from instep.domain.jobs import Claim, Job, JobPart, JobState, OpenPart, SlicePlan, SliceState, SliceStatus
from instep.domain.manifest import DocumentChange, ManifestEntry, decode_changes
from instep.domain.money import Bill, Granted, Spent
from instep.domain.planning import Measured
from instep.domain.promotion_rules import Loss
from instep.domain.refs import Naming, PartitionRef
from instep.domain.requests import Group
from instep.domain.seen import Late, Seen
from instep.domain.state import State
from instep.domain.storable import LONGEST_ID, storable, storable_key
from instep.domain.wants import Want
from instep.domain.waves import SKIPPED, SliceOutcome
from instep.errors import Conflict
from instep.ledger import log_start
from instep.ledger.checkpoints import Checkpoint, Checkpoints
from instep.ledger.documents import Documents
from instep.ledger.embedding_batches import EmbeddingBatches, SubmittedBatch
from instep.ledger.event_log import LogRow
from instep.ledger.events import Events
from instep.ledger.failures import ALL_FAILURES, FailureFilter, FailureGroup, FailurePlace, FailureRecord, Failures
from instep.ledger.figures import Figures
from instep.ledger.instances import Instances
from instep.ledger.job_log import KEPT, SAID, JobLog, LogLine
from instep.ledger.jobs import JobMark, JobPlace, Jobs
from instep.ledger.key_lease_rows import KeyLeaseRows
from instep.ledger.key_leases import KeyLeases
from instep.ledger.leases import Holder, Lease, Leases
from instep.ledger.ledger import Ledger
from instep.ledger.losses import Losses
from instep.ledger.open_parts import OpenParts
from instep.ledger.paces import Paces
from instep.ledger.partitions import Partitions
from instep.ledger.parts import NewPart, Parts
from instep.ledger.plans import Plans
from instep.ledger.retention import LIMIT, Forgotten, Gone, Retention
from instep.ledger.seen import SeenRows
from instep.ledger.slices import SlicePlace, Slices, SliceView
from instep.ledger.spending import Spending
from instep.ledger.status_keys import StatusKeys, StatusRow
from instep.ledger.sweep import Swept
from instep.ledger.verification import Verified
from instep.ledger.wants import Wants
from instep.ledger.workers import WorkerInfo, Workers
from tests.simulator.model import (
    buckets,
    documents,
    figures,
    instances,
    jobs,
    leases,
    log,
    losses,
    pages,
    parts,
    recovery,
    retention,
    slices,
    spending,
    verifying,
    workers,
)
from tests.simulator.model.tables import Reservation, Tables

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")


class _Kept:
    """A store of the tables. What a method calls checks first and changes then."""

    def __init__(self, tables: Tables, lock: threading.RLock) -> None:
        self._tables = tables
        self._lock = lock


class _Workers(_Kept, Workers):
    def register(self, worker_id: str, *, kind: str, host: str, pid: int) -> None:
        with self._lock:
            workers.register(self._tables, worker_id, kind=kind, host=host, pid=pid)

    def heartbeat(self, worker_id: str, running: Collection[str]) -> int:
        with self._lock:
            return recovery.heartbeat(self._tables, worker_id, running)

    def all(self) -> list[WorkerInfo]:
        with self._lock:
            return workers.every(self._tables)

    def retire(self, worker_id: str) -> None:
        with self._lock:
            recovery.retire(self._tables, worker_id)

    def evict(self, worker_id: str) -> int:
        with self._lock:
            return recovery.evict(self._tables, worker_id)


class _JobLog(_Kept, JobLog):
    def add(self, job_id: str, kind: str, text: str, *, ref: str = "", worker_id: str = "") -> None:
        with self._lock:
            if job_id not in self._tables.jobs:
                return
            lines = self._tables.jobs[job_id].log
            number = lines[-1].number + 1 if lines else 1
            lines.append(LogLine(number, self._tables.now(), ref, worker_id, kind, text))
            lines[:] = [each for each in lines if each.kind != SAID or each.number > number - KEPT]

    def page(self, job_id: str, *, before: int | None = None, limit: int = 100) -> list[LogLine]:
        with self._lock:
            lines = self._tables.jobs[job_id].log if job_id in self._tables.jobs else []
            return [each for each in reversed(lines) if before is None or each.number < before][:limit]


class _Jobs(_Kept, Jobs):
    def begin(self, job_id: str, worker_id: str, configuration: Mapping[str, Any]) -> None:
        with self._lock:
            jobs.begin(self._tables, job_id, worker_id, configuration)

    def discard(self, job_id: str) -> None:
        with self._lock:
            jobs.discard(self._tables, job_id)

    def join(self, job_id: str, worker_id: str) -> None:
        with self._lock:
            jobs.join(self._tables, job_id, worker_id)

    def leave(self, job_id: str, worker_id: str, *, stop: str | None = None) -> JobState | None:
        with self._lock:
            return jobs.leave(self._tables, job_id, worker_id, stop_reason=_storable(stop))

    def start(self, job_id: str, *, whole: bool = False) -> None:
        with self._lock:
            jobs.start(self._tables, job_id, whole=whole)

    def request_stop(self, job_id: str, reason: str | None = None) -> JobState:
        with self._lock:
            return jobs.request_stop(self._tables, job_id, _storable(reason))

    def explain_stop(self, job_id: str, reason: str) -> None:
        with self._lock:
            jobs.explain_stop(self._tables, job_id, storable(reason))

    def get(self, job_id: str) -> Job | None:
        with self._lock:
            row = self._tables.jobs.get(job_id)
            return jobs.view(self._tables, row) if row is not None else None

    def newest(self, limit: int = 20) -> list[Job]:
        with self._lock:
            return jobs.newest(self._tables, limit)

    def page(
        self,
        *,
        states: Collection[JobState] = (),
        refs: Collection[PartitionRef] | None = None,
        after: JobPlace | None = None,
        limit: int = 20,
    ) -> list[Job]:
        with self._lock:
            return pages.jobs_after(self._tables, states, after, limit, refs=refs)

    def marks(self, newest: int) -> list[JobMark]:
        with self._lock:
            return jobs.marks(self._tables, newest)

    def unfinished(self, ref: PartitionRef, generation: str = "") -> Job | None:
        with self._lock:
            return jobs.unfinished(self._tables, (ref, generation))

    def latest(self, ref: PartitionRef, generation: str = "") -> Job | None:
        with self._lock:
            return jobs.latest(self._tables, (ref, generation))


class _Leases(_Kept, Leases):
    def acquire(self, ref: PartitionRef, job_id: str, worker_id: str, group: Group | None = None) -> Lease | Holder:
        with self._lock:
            return leases.acquire(self._tables, ref, job_id, worker_id, group)

    def renew(self, lease: Lease) -> Lease:
        with self._lock:
            return leases.renew(self._tables, lease)

    def record(self, lease: Lease, events: Sequence[Event]) -> None:
        with self._lock:
            leases.renew(self._tables, lease)
            log.append(self._tables, events)

    def release(self, lease: Lease) -> None:
        with self._lock:
            leases.release(self._tables, lease)

    def transfer(self, lease: Lease, job_id: str, *, above: int = 0) -> Lease:
        with self._lock:
            return leases.transfer(self._tables, lease, job_id, above)

    def last_epoch(self, ref: PartitionRef) -> int:
        with self._lock:
            return leases.last_epoch(self._tables, ref)


class _Parts(_Kept, Parts):
    def plan(self, job_id: str, parts: Sequence[NewPart], *, stagger: bool = False) -> None:
        with self._lock:
            jobs.plan(self._tables, job_id, parts, stagger=stagger)

    def extend(self, part: JobPart, more: Sequence[SlicePlan], *, job_id: str, seen: Seen | None = None) -> None:
        with self._lock:
            jobs.extend(self._tables, job_id, part, more, seen)

    def adopt(self, lease: Lease) -> JobPart:
        with self._lock:
            return parts.adopt(self._tables, lease)

    def stop(
        self, job_id: str, ref: PartitionRef, reason: str, *, by: str | None = None, alone: Collection[str] = ()
    ) -> bool:
        with self._lock:
            return parts.stop(self._tables, job_id, ref, storable(reason), by=by, alone=alone)

    def begin_finish(self, job_id: str, ref: PartitionRef, worker_id: str) -> bool:
        with self._lock:
            return parts.begin_finish(self._tables, job_id, ref, worker_id)

    def finish(
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
        with self._lock:
            return parts.finish(
                self._tables,
                job_id,
                part,
                state,
                worker_id=worker_id,
                promote=promote,
                whole=whole,
                error=_storable(error),
                retry=retry,
            )

    def of_epoch(self, ref: PartitionRef, epoch: int) -> tuple[str, JobPart] | None:
        with self._lock:
            return parts.of_epoch(self._tables, ref, epoch)

    def reaching(self, ref: PartitionRef, instance: str, watermark: int) -> tuple[str, JobPart] | None:
        with self._lock:
            return parts.reaching(self._tables, ref, instance, watermark)


class _OpenParts(_Kept, OpenParts):
    def on(self, refs: Collection[PartitionRef]) -> list[OpenPart]:
        with self._lock:
            return jobs.open_parts(self._tables, refs)

    def wanted_stopped(self, refs: Collection[PartitionRef]) -> list[tuple[PartitionRef, str]]:
        with self._lock:
            return jobs.wanted_stopped(self._tables, refs)


class _Losses(_Kept, Losses):
    def count(self, part: JobPart, loss: Loss, *, job_id: str) -> None:
        with self._lock:
            losses.count(self._tables, part, loss, job_id=job_id)

    def lately(self, ref: PartitionRef, generation: str, *, window: int) -> Loss:
        with self._lock:
            return losses.lately(self._tables, ref, generation, window)

    def tell_listing(self, ref: PartitionRef, problem: str | None) -> None:
        with self._lock:
            self._tables.listing_problems.pop(ref, None)
            if problem is not None:
                self._tables.listing_problems[ref] = storable(problem)

    def listing_problem(self, ref: PartitionRef) -> str | None:
        with self._lock:
            return self._tables.listing_problems.get(ref)


class _Paces(_Kept, Paces):
    def record(self, entity: str, how: str, measured: Measured) -> None:
        with self._lock:
            self._tables.paces[entity, how, measured.engine] = measured

    def of(self, entity: str, how: str) -> list[Measured]:
        with self._lock:
            return [each for key, each in sorted(self._tables.paces.items()) if key[:2] == (entity, how)]


class _Spending(_Kept, Spending):
    def reserve(
        self, entity: str, *, job_id: str, worker_id: str, wave: str, wanted: int, limit: int | None
    ) -> Granted:
        with self._lock:
            return spending.reserve(self._tables, Reservation(wave, entity, "", job_id, worker_id, wanted), limit)

    def pay(self, wave: str, bill: Bill | None, cost: int) -> None:
        with self._lock:
            spending.pay(self._tables, wave, bill, cost)

    def of_jobs(self, job_ids: Collection[str]) -> Mapping[str, Mapping[str, Spent]]:
        with self._lock:
            return spending.of_jobs(self._tables, job_ids)

    def this_month(self, entity: str) -> int:
        with self._lock:
            return spending.this_month(self._tables, entity)


class _EmbeddingBatches(_Kept, EmbeddingBatches):
    def intend(self, key: str, entity: str, embedder: str, worker_id: str) -> None:
        with self._lock:
            spending.intend(self._tables, key, entity, embedder, worker_id)

    def submitted(self, key: str, batch_id: str) -> None:
        with self._lock:
            self._tables.embedding_batches[key].batch_id = batch_id

    def release(self, worker_id: str) -> None:
        with self._lock:
            for row in self._tables.embedding_batches.values():
                row.worker_id = "" if row.worker_id == worker_id else row.worker_id

    def finish(self, key: str, worker_id: str) -> None:
        with self._lock:
            spending.finish(self._tables, key, worker_id)

    def forget(self, key: str) -> None:
        with self._lock:
            self._tables.embedding_batches.pop(key, None)

    def left(self, entity: str, embedder: str, worker_id: str) -> list[SubmittedBatch]:
        with self._lock:
            return spending.left(self._tables, entity, embedder, worker_id)


class _Plans(_Kept, Plans):
    def changes(self, payload: bytes) -> Sequence[DocumentChange]:
        """The model has no files."""
        return decode_changes(payload)


class _Retention(_Kept, Retention):
    def forgettable(self, before: int) -> Gone:
        with self._lock:
            return retention.forgettable(self._tables, before)

    def forget(self, before: int, limit: int = LIMIT) -> Gone:
        with self._lock:
            return retention.forget(self._tables, before, limit)

    def oldest(self, before: int) -> int:
        with self._lock:
            return retention.oldest(self._tables, before)

    def of(self, ref: PartitionRef) -> Forgotten | None:
        with self._lock:
            return self._tables.forgotten.get(str(ref))

    def due(self, every: int) -> bool:
        with self._lock:
            return retention.due(self._tables, every)


class _Slices(_Kept, Slices):
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
        with self._lock:
            return slices.claim(
                self._tables, job_id, ref, worker_id, work=work, limit=limit, after=after, together=together
            )

    def holds(self, claims: Sequence[Claim], worker_id: str) -> bool:
        with self._lock:
            return all(slices.held(self._tables, each.slice_id, each.fence, worker_id) for each in claims)

    def complete(self, part: JobPart, worker_id: str, outcomes: Sequence[SliceOutcome], *, job_id: str) -> None:
        with self._lock:
            slices.complete(self._tables, part, worker_id, outcomes, job_id=job_id)

    def tell(self, claim: Claim, worker_id: str, units: int) -> None:
        with self._lock:
            workers.tell(self._tables, claim, worker_id, units)

    def give_back(
        self, claims: Sequence[Claim], worker_id: str, *, error: str | None = None, spent: bool, delay: int = 0
    ) -> str | None:
        with self._lock:
            return jobs.give_back(self._tables, claims, worker_id, error=_storable(error), spent=spent, delay=delay)

    def reset_attempts(self, part: JobPart, *, job_id: str) -> None:
        with self._lock:
            slices.reset_attempts(self._tables, part, job_id=job_id)

    def split(self, claim: Claim, worker_id: str) -> bool:
        with self._lock:
            return slices.split(self._tables, claim, worker_id)

    def forget_work(self, job_id: str, ref: PartitionRef) -> None:
        with self._lock:
            slices.forget_work(self._tables, job_id, ref)

    def of_part(self, job_id: str, ref: PartitionRef, *, limit: int = 1_000) -> list[SliceStatus]:
        with self._lock:
            return slices.of_part(self._tables, job_id, ref, limit)

    def page(
        self,
        job_id: str,
        *,
        refs: Collection[PartitionRef] | None = None,
        state: SliceState | None = None,
        after: SlicePlace | None = None,
        limit: int = 1_000,
    ) -> list[SliceView]:
        with self._lock:
            return pages.slices_after(self._tables, job_id, refs=refs, state=state, after=after, limit=limit)

    def states(self, job_id: str) -> list[tuple[PartitionRef, int, SliceState]]:
        with self._lock:
            return pages.slice_states(self._tables, job_id)


class _Documents(_Kept, Documents):
    def absorb(self, part: JobPart, outcomes: Sequence[SliceOutcome], *, job_id: str) -> None:
        with self._lock:
            slices.absorb(self._tables, part, outcomes, job_id=job_id)

    def entries(self, instance: str) -> dict[str, ManifestEntry]:
        with self._lock:
            return documents.manifest(self._tables, instance)

    def some(self, instance: str, uris: Collection[str]) -> dict[str, ManifestEntry]:
        return {uri: entry for uri, entry in self.entries(instance).items() if uri in uris}

    def versions(self, instance: str) -> dict[str, tuple[int, str]]:
        with self._lock:
            return documents.versions(self._tables, instance)

    def number(self, instance: str) -> int:
        with self._lock:
            return len(documents.versions(self._tables, instance))

    def columns(self, instance: str, names: Sequence[str]) -> pa.Table:
        with self._lock:
            return documents.columns(self._tables, instance, names)

    def in_pieces(self, instance: str, into: Path, *, afresh: bool = False) -> pieces.Recorded:
        batches = self.columns(instance, pieces.PIECE).combine_chunks().to_batches()
        nothing = pieces.PieceFiles(into, ())
        return pieces.Recorded(pieces.write_pieces(into, batches), nothing, nothing)

    def remember(self, instance: str) -> None:
        """The model has nothing to compact."""

    def compact(self, instance: str, *, in_pieces: bool = False) -> None:
        """The model has nothing to compact."""

    def named(self, instance: str, uris: pa.Array[Any], names: Sequence[str]) -> pa.Table:
        wanted = {str(each) for each in uris.to_pylist()}
        with self._lock:
            return documents.columns(self._tables, instance, names, wanted)

    def get(self, instance: str, document_id: str) -> ManifestEntry | None:
        with self._lock:
            return self._tables.documents.get(instance, {}).get(storable_key(document_id, LONGEST_ID))

    def of_ids(self, instance: str, ids: Sequence[str]) -> dict[str, ManifestEntry]:
        with self._lock:
            entries = self._tables.documents.get(instance, {})
            return {each: entries[each] for each in ids if each in entries}

    def with_ids(self, instance: str, ids: Sequence[str], names: Sequence[str]) -> pa.Table:
        with self._lock:
            entries = self._tables.documents.get(instance, {})
            uris = {entries[each].uri for each in ids if each in entries}
            return documents.columns(self._tables, instance, names, uris)

    def between(self, instance: str, bounds: tuple[str, str], names: Sequence[str]) -> pa.Table:
        import pyarrow as pa

        with self._lock:
            found = documents.columns(self._tables, instance, names)
            ids = map(str, documents.columns(self._tables, instance, ["document_id"])["document_id"].to_pylist())
        lower, upper = bounds
        inside = [each >= lower and (not upper or each < upper) for each in ids]
        return found.filter(pa.array(inside, pa.bool_()))

    def any_below(self, instance: str, uris: Iterable[str]) -> bool:
        with self._lock:
            known = documents.manifest(self._tables, instance)
            return any(each.startswith(f"{uri}/") for uri in uris for each in known)

    def sampled(self, instance: str, ids: Sequence[str]) -> list[ManifestEntry]:
        with self._lock:
            return documents.sampled(self._tables, instance, ids)

    def totals(self, instance: str) -> tuple[int, int, int]:
        with self._lock:
            return documents.totals(self._tables, instance)

    def oversized(self, instance: str, *, size: int, chunks: int | None, limit: int) -> tuple[int, list[ManifestEntry]]:
        with self._lock:
            return documents.oversized(self._tables, instance, size, chunks, limit)

    def bucket_loads(self, ref: PartitionRef, generation: str, instance: str) -> list[BucketLoad]:
        with self._lock:
            return buckets.loads(self._tables, ref, generation, instance)


class _Failures(_Kept, Failures):
    def versions(self, ref: PartitionRef, generation: str = "") -> dict[str, str]:
        with self._lock:
            return documents.failed_versions(self._tables, (ref, generation))

    def newest(self, ref: PartitionRef | None = None, *, limit: int = 100) -> list[FailureRecord]:
        with self._lock:
            return documents.failures(self._tables, ref, limit)

    def page(
        self, *, only: FailureFilter = ALL_FAILURES, after: FailurePlace | None = None, limit: int = 100
    ) -> list[FailureRecord]:
        with self._lock:
            return pages.failures_after(self._tables, only, after, limit)

    def groups(self, *, only: FailureFilter = ALL_FAILURES, offset: int = 0, limit: int = 100) -> list[FailureGroup]:
        with self._lock:
            return pages.failure_groups(self._tables, only)[offset : offset + limit]

    def dismiss(self, uris: Collection[str], *, only: FailureFilter = ALL_FAILURES) -> list[FailureRecord]:
        with self._lock:
            return pages.dismiss_failures(self._tables, uris, only)

    def count(self, ref: PartitionRef, generation: str = "", *, skipped: bool = False) -> int:
        with self._lock:
            found = self._tables.failures.get((ref, generation), {}).values()
            return sum((each.stage == SKIPPED) is skipped for each in found)


class _Checkpoints(_Kept, Checkpoints):
    def get(self, ref: PartitionRef, generation: str = "") -> Checkpoint | None:
        with self._lock:
            return self._tables.checkpoints.get((ref, generation))

    def of_partition(self, ref: PartitionRef) -> list[Checkpoint]:
        with self._lock:
            return parts.checkpoints(self._tables, ref)

    def of_entity(self, entity: str) -> list[Checkpoint]:
        with self._lock:
            return parts.entity_checkpoints(self._tables, entity)

    def entities(self) -> set[str]:
        with self._lock:
            return {ref.entity for ref, _ in self._tables.checkpoints}

    def describe(self, known: Checkpoint, fingerprint: Mapping[str, str]) -> None:
        with self._lock:
            parts.describe_checkpoint(self._tables, known, fingerprint)


class _SeenRows(_Kept, SeenRows):
    def get(self, known: Checkpoint) -> Seen | None:
        with self._lock:
            instance, found = self._tables.seen.get((known.ref, known.generation), ("", None))
            return found if instance == known.instance else None

    def of_instance(self, part: JobPart) -> Seen | None:
        with self._lock:
            instance, found = self._tables.seen.get((part.ref, part.generation), ("", None))
            if instance == part.instance:
                return found
            rows = (job.parts[part.ref] for job in self._tables.jobs.values() if part.ref in job.parts)
            open_ones = (row for row in rows if row.state is None and row.part.instance == part.instance)
            return next((row.seen for row in open_ones), None)

    def of_entity(self, entity: str) -> dict[tuple[str, str, str], Seen]:
        with self._lock:
            rows = {key: row for key, row in self._tables.seen.items() if key[0].entity == entity}
            return {(str(ref), name, instance): seen for (ref, name), (instance, seen) in rows.items()}

    def confirm(self, known: Checkpoint, found: Seen) -> None:
        with self._lock:
            served = self._tables.checkpoints.get((known.ref, known.generation))
            if served is not None and (served.job_id, served.instance) == (known.job_id, known.instance):
                self._tables.seen[known.ref, known.generation] = (known.instance, found)

    def late(self, known: Checkpoint) -> Late | None:
        found = self.get(known)
        return found.late if found else None


class _Partitions(_Kept, Partitions):
    def promoted(self, ref: PartitionRef) -> str | None:
        with self._lock:
            return self._tables.state.promoted.get(str(ref))

    def all_indexes(self) -> set[str]:
        with self._lock:
            return {row.part.physical for job in self._tables.jobs.values() for row in job.parts.values()}

    def made(self, names: Collection[str]) -> set[str]:
        return self.all_indexes() & set(names)

    def replaced(self, ref: PartitionRef) -> set[str]:
        with self._lock:
            served = {each.physical for each in parts.checkpoints(self._tables, ref)}
            built = {job.parts[ref].part.physical for job in self._tables.jobs.values() if ref in job.parts}
            return built - served

    def indexes(self, entity: str) -> set[str]:
        with self._lock:
            return parts.indexes(self._tables, entity)

    def drop(self, lease: Lease, *, by: str = "") -> None:
        with self._lock:
            parts.drop_partition(self._tables, lease, by)


class _Instances(_Kept, Instances):
    def new(self, lease: Lease, reason: Reason, *, generation: str = "", by: str = "") -> str:
        with self._lock:
            return instances.new(self._tables, lease, reason, generation, by)

    def canonical(self, ref: PartitionRef, generation: str = "") -> Instance | None:
        with self._lock:
            return self._tables.state.current(str(ref), generation)

    def get(self, uuid: str) -> Instance | None:
        with self._lock:
            return self._tables.state.instances.get(uuid)

    def newest(self, ref: PartitionRef, limit: int = 100) -> list[Instance]:
        with self._lock:
            return instances.of(self._tables, ref, limit)


class _Wants(_Kept, Wants):
    def get(self, id: str) -> Want | None:
        with self._lock:
            return self._tables.state.wants.get(id)

    def newest(
        self,
        *,
        ref: PartitionRef | None = None,
        open_only: bool = False,
        after: str | None = None,
        limit: int = 100,
    ) -> list[Want]:
        with self._lock:
            return instances.wants(self._tables, ref, open_only=open_only, after=after, limit=limit)

    def startable(self, refs: Collection[PartitionRef]) -> list[Want]:
        with self._lock:
            return instances.startable_wants(self._tables, refs)

    def open_refs(self) -> list[PartitionRef]:
        with self._lock:
            return instances.open_refs(self._tables)

    def refs_in_hand(self) -> list[PartitionRef]:
        with self._lock:
            return instances.open_refs(self._tables, in_hand=True)

    def given_up(self) -> list[Want]:
        with self._lock:
            return [each for each in reversed(self._tables.state.wants.values()) if each.given_up]


class _StatusKeys(_Kept, StatusKeys):
    def put(self, key: str, value: str | None, *, revision: int | None = None) -> int:
        with self._lock:
            before, number = self._tables.status_keys.get(key, (None, 0))
            found = 0 if before is None else number
            if revision is not None and found != revision:
                raise Conflict(f"{key} has changed: its revision is {found}, not {revision}")
            if before is None and value is None:
                return number
            self._tables.status_keys[key] = (value, number + 1)
            return number + 1

    def get(self, key: str) -> StatusRow | None:
        with self._lock:
            value, number = self._tables.status_keys.get(key, (None, 0))
            return None if value is None else StatusRow(key, value, number)

    def under(self, prefix: str) -> list[StatusRow]:
        with self._lock:
            rows = [(key, *row) for key, row in self._tables.status_keys.items()]
        below = [row for row in rows if row[0] == prefix or row[0].startswith(f"{prefix}.")]
        return [StatusRow(key, value, number) for key, value, number in sorted(below) if value is not None]


class _Events(_Kept, Events):
    def append(self, events: Sequence[Event]) -> list[Recorded]:
        with self._lock:
            return log.append(self._tables, events)

    def last(self) -> int:
        with self._lock:
            return self._tables.state.sequence

    def rows(self, after: int = 0, limit: int = 1_000) -> list[LogRow]:
        with self._lock:
            return log.rows(self._tables, after, limit)

    def state(self, *, at: int | None = None, sequence: int | None = None) -> State:
        with self._lock:
            return log.state(self._tables, at=at, sequence=sequence)

    def forgettable(self, before: int) -> int:
        with self._lock:
            return log.forgettable(self._tables, before)

    def forget(self, before: int, limit: int = log_start.LIMIT) -> int:
        with self._lock:
            return log.forget(self._tables, before)

    def verify(self) -> Verified:
        with self._lock:
            return verifying.verify(self._tables)

    def rebuild_projections(self) -> Verified:
        with self._lock:
            return verifying.rebuild(self._tables)

    def collect(self, instances: Collection[str], wants: Collection[str]) -> None:
        with self._lock:
            if instances or wants:
                log.append(self._tables, [Collected(instances=tuple(instances), wants=tuple(wants))])


class _KeyLeases(_Kept, KeyLeases):
    def _look(self, work: Callable[[KeyLeaseRows], T]) -> T:
        with self._lock:
            return work(self._tables.holds)

    _change = _look


class ModelLedger(Ledger):
    """May be shared by threads."""

    def __init__(self, clock: Clock, timing: Timing = TIMING, naming: Naming | None = None) -> None:
        self._tables = Tables(clock, timing)
        self._tables.state.naming = naming or Naming(str(uuid.uuid4()))
        self._lock = threading.RLock()
        self.workers = _Workers(self._tables, self._lock)
        self.jobs = _Jobs(self._tables, self._lock)
        self.job_log = _JobLog(self._tables, self._lock)
        self.leases = _Leases(self._tables, self._lock)
        self.plans = _Plans(self._tables, self._lock)
        self.parts = _Parts(self._tables, self._lock)
        self.open_parts = _OpenParts(self._tables, self._lock)
        self.losses = _Losses(self._tables, self._lock)
        self.slices = _Slices(self._tables, self._lock)
        self.documents = _Documents(self._tables, self._lock)
        self.failures = _Failures(self._tables, self._lock)
        self.checkpoints = _Checkpoints(self._tables, self._lock)
        self.seen = _SeenRows(self._tables, self._lock)
        self.partitions = _Partitions(self._tables, self._lock)
        self.instances = _Instances(self._tables, self._lock)
        self.wants = _Wants(self._tables, self._lock)
        self.events = _Events(self._tables, self._lock)
        self.key_leases = _KeyLeases(self._tables, self._lock)
        self.paces = _Paces(self._tables, self._lock)
        self.spending = _Spending(self._tables, self._lock)
        self.embedding_batches = _EmbeddingBatches(self._tables, self._lock)
        self.status_keys = _StatusKeys(self._tables, self._lock)
        self.retention = _Retention(self._tables, self._lock)

    def close(self) -> None:
        """Nothing is open."""

    def now(self) -> int:
        return self._tables.now()

    def naming(self) -> Naming:
        with self._lock:
            return self._tables.state.naming

    def present(self) -> int:
        with self._lock:
            return log.present(self._tables)

    def sweep(self) -> Swept:
        with self._lock:
            return recovery.sweep(self._tables)

    def figures(self) -> Figures:
        with self._lock:
            return figures.read(self._tables)


def _storable(text: str | None) -> str | None:
    return None if text is None else storable(text)
