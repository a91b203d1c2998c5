"""Jobs and slices: their states, the allowed transitions, and how a job ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from instep.domain.clock import Timing
from instep.domain.counts import Counts
from instep.domain.manifest import DocumentChange, decode_changes
from instep.domain.refs import PartitionRef
from instep.domain.speed import NOTHING_LATELY, Lately

#: Prefix of the reason of a stop by a user.
STOPPED_BY = "stopped by "


def by_people(reason: str | None) -> bool:
    """Whether a user asked for the stop: then only a user resumes the job."""
    return (reason or "").startswith(STOPPED_BY)


class JobState(StrEnum):
    """The states of a job, and which may follow which (docs/state-machines.md)."""

    INITIALIZING = "INITIALIZING"
    READY = "READY"
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"
    STOPPED = "STOPPED"
    COMPLETED = "COMPLETED"
    COMPLETED_WITH_ERRORS = "COMPLETED_WITH_ERRORS"
    FAILED = "FAILED"

    @property
    def ended(self) -> bool:
        return self in _ENDED


_ENDED = frozenset({JobState.STOPPED, JobState.COMPLETED, JobState.COMPLETED_WITH_ERRORS, JobState.FAILED})

JOB_TRANSITIONS: Mapping[JobState, frozenset[JobState]] = {
    JobState.INITIALIZING: frozenset({JobState.READY, JobState.STOPPING, JobState.FAILED}),
    JobState.READY: frozenset({JobState.RUNNING, JobState.STOPPING, JobState.FAILED}),
    JobState.RUNNING: frozenset(
        {JobState.COMPLETED, JobState.COMPLETED_WITH_ERRORS, JobState.FAILED, JobState.STOPPING}
    ),
    JobState.STOPPING: frozenset({JobState.STOPPED, JobState.FAILED}),
    # A stopped job is resumed by the next run; the other ends are final.
    JobState.STOPPED: frozenset({JobState.RUNNING, JobState.FAILED}),
    JobState.COMPLETED: frozenset(),
    JobState.COMPLETED_WITH_ERRORS: frozenset(),
    JobState.FAILED: frozenset(),
}


class SliceState(StrEnum):
    """The states of a slice of a job."""

    PENDING = "PENDING"
    PROCESSING = "PROCESSING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"

    @property
    def ended(self) -> bool:
        return self not in (SliceState.PENDING, SliceState.PROCESSING)


class Phase(StrEnum):
    """The phases of a job, in their order. SERVED is the end of it: readers have what was built."""

    LISTING = "listing"
    WAITING = "waiting"
    WAVES = "waves"
    INDEXES = "indexes"
    CHECKS = "checks"
    PROMOTION = "promotion"
    SERVED = "served"

    @property
    def words(self) -> str:
        """`bringing indexes up to date`."""
        return _WORDS[self]


_WORDS: Mapping[Phase, str] = {
    Phase.LISTING: "listing the source",
    Phase.WAITING: "waiting for a worker",
    Phase.WAVES: "reading and writing in waves",
    Phase.INDEXES: "bringing indexes up to date",
    Phase.CHECKS: "checking what was built",
    Phase.PROMOTION: "promotion: readers get what was built",
    Phase.SERVED: "served",
}
#: The phases of a part in which all its slices have ended.
FINISHING = frozenset({Phase.INDEXES, Phase.CHECKS, Phase.PROMOTION})

SLICE_TRANSITIONS: Mapping[SliceState, frozenset[SliceState]] = {
    SliceState.PENDING: frozenset({SliceState.PROCESSING, SliceState.CANCELLED}),
    SliceState.PROCESSING: frozenset(
        {SliceState.PENDING, SliceState.COMPLETED, SliceState.FAILED, SliceState.CANCELLED}
    ),
    SliceState.COMPLETED: frozenset(),
    SliceState.FAILED: frozenset(),
    SliceState.CANCELLED: frozenset(),
}

#: A slice of several units is tried this often before it is cut in two (seed: MAX_PARTITION_RETRIES).
MAX_ATTEMPTS = 3


def tries_of(units: int) -> int:
    """After so many bad ends a slice is worn out: it is not run again.

    All but the first two tries it has to itself (`slice_retries.SUSPECT_ATTEMPTS`). One of them is enough for
    what can be cut. A single unit gets two: one may have been an accident, and there is nothing to cut.
    """
    return MAX_ATTEMPTS if units > 1 else MAX_ATTEMPTS + 1


def half_ids(slice_id: str) -> tuple[str, str]:
    """Ids of the two slices that a slice is split into."""
    return f"{slice_id}a", f"{slice_id}b"


@dataclass(frozen=True, slots=True)
class StoredSlice:
    """The place of a slice's changes in a file that a task has written, and the digest of these bytes. The file is
    called after the digest of all of its own.
    """

    file: str
    at: int
    bytes: int
    digest: str

    @property
    def place(self) -> dict[str, Any]:
        return {"at": self.at, "bytes": self.bytes, "digest": self.digest}


@dataclass(frozen=True, slots=True)
class SlicePlan:
    """A slice as planned: stored in the ledger and never computed again by a retry.

    `bucket` is the route; `lower` and `upper` bound the document ids in it, half-open, '' meaning open-ended; `payload`
    holds the document changes (see `manifest.encode_changes`), or the bounds of rows (see `rows.encode_row_slice`;
    `lower` and `upper` are '' then). Of a large plan there is no payload: `columns` gives the changes, and `stored`
    says where a task has written them, if one has. `units` is 0 if they were not counted before reading.
    """

    index: int
    bucket: int
    lower: str
    upper: str
    units: int
    work: int
    priority: int
    payload: bytes = b""
    columns: Callable[[], Sequence[DocumentChange]] | None = field(default=None, compare=False, repr=False)
    stored: StoredSlice | None = field(default=None, compare=False, repr=False)

    @property
    def changes(self) -> Sequence[DocumentChange]:
        """The changes of a slice of documents."""
        return decode_changes(self.payload) if self.columns is None else self.columns()


@dataclass(frozen=True, slots=True)
class SliceStatus:
    """A slice and its outcome. `attempts` counts the failed tries, `error` is that of the last."""

    index: int
    state: SliceState
    units: int
    attempts: int
    error: str | None
    payload: bytes


@dataclass(frozen=True, slots=True)
class Claim:
    """A slice held by one worker. Every later write about it must show `fence`.

    `attempts` counts the failed tries before this one; `fence` > 1 means that another worker may have worked on the
    slice before, or on one that it was split from. `rank` is its place in the order of claims.
    """

    slice_id: str
    job_id: str
    ref: PartitionRef
    index: int
    bucket: int
    units: int
    work: int
    attempts: int
    fence: int
    rank: int
    payload: bytes

    @property
    def worn_out(self) -> bool:
        """Whether it was claimed only to be looked up in the target, and to be given back spent if it is not there."""
        return self.attempts >= tries_of(self.units)


@dataclass(frozen=True, slots=True)
class JobPart:
    """A job's work on one partition; fixed when it is planned.

    `epoch` is the fence of the partition's lease; `base` the target's version when the part began. `fresh` says that
    the instance is new (a first build or a rebuild), to be promoted at the end. `revision` is that of version control,
    if there is one, and `inputs` are the UUIDs of the upstream instances. `generation` is that of the instance.
    `target` is the watermark that the part reaches; None: the time when the job was made.
    """

    ref: PartitionRef
    instance: str
    physical: str
    fingerprint: Mapping[str, str]
    buckets: int
    epoch: int
    base: int
    fresh: bool
    revision: str = ""
    inputs: tuple[str, ...] = ()
    generation: str = ""
    target: int | None = None


@dataclass(frozen=True, slots=True)
class PartStatus:
    """A part of a job and how far it is. `state` is None while it is open, also if it has stopped by itself: then it
    has an `error`. `units` are those planned, `lately` those of slices that were completed lately, while the job runs.
    `underway` are units that were read in waves that have not
    ended: only for show. `told` is the phase that its finisher told last.
    """

    part: JobPart
    state: JobState | None
    finished_at: int | None
    error: str | None
    slices: Mapping[SliceState, int]
    units: int
    counts: Counts
    lately: Lately = NOTHING_LATELY
    underway: int = 0
    told: Phase | None = None

    @property
    def phase(self) -> Phase | None:
        """The work that is done for it now, while it is open and its job runs."""
        if self.state is not None or self.stopped:
            return None
        if self.unfinished_slices:
            return Phase.WAVES
        return self.told if self.told in FINISHING else Phase.INDEXES

    @property
    def stopped(self) -> bool:
        """True if it has stopped by itself and was not resumed; others of its job may go on."""
        return self.state is None and self.error is not None

    @property
    def done(self) -> int:
        """The number of units read, as far as is known now."""
        return self.counts.read + self.underway

    @property
    def expected(self) -> int | None:
        """The number of units to do; None if they were not counted."""
        return self.units if self.units or not self.slices else None

    @property
    def unfinished_slices(self) -> int:
        return sum(number for state, number in self.slices.items() if not state.ended)


@dataclass(frozen=True, slots=True)
class Job:
    """`worker_id` is the worker that made it, `configuration` what it was asked for."""

    id: str
    state: JobState
    worker_id: str
    configuration: Mapping[str, Any]
    created_at: int
    started_at: int | None
    updated_at: int
    finished_at: int | None
    error: str | None
    parts: tuple[PartStatus, ...] = ()

    @property
    def counts(self) -> Counts:
        return sum((each.counts for each in self.parts), Counts())

    @property
    def slices(self) -> Mapping[SliceState, int]:
        return sum((Counter(each.slices) for each in self.parts), Counter())

    @property
    def units(self) -> int:
        return sum(each.units for each in self.parts)

    @property
    def lately(self) -> Lately:
        return sum((each.lately for each in self.parts), NOTHING_LATELY)

    @property
    def done(self) -> int:
        return sum(each.done for each in self.parts)

    @property
    def phase(self) -> Phase | None:
        """The first phase that one of its open parts is in; None of a job that has ended, or is to stop."""
        if self.state is JobState.INITIALIZING:
            return Phase.LISTING
        if self.state is JobState.READY:
            return Phase.WAITING
        if self.state is not JobState.RUNNING:
            return None
        found = {each.phase for each in self.parts}
        return next((each for each in Phase if each in found), None)

    @property
    def stopped_by_people(self) -> bool:
        """Whether it is to stay stopped until a person says otherwise."""
        return self.state in (JobState.STOPPING, JobState.STOPPED) and by_people(self.error)

    def part(self, ref: PartitionRef) -> PartStatus:
        return next(each for each in self.parts if each.part.ref == ref)


@dataclass(frozen=True, slots=True)
class OpenPart:
    """A part that is still open, as seen by a worker that looks for work.

    `head` is the work of the slice that would be claimed next, 0 when none is PENDING; `held` says whether the job
    holds the partition's lease through a live worker; `workers` take part in the job. `error`: with which it has
    stopped by itself.
    """

    job_id: str
    job_state: JobState
    part: JobPart
    priority: int
    head: int
    pending: int
    processing: int
    held: bool
    workers: int
    error: str | None = None

    @property
    def key(self) -> tuple[str, PartitionRef]:
        """A part of a job, by the job's id and the partition."""
        return self.job_id, self.part.ref


