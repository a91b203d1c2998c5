"""What the model keeps: rows that change, and the indexes that spare it scans over slices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from instep.domain.clock import Clock, Timing
from instep.domain.counts import Counts
from instep.domain.jobs import JobPart, JobState, SlicePlan, SliceState, tries_of
from instep.domain.manifest import ManifestEntry
from instep.domain.money import Spent
from instep.domain.planning import Measured
from instep.domain.promotion_rules import NO_LOSS, Loss
from instep.domain.refs import PartitionRef
from instep.domain.seen import Seen
from instep.domain.state import State
from instep.errors import Conflict, Fenced
from instep.ledger.checkpoints import Checkpoint
from instep.ledger.event_log import LogRow
from instep.ledger.failures import FailureRecord
from instep.ledger.job_log import LogLine
from instep.ledger.log_start import Start
from instep.ledger.retention import Forgotten
from tests.simulator.model.holds import MemoryHolds
from tests.simulator.model.lately import Completed
from tests.simulator.model.pending import Pending

#: A partition and one of its generations.
Generation = tuple[PartitionRef, str]


@dataclass(slots=True)
class SliceRow:
    """`plan` holds its work; of a half, that of the half."""

    id: str
    job_id: str
    ref: PartitionRef
    plan: SlicePlan
    rank: int
    claimable_at: int
    state: SliceState = SliceState.PENDING
    attempts: int = 0
    fence: int = 0
    worker_id: str | None = None
    claimed_at: int = 0
    finished_at: int = 0
    error: str | None = None

    @property
    def worn_out(self) -> bool:
        return self.attempts >= tries_of(self.plan.units)

    @property
    def work(self) -> int:
        return self.plan.work

    def held(self, fence: int, worker_id: str) -> bool:
        return self.state is SliceState.PROCESSING and self.fence == fence and self.worker_id == worker_id

    def completed(self, fence: int, worker_id: str) -> bool:
        return self.state is SliceState.COMPLETED and self.fence == fence and self.worker_id == worker_id


@dataclass(slots=True)
class PartRow:
    """A part, its slices by what they wait for, and sums over all of them."""

    part: JobPart
    sequence: int
    priority: int
    state: JobState | None = None
    finished_at: int | None = None
    error: str | None = None
    finisher: str | None = None
    pending: Pending[SliceRow] = field(default_factory=Pending)
    processing: dict[str, SliceRow] = field(default_factory=dict)
    slices: Counter[SliceState] = field(default_factory=Counter)
    units: int = 0
    counts: Counts = field(default_factory=Counts)
    completed: Completed = field(default_factory=Completed)
    lost: Loss = NO_LOSS
    allowed: bool = False
    seen: Seen | None = None

    @property
    def key(self) -> Generation:
        return self.part.ref, self.part.generation

    @property
    def open_slices(self) -> int:
        return len(self.pending) + len(self.processing)


@dataclass(slots=True)
class JobRow:
    """`workers` take part in it."""

    id: str
    worker_id: str
    configuration: Mapping[str, Any]
    created_at: int
    updated_at: int
    state: JobState = JobState.INITIALIZING
    started_at: int | None = None
    stopping_at: int | None = None
    finished_at: int | None = None
    error: str | None = None
    parts: dict[PartitionRef, PartRow] = field(default_factory=dict)
    workers: set[str] = field(default_factory=set)
    log: list[LogLine] = field(default_factory=list)

    @property
    def processing(self) -> int:
        return sum(len(part.processing) for part in self.parts.values())


@dataclass(slots=True)
class WorkerRow:
    """`job_ids` are those it takes part in, `slices` those it has in work; `told` of a wave of each job: one of its
    slices, and how many units are read.
    """

    id: str
    kind: str
    host: str
    pid: int
    started_at: int
    heartbeat_at: int
    job_ids: set[str] = field(default_factory=set)
    slices: dict[str, SliceRow] = field(default_factory=dict)
    told: dict[str, tuple[str, int]] = field(default_factory=dict)


@dataclass(slots=True)
class LeaseRow:
    epoch: int = 0
    job_id: str | None = None
    since: int = 0
    expires_at: int = 0


@dataclass(frozen=True, slots=True)
class Reservation:
    wave: str
    entity: str
    month: str
    job_id: str
    worker_id: str
    cost: int


@dataclass(slots=True)
class BatchRow:
    entity: str
    embedder: str
    worker_id: str
    made_at: int
    batch_id: str | None = None
    finished: bool = False


@dataclass(slots=True)
class Tables:
    """All rows. A worker that is named in `JobRow.workers` or has slices in work is registered. `state` is what the
    `log` has led to: the projections of other ledgers.
    """

    clock: Clock
    timing: Timing
    workers: dict[str, WorkerRow] = field(default_factory=dict)
    leases: dict[PartitionRef, LeaseRow] = field(default_factory=dict)
    jobs: dict[str, JobRow] = field(default_factory=dict)
    open_parts: dict[PartitionRef, dict[str, JobRow]] = field(default_factory=dict)
    slices: dict[str, SliceRow] = field(default_factory=dict)
    checkpoints: dict[Generation, Checkpoint] = field(default_factory=dict)
    #: What is served, and which instance that is of.
    seen: dict[Generation, tuple[str, Seen]] = field(default_factory=dict)
    documents: dict[str, dict[str, ManifestEntry]] = field(default_factory=dict)
    failures: dict[Generation, dict[str, FailureRecord]] = field(default_factory=dict)
    listing_problems: dict[PartitionRef, str] = field(default_factory=dict)
    paces: dict[tuple[str, str, str], Measured] = field(default_factory=dict)
    spending: dict[tuple[str, str, str], Spent] = field(default_factory=dict)
    reservations: dict[str, Reservation] = field(default_factory=dict)
    embedding_batches: dict[str, BatchRow] = field(default_factory=dict)
    forgotten: dict[str, Forgotten] = field(default_factory=dict)
    status_keys: dict[str, tuple[str | None, int]] = field(default_factory=dict)
    log: list[LogRow] = field(default_factory=list)
    #: The last event before the log that was forgotten, and the state after it.
    start: Start = field(default_factory=Start)
    beginning: State | None = None
    state: State = field(default_factory=State)
    holds: MemoryHolds = field(init=False)

    def __post_init__(self) -> None:
        self.holds = MemoryHolds(self.clock)

    def now(self) -> int:
        return self.clock.now()

    def worker(self, worker_id: str) -> WorkerRow:
        if worker_id not in self.workers:
            raise Fenced(f"worker {worker_id} is not registered")
        return self.workers[worker_id]

    def job(self, job_id: str) -> JobRow:
        if job_id not in self.jobs:
            raise Conflict(f"there is no job {job_id}")
        return self.jobs[job_id]

    def part_of(self, row: SliceRow) -> PartRow:
        return self.jobs[row.job_id].parts[row.ref]
