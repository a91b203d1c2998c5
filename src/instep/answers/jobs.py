"""Jobs and workers, as of one moment of the ledger (`seen_at`, by its clock); stop and resume of a job."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field

from instep.answers.answer import HIDDEN, OBJECT, OPTIONAL, Answer, Ref
from instep.answers.spending import Spent, spent_answer
from instep.domain import counts, jobs, money
from instep.domain.clock import TIMING, Clock, Timing
from instep.domain.jobs import STOPPED_BY, JobState, PartStatus, Phase, SliceState
from instep.domain.refs import PartitionRef
from instep.domain.speed import Lately, seconds_left
from instep.errors import Missing, UserError
from instep.ledger.ledger import Ledger
from instep.ledger.workers import WorkerInfo

#: A job may be named by the beginning of its id, if that is at least so long.
SHORTEST_PREFIX = 4

#: Among how many jobs, the newest, a beginning is looked up. A whole id finds any job.
SEARCHED_JOBS = 200
#: So many of those that are meant are named.
_NAMED = 5

#: Poll interval of a caller that waits for a job to stop.
STOP_POLL_SECONDS = 0.5


class Pulse(StrEnum):
    """State of a worker by its last heartbeat."""

    STEADY = "steady"
    #: Two heartbeats were missed: it is paused, cut off or dead.
    LATE = "late"
    #: Silent for so long that the next sweep gives its slices to others.
    STALE = "stale"


class Worker(Answer):
    """A worker and what it does; `slices` in work, the oldest since `busy_since`."""

    id: str
    kind: str
    host: str
    pid: int
    started_at: int
    heartbeat_at: int
    pulse: Pulse
    jobs: tuple[str, ...]
    refs: tuple[Ref, ...]
    slices: int
    busy_since: int | None
    seen_at: int


class Counts(Answer):
    """Outcomes of the units read; `read` is the sum of written, skipped, deleted and failed."""

    read: int
    written: int
    skipped: int
    deleted: int
    failed: int
    rows_written: int
    rows_kept: int
    rows_deleted: int
    embedded: int
    bytes_read: int

    def __str__(self) -> str:
        """The counts for people: `3 written, 1 deleted`."""
        return str(counts.Counts(**self.model_dump()))


class Slices(Answer):
    """Slices by state."""

    PENDING: int
    PROCESSING: int
    COMPLETED: int
    FAILED: int
    CANCELLED: int

    @classmethod
    def of(cls, numbers: Mapping[SliceState, int]) -> Slices:
        return cls(**{state.value: numbers.get(state, 0) for state in SliceState})

    def in_state(self, state: SliceState) -> int:
        number: int = getattr(self, state)
        return number

    @property
    def total(self) -> int:
        return sum(map(self.in_state, SliceState))


class Part(Answer):
    """A partition's share of a job. `state` is null while it is open, and STOPPED when it has stopped by itself;
    `units` are null while they are not counted. `phase` and `done` are as of the job.
    """

    ref: Ref
    generation: str
    state: JobState | None
    phase: Phase | None
    fresh: bool
    instance: str
    physical: str
    slices: Slices
    units: int | None
    done: int
    counts: Counts
    lately: Annotated[Lately, OBJECT] = HIDDEN
    finished_at: int | None
    error: str | None

    @property
    def failed_slices(self) -> int:
        return self.slices.FAILED + self.slices.CANCELLED


class Job(Answer):
    """`phase` is what is done now, null when the job has ended or is to stop. `units` are the documents or rows
    planned, `done` those that were read, also in waves that have not ended (only finished slices are in `counts`).
    `units_per_second` is how fast it is now (over the last five minutes at most), `seconds_left` how long the rest
    takes so; both are null unless it runs and something was done in this time. `spent`: on embedding, if that costs
    something.
    """

    id: str
    state: JobState
    phase: Phase | None
    made_by: str = Field(description="The worker that planned it.")
    configuration: dict[str, Any]
    slices: Slices
    #: What its units are called; `unit` for a job on documents and rows.
    unit: str = HIDDEN
    units: int | None
    done: int
    counts: Counts
    created_at: int
    started_at: int | None
    finished_at: int | None
    duration_seconds: float | None
    units_per_second: float | None
    seconds_left: float | None
    workers: tuple[Worker, ...]
    error: str | None
    seen_at: int
    spent: Spent | None = OPTIONAL
    parts: tuple[Part, ...]

    @property
    def refs(self) -> tuple[PartitionRef, ...]:
        """The partitions that it indexes."""
        return tuple(part.ref for part in self.parts)

    @property
    def generation(self) -> str:
        """The generation of all its parts, if it is the same; else empty."""
        found = {part.generation for part in self.parts}
        return found.pop() if len(found) == 1 else ""

    @property
    def waits_for_workers(self) -> bool:
        """Whether it should run, and no worker works on it."""
        return not self.workers and self.state in (JobState.READY, JobState.RUNNING)


def job_answers(ledger: Ledger, *, limit: int = 20, timing: Timing = TIMING, tables: Collection[str] = ()) -> list[Job]:
    """Newest first. `tables` are the entities that are indexed from tables."""
    return answers_of(ledger, ledger.jobs.newest(limit=limit), timing=timing, tables=tables)


def answers_of(
    ledger: Ledger, found: Sequence[jobs.Job], *, timing: Timing = TIMING, tables: Collection[str] = ()
) -> list[Job]:
    """The answers for these jobs, in the same order."""
    if not found:
        return []
    workers = worker_answers(ledger, timing=timing)
    now = ledger.now()
    spent = ledger.spending.of_jobs([job.id for job in found])
    return [job_answer(job, workers, now, tables, spent.get(job.id)) for job in found]


def one_job_answer(ledger: Ledger, wanted: str, *, timing: Timing = TIMING, tables: Collection[str] = ()) -> Job:
    """The job whose id is, or begins with, `wanted`."""
    return answers_of(ledger, [find_job(ledger, wanted)], timing=timing, tables=tables)[0]


def worker_answers(ledger: Ledger, *, timing: Timing = TIMING) -> list[Worker]:
    """The oldest first."""
    now = ledger.now()
    return [worker_answer(each, now, timing) for each in ledger.workers.all()]


def worker_answer(worker: WorkerInfo, now: int, timing: Timing = TIMING) -> Worker:
    return Worker(
        id=worker.id,
        kind=worker.kind,
        host=worker.host,
        pid=worker.pid,
        started_at=worker.started_at,
        heartbeat_at=worker.heartbeat_at,
        pulse=pulse_of(now - worker.heartbeat_at, timing),
        jobs=worker.job_ids,
        refs=worker.refs,
        slices=worker.slices,
        busy_since=worker.busy_since,
        seen_at=now,
    )


def pulse_of(silence: int, timing: Timing = TIMING) -> Pulse:
    """The state after so many milliseconds without a heartbeat."""
    if silence >= timing.stale:
        return Pulse.STALE
    return Pulse.LATE if silence >= 2 * timing.heartbeat else Pulse.STEADY


def job_answer(
    job: jobs.Job,
    workers: Iterable[Worker],
    now: int,
    tables: Collection[str] = (),
    spent: Mapping[str, money.Spent] | None = None,
) -> Job:
    """`spent`: by entity."""
    counts = job.counts
    rate = job.lately.rate(now)
    units = job.units if all(each.expected is not None for each in job.parts) else None
    return Job(
        id=job.id,
        state=job.state,
        phase=job.phase,
        made_by=job.worker_id,
        configuration=dict(job.configuration),
        parts=tuple(_part_view(each) for each in job.parts),
        slices=Slices.of(job.slices),
        unit=_unit(each.part.ref.entity in tables for each in job.parts),
        units=units,
        done=job.done,
        counts=Counts.model_validate(counts),
        created_at=job.created_at,
        started_at=job.started_at,
        finished_at=job.finished_at,
        duration_seconds=_duration(job, now),
        units_per_second=rate,
        seconds_left=seconds_left(units, job.done, rate),
        workers=tuple(each for each in workers if job.id in each.jobs),
        error=job.error,
        seen_at=now,
        spent=spent_answer((spent or {}).values()),
    )


def _unit(of_tables: Iterable[bool]) -> str:
    found = set(of_tables)
    return "unit" if len(found) > 1 else "row" if True in found else "document"


_FORGOTTEN = " Old ones are forgotten: see `retention` in docs/configuration.md."


def find_job(ledger: Ledger, wanted: str) -> jobs.Job:
    """The job whose id is, or alone begins with, `wanted`. Raises `Missing` if there is no such one."""
    exact = ledger.jobs.get(wanted)
    if exact:
        return exact
    if len(wanted) < SHORTEST_PREFIX:
        raise Missing(
            f"{wanted!r} is too short for the beginning of a job's id",
            hint=f"Give at least {SHORTEST_PREFIX} characters; `instep jobs` lists the ids.",
        )
    newest = ledger.jobs.newest(limit=SEARCHED_JOBS)
    found = [job for job in newest if job.id.startswith(wanted)]
    if len(found) == 1:
        return found[0]
    if found:
        raise UserError(f"{len(found)} jobs begin with {wanted!r}", hint=f"Which one? {_candidates(found)}")
    if not newest:
        raise Missing("no job is known: nothing has run yet", hint="`instep run` makes one.")
    older = (
        f" Of a job older than the newest {SEARCHED_JOBS}, give the whole id." if len(newest) >= SEARCHED_JOBS else ""
    )
    raise Missing(f"no job begins with {wanted!r}", hint=f"`instep jobs` lists them.{older}{_FORGOTTEN}")


def stop_job(ledger: Ledger, job_id: str, reason: str, *, clock: Clock, wait: bool = False) -> JobState:
    """Ask a job to stop, as a person does. What is in work has the grace time to end; the rest stays, for a resume by
    a person: a worker leaves it alone.

    With `wait`, return when it has ended: in bounded time even if its workers are dead, because the caller
    sweeps. A job that has ended stays as it is.
    """
    said = reason if reason.startswith(STOPPED_BY) else f"{STOPPED_BY}request: {reason}"
    state = ledger.jobs.request_stop(job_id, said)
    while wait and not state.ended:
        ledger.sweep()
        job = ledger.jobs.get(job_id)
        if job is None:  # its maker discarded it: there was nothing to do
            return JobState.STOPPED
        state = job.state
        if not state.ended:
            clock.sleep(STOP_POLL_SECONDS)
    return state


def resume_job(ledger: Ledger, job: jobs.Job) -> None:
    """A stopped job runs again: any worker may take it up. Raises `UserError` when it cannot."""
    if job.state is JobState.STOPPING:
        raise UserError(
            f"job {job.id} is still stopping", hint=f"Wait for it with `instep job stop {job.id} --wait`, then resume."
        )
    if job.state is JobState.INITIALIZING:
        raise UserError(f"job {job.id} is still being planned: there is nothing to resume")
    if job.state.ended and job.state is not JobState.STOPPED:
        hint = (
            "It did all that was planned; `instep run` looks for what is new."
            if job.state is JobState.COMPLETED
            else f"`instep job retry {job.id}` runs again what failed."
        )
        raise UserError(f"job {job.id} has ended ({job.state}): only a stopped job can be resumed", hint=hint)
    if not job.parts:
        raise UserError(
            f"job {job.id} was stopped before it was planned: there is nothing to resume",
            hint="`instep run` looks for what is to be done.",
        )
    ledger.jobs.start(job.id, whole=True)


def entities_to_retry(job: jobs.Job) -> dict[str, list[str]]:
    """The entities of an ended job in which something failed, by generation; none if nothing did.

    Running them with `retry_failures` plans again: work that is already indexed is not repeated.
    Raises `UserError` for a job that may still finish by itself.
    """
    if job.state is JobState.STOPPED:
        raise UserError(
            f"job {job.id} was stopped, it has not ended", hint=f"`instep job resume {job.id}` continues it."
        )
    if not job.state.ended:
        raise UserError(
            f"job {job.id} has not ended ({job.state})",
            hint="It repeats temporary failures by itself. Retry the others when it has ended.",
        )
    if job.state is JobState.FAILED and not job.parts:
        raise UserError(f"job {job.id} failed before it was planned", hint="Use `instep run` again.")
    found: dict[str, list[str]] = {}
    for part in (each.part for each in job.parts if _something_failed(each)):
        found.setdefault(part.generation, []).append(part.ref.entity)
    return found


def _something_failed(part: PartStatus) -> bool:
    return part.state is not JobState.COMPLETED or part.counts.failed > 0


def _part_view(status: PartStatus) -> Part:
    return Part(
        ref=status.part.ref,
        generation=status.part.generation,
        state=JobState.STOPPED if status.stopped else status.state,
        phase=status.phase,
        fresh=status.part.fresh,
        instance=status.part.instance,
        physical=status.part.physical,
        slices=Slices.of(status.slices),
        units=status.expected,
        done=status.done,
        counts=Counts.model_validate(status.counts),
        lately=status.lately,
        finished_at=status.finished_at,
        error=status.error,
    )


def _duration(job: jobs.Job, now: int) -> float | None:
    """Seconds from the start to the end, or to now; None before the start."""
    if job.started_at is None:
        return None
    return max(0, (job.finished_at or now) - job.started_at) / 1000


def _candidates(found: Sequence[jobs.Job]) -> str:
    shown = ", ".join(f"{job.id} ({', '.join(str(part.part.ref) for part in job.parts)})" for job in found[:_NAMED])
    return f"{shown}, …" if len(found) > _NAMED else f"{shown}."