def end_of_part(slices: Mapping[SliceState, int], counts: Counts) -> JobState | None:
    """The state a part ends in by itself, or None while slices are open. The only place that decides.

    FAILED means that nothing was achieved: every slice failed, or every unit read did.
    """
    if slices.get(SliceState.PENDING, 0) or slices.get(SliceState.PROCESSING, 0):
        return None
    total = sum(slices.values())
    failed = slices.get(SliceState.FAILED, 0) + slices.get(SliceState.CANCELLED, 0)
    if total and failed == total:
        return JobState.FAILED
    if counts.all_failed:
        return JobState.FAILED
    return JobState.COMPLETED_WITH_ERRORS if failed or counts.failed else JobState.COMPLETED


def end_of_job(parts: Iterable[JobState | None]) -> JobState | None:
    """The state a job ends in, given the ends of its parts; None while one is open."""
    ends = set(parts)
    if None in ends:
        return None
    if ends <= {JobState.COMPLETED}:
        return JobState.COMPLETED
    return JobState.FAILED if ends == {JobState.FAILED} else JobState.COMPLETED_WITH_ERRORS


def error_of(job: Job, part: PartStatus) -> str | None:
    """The error of a part: its own, or that with which the job stopped before the part had ended, if it is not that of
    another part.
    """
    if part.error or part.state is not None:
        return part.error
    return None if any(each.error == job.error for each in job.parts) else job.error


