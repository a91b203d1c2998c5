"""Counts of everything in the ledger, for readers that poll it every few seconds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import and_, func, select

from instep.domain.counts import Counts
from instep.domain.jobs import JobState, SliceState
from instep.domain.refs import PartitionRef
from instep.domain.wants import WantState
from instep.domain.waves import GIVEN_UP, SKIPPED
from instep.ledger.tables import checkpoints, failures, jobs, leases, listing_problems, promoted, slices, wants
from instep.ledger.transaction import Transaction, batches

_OPEN_JOBS: Final = select(jobs.c.id, jobs.c.state).where(
    jobs.c.state.in_([state.value for state in JobState if not state.ended])
)
_LEASES: Final = select(leases.c.ref, leases.c.since, leases.c.expires_at).where(leases.c.job_id.is_not(None))
_WATERMARKS: Final = select(checkpoints.c.ref, checkpoints.c.watermark).join(
    promoted, and_(promoted.c.ref == checkpoints.c.ref, promoted.c.generation == checkpoints.c.generation)
)
_FAILURES: Final = (
    select(failures.c.ref, func.count().label("number")).where(failures.c.stage != SKIPPED).group_by(failures.c.ref)
)
_OLDEST_GIVEN_UP: Final = (
    select(failures.c.ref, func.min(failures.c.failed_at).label("oldest"))
    .where(failures.c.stage == GIVEN_UP)
    .join(promoted, and_(promoted.c.ref == failures.c.ref, promoted.c.generation == failures.c.generation))
    .group_by(failures.c.ref)
)
_UNLISTED: Final = select(listing_problems.c.ref)
_WANTS: Final = (
    select(wants.c.state, func.count().label("number")).where(wants.c.ended_at.is_(None)).group_by(wants.c.state)
)


@dataclass(slots=True)
class EntityFigures:
    """Counts of all partitions of an entity together.

    `slices`, `units` (those planned), `counts` and `attempts` (tries that ended badly) are of jobs that have not ended.
    `leases` are held; `oldest_lease` is since when the oldest is, `first_expiry` when the first of them expires unless
    it is renewed. `watermark` is the lowest of its promoted checkpoints, None without any. `failures` are in the list,
    of all generations, without what is only left out. `oldest_given_up` is the time of the oldest in a promoted
    generation that was given up with its slice: what is indexed of an older version of such a document stays as it is.
    `unlisted`: of some partition the source could not be seen as a whole at the last look.
    """

    slices: dict[SliceState, int] = field(default_factory=dict)
    units: int = 0
    counts: Counts = field(default_factory=Counts)
    attempts: int = 0
    leases: int = 0
    oldest_lease: int | None = None
    first_expiry: int | None = None
    partitions: int = 0
    watermark: int | None = None
    failures: int = 0
    oldest_given_up: int | None = None
    unlisted: bool = False

    def lease(self, since: int, expires_at: int) -> None:
        self.leases += 1
        self.oldest_lease = since if self.oldest_lease is None else min(self.oldest_lease, since)
        self.first_expiry = expires_at if self.first_expiry is None else min(self.first_expiry, expires_at)

    def checkpoint(self, watermark: int) -> None:
        self.partitions += 1
        self.watermark = watermark if self.watermark is None else min(self.watermark, watermark)

    def given_up(self, at: int) -> None:
        self.oldest_given_up = at if self.oldest_given_up is None else min(self.oldest_given_up, at)


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of the ledger at one moment, `now`: `jobs` that have not ended and `wants` that are open, by their
    states.
    """

    now: int
    jobs: Mapping[JobState, int]
    wants: Mapping[WantState, int]
    entities: Mapping[str, EntityFigures]


def read(tx: Transaction) -> Figures:
    found: defaultdict[str, EntityFigures] = defaultdict(EntityFigures)
    states: defaultdict[JobState, int] = defaultdict(int)
    open_jobs = tx.connection.execute(_OPEN_JOBS).all()
    for job in open_jobs:
        states[JobState(job.state)] += 1
    for some in batches(job.id for job in open_jobs):
        _read_slices(tx, some, found)
    for ref, since, expires_at in tx.connection.execute(_LEASES):
        found[_entity(ref)].lease(since, expires_at)
    for ref, watermark in tx.connection.execute(_WATERMARKS):
        found[_entity(ref)].checkpoint(watermark)
    for ref, number in tx.connection.execute(_FAILURES):
        found[_entity(ref)].failures += number
    for ref, oldest in tx.connection.execute(_OLDEST_GIVEN_UP):
        found[_entity(ref)].given_up(oldest)
    for ref in tx.connection.scalars(_UNLISTED):
        found[_entity(ref)].unlisted = True
    open_wants = {WantState(state): number for state, number in tx.connection.execute(_WANTS)}
    return Figures(tx.now(), dict(states), open_wants, dict(found))


def _read_slices(tx: Transaction, job_ids: list[Any], found: defaultdict[str, EntityFigures]) -> None:
    for row in tx.dialect.statistics(tx.connection, job_ids, tx.now()):
        entity, state = found[_entity(row.ref)], SliceState(row.state)
        entity.slices[state] = entity.slices.get(state, 0) + row.number
        entity.units += int(row.planned)
        entity.counts += Counts.from_dict(dict(row._mapping))
    tried = select(slices.c.ref, func.sum(slices.c.attempts).label("number")).group_by(slices.c.ref)
    for ref, number in tx.connection.execute(tried.where(slices.c.job_id.in_(job_ids), slices.c.attempts > 0)):
        found[_entity(ref)].attempts += int(number)


def _entity(ref: str) -> str:
    return PartitionRef.parse(ref).entity
