"""What the use cases need to know of one entity in one scope, wired up by `compose`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from instep.domain.counts import Counts
from instep.domain.fingerprint import changed_parts
from instep.domain.jobs import Claim, Job, JobPart, JobState, SlicePlan
from instep.domain.losses import Loss
from instep.domain.promotion_rules import NEEDED
from instep.domain.refs import PartitionRef, own_name
from instep.domain.settings import JobSettings
from instep.domain.waves import Wave, WaveSlice
from instep.entities.plan_request import Found, PlanRequest, Refusal
from instep.ledger.ledger import Checkpoint, Ledger
from instep.pipeline.engine.engine import TableProgram, WaveProgram
from instep.targets.document_target import Bounded, IndexTarget
from instep.targets.ownership import Owner

if TYPE_CHECKING:
    from instep.entities.documents.inspection import Inspection
    from instep.entities.provenance import Provenance

#: Bounds the size of one commit, and of what a crash can lose.
MOST_CLAIMS = 64


@dataclass(frozen=True, slots=True)
class Size:
    """Units (documents, or rows of a table), rows in the target and bytes. `rows` is None when no number is recorded
    that the target's could be compared with.
    """

    units: int | None
    rows: int | None
    bytes: int


@dataclass(frozen=True, kw_only=True)
class EntitySetup(ABC):
    """One declared entity in its scope, with its adapters. What differs between documents and rows of tables is in its
    two kinds, `entities.documents.DocumentSetup` and `entities.tables.TableSetup`.

    `buckets` is the number of routes. `needs_spark`: no other engine runs it. `ttl` is the time to live of an instance
    in milliseconds; `revision` says which version of the project's code runs, as far as version control knows.
    `depends_on` is what it is made from. `in_process`: only this process can work with its target, not Spark's tasks.
    `needed` is the share of documents or rows that have to go into what is to be served.
    """

    ref: PartitionRef
    source_text: str
    target: IndexTarget
    target_name: str
    buckets: int
    priority: int
    needs_spark: bool
    fingerprint: Mapping[str, str]
    ttl: int | None
    revision: Callable[[], str]
    depends_on: tuple[PartitionRef, ...] = ()
    in_process: bool = False
    needed: float = NEEDED

    @property
    def alias(self) -> str:
        """What readers of the target call it: the same in each, if the entity has several."""
        return own_name(self.ref.entity)

    @property
    def owner(self) -> Owner:
        """The ledger that its indexes are made for."""
        return self.target.owner

    def alias_of(self, generation: str) -> str | None:
        """What a generation that has a name is read by, promoted or not. `alias` is for the promoted one."""
        return f"{self.alias}@{generation}" if generation else None

    @property
    def in_place(self) -> bool:
        """Whether a build goes into the index that is served, because other partitions are in that too. Else it is
        staged: it has an index of its own, and the alias moves when that is verified.
        """
        return False

    def staged(self, part: JobPart) -> bool:
        """Whether the part builds an index that nobody reads yet."""
        return part.fresh and not self.in_place

    def reads_all(self, part: JobPart) -> bool:
        """Whether the part reads all that is there. A build of documents leaves out what has failed as it is."""
        return part.fresh and self.scanned

    def misfit(self, part: JobPart) -> str | None:
        """Why a part that was planned under another declaration cannot be continued, or None."""
        if part.buckets != self.buckets:
            return f"it was planned for {part.buckets} buckets, now there are {self.buckets}"
        changed = changed_parts(self.fingerprint, part.fingerprint)
        return f"{', '.join(changed)} changed since it was planned" if changed else None

    def outgrown(self, part: JobPart) -> str | None:
        """Why a part that was begun cannot be gone on with, though the entity is declared as it was then; or None."""
        return None

    @property
    @abstractmethod
    def unit(self) -> str:
        """What is read, written and counted: a `document`, or a `row`."""

    @property
    def scanned(self) -> bool:
        """Whether the slices of a wave are read in one go: then they are neither cut, nor claimed alone."""
        return False

    @property
    def most_claims(self) -> int:
        """Slices in one claim at most, and so in work on one server."""
        return MOST_CLAIMS

    @abstractmethod
    def find(self, request: PlanRequest) -> Found:
        """Look at the source: what needs work, cut into slices. Writes nothing."""

    @abstractmethod
    def physical(self, instance: str, generation: str) -> str:
        """The physical index that a build of this instance goes into."""

    @property
    def bounds_requests(self) -> bool:
        """Whether its target takes bounds of requests."""
        return isinstance(self.target, Bounded)

    def bounded(self, settings: JobSettings) -> Self:
        """The same with a target that keeps these bounds, if it takes any."""
        if not isinstance(self.target, Bounded):
            return self
        return replace(self, target=self.target.bounded(settings.payload_bytes, settings.requests))

    @abstractmethod
    def create(self, physical: str) -> None:
        """Create the empty physical index; nothing happens if it exists."""

    @abstractmethod
    def wave_slice(self, claim: Claim) -> WaveSlice:
        """A claimed slice with its work decoded."""

    def changed_since(self, ledger: Ledger, part: JobPart) -> Sequence[SlicePlan]:
        """What is to be done to the part's index so that it is as the source is now, by what is recorded of its
        instance. Writes nothing. Empty where the next job does that.
        """
        return ()

    @abstractmethod
    def program(self, part: JobPart, wave: Wave, ledger: Ledger, job_id: str) -> WaveProgram | TableProgram:
        """What a wave of this part runs."""

    def leaving(self, part: JobPart, staged: Sequence[bytes]) -> Counts:
        """What a commit of this would delete because it is in no namespace any more that is indexed. Only the target
        knows what of that it has.
        """
        return Counts()

    def too_much(self, part: JobPart, ledger: Ledger, lost: int) -> Refusal | None:
        """Why a part must not go on, if so much of what is served would be `lost` (see `SliceOutcome`), or None."""
        return None

    def loss(self, lost: int) -> Loss:
        """The same as it is counted."""
        return Loss(rows=lost)

    def reserve(self, slices: Sequence[SlicePlan], ledger: Ledger, job_id: str) -> Sequence[SlicePlan]:
        """Take for a job that is about to be stored what others could take too. Returns its slices, of what was got."""
        return slices

    def release(self, ledger: Ledger, job_id: str) -> None:
        """Give back what was reserved for a job that is not stored."""
        return

    def settle(self, part: JobPart, ledger: Ledger, job_id: str) -> None:
        """Say that it is done to whoever keeps what needs work, as far as it is durable. Safe to repeat, by anybody."""
        return

    def catch_up(self, ledger: Ledger) -> None:
        """Settle the last job, if its process died when it had ended it and not yet settled it."""
        return

    def as_recorded(self, part: JobPart, ledger: Ledger) -> bool:
        """Whether the target holds what is recorded of the part's instance. Asked before the part changes anything: if
        commits say exactly what they change, it need not be asked again afterwards, when it may cost much. False where
        that is not so.
        """
        return False

    @abstractmethod
    def problem(self, part: JobPart, ledger: Ledger, job: Job, state: JobState) -> str | None:
        """Why what a part has done must not be served, or None. `state` is what it ends in by itself."""

    def damage(self, ledger: Ledger, checkpoint: Checkpoint) -> str | None:
        """How what is served differs from what is recorded of it, as far as numbers say; or None."""
        return None

    @abstractmethod
    def remove_replaced(self, part: JobPart) -> None:
        """What was built is to be served: remove what it replaces, if that is in the same index. Safe to repeat."""

    @abstractmethod
    def not_better(
        self,
        ledger: Ledger,
        checkpoint: Checkpoint,
        served: Checkpoint,
        *,
        epoch: int,
        allow_deletes: bool,
        allow_empty: bool,
    ) -> str | None:
        """Why what is built of one generation must not be served in place of what is served of another, or None.
        `epoch` is that of the partition's lease. `allow_deletes`: however much less it has;
        `allow_empty`: none at all.
        """

    @abstractmethod
    def size(self, ledger: Ledger, checkpoint: Checkpoint) -> Size:
        """What is recorded of what is served."""

    @property
    @abstractmethod
    def row_hint(self) -> str:
        """What a row is asked for by."""

    @abstractmethod
    def trace(self, ledger: Ledger, physical: str, text: str) -> Provenance | None:
        """The row that is called so, and where it comes from. It may be of any partition in this index."""

    def rehearse(self, found: Found) -> None:
        """Try before a job is made what all of its waves would trip over, and write nothing. Raises `UserError`."""
        return

    @abstractmethod
    def inspect(self, physical: str) -> tuple[Inspection | None, str | None]:
        """What an index holds of which this ledger knows nothing, and why it cannot go on being used, if it cannot.
        Raises `UserError` if it must not be touched at all.
        """

    def notes(self, part: JobPart, ledger: Ledger) -> list[str]:
        """What the user should know of what a part has done, beside its numbers."""
        return []

    @abstractmethod
    def checks(self) -> Mapping[str, Callable[[], str]]:
        """What a doctor looks at, by its name. Each describes what it has found, or raises an `InstepError`."""
