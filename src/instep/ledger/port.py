"""What Instep needs of a coordination database. `tests/contracts/ledger.py` says how it behaves.

Every write about a slice shows its fence, every write about a partition the epoch of its lease;
a write whose fence was overtaken raises `errors.Fenced` and changes nothing. All times are
milliseconds since 1970-01-01 UTC by the ledger's own clock (rule 12).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from instep.domain.jobs import Claim, Job, JobPart, JobState, SlicePlan
from instep.domain.manifest import ManifestEntry
from instep.domain.refs import PartitionRef
from instep.domain.waves import SliceOutcome

LEASE_TTL_MS = 5 * 60_000
LEASE_RENEW_MS = 60_000
HEARTBEAT_MS = 30_000


@dataclass(frozen=True, slots=True)
class Lease:
    """A partition held for work. `epoch` grows with every acquisition, for ever."""

    ref: PartitionRef
    worker_id: str
    epoch: int
    expires_at: int


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a lease that could not be had."""

    ref: PartitionRef
    worker_id: str
    host: str
    pid: int
    epoch: int
    since: int
    expires_at: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Durable progress of a partition: which instance is served, made how, complete up to when."""

    ref: PartitionRef
    instance: str
    sequence: int
    physical: str
    fingerprint: Mapping[str, str]
    buckets: int
    watermark: int
    job_id: str
    updated_at: int


class FailureRecord(NamedTuple):
    ref: PartitionRef
    document_id: str
    uri: str
    version: str
    stage: str
    reason: str
    attempts: int
    job_id: str
    failed_at: int


@dataclass(frozen=True, slots=True)
class NewPart:
    """A partition's share of a new job: what it builds and its slices."""

    part: JobPart
    slices: Sequence[SlicePlan]


class Ledger(Protocol):
    def close(self) -> None: ...

    def now(self) -> int:
        """The ledger's clock."""

    # Workers: one heartbeat row each, never one per claimed slice.

    def register_worker(self, worker_id: str, *, host: str, pid: int) -> None: ...

    def heartbeat(self, worker_id: str) -> None:
        """Raises `Fenced` for a worker that is not registered (any more)."""

    def retire_worker(self, worker_id: str) -> None:
        """The worker ends in good order. Its slices go back to PENDING without a spent attempt."""

    # Leases: one per partition in work.

    def acquire_lease(self, ref: PartitionRef, worker_id: str) -> Lease | Holder:
        """Take the lease if it is free or expired (`now >= expires_at`); else say who holds it."""

    def renew_lease(self, lease: Lease) -> Lease:
        """Extend by the TTL. Raises `Fenced` when it was taken over or has expired."""

    def release_lease(self, lease: Lease) -> None:
        """Give it back. A lease that was taken over is left alone."""

    def break_lease(self, ref: PartitionRef, epoch: int) -> bool:
        """Free the lease of a holder proved dead, if `epoch` still holds it. True if it did."""

    # Jobs and slices.

    def next_sequence(self, ref: PartitionRef) -> int:
        """Number of the next instance of this partition, from 1; grows with every fresh job part."""

    def create_job(self, job_id: str, parts: Sequence[NewPart], *, worker_id: str) -> None:
        """Store job, parts and slices in one transaction; the job is READY. Shows each part's epoch."""

    def job(self, job_id: str) -> Job | None: ...

    def jobs(self, limit: int = 20) -> list[Job]:
        """Newest first."""

    def unfinished_job(self, ref: PartitionRef) -> Job | None:
        """The newest job with a part on `ref` that has not ended, or was STOPPED with work left:
        slices still open, or a fresh instance that was not promoted.
        """

    def adopt_job(self, job_id: str, lease: Lease) -> JobPart:
        """Continue a job under a new lease: its part gets the new epoch and is returned.

        Slices left PROCESSING by workers that are gone go back to PENDING with attempts + 1;
        a slice over the attempts is split in two when it has more than one unit, else FAILED.
        A job left STOPPING becomes STOPPED. Raises `Conflict` when the job has ended otherwise.
        """

    def start_job(self, job_id: str) -> None:
        """READY or STOPPED → RUNNING; no change when it runs already."""

    def request_stop(self, job_id: str) -> None:
        """→ STOPPING: pending slices stay PENDING, for a later run to resume."""

    def claim(self, job_id: str, ref: PartitionRef, worker_id: str, *, work: int, limit: int) -> list[Claim]:
        """Claim pending slices by priority, then largest work first (LPT), in one statement.

        Stops once `work` is reached (at least one slice, at most `limit`). Each claimed slice gets
        fence + 1. Empty when nothing is pending or the job is not RUNNING. A slice on its last
        attempt is claimed alone, when no others are left: it may be what killed its last workers.
        """

    def holds(self, claims: Sequence[Claim], worker_id: str) -> bool:
        """Whether every claim is still this worker's, under its fence."""

    def complete(self, part: JobPart, worker_id: str, outcomes: Sequence[SliceOutcome], *, job_id: str) -> None:
        """All slices COMPLETED, with counts, manifest rows and failures, in one transaction.

        Counts replace, they never add up over retries. Raises `Fenced`, changing nothing, if any
        slice was taken over or the part's epoch is not the lease's any more. Again under the same
        claims (a lost reply) it changes nothing. Raises `ValueError` for counts that do not add up.
        """

    def give_back(self, claims: Sequence[Claim], worker_id: str, *, error: str | None = None, spent: bool) -> None:
        """Slices back to PENDING (or split, or FAILED, when `spent` and over the attempts).

        Slices that were taken over are left alone.
        """

    def finish_job(
        self, job_id: str, state: JobState, *, error: str | None = None, promote: Sequence[JobPart] = ()
    ) -> None:
        """End the job. Each promoted part becomes its partition's checkpoint in the same transaction;
        manifest rows of the instance it replaces are dropped. When a job is FAILED, its open slices
        are CANCELLED and the manifest of a fresh instance that is not served is dropped. Again with
        the same state (a lost reply) it changes nothing. Raises `Fenced` if a promoted part's epoch is
        not its lease's any more, `Conflict` for a move that JOB_MOVES does not have, or for open
        slices in a job that is to be completed or promoted.
        """

    # What is indexed.

    def checkpoint(self, ref: PartitionRef) -> Checkpoint | None: ...

    def manifest(self, instance: str) -> dict[str, ManifestEntry]:
        """All entries of an instance, by URI."""

    def totals(self, instance: str) -> tuple[int, int, int]:
        """Documents, rows (chunks) and bytes of an instance."""

    def failed_versions(self, ref: PartitionRef) -> dict[str, str]:
        """URI → version at which the document last failed."""

    def failures(self, ref: PartitionRef | None = None, *, limit: int = 100) -> list[FailureRecord]:
        """Newest first."""

    def count_failures(self, ref: PartitionRef) -> int: ...
