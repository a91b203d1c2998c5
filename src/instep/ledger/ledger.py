"""What Instep needs of a coordination database. `tests/contracts/ledger.py` says how it behaves.

Every write about a slice shows its fence, every write about a partition the epoch of its lease;
a write whose fence was overtaken raises `errors.Fenced` and changes nothing. All times are
milliseconds since 1970-01-01 UTC by the ledger's own clock (rule 12). How long things may take is a
`domain.timing.Timing` that each ledger is made with.

Every method is one transaction. `errors.Transient` means that it had no effect, `errors.Unknown`
that the connection broke while it was being committed: whether it had one is to be looked up, or the
call repeated where it says that it may be.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

from instep.domain.buckets import BucketLoad
from instep.domain.events import DependencyMissed
from instep.domain.instances import Reason
from instep.domain.jobs import Claim, Job, JobPart, JobState, OpenPart, SlicePlan, SliceStatus
from instep.domain.manifest import ManifestEntry
from instep.domain.promotion_rules import NO_LOSS, Loss
from instep.domain.refs import Naming, PartitionRef
from instep.domain.waves import SliceOutcome
from instep.ledger.event_log import EventLog
from instep.ledger.key_leases import KeyLeases
from instep.ledger.paging import Pages
from instep.ledger.totals import Figured


@dataclass(frozen=True, slots=True)
class Lease:
    """A partition held for a job. `epoch` grows with every acquisition, for ever.

    It is the job's, not a worker's: every worker that takes part in the job may renew it, and it is
    free as soon as none takes part any more, or when it has not been renewed for its time to live.
    """

    ref: PartitionRef
    job_id: str
    epoch: int
    expires_at: int


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A worker and what it does: `slices` of `job_id` that it has in work, the oldest since `busy_since`."""

    id: str
    kind: str
    host: str
    pid: int
    started_at: int
    heartbeat_at: int
    job_ids: tuple[str, ...] = ()
    refs: tuple[PartitionRef, ...] = ()
    slices: int = 0
    busy_since: int | None = None


@dataclass(frozen=True, slots=True)
class Holder:
    """Which job holds a lease that could not be had, and which workers take part in that."""

    ref: PartitionRef
    job_id: str
    epoch: int
    since: int
    expires_at: int
    workers: tuple[WorkerInfo, ...]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Durable progress of a partition's generation: which instance is served, made how, complete up to when."""

    ref: PartitionRef
    instance: str
    sequence: int
    physical: str
    fingerprint: Mapping[str, str]
    buckets: int
    watermark: int
    job_id: str
    updated_at: int
    generation: str = ""


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
    generation: str = ""


class JobMark(NamedTuple):
    """What changes whenever something happens to a job itself or to one of its parts, and not by progress alone."""

    id: str
    state: JobState
    updated_at: int


@dataclass(frozen=True, slots=True)
class NewPart:
    """A partition's share of a new job: what it builds, its slices, and what it cannot be built without. `lost` is what
    it takes away that nobody has asked for; `allowed`: a person has said that it may be whatever it is.
    """

    part: JobPart
    slices: Sequence[SlicePlan]
    missed: Sequence[DependencyMissed] = ()
    lost: Loss = NO_LOSS
    allowed: bool = False


#: Why a job that was stopped before it was planned does nothing more.
NOTHING_PLANNED: Final = "job {job} was stopped before it was planned: there is nothing in it to be done"


@dataclass(frozen=True, slots=True)
class Swept:
    """What a sweep found: workers that were silent for too long, slices taken from them (or from nobody),
    and jobs that it ended, by what became of them.
    """

    workers: tuple[str, ...] = ()
    slices: int = 0
    jobs: Mapping[str, JobState] = field(default_factory=dict)


