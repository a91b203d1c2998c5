"""A document entity with its adapters: the `EntitySetup` of documents."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from instep.domain.jobs import Claim, Job, JobPart, JobState, SlicePlan
from instep.domain.manifest import DocumentChange, ManifestEntry, SourceDocument
from instep.domain.money import Estimate, Tariff
from instep.domain.refs import index_name
from instep.domain.texts import amount
from instep.domain.waves import SliceOutcome, Wave, WaveSlice
from instep.entities.documents import changes
from instep.entities.documents.adapters import DocumentAdapters
from instep.entities.documents.corpora import way_to_plan
from instep.entities.documents.sources import empty_notes, oversized_notes
from instep.entities.plan_request import Found, Kind, PlanRequest, Refusal, Since
from instep.entities.setup import Inspection, Size
from instep.errors import Away, Transient, Unknown, UserError
from instep.ledger.checkpoints import Checkpoint
from instep.ledger.ledger import Ledger
from instep.pipeline.documents.embed.embedder import probe
from instep.pipeline.engine.engine import WaveProgram
from instep.sources.document_source import DocumentSource, SourceEvents, Unreadable, Vanished
from instep.sources.files import FilesSource
from instep.sources.tables.row_documents import RowDocuments, row_columns, selection
from instep.sources.tables.table_source import Sessions
from instep.sources.topic import TopicSource
from instep.targets.document_target import Narrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from instep.entities.documents.provenance import DocumentProvenance
    from instep.targets.trial import Trial

#: Rows of a wave whose texts go to a batch API: it takes its time for each batch.
_BATCHED_WAVE: Final = 50_000
#: Waves of a first build over a table, about: each of them looks through all of its rows. There are more where so few
#: would be large, up to a number.
_SCANS: Final = 8
_MOST_SCANS: Final = 32
_LARGE_WAVE: Final = 250_000
#: In this process, with the hashing embedder, so many rows take ten seconds on two cores.
_QUICK_WAVE: Final = 1_000_000


#: Seconds between two looks at a topic: only its offsets are asked for.
_TOPIC_SECONDS: Final = 0.25


@dataclass(frozen=True, kw_only=True)
class DocumentSetup(DocumentAdapters):
    """An entity of documents, with what jobs and commands do with it."""

    @property
    def unit(self) -> str:
        return "document"

    @property
    def look_every(self) -> float | None:
        return _TOPIC_SECONDS if isinstance(self.source, TopicSource) else None

    def not_included(self) -> Sequence[str] | None:
        return self.source.not_included() if isinstance(self.source, FilesSource) else None

    @property
    def tariff(self) -> Tariff | None:
        return self.declared_tariff

    def estimate(self, slices: Sequence[SlicePlan], say: Callable[[str], None]) -> Estimate | None:
        from instep.entities.documents import costs

        return costs.estimate(self, slices, say)

    @property
    def slower(self) -> float:
        return self.embedding_time

    def least_wave(self, *, inline: bool) -> int:
        if self.batched:
            return _BATCHED_WAVE
        rows = self.scanned_rows()
        if not rows or self.embedder().cached:
            return 0
        if inline and self.slower <= 1:
            return max(rows // _MOST_SCANS, min(rows, _QUICK_WAVE))
        return max(rows // _MOST_SCANS, min(rows // _SCANS, _LARGE_WAVE))

    def find(self, request: PlanRequest) -> Found:
        if request.options.repair and request.kind is not Kind.RESUME:
            from instep.entities.documents import repairs

            return repairs.find_repairs(self, request)
        return changes.find_documents(self, request)

    def physical(self, instance: str, generation: str) -> str:
        return index_name(self.alias, self.owner.id, instance)

    def create(self, physical: str) -> None:
        self.target.create(physical, self.dimensions, self.buckets, self.columns)

    def wave_slice(self, claim: Claim, changes: Callable[[bytes], Sequence[DocumentChange]]) -> WaveSlice:
        return WaveSlice(claim.slice_id, claim.fence, claim.bucket, claim.work, changes(claim.payload))

    def changed_since(self, ledger: Ledger, part: JobPart, passed_over: Collection[str] = ()) -> Since:
        return changes.changed_since(self, ledger, part, passed_over)

    def too_much(self, part: JobPart, ledger: Ledger, lost: int) -> Refusal | None:
        if not lost or part.fresh:
            return None
        _, recorded, _ = ledger.documents.totals(part.instance)
        before = ledger.losses.lately(part.ref, part.generation, window=self.guard.window).rows
        if not self.guard.refuses(lost, recorded, before):
            return None
        return Refusal(
            f"documents that still exist would lose {lost + before:,} of {recorded + before:,} chunks: so much is "
            "not deleted without permission. Have their files been emptied, or cut off?"
        )

    def program(self, part: JobPart, wave: Wave, ledger: Ledger, job_id: str) -> WaveProgram:
        return self.programs(part, wave.base, self.target)

    def require_seen(self, wave: Wave, outcomes: Sequence[SliceOutcome]) -> None:
        hosts = {each.document_id: each.host for outcome in outcomes for each in outcome.unseen}
        if not hosts:
            return
        changes = [each for part in wave.slices for each in part.changes if each.document_id in hosts]
        listed = [SourceDocument(each.uri, each.size, each.version, each.locator) for each in changes]
        answers = self.source.contents(listed, max_bytes=self.limits.ceiling)
        for change, answer in zip(changes, answers, strict=True):
            if not isinstance(answer, Vanished):
                raise Transient(f"{hosts[change.document_id]} does not find {change.uri}, which is there")

    def compact(self, part: JobPart, ledger: Ledger) -> None:
        ledger.documents.compact(part.instance, in_pieces=way_to_plan(self, ledger, part.instance).tasks is not None)

    def as_recorded(self, part: JobPart, ledger: Ledger) -> bool:
        from instep.entities.documents import promotion_checks

        return self.target.kind == "transactional" and promotion_checks.as_recorded(self, part, ledger)

    def problem(self, part: JobPart, ledger: Ledger, job: Job, state: JobState) -> str | None:
        from instep.entities.documents import promotion_checks

        if self.demand is not None and not part.fresh:
            self.demand.remember(self, part)
        return promotion_checks.problem(self, part, ledger, job, state)

    def damage(self, ledger: Ledger, checkpoint: Checkpoint) -> str | None:
        from instep.entities.documents import promotion_checks

        return promotion_checks.damage(self, ledger, checkpoint)

    def remember(self, checkpoint: Checkpoint) -> None:
        if self.demand is not None:
            self.demand.remember(self, checkpoint)

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
        from instep.entities.documents import promotion_checks

        return promotion_checks.outdated(self, ledger, checkpoint, served) or promotion_checks.not_better(
            self, ledger, checkpoint, served, epoch, allowed=allow_deletes, empty=allow_empty
        )

    def size(self, ledger: Ledger, checkpoint: Checkpoint) -> Size:
        return Size(*ledger.documents.totals(checkpoint.instance))

    def rehearse(self, found: Found, say: Callable[[str], None]) -> None:
        """Embed one text before all of them, if embedding costs something, and read the queries of the promotion; what
        the target would refuse is not embedded.
        """
        if _embeds(found):
            self._demand_dimensions()
        if self.demand is not None:
            self.demand.read()
        if self.rehearsal is not None:
            self.rehearsal()
        if self.trial is not None and _embeds(found):
            self.trial(say)

    def demand_packages(self, found: Found) -> None:
        if _embeds(found):
            self.demand_package()
            with suppress(Away, Transient, Unknown):  # A run waits for the target; the plan says so.
                self._demand_dimensions()

    def outage(self, found: Found) -> str | None:
        ask: Callable[[], str | None] | None = getattr(self.embedder(), "outage", None) if _embeds(found) else None
        return ask() if ask else None

    def _demand_dimensions(self) -> None:
        if isinstance(self.target, Narrow):
            self.target.demand_dimensions(self.dimensions)

    def inspect(
        self, physical: str, recorded: Mapping[str, ManifestEntry] | None = None
    ) -> tuple[Inspection | None, str | None]:
        from instep.entities.documents import inspection

        return inspection.inspect(self, physical, recorded)

    def notes(self, part: JobPart, ledger: Ledger) -> list[str]:
        return [*oversized_notes(self.limits, part, ledger), *empty_notes(part, ledger)]

    def remove_replaced(self, part: JobPart) -> None:
        """Does nothing: a new instance has its own index."""

    @property
    def row_hint(self) -> str:
        from instep.entities.documents import provenance

        return provenance.ROW_HINT

    def trace(self, ledger: Ledger, physical: str, text: str) -> DocumentProvenance | None:
        from instep.entities.documents import provenance

        return provenance.trace(self, ledger, physical, text)

    def why_absent(self, ledger: Ledger, text: str) -> str | None:
        from instep.entities.documents import provenance

        return provenance.why_absent(self, ledger, text)

    def events(self) -> SourceEvents | None:
        if self.queue is not None:
            from instep.sources.sqs_events import SqsEvents

            return SqsEvents(self.queue)
        from instep.sources.file_events import FileEvents

        folders = self.source.folders() if isinstance(self.source, FilesSource) else None
        return FileEvents(folders) if folders else None

    def target_trial(self) -> Trial:
        from instep.targets.trial import trial_of_documents

        return trial_of_documents(self.target, self.dimensions)

    def reading(self) -> Callable[[], None] | None:
        if isinstance(self.source, RowDocuments | TopicSource):
            return None
        source = self.source
        listed = source.one_by_one() if isinstance(source, FilesSource) else source.list().documents
        first = next((each for each in listed if each.size <= self.limits.ceiling), None)
        if first is None:
            raise UserError(f"no document to be read is in {self.source_text}")
        return partial(_read, self.source, first, self.limits.ceiling)

    def frame(self, spark: Sessions) -> DataFrame | None:
        if not isinstance(self.source, RowDocuments) or self.source.frames is None:
            return None
        return self.source.frames.frame(spark, row_columns(self.source.columns), selection())

    def checks(self) -> Mapping[str, Callable[[], str]]:
        found = {"source": self._check_source, "embedder": self._check_embedder}
        if self.queue is not None:
            found["events"] = self.queue.check
        if self.cutting is not None:
            found["chunks"] = self.cutting
        return found if self.rehearsal is None else {**found, "transform": self.rehearsal}

    def _check_source(self) -> str:
        if isinstance(self.source, TopicSource):
            return f"{self.source.topic.text} is there: {amount(len(self.source.topic.state().first), 'partition')}"
        found = self.source.list()
        if not found.complete:
            number = amount(len(found.documents), "document")
            raise UserError(
                f"{number} found; not all of the source can be read: {found.problems[0]}",
                hint="What could not be read is not deleted from the index.",
            )
        if not found.documents:
            raise UserError(f"no documents match in {self.source_text}", hint="Check `path`, `include` and `exclude`.")
        return f"{amount(len(found.documents), 'document')} in {self.source_text}"

    def _check_embedder(self) -> str:
        probe(self.embedder())
        self._demand_dimensions()
        return f"{self.dimensions} dimensions"


def _read(source: DocumentSource, document: SourceDocument, max_bytes: int) -> None:
    """A task's try to read a document of the listing."""
    (answer,) = source.contents([document], max_bytes=max_bytes)
    if isinstance(answer, Vanished):
        raise UserError(f"does not find {document.uri}, which is there")
    if isinstance(answer, Unreadable):
        raise UserError(f"cannot read {document.uri}: {answer}")


def _embeds(found: Found) -> bool:
    """Whether texts are embedded for what was found."""
    return any(found.counts.get(each) for each in ("new", "changed", "retried"))
