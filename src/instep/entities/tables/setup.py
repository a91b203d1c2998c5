"""A table entity in one scope with its adapters: the `EntitySetup` of rows."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from instep.domain.counts import Counts
from instep.domain.drift import drift
from instep.domain.fingerprint import ROWS, TARGET
from instep.domain.jobs import Claim, Job, JobPart, JobState, SlicePlan
from instep.domain.manifest import DocumentChange, ManifestEntry
from instep.domain.promotion_rules import Loss
from instep.domain.refs import index_name
from instep.domain.rows import RowSlice, Selection, decode_row_slice
from instep.domain.table_files import Files
from instep.domain.texts import amount
from instep.domain.waves import Wave, WaveSlice
from instep.entities.plan_request import Found, Kind, PlanRequest, Refusal
from instep.entities.setup import Size
from instep.entities.tables import changes, pending_keys, promotion_checks, provenance, reconciling, versions
from instep.entities.tables.adapters import TableAdapters
from instep.errors import UserError
from instep.ledger.checkpoints import Checkpoint
from instep.ledger.ledger import Ledger
from instep.pipeline.tables.key_comparison import LIFT
from instep.pipeline.tables.lake_wave import LakeWave, PortionWriter
from instep.pipeline.tables.repairing import RepairWave, with_flag
from instep.pipeline.tables.routing import WaveRows
from instep.pipeline.tables.values import id_of
from instep.pipeline.tables.writing import RowWriter, TableWave, needed_columns
from instep.sources.tables.lake_table import LakeTable, readable
from instep.sources.tables.table_source import Sessions
from instep.targets.table_target import Mappable
from instep.targets.trial import Trial, trial_of_tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, kw_only=True)
class TableSetup(TableAdapters):
    """An entity of a table, with what jobs and commands do with it."""

    @property
    def unit(self) -> str:
        return "row"

    def find(self, request: PlanRequest) -> Found:
        if request.options.repair and request.kind is not Kind.RESUME:
            return reconciling.find_repairs(self, request)
        return changes.find_rows(self, request)

    def physical(self, instance: str, generation: str) -> str:
        if not self.in_place:
            return index_name(self.alias, self.owner.id, instance)
        # All partitions with the same fingerprint share it, and no others; wherever it is, its name is the same.
        made = {part: text for part, text in self.fingerprint.items() if part not in (ROWS, TARGET)}
        text = repr((sorted(made.items()), self.tables(), generation))
        digest = hashlib.sha256(text.encode()).hexdigest()
        before = index_name(self.alias, "", digest)
        return before if before in self.owner.before else index_name(self.alias, self.owner.id, digest)

    def outgrown(self, part: JobPart) -> str | None:
        if (gone := super().outgrown(part)) is not None:
            return gone
        differences = changes.drift_of(self, part.physical) if self.target.exists(part.physical) else []
        return f"the table has changed: {'; '.join(differences)}" if differences else None

    @property
    def reads_here(self) -> bool:
        return isinstance(self.source, LakeTable)

    def reads_all(self, part: JobPart) -> bool:
        """True: whether a queue or all rows led to a new instance is not recorded."""
        return self.queue is None and super().reads_all(part)

    def reserve(self, slices: Sequence[SlicePlan], ledger: Ledger, job_id: str) -> Sequence[SlicePlan]:
        if self.queue is None or not pending_keys.has_keys(slices):
            return slices
        return pending_keys.cut_keys(self, self.queue.take(ledger, job_id))

    def release(self, ledger: Ledger, job_id: str) -> None:
        if self.queue:
            self.queue.release(ledger, job_id)

    def acknowledge(self, part: JobPart, ledger: Ledger, job_id: str) -> None:
        if self.queue:
            self.queue.acknowledge(ledger, part, job_id)

    def catch_up(self, ledger: Ledger) -> None:
        latest = ledger.jobs.latest(self.ref) if self.queue else None
        if latest and (status := latest.part(self.ref)).state is not None:
            self.acknowledge(status.part, ledger, latest.id)

    def create(self, physical: str) -> None:
        self.target.create(physical, self.specs)

    def wave_slice(self, claim: Claim, changes: Callable[[bytes], Sequence[DocumentChange]]) -> WaveSlice:
        rows = decode_row_slice(claim.payload)
        assert rows is not None, "a job on a table has slices of rows"
        return WaveSlice(claim.slice_id, claim.fence, claim.bucket, claim.work, rows=rows, expected=claim.units)

    def program(self, part: JobPart, wave: Wave, ledger: Ledger, job_id: str) -> TableWave:
        slices = [(each.slice_id, each.rows) for each in wave.slices if each.rows is not None]
        first: RowSlice = slices[0][1]
        # Of rows that are there once, what has moved is just not there in a build.
        moves = first.window is not None and (not first.window.first or first.window.versions)
        selection = Selection(
            self.ref.scope,
            first.window,
            first.cut_by,
            tuple(rows.range for _, rows in slices) if first.cut_by else (),
            others=self.others(ledger) if moves else None,
            known=self._known(part, ledger) if first.window is not None and first.window.everything else None,
            versions=first.versions,
        )
        keys = None
        if self.queue and first.keys:
            keys = self.queue.keep(ledger, [key for _, rows in slices for key in rows.keys], job_id)
            selection = pending_keys.selection(self, keys or first.keys[:1])
        tables = self.tables()
        columns, marks = needed_columns(self.columns(), tables, self.rows, first.cut_by), self.rows
        repair = reconciling.repair_of([rows for _, rows in slices]) if first.repair else None
        if repair:
            columns, deleted = with_flag(columns, marks.deleted)
            marks = replace(marks, deleted=deleted)
            selection = replace(selection, keys=repair.wanted)
        lake = versions.reading(self, self.source) if isinstance(self.source, LakeTable) else None
        followed = first.versions is not None and first.versions.since is not None
        if lake is not None and followed and self.rows.scope is not None and self.rows.scope not in self.rows.key:
            with readable(lake):
                selection = versions.with_neighbours(self, lake, ledger, part.physical, selection)
            selection = replace(selection, others=tuple(each.scope for each in selection.neighbours))
        elif followed:
            columns, deleted = with_flag(columns, marks.deleted)
            marks = replace(marks, deleted=deleted)
        writer = RowWriter(
            tables=tables,
            columns=columns,
            rows=marks,
            slices=tuple(WaveRows(slice_id, rows.range) for slice_id, rows in slices),
            cut_by=first.cut_by,
            target=self.target,
            # Made here: a task that opened ClickHouse in its process would have to wait until this one has closed it.
            into=self.target.writer(part.physical, wave.base),
            # In whatever order waves of two namespaces come: the job that began later has read a later version.
            base=part.base if lake is not None and self.in_place else wave.base,
            ref=str(part.ref),
            instance=part.instance,
            batch_rows=self.batch_rows,
            failing=frozenset(
                id_of(part.ref.entity, uri) for uri in ledger.failures.versions(part.ref, part.generation)
            ),
            first=self.staged(part) and not (first.window and first.window.versions),
            keys=None if keys is None else tuple(keys),
            scope=self.ref.scope,
            others=selection.others,
            # Versions are those of waves here: that of the namespace to which a row moved may be the earlier one.
            moved="forgotten" if followed else "remembered",
            lift=LIFT if repair else 0,
        )
        expected = sum(each.expected for each in wave.slices)
        if repair:
            return RepairWave(self.source, selection, writer, expected, self.rows, *reconciling.tables_of(self, repair))
        if lake is not None:
            gone = marks.deleted if followed and selection.others is None else None
            task = PortionWriter(lake, selection, self.rows, gone, writer)
            return LakeWave(self.source, selection, writer, expected, task)
        return TableWave(self.source, selection, writer, expected)

    def _known(self, part: JobPart, ledger: Ledger) -> Files:
        """The files that were read before this job: what is known of them changes when it has ended."""
        served = ledger.checkpoints.get(part.ref, part.generation)
        seen = ledger.seen.get(served) if served else None
        return seen.files if seen and seen.files else Files()

    def leaving(self, part: JobPart, staged: Sequence[bytes]) -> Counts:
        rows = self.target.leaving(part.physical, staged) if self.in_place else 0
        return Counts(read=rows, deleted=rows, rows_deleted=rows * len(self.tables()))

    def too_much(self, part: JobPart, ledger: Ledger, lost: int) -> Refusal | None:
        return promotion_checks.too_much(self, part, ledger, lost)

    def loss(self, lost: int) -> Loss:
        return Loss(units=lost)

    def problem(self, part: JobPart, ledger: Ledger, job: Job, state: JobState) -> str | None:
        return promotion_checks.problem(self, part, ledger, job)

    def remove_replaced(self, part: JobPart) -> None:
        if part.fresh and self.in_place:
            self.target.sweep(part.physical, part.instance, epoch=part.epoch, prefix=self.ref.scope.path)

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
        return promotion_checks.not_better(self, checkpoint, served, allowed=allow_deletes, empty=allow_empty)

    def size(self, ledger: Ledger, checkpoint: Checkpoint) -> Size:
        return Size(None, None, 0)

    @property
    def row_hint(self) -> str:
        return f"Give its key, {','.join(self.rows.key)}, as `instep failures` shows keys."

    def trace(self, ledger: Ledger, physical: str, text: str) -> provenance.RowProvenance | None:
        return provenance.trace(self, ledger, physical, text)

    def why_absent(self, ledger: Ledger, text: str) -> str | None:
        return provenance.why_absent(self, ledger, text)

    def inspect(self, physical: str, recorded: Mapping[str, ManifestEntry] | None = None) -> tuple[None, str]:
        return None, "what of a table is in it, and up to when, only the ledger that made it knows"

    def notes(self, part: JobPart, ledger: Ledger) -> list[str]:
        if self.queue:
            return pending_keys.notes(self.queue, part, ledger)
        return [*promotion_checks.not_taken(self, part, ledger), *reconciling.not_repaired(self, part, ledger)]

    def target_trial(self) -> Trial:
        return trial_of_tables(self.target)

    def frame(self, spark: Sessions) -> DataFrame:
        return self.source.frame(spark, self.rows, Selection(self.ref.scope))

    def checks(self) -> Mapping[str, Callable[[], str]]:
        found = {"source": self._check_source, "tables": self._check_tables}
        return {**found, "mapping": self._check_mapping} if self.mapping else found

    def _check_mapping(self) -> str:
        assert isinstance(self.target, Mappable), "others take no mapping, which the project has been checked for"
        self.target.try_out(self.specs)
        return f"{self.target_name} takes it"

    def _check_source(self) -> str:
        found = f"{amount(len(self.columns()), 'column')} in {self.source_text}"
        extra = self.source.missing_extra if self.rows.watermark else None
        if extra is None:
            return found
        return f"{found}; with pip install 'instep[{extra}]' a run that finds nothing new would not start Java"

    def _check_tables(self) -> str:
        """Compare the served tables with the declaration."""
        declared = self.specs
        shown = ", ".join(each.table(self.alias) for each in declared)
        served = self.target.served(self.alias)
        if served is None:
            return f"{shown}: not built yet"
        found = drift(self.target.specs(served), declared)
        if found:
            raise UserError("; ".join(map(str, found)), hint="The next run rebuilds it.")
        return f"{shown}: as declared"