class Ledger(EventLog, Figured, KeyLeases, Pages, Protocol):
    def close(self) -> None: ...

    def now(self) -> int:
        """The ledger's clock."""

    def naming(self) -> Naming:
        """Its id, which is made with it and never changes, and how it names instances."""

    def all_indexes(self) -> set[str]:
        """Physical indexes that its jobs have ever made or written."""

    def present(self) -> int:
        """The ledger's clock, but never before what has happened by its log: somebody may have set the clock back. What
        is wanted "as of now" is measured by this; what lasts or is to be waited for, by the clock.
        """

    # Workers: one heartbeat row each, never one per claimed slice.

    def register_worker(self, worker_id: str, *, kind: str, host: str, pid: int) -> None:
        """`kind` says which command it is: `run` or `worker`."""

    def heartbeat(self, worker_id: str, running: Collection[str]) -> int:
        """The worker lives, and really runs the slices in `running`. What it holds besides, and has held
        for longer than a heartbeat's interval (a claim's reply may be on its way), goes back to PENDING
        without a spent attempt; returns how many those were. Raises `Fenced` for a worker that is
        not registered (any more).
        """

    def workers(self) -> list[WorkerInfo]:
        """All that are registered, the oldest first."""

    def retire_worker(self, worker_id: str) -> None:
        """The worker ends in good order. Its slices go back to PENDING without a spent attempt; it takes
        part in no job any more.
        """

    def bury_worker(self, worker_id: str) -> int:
        """The worker was proved dead: its slices have ended badly, and it takes part in no job any more. Returns
        the number of its slices.

        What ends badly goes back to PENDING with attempts + 1, or as it is when it was worn out
        (`Claim.worn_out`) before: it may be in the target already, so it is neither FAILED nor split here.
        """

    def sweep(self) -> Swept:
        """Recovery, by any worker, at its start and every two minutes. In this order:

        * Workers without a heartbeat for `stale` (`heartbeat_at + stale <= now`) are buried.
        * Slices PROCESSING under a worker that is not registered have ended badly.
        * Jobs STOPPING with nothing in work become STOPPED; those that began to stop `grace` ago do so
          whatever is in work: these slices go back to PENDING without a spent attempt.
        * Jobs INITIALIZING in which no worker takes part are FAILED.

        Ended jobs free their leases, and nobody takes part in them. Finished slices are left alone.
        """

    # Jobs.

    def begin_job(self, job_id: str, worker_id: str, configuration: Mapping[str, Any]) -> None:
        """A new job, INITIALIZING; the worker takes part in it. Again it changes nothing. Raises `Fenced` for a
        worker that is not registered.
        """

    def plan_job(self, job_id: str, parts: Sequence[NewPart], *, stagger: bool = False) -> None:
        """Store parts and slices; INITIALIZING → READY, in one transaction. Shows each part's epoch.

        `rank` is given by priority, then largest work first (LPT), then number. The first half of the
        slices in that order is claimable at once; with `stagger` the rest becomes claimable one by one over
        the stagger time, else at once too. Raises `Fenced` without the leases, `Conflict` if the job is not
        INITIALIZING.

        Appends for each part, in the order given, what its instance becomes: Building for a fresh part, of the window
        (0, target], else Refreshing, of (the checkpoint's watermark, target]. The target is the part's, else now (never
        less than the job's `created_at`); and never less than the floor. Then what the parts miss: these wait for it
        from the beginning. `Conflict`, and no change, when an instance cannot become that, or would wait for itself.
        """

    def count_lost(self, part: JobPart, loss: Loss, *, job_id: str) -> None:
        """The part has lost so much more than was planned. Repeated after a lost reply it counts twice: then somebody
        is asked a little earlier. Raises `Fenced` if the part's epoch is not the lease's any more.
        """

    def lost_lately(self, ref: PartitionRef, generation: str, *, window: int) -> Loss:
        """What parts on this generation have lost that are open, or ended less than `window` (ms) ago: since the last
        one that was `allowed`.
        """

    def tell_listing(self, ref: PartitionRef, problem: str | None) -> None:
        """Why not all of a partition's source could be seen at the last look, or that it could be again."""

    def listing_problem(self, ref: PartitionRef) -> str | None:
        """What was told of the last look, if it was a problem."""

    def extend_part(self, part: JobPart, slices: Sequence[SlicePlan], *, job_id: str) -> None:
        """More slices, behind those that it has, which have to be done: of what came after the part was planned. They
        are claimable at once, and whoever was elected to finish the part is so no more. Raises `Fenced` if the part's
        epoch is not the lease's any more, `Conflict` if the part has open slices or has ended, or if the job is not
        RUNNING.
        """

    def discard_job(self, job_id: str) -> None:
        """Forget a job that is INITIALIZING (there was nothing to do), and free its leases."""

    def join_job(self, job_id: str, worker_id: str) -> None:
        """The worker takes part in the job. Again it changes nothing. Raises `Conflict` for a job that
        has ended (STOPPED aside) or does not exist, `Fenced` for a worker that is not registered.
        """

    def leave_job(self, job_id: str, worker_id: str, *, stop: str | None = None) -> JobState | None:
        """The worker takes part no more; its slices of the job go back to PENDING unspent.

        If it was the last one, and `stop` gives a reason, a job that has not ended becomes STOPPED with
        that reason, and its leases are free. Returns the job's state; None for a job that is not there.
        """

    def start_job(self, job_id: str) -> None:
        """READY or STOPPED → RUNNING; no change when it runs already."""

    def request_stop(self, job_id: str, reason: str | None = None) -> JobState:
        """INITIALIZING, READY or RUNNING → STOPPING; STOPPED at once when no slice is in work. Pending
        slices stay PENDING, for a later run to resume. A job that has ended stays as it is; but what a person says of
        a stop (`domain.jobs.by_people`) replaces what else was said of it. Returns its state.
        """

    def job(self, job_id: str) -> Job | None:
        """With its parts, and their counts and slices by one GROUP BY."""

    def jobs(self, limit: int = 20) -> list[Job]:
        """Newest first."""

    def job_marks(self, newest: int) -> list[JobMark]:
        """Of the newest so many jobs, and of the newest so many of those that have not ended; newest first. Slices are
        not looked at: this may be asked several times a second.
        """

    def unfinished_job(self, ref: PartitionRef, generation: str = "") -> Job | None:
        """The newest job with an open part on this generation of `ref`: one that has not ended, or was STOPPED."""

    def latest_job(self, ref: PartitionRef, generation: str = "") -> Job | None:
        """The newest job with a part on this generation of `ref`, ended or not."""

    def open_parts(self, refs: Collection[PartitionRef]) -> list[OpenPart]:
        """Open parts on these partitions of jobs that are READY, RUNNING or STOPPING: those of higher
        priority first, then those with the larger head.
        """

    def wanted_stopped(self, refs: Collection[PartitionRef]) -> list[tuple[PartitionRef, str]]:
        """Of these partitions those, and in which generation, that somebody waits for while the job on them is STOPPED;
        by name. (Such a want is Building still.)
        """

    # Leases: one per partition in work, whichever of its generations that is.

    def acquire_lease(self, ref: PartitionRef, job_id: str, worker_id: str) -> Lease | Holder:
        """Take the lease for a job if it is free; else say who holds it. The worker takes part in the job.

        It is free when no job has it, when it has expired (`now >= expires_at`), or when no worker takes
        part in its job any more. A job's own live lease is not free either: join the job instead. Raises
        `Fenced` for a worker that is not registered, `Conflict` for a job that does not exist.
        """

    def renew_lease(self, lease: Lease) -> Lease:
        """Extend by the time to live. Raises `Fenced` when it was taken over or has expired."""

    def release_lease(self, lease: Lease) -> None:
        """Free it. A lease that was taken over is left alone."""

    def transfer_lease(self, lease: Lease, job_id: str, *, above: int = 0) -> Lease:
        """Hand a lease to another job (or the same) under a new epoch, in one statement; it is never free in
        between. `above`: an epoch that was seen elsewhere, and is to be exceeded too. Raises `Fenced` when it was taken
        over or has expired, `Conflict` for a job that does not exist.
        """

    # Parts.

    def new_instance(self, lease: Lease, reason: Reason, *, generation: str = "", by: str = "") -> str:
        """UUID of the instance of a generation to build under this lease: the canonical one if that is Missing, else
        (there is none: `reason` is taken for the first build of the partition, or of the generation; or it is Live)
        one that is made for this reason by an `InstanceCreated`. Raises `Fenced` without the lease, `Conflict` when the
        canonical one is in work.
        """

    def adopt_part(self, lease: Lease) -> JobPart:
        """Continue the part of the lease's job under a new lease: it gets the new epoch and is returned.

        No worker was left in the job when the lease was taken, so slices still PROCESSING have ended badly.
        A job left STOPPING becomes STOPPED. Who was elected to finish it still is, while it takes part. Raises
        `Fenced` without the lease, `Conflict` when the job has ended otherwise, or the part has.
        """

    def begin_finish(self, job_id: str, ref: PartitionRef, worker_id: str) -> bool:
        """Whether this worker is to finish the part: no slice of it is open, and nobody else does it who
        still takes part in the job. Again it is still true.
        """

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
        """End a part as COMPLETED, COMPLETED_WITH_ERRORS or FAILED, and free its lease. `promote` makes it
        the checkpoint of the partition's generation in the same transaction; manifest rows of the instance it
        replaces are dropped, and if the job has read the `whole` source, so are failures that it has not
        met. When FAILED, its open slices are CANCELLED and the manifest of a fresh instance that is not served is
        dropped. The last part to end ends the job (`end_of_job`), in which nobody takes part then; its state is
        returned.
        Again with the same state (a lost reply) it changes nothing.

        Appends what became of the instance, of the part's counts and the checkpoint's new watermark (the part's target,
        else the job's `created_at`; of the same instance never less than the one before): fresh and promoted, it is
        Live and served; promoted otherwise, it is Refreshed. Not promoted, the build or the refresh has failed, by
        `error` (else by the part's state), whatever `state` says; with `retry`, wants go on waiting for the next one.
        That is not appended when the instance is not in work by this job any more.

        Raises `Fenced` if the part's epoch is not its lease's any more or another worker finishes it,
        `Conflict` for open slices in a part that is to be completed or promoted, a job that was stopped, or an instance
        that does not take what is to be promoted (what it waited for has failed, say). The part stays open then.
        """

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

    def holds(self, claims: Sequence[Claim], worker_id: str) -> bool:
        """Whether every claim is still this worker's, under its fence."""

    def complete(self, part: JobPart, worker_id: str, outcomes: Sequence[SliceOutcome], *, job_id: str) -> None:
        """All slices COMPLETED, with counts, manifest rows and failures, in one transaction; none is fine too.

        Counts replace, they never add up over retries. Raises `Fenced`, changing nothing, if any
        slice was taken over or the part's epoch is not the lease's any more. Again under the same
        claims (a lost reply) it changes nothing. Raises `ValueError` for counts that do not add up.
        """

    def absorb(self, part: JobPart, outcomes: Sequence[SliceOutcome], *, job_id: str) -> None:
        """Manifest rows and failures of work that no slice of the job stands for: what has changed in the source while
        the job builds. The part is the job's own, or with the instance that is served in place of its own. Again it
        changes nothing. Raises `Fenced`, changing nothing, if the part's epoch is not the lease's any more.
        """

    def give_back(
        self, claims: Sequence[Claim], worker_id: str, *, error: str | None = None, spent: bool, delay: int = 0
    ) -> None:
        """Slices back to PENDING, claimable after `delay` milliseconds. `spent`: they have ended badly, with this
        `error` (None: the one before stays). A slice that was claimed worn out is then split in two or, when it
        is a single unit, FAILED; its document is a failure for the last error. If it is one of rows, it stays whole and
        its job begins to stop (`request_stop`) with a reason that names it and the error; then no PENDING slice of the
        part has attempts behind it any more. Slices that were taken over are left alone.
        """

    def split(self, claim: Claim, worker_id: str) -> bool:
        """A claimed slice that proves too long is cut in two PENDING halves, recorded as split from it.
        False, and no change, for a slice of one unit, one of rows, or one that was taken over.
        """

    def slices(self, job_id: str, ref: PartitionRef, *, limit: int = 1_000) -> list[SliceStatus]:
        """The first so many slices of a part, by their numbers."""

    # What is indexed.

    def checkpoint(self, ref: PartitionRef, generation: str = "") -> Checkpoint | None: ...

    def checkpoints(self, ref: PartitionRef) -> list[Checkpoint]:
        """Of all generations, by their names."""

    def entity_checkpoints(self, entity: str) -> list[Checkpoint]:
        """Of all partitions of an entity, by their names, and of all generations."""

    def promoted(self, ref: PartitionRef) -> str | None:
        """The generation that those read who ask for none; None while nothing is served."""

    def indexes(self, entity: str) -> set[str]:
        """Physical indexes of the entity that are needed: those of checkpoints and of open parts (stopped ones too), of
        all partitions and generations.
        """

    def drop_partition(self, lease: Lease, *, by: str = "") -> None:
        """Forget that the partition is indexed, in all its generations: it is as if it had never been, and its history
        stays. Appends one `PartitionDropped`, if there is anything of it or somebody wants it: then wants on it are
        canceled. Its checkpoints, their manifests, and its failures go in the same transaction; open parts on it, of
        jobs that were stopped, are FAILED. Again it changes nothing. Raises `Fenced` without the lease.
        """

    def manifest(self, instance: str) -> dict[str, ManifestEntry]:
        """All entries of an instance, by URI."""

    def versions(self, instance: str) -> dict[str, tuple[int, str]]:
        """Size and version of all entries of an instance, by URI: enough to see that nothing has changed, and half as
        much to read.
        """

    def document(self, instance: str, document_id: str) -> ManifestEntry | None:
        """One entry of an instance, however many there are."""

    def sampled(self, instance: str, ids: Sequence[str]) -> list[ManifestEntry]:
        """Some entries of an instance, however many there are: for each of these ids the next one from there on, if
        there is one. Each entry once, by their ids.
        """

    def totals(self, instance: str) -> tuple[int, int, int]:
        """Documents, rows (chunks) and bytes of an instance."""

    def oversized(self, instance: str, *, size: int, chunks: int | None, limit: int) -> tuple[int, list[ManifestEntry]]:
        """How many documents of an instance have more bytes or more chunks, and the largest `limit` of them."""

    def bucket_loads(self, ref: PartitionRef, generation: str, instance: str) -> list[BucketLoad]:
        """What buckets hold of an instance, by the manifest, and how they keep up: by the slices of jobs on that, and
        of open parts on the generation. By their numbers; a bucket of which nothing is known is left out.
        """

    def failed_versions(self, ref: PartitionRef, generation: str = "") -> dict[str, str]:
        """URI → version at which the document last failed."""

    def failures(self, ref: PartitionRef | None = None, *, limit: int = 100) -> list[FailureRecord]:
        """Of all generations, newest first."""

    def count_failures(self, ref: PartitionRef, generation: str = "", *, skipped: bool = False) -> int:
        """How many failed; or how many are kept with them because they are to be left out (`SKIPPED`)."""