def state_of(job: Job, part: PartStatus) -> JobState:
    """The state of a part: its end, else that of its job; STOPPED if it has stopped by itself."""
    if part.state is not None:
        return part.state
    return JobState.STOPPED if part.stopped else job.state


def rest(times: int, timing: Timing) -> int:
    """Milliseconds to pause after so many failures in a row (from 1)."""
    return min(timing.rest << min(times - 1, 30), timing.longest_rest)


def ended_badly(job: Job, part: PartStatus) -> str | None:
    """The error of a job after which a partition's work is still undone and in no job; None if it is not so.

    The writes of a refresh stay, even if the target holds more or fewer rows: there is nothing to repeat. A failed
    build serves nothing, and the next job reads failed slices again. An error that stopped the job is not one of the
    parts that had ended by then, nor of one that has stopped by itself; what a person has stopped is all of it.
    """
    if job.state is JobState.STOPPED and job.stopped_by_people:
        return job.error
    if state_of(job, part) is JobState.STOPPED:
        return error_of(job, part) or "it was stopped"
    if part.error is None:
        return None
    undone = part.slices.get(SliceState.FAILED, 0) + part.slices.get(SliceState.CANCELLED, 0)
    return part.error if part.part.fresh or undone or part.state is JobState.FAILED else None
