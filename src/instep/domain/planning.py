"""Cutting changes into slices, their work and order, waves and the choice of engine."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from instep.domain.jobs import SlicePlan
from instep.domain.manifest import Action, DocumentChange, by_bucket, encode_changes

SLICE_ROWS_DEFAULT = 10_000
SLICE_ROWS_MIN = 1_000
SLICE_ROWS_MAX = 50_000
MAX_SLICES_PER_ENTITY = 10_000
MAX_SLICES_PER_JOB = 50_000

#: Goal for one wave; long enough to pay for a Spark job, short enough to lose little in a crash.
WAVE_SECONDS = 10.0

#: Goal for one task of a wave: progress is told by tasks that are done.
TASK_SECONDS = 2.0
#: What a task must last to pay for itself, and for the fragment that it makes in the target.
LEAST_TASK_SECONDS = 0.25

#: A slice is cut when it would take longer than so many waves; `IDLE` when others wait for work. Fifteen waves are half
#: the time after which a silent worker is given up.
LONG_WAVES, LONG_WAVES_IDLE = 15, 2

#: For so many cores each a claim may be as large again; a commit of all their slices has its bound all the same.
_CORES, _MOST_OF_CORES = 4, 8

#: Too many slices: each further try to cut makes them at least so much larger.
_GROWTH = 1.1


class PlanTooLarge(ValueError):
    """A plan over the limits, with the numbers in its message."""


def rows_per_slice(slice_rows: int, work_factor: float) -> int:
    """The fewer, the more work a row is; within the limits."""
    return min(SLICE_ROWS_MAX, max(SLICE_ROWS_MIN, math.floor(slice_rows / work_factor)))


@dataclass(frozen=True, slots=True)
class SliceSizing:
    """Sizes by which documents become estimated rows, and rows become slices.

    `row_bytes` is what one row (chunk) takes of a document; `work_factor` makes an entity's rows
    count for more (LESSONS: table 1.5, tag 0.5, ...). `asked`: rows of a slice, whatever the rest says.
    """

    row_bytes: int
    slice_rows: int = SLICE_ROWS_DEFAULT
    work_factor: float = 1.0
    asked: int | None = None

    @property
    def rows_per_slice(self) -> int:
        return self.asked or rows_per_slice(self.slice_rows, self.work_factor)

    def rows(self, change: DocumentChange) -> int:
        if change.action is Action.DELETE:
            return 1
        return max(1, -(-change.size // self.row_bytes))


def cut_documents(changes: Sequence[DocumentChange], sizing: SliceSizing, *, priority: int = 40) -> list[SlicePlan]:
    """Cut changes into slices: one bucket each, whole documents, contiguous ranges of document id.

    The first and last slice of a bucket are open-ended. More than 10,000 slices for one entity:
    the slices grow. They are claimed in another order than the list's: see `claim_order`.
    """
    groups = [(bucket, sorted(group, key=lambda change: change.document_id)) for bucket, group in by_bucket(changes)]
    slices: list[SlicePlan] = []
    for bucket, runs in _cut(groups, sizing):
        for position, run in enumerate(runs):
            rows = sum(map(sizing.rows, run))
            slices.append(
                SlicePlan(
                    index=len(slices),
                    bucket=bucket,
                    lower="" if position == 0 else run[0].document_id,
                    upper="" if position == len(runs) - 1 else runs[position + 1][0].document_id,
                    units=len(run),
                    work=max(1, round(rows * sizing.work_factor)),
                    priority=priority,
                    payload=encode_changes(run),
                )
            )
    return slices


def _cut(
    groups: Sequence[tuple[int, list[DocumentChange]]], sizing: SliceSizing
) -> list[tuple[int, list[list[DocumentChange]]]]:
    """Runs of each bucket. Their size grows until there are few enough, or one for each bucket."""
    rows_per_slice = sizing.rows_per_slice
    while True:
        cut = [(bucket, list(_runs(group, sizing, rows_per_slice))) for bucket, group in groups]
        count = sum(len(runs) for _, runs in cut)
        if count <= slices_allowed(len(groups)):
            return cut
        rows_per_slice = grown(rows_per_slice, count)


def slices_allowed(buckets: int) -> int:
    """The most slices of one entity; more than usual if it has more buckets: each with changes needs one."""
    return max(MAX_SLICES_PER_ENTITY, buckets)


def grown(rows_per_slice: int, slices: int) -> int:
    """The number of rows of a slice, where so many of them were too many."""
    return math.ceil(rows_per_slice * max(_GROWTH, slices / MAX_SLICES_PER_ENTITY))


def _runs(group: Iterable[DocumentChange], sizing: SliceSizing, rows_per_slice: int) -> Iterator[list[DocumentChange]]:
    run: list[DocumentChange] = []
    rows = 0
    for change in group:
        here = sizing.rows(change)
        if run and rows + here > rows_per_slice:
            yield run
            run, rows = [], 0
        run.append(change)
        rows += here
    if run:
        yield run


def check_limits(slices_per_entity: Iterable[int]) -> None:
    total = sum(slices_per_entity)
    if total > MAX_SLICES_PER_JOB:
        raise PlanTooLarge(
            f"this job would need {total:,} slices; the limit is {MAX_SLICES_PER_JOB:,}. "
            "Index fewer entities at once, or raise slice_rows."
        )


def claim_order(slices: Sequence[SlicePlan]) -> list[int]:
    """Positions in the order of claims: the i-th of them gets rank i.

    Highest priority first, then longest processing time first (Graham 1969: at most 4/3 of the shortest
    makespan). Of equal slices each bucket has its turn, so that a wave is spread over all of them. A giant comes last
    of its priority: the others would wait for it, and it can be as late as all of them together.
    """
    seen: Counter[tuple[int, int]] = Counter()
    turns = [0] * len(slices)
    for at in sorted(range(len(slices)), key=lambda at: slices[at].index):
        kind = slices[at].bucket, slices[at].work
        turns[at] = seen[kind]
        seen[kind] += 1

    def key(at: int) -> tuple[object, ...]:
        here = slices[at]
        return -here.priority, is_giant(here.units, here.work), -here.work, turns[at], here.index, at

    return sorted(range(len(slices)), key=key)


def is_giant(units: int, work: int) -> bool:
    """Whether a slice is one document that is more than the largest slice should be."""
    return units == 1 and work > SLICE_ROWS_MAX


def claimable_at(place: int, count: int, now: int, stagger: int) -> int:
    """The time from which the slice of rank `place` among `count` may be claimed: the first half at once, the others
    one by one, the last after `stagger`; so workers that come a little later find some left.
    """
    at_once = -(-count // 2)
    if place < at_once:
        return now
    return now + stagger * (place - at_once + 1) // (count - at_once)


def fair_share(pending: int, workers: int) -> int:
    """The number of slices one of `workers` should claim at once, so that the others get theirs and the last ones are
    claimed singly (guided self-scheduling, Polychronopoulos & Kuck 1987).
    """
    return max(1, -(-pending // max(1, workers)))


def most_claims(few: int, pace: Pace) -> int:
    """The number of slices that one claim may take, if `few` are the most for a machine of up to seven cores."""
    return few * max(1, min(_MOST_OF_CORES, pace.cores // _CORES))


def lpt_bound(works: Sequence[int], workers: int) -> float:
    """A makespan that no order can beat: an even share of all work, or the largest slice."""
    return max(sum(works) / max(1, workers), max(works, default=0))


@dataclass(frozen=True, slots=True)
class Pace:
    """Speed of one engine: work units per second on all of its cores, and what one start costs. `job_id`: by whose
    waves it was measured; empty if it is a default.
    """

    start_seconds: float
    work_per_second: float
    cores: int = 1
    job_id: str = ""

    @property
    def origin(self) -> str:
        return f"measured in job {self.job_id[:8]}" if self.job_id else "a default"

    def seconds(self, work: int) -> float:
        return self.start_seconds + work / self.work_per_second


def wave_work(pace: Pace) -> int:
    """The work that takes one wave about its goal of seconds."""
    return max(1, round(pace.work_per_second * WAVE_SECONDS))


def learned_pace(pace: Pace, work: int, seconds: float) -> Pace:
    """The pace after a wave: half the old belief, half what was just measured."""
    if work <= 0 or seconds <= 0:
        return pace
    measured = work / seconds
    return replace(pace, work_per_second=(pace.work_per_second + measured) / 2)


@dataclass(frozen=True, slots=True)
class Measured:
    """The pace of an engine in the waves of a job: work and milliseconds, on so many cores."""

    engine: str
    cores: int
    work: int
    milliseconds: int
    job_id: str


#: What a measured pace is worth something for: shorter waves are mostly commits.
MEASURED_SECONDS = 5.0


def measured_pace(default: Pace, engine: str, defaults: Mapping[str, Pace], known: Sequence[Measured]) -> Pace:
    """The pace of an engine by what is known of it, else of another one: what takes one so much longer than its default
    takes the other as much longer than its own.
    """
    for each in sorted(known, key=lambda each: each.engine != engine):
        usual = defaults[each.engine]
        slowness = each.work * 1_000 / each.milliseconds / (usual.work_per_second * each.cores / usual.cores)
        return replace(default, work_per_second=default.work_per_second * slowness, job_id=each.job_id)
    return default


def tasks_of(work: int, pace: Pace) -> int:
    """Into how many tasks so much work is dealt: of about `TASK_SECONDS` each, and as many on each core; fewer when
    they would not pay.
    """
    seconds = work * pace.cores / pace.work_per_second
    rounds = math.ceil(seconds / pace.cores / TASK_SECONDS)
    return max(1, min(pace.cores * rounds, math.floor(seconds / LEAST_TASK_SECONDS)))


def share_of_requests(most: int, workers: int) -> int:
    """The tasks of one of so many workers that may ask an endpoint at once, where all together may `most`; one at
    least, or it would never end.
    """
    return max(1, most // max(1, workers))


def too_long(work: int, units: int, pace: Pace, *, idle: bool) -> bool:
    """Whether a slice alone would take too long, and can be cut: over two waves' time when other workers find
    nothing to do (`idle`), else over fifteen. Cutting costs claims, and only idle workers gain by it; but
    a crash should not cost much more than the time it takes to notice it.

    What a start costs does not count: halves would pay it twice.
    """
    waves = LONG_WAVES_IDLE if idle else LONG_WAVES
    return units > 1 and work > waves * WAVE_SECONDS * pace.work_per_second
