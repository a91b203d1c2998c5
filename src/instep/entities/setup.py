"""An entity in one scope with its adapters, in the form that jobs and commands use."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Self

from instep.domain.counts import Counts
from instep.domain.fingerprint import TARGET, changed_parts, digest
from instep.domain.jobs import Claim, Job, JobPart, JobState, SlicePlan
from instep.domain.manifest import DocumentChange, ManifestEntry, decode_changes
from instep.domain.money import Estimate, Tariff
from instep.domain.promotion_rules import NEEDED, Loss
from instep.domain.refs import PartitionRef, own_name
from instep.domain.settings import JobSettings
from instep.domain.texts import amount
from instep.domain.waves import SliceOutcome, Wave, WaveSlice
from instep.entities.plan_request import UNCHANGED, Found, PlanRequest, Refusal, Since
from instep.entities.provenance import Provenance
from instep.errors import Away, InstepError, Transient, Unknown
from instep.ledger.checkpoints import Checkpoint
from instep.ledger.ledger import Ledger
from instep.pipeline.engine.engine import TableProgram, WaveProgram
from instep.sources.tables.table_source import Sessions
from instep.targets.document_target import Bounded, IndexTarget
from instep.targets.ownership import Owner

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from instep.sources.document_source import SourceEvents
    from instep.targets.trial import Trial


@dataclass(frozen=True)
class Inspection:
    """Result of an inspection. `entries` is the manifest by document id. Counts: `same` have the same id and version in
    the source; `changed` another version; `gone` are not listed; `new` are only listed. `damaged` lack chunks or have
    some twice: they are written again. `sampled` were read, chunked and embedded again. `unlike` differ from the
    ledger's record, if it has one. `slices` are those of a job that records the index, or what differs of it; if that
    dies, they are a build's slices, or a repair's.
    """

    rows: int
    entries: Mapping[str, ManifestEntry]
    same: int
    changed: int
    gone: int
    new: int
    damaged: int
    sampled: int
    slices: Sequence[SlicePlan]
    unlike: int = 0

    @property
    def words(self) -> str:
        """Summary of the comparison, as text."""
        others = (("changed", self.changed), ("gone", self.gone), ("new", self.new), ("damaged", self.damaged))
        rest = "".join(f", {number:,} {name}" for name, number in others if number)
        if self.unlike:
            rest += f"; {self.unlike:,} not as this ledger has recorded"
        sampled = (
            f"; {amount(self.sampled, 'document')} read, cut and embedded again gave the same" if self.sampled else ""
        )
        return f"{self.same:,} of {amount(len(self.entries), 'document')} as in the source{rest}{sampled}"

    def documents_of(self, claim: Claim) -> list[str]:
        return [each.document_id for each in decode_changes(claim.payload)]


#: Limits the size of one commit, and of the work that a crash can lose.
MOST_CLAIMS = 64


@dataclass(frozen=True, slots=True)
class Size:
    """Units (documents, or rows of a table), rows in the target and bytes. `rows` is None when the ledger has no number
    to compare with the target's.
    """

    units: int | None
    rows: int | None
    bytes: int


@dataclass(frozen=True, kw_only=True)
class EntitySetup(ABC):
    """One declared entity in its scope, with its adapters. Documents and rows of tables differ in the two subclasses,
    `entities.documents.DocumentSetup` and `entities.tables.TableSetup`.

    `buckets` is the number of routes. `needs_spark`: no other engine can run it. `ttl` is the time to live of an
    instance in milliseconds; `revision` gives the version of the project's code from version control. `depends_on` is
    its upstream. `in_process`: only this process can work with its target, not Spark's tasks. `needed` is the share of
    documents or rows that must succeed before an index is served.
    """

    ref: PartitionRef
    source_text: str
    target: IndexTarget
    target_name: str
    buckets: int
    priority: int
    needs_spark: bool
    #: Of all that decides what its rows are. Raises an `InstepError` when that cannot be told now: its transform cannot
    #: be imported, say.
    fingerprints: Callable[[], Mapping[str, str]]
    ttl: int | None
    revision: Callable[[], str]
    depends_on: tuple[PartitionRef, ...] = ()
    #: Whether it is built anew when an instance that it was made from was replaced.
    rebuild_with_upstream: bool = False
    in_process: bool = False
    needed: float = NEEDED
    #: Absolute paths of the source on this machine.
    local_sources: tuple[str, ...] = ()
    #: The most requests that its embedder may have open at once, in all tasks of all workers: each task has one.
    requests_at_once: int | None = None

    @property
    def tariff(self) -> Tariff | None:
        """The price and the budget of its embedder; None if it costs nothing."""
        return None

    @property
    def batched(self) -> bool:
        """Whether it is embedded by a batch API."""
        return self.tariff is not None and self.tariff.batched

    def estimate(self, slices: Sequence[SlicePlan], say: Callable[[str], None]) -> Estimate | None:
        """The cost of these slices; None if they cost nothing. `say` tells that it takes long. Raises `UserError` where
        it cannot be told.
        """
        return None

    @property
    def alias(self) -> str:
        """The entity's name for readers of the target: the same in each target, if it has several."""
        return own_name(self.ref.entity)

    @cached_property
    def fingerprint(self) -> Mapping[str, str]:
        return self.fingerprints()

    @property
    def owner(self) -> Owner:
        """The ledger that its indexes are made for."""
        return self.target.owner

    def alias_of(self, generation: str) -> str | None:
        """The alias of a named generation, promoted or not. `alias` is for the promoted one."""
        return f"{self.alias}@{generation}" if generation else None

    @property
    def in_place(self) -> bool:
        """Whether a build goes into the served index, because other partitions share that. Else it is staged: it has
        its own index, and the alias moves after verification.
        """
        return False

    def staged(self, part: JobPart) -> bool:
        """Whether the part builds an index without readers yet."""
        return part.fresh and not self.in_place

    def reads_all(self, part: JobPart) -> bool:
        """Whether the part reads the whole source. A build of documents leaves out unchanged ones that failed."""
        return part.fresh and self.scanned

    def misfit(self, part: JobPart) -> str | None:
        """The reason why a part planned under another declaration cannot be continued, or None."""
        if part.buckets != self.buckets:
            return f"it was planned for {part.buckets} buckets, now there are {self.buckets}"
        changed = changed_parts(self.fingerprint, part.fingerprint)
        if changed == [TARGET] and self.target.exists(part.physical):
            return None
        return f"{', '.join(changed)} changed since it was planned" if changed else None

    def changed_since_built(self, ledger: Ledger, checkpoint: Checkpoint) -> list[str]:
        """The parts of the fingerprint that have changed since a checkpoint. A target is the same one, under whatever
        name, if it has the very index, with all that its last job has written.
        """
        changed = changed_parts(self.fingerprint, checkpoint.fingerprint)
        if TARGET not in changed or not self.target.exists(checkpoint.physical):
            return changed
        job = ledger.jobs.get(checkpoint.job_id)
        if job is None or self.target.epoch(checkpoint.physical) < job.part(self.ref).part.epoch:
            return changed
        return [part for part in changed if part != TARGET]

    def fits(self, part: JobPart) -> bool:
        """Whether a worker can go on with the part. It cannot as long as the fingerprint cannot be told, either."""
        try:
            return self.misfit(part) is None
        except InstepError:
            return False

    def outgrown(self, part: JobPart) -> str | None:
        """The reason why a started part cannot be continued though the declaration is the same, or None."""
        try:
            is_gone = not part.fresh and not self.target.exists(part.physical)
        except (Away, Transient, Unknown):
            return None  # Who goes on with it waits for the target.
        return f"its index ({part.physical}) is gone" if is_gone else None

    @property
    @abstractmethod
    def unit(self) -> str:
        """The unit that is read, written and counted: a `document`, or a `row`."""

    def events(self) -> SourceEvents | None:
        """Listen to what changes in the source from now on; None where nothing tells it."""
        return None

    @property
    def look_every(self) -> float | None:
        """Seconds between two looks at a source that can be looked at often; None: as usual."""
        return None

    def not_included(self) -> Sequence[str] | None:
        """URIs of what is in the source and no `include` takes; None where there is none to take anything."""
        return None

    @property
    def reads_here(self) -> bool:
        """Whether what is `scanned` can be read in this process, without Spark."""
        return False

    @property
    def scanned(self) -> bool:
        """Whether the slices of a wave are read in one scan: then they are neither split nor claimed alone."""
        return False

    @property
    def slower(self) -> float:
        """Time of a row until it was measured, in times of one with the hashing embedder."""
        return 1.0

    @property
    def how(self) -> str:
        """A digest of what its pace depends on: the embedder and the transform, if it has some."""
        return digest([self.fingerprint.get("embedder", ""), self.fingerprint.get("transform", "")])

    @property
    def most_claims(self) -> int:
        """Slices in one claim at most, and so in work on one server."""
        return MOST_CLAIMS

    def least_wave(self, *, inline: bool) -> int:
        """The work that a wave has at least, as far as there is some: each costs a look at the whole source. `inline`:
        it is run in this process.
        """
        return 0

    @abstractmethod
    def find(self, request: PlanRequest) -> Found:
        """Read the source: find what needs work, cut into slices. Writes nothing."""

    @abstractmethod
    def physical(self, instance: str, generation: str) -> str:
        """The name of the physical index for a build of this instance."""

    @property
    def bounds_requests(self) -> bool:
        """Whether its target accepts limits of requests."""
        return isinstance(self.target, Bounded)

    def bounded(self, settings: JobSettings) -> Self:
        """A copy whose target keeps these limits, if it accepts any."""
        if not isinstance(self.target, Bounded):
            return self
        return replace(self, target=self.target.bounded(settings.payload_bytes, settings.requests, settings.batch_rows))

    @abstractmethod
    def create(self, physical: str) -> None:
        """Create the empty physical index; nothing happens if it exists."""

    @abstractmethod
    def wave_slice(self, claim: Claim, changes: Callable[[bytes], Sequence[DocumentChange]]) -> WaveSlice:
        """A claimed slice with its work decoded: `changes` reads those of documents by the payload."""

    def changed_since(self, ledger: Ledger, part: JobPart, passed_over: Collection[str] = ()) -> Since:
        """The changes that bring the part's index up to date with the source, according to the instance's record, but
        for documents that are `passed_over`. Writes nothing. Empty where the next job does that.
        """
        return UNCHANGED

    @abstractmethod
    def program(self, part: JobPart, wave: Wave, ledger: Ledger, job_id: str) -> WaveProgram | TableProgram:
        """The program of a wave of this part."""

    def require_seen(self, wave: Wave, outcomes: Sequence[SliceOutcome]) -> None:
        """Check that what tasks did not find of the source is gone for this process as well. Raises `Transient` for
        what is there: it is no fault of the document, but of the task's host.
        """
        return

    def leaving(self, part: JobPart, staged: Sequence[bytes]) -> Counts:
        """Counts of rows that a commit would delete because they moved out of all indexed namespaces. Only the target
        knows which of these it has.
        """
        return Counts()

    def too_much(self, part: JobPart, ledger: Ledger, lost: int) -> Refusal | None:
        """The reason why a part must stop, if the served index would lose so much (`lost`: see `SliceOutcome`), or
        None.
        """
        return None

    def loss(self, lost: int) -> Loss:
        """The loss as it is counted."""
        return Loss(rows=lost)

    def reserve(self, slices: Sequence[SlicePlan], ledger: Ledger, job_id: str) -> Sequence[SlicePlan]:
        """Reserve work that other jobs could take, for a job that is about to be stored. Returns the slices that were
        reserved.
        """
        return slices

    def release(self, ledger: Ledger, job_id: str) -> None:
        """Give back what was reserved for a job that is not stored."""
        return

    def acknowledge(self, part: JobPart, ledger: Ledger, job_id: str) -> None:
        """Acknowledge durable work to the queue of changes. Safe to repeat, by any worker."""
        return

    def compact(self, part: JobPart, ledger: Ledger) -> None:
        """Bring what is recorded of the part's instance into a form that is quick to compare. Safe to leave out."""
        return

    def catch_up(self, ledger: Ledger) -> None:
        """Acknowledge the work of the last job, if its process died between its end and that."""
        return

    def as_recorded(self, part: JobPart, ledger: Ledger) -> bool:
        """Whether the target holds what is recorded of the part's instance. Called before the part changes anything: if
        commits report exactly what they change, the costly check afterwards is not needed. False otherwise.
        """
        return False

    @abstractmethod
    def problem(self, part: JobPart, ledger: Ledger, job: Job, state: JobState) -> str | None:
        """The reason why the result of a part must not be served, or None. `state` is the part's own final state."""

    def damage(self, ledger: Ledger, checkpoint: Checkpoint) -> str | None:
        """The difference of the served index from its record, by numbers; or None."""
        return None

    @abstractmethod
    def remove_replaced(self, part: JobPart) -> None:
        """Remove the rows that a build replaces in the same index, before it is served. Safe to repeat."""

    def remember(self, checkpoint: Checkpoint) -> None:  # noqa: B027 - most have nothing to keep
        """Keep what will be asked of the served build when it is to be replaced. Called in a run that finds nothing to
        do.
        """

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
        """The reason why the built index of one generation must not replace the served one of another, or None. `epoch`
        is that of the partition's lease. `allow_deletes`: however much less it has; `allow_empty`: even if it has
        nothing.
        """

    @abstractmethod
    def size(self, ledger: Ledger, checkpoint: Checkpoint) -> Size:
        """The recorded size of the served index."""

    @property
    @abstractmethod
    def row_hint(self) -> str:
        """The ids by which a row can be asked for."""

    @abstractmethod
    def trace(self, ledger: Ledger, physical: str, text: str) -> Provenance | None:
        """The row with this id, and its origin. It may belong to any partition in this index."""

    def why_absent(self, ledger: Ledger, text: str) -> str | None:
        """The reason why no row has this id, as far as it may be told and is known."""
        return None

    def source_problem(self) -> str | None:
        """The reason why a run cannot read the source, as far as that shows without reading it; or None."""
        for path in self.local_sources:
            try:
                os.stat(path)  # noqa: PTH116 - why not is asked for
            except OSError as error:
                return f"{path} cannot be listed: {(error.strerror or type(error).__name__).lower()}"
        return None

    def rehearse(self, found: Found, say: Callable[[str], None]) -> None:
        """Try, before a job is made, anything that would fail all of its waves; writes nothing. `say` tells that it
        takes long. Raises `UserError`.
        """
        return

    @abstractmethod
    def inspect(
        self, physical: str, recorded: Mapping[str, ManifestEntry] | None = None
    ) -> tuple[Inspection | None, str | None]:
        """Inspect an index that is unknown to this ledger, or of which its record (`recorded`, by URI) is out of date:
        its content, and why it cannot stay in use (None if it can). Raises `UserError` if it must not be touched at
        all.
        """

    def demand_packages(self, found: Found) -> None:  # noqa: B027 -- most need none
        """Raises `UserError` if a package that the work found needs is not installed."""

    def outage(self, found: Found) -> str | None:
        """Say what is out of reach that the work found needs, besides its target and its source; None if nothing is."""
        return None

    def notes(self, part: JobPart, ledger: Ledger) -> list[str]:
        """Notes for the user about a part's result, besides its counts."""
        return []

    @abstractmethod
    def target_trial(self) -> Trial:
        """A trial of its target, which executors take part in."""

    def reading(self) -> Callable[[], None] | None:
        """A picklable function with which a task reads one piece of the source; None where Spark reads it. Raises an
        `InstepError` when there is none to be read.
        """
        return None

    def frame(self, spark: Sessions) -> DataFrame | None:
        """The source as Spark reads it; None where tasks read it themselves."""
        return None

    @abstractmethod
    def checks(self) -> Mapping[str, Callable[[], str]]:
        """Checks of `instep check` by name. Each returns a description, or raises an `InstepError`."""
