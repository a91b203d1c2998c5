"""Plan a corpus on Spark: it is listed, compared and cut in tasks, and only numbers and slices come back.

What tasks write lies in a folder that they share with this process, and is removed when nobody refers to the plan any
more; what a process leaves behind that was killed, a later one removes.
"""

from __future__ import annotations

import shutil
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias, overload
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc

from instep.document_state.columns import ChangeColumns, ChangesElsewhere, ListedElsewhere, of_stream
from instep.document_state.corpus_parts import part_numbers, parts_for
from instep.document_state.pieces import Recorded
from instep.domain.jobs import SlicePlan, StoredSlice
from instep.domain.manifest import Action, Difference, DocumentChange
from instep.domain.planning import SliceSizing, grown, slices_allowed
from instep.domain.promotion_rules import Tally
from instep.error_transport import explained, packed
from instep.errors import InstepError, UserError
from instep.pipeline.documents.corpus import CUT, FOUND, LISTED, SUMS, TALLIED, Comparison, Cutting, PartFile, counts_of
from instep.pipeline.engine import sparkapi
from instep.pipeline.engine.path_checks import require_able_executors
from instep.pipeline.engine.spark_job import run_spark_job
from instep.pipeline.engine.tasks import ddl, frozen_afterwards
from instep.sources.tables.row_documents import FramedTable, PortionedTable, RowDocuments
from instep.sources.tables.spark_rows import rows_of
from instep.sources.tables.table_source import Sessions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from instep.pipeline.engine.engine import Batches

#: Rows that a task lists, about.
_ROWS: Final = 200_000
#: Up to so many changes come back themselves: they are cut here.
_FEW: Final = 100_000
#: Seconds after which a folder is one that was left behind.
_LEFT_BEHIND: Final = 86_400.0

#: Makes the files of a record in a folder, all of them `afresh` if asked; None: nothing is recorded.
Recording: TypeAlias = "Callable[[Path, bool], Recorded | None]"


@dataclass(frozen=True)
class SparkCorpus:
    """Compares tables of so many `rows`, about, in tasks of a Spark session, which share `folder` with this process."""

    spark: Sessions
    folder: Path
    rows: int

    def compared(
        self,
        source: RowDocuments,
        recording: Recording,
        failed: Mapping[str, str],
        *,
        buckets: int,
        retry_failures: bool,
    ) -> tuple[ListedElsewhere, Difference]:
        """The changes of a table since its documents were recorded."""
        work = _Workspace(self.folder)
        comparison = self._comparison(source, recording, failed, work, buckets, retry_failures=retry_failures)
        found = self._of_parts(comparison, recording, FOUND, Comparison.compared)
        sums = counts_of(found)
        changes: Sequence[DocumentChange]
        files = [
            PartFile(row["file"], [int(each) for each in row["buckets"].split()])
            for row in found.sort_by("part").select(["file", "buckets"]).to_pylist()
            if row["file"]
        ]
        stored = StoredChanges(self, work, files, Counter({str(each): sums[str(each)] for each in Action}))
        changes = stored.read() if len(stored) <= _FEW else stored
        return ListedElsewhere(sums["listed"]), Difference(changes, **{each: sums[each] for each in SUMS})

    def tally(self, source: RowDocuments, recording: Recording, failures: Mapping[str, str]) -> Tally:
        """The numbers by which a build of all rows would be judged, if those fail again that failed at this version."""
        work = _Workspace(self.folder)
        comparison = self._comparison(source, recording, failures, work, 1, retry_failures=False)
        found = self._of_parts(comparison, recording, TALLIED, Comparison.tallied)
        return Tally(*(int(pc.sum(found[name]).as_py()) for name in Tally._fields))

    def _comparison(
        self,
        source: RowDocuments,
        recording: Recording,
        failed: Mapping[str, str],
        work: _Workspace,
        buckets: int,
        *,
        retry_failures: bool,
    ) -> Comparison:
        recorded = recording(work.folder, False)
        if recorded is not None and not self._sees(recorded.base.folder):
            recorded = recording(work.folder, True)  # Into the folder of plans, which tasks do see.
        parts = parts_for(max(self.rows, recorded.documents if recorded else 0))
        uris: Any = pa.chunked_array([pa.array(list(failed), pa.string())])
        by_part: dict[int, dict[str, str]] = {}
        for part, (uri, version) in zip(part_numbers(uris, parts).tolist(), failed.items(), strict=True):
            by_part.setdefault(part, {})[uri] = version
        return Comparison(source, recorded, by_part, parts, buckets, retry_failures, work.folder)

    def _of_parts(
        self,
        comparison: Comparison,
        recording: Recording,
        schema: pa.Schema,
        of_parts: Callable[[Comparison, Batches], Batches],
    ) -> pa.Table:
        """A row, or some, of each part."""
        table, recorded = comparison.source.table, comparison.recorded
        with table.told() if isinstance(table, FramedTable) else nullcontext():
            try:
                return self._answer(self._parts(comparison, schema, of_parts))
            except InstepError:
                if recorded is None or not recorded.damaged():
                    raise
                # The ledger knows it all.
                afresh = replace(comparison, recorded=recording(comparison.folder, True))
                return self._answer(self._parts(afresh, schema, of_parts))

    def unseen(self, places: Mapping[str, bool]) -> UserError | None:
        """The error if tasks on other machines do not see the folder or one of these places. A Spark that does not
        start raises its own error: the table is too large for this process.
        """
        session = self.spark()
        try:
            require_able_executors(session, {**places, str(self.folder): True})
        except UserError as error:
            return error
        return None

    def _sees(self, folder: Path) -> bool:
        try:
            require_able_executors(self.spark(), {str(folder): False})
        except UserError:
            return False
        return True

    def _parts(
        self, comparison: Comparison, schema: pa.Schema, of_parts: Callable[[Comparison, Batches], Batches]
    ) -> DataFrame:
        session, parts = self.spark(), comparison.parts

        def task(rows: Batches) -> Batches:
            return frozen_afterwards(packed(of_parts(comparison, rows)))

        rows = self._listed(comparison)
        # Each part once, so that a task comes to it of which nothing is listed.
        every = session.range(0, parts, 1, 1).selectExpr("CAST(id AS INT) AS part", "CAST(NULL AS BINARY) AS rows")
        together = rows.union(every).repartitionById(parts, "part")
        return sparkapi.map_in_arrow(together, task, ddl(schema))

    def _listed(self, comparison: Comparison) -> DataFrame:
        """The rows of the table: of its portions, or as Spark reads them."""
        table, columns = comparison.source.table, comparison.source.columns
        if isinstance(table, FramedTable):

            def of_frame(rows: Batches) -> Batches:
                return frozen_afterwards(packed(comparison.listed(rows_of(batch, columns) for batch in rows)))

            return sparkapi.map_in_arrow(table.frame(columns), of_frame, ddl(LISTED))
        assert isinstance(table, PortionedTable), "asked for"
        portions = table.portions(columns, _ROWS)

        def of_portions(numbers: Batches) -> Batches:
            chosen = (portions[number] for batch in numbers for number in batch.column(0).to_numpy().tolist())
            return frozen_afterwards(packed(comparison.listed(chain.from_iterable(each.listed() for each in chosen))))

        numbers = self.spark().range(0, len(portions), 1, max(1, len(portions)))
        return sparkapi.map_in_arrow(numbers, of_portions, ddl(LISTED))

    def cut(self, changes: StoredChanges, sizing: SliceSizing, *, priority: int) -> list[SlicePlan]:
        """See `document_state.cuts.cut_columns`; the two give the same slices."""
        buckets = sorted({bucket for each in changes.files for bucket in each.buckets})
        most = sizing.rows_per_slice
        while True:
            found = self._answer(self._cut(Cutting(changes.files, sizing, most, changes.work.folder), buckets))
            if found.num_rows <= slices_allowed(len(buckets)):
                return _slices(found, changes.work, priority)
            most = grown(most, found.num_rows)

    def _cut(self, cutting: Cutting, buckets: Sequence[int]) -> DataFrame:
        def cut(numbers: Batches) -> Batches:
            chosen = (
                cutting.cut(buckets[number]) for batch in numbers for number in batch.column(0).to_numpy().tolist()
            )
            return frozen_afterwards(packed(chosen))

        numbers = self.spark().range(0, len(buckets), 1, len(buckets))
        return sparkapi.map_in_arrow(numbers, cut, ddl(CUT))

    def _answer(self, frame: DataFrame) -> pa.Table:
        try:
            return run_spark_job(frame.sparkSession, frame, pool="long")
        except InstepError:
            raise
        except Exception as error:
            found = explained(error)
            if isinstance(found, InstepError):
                raise found from error
            raise UserError(f"Spark cannot plan it: {found}") from error


class StoredChanges(ChangesElsewhere):
    """Changes in files that tasks have written, in the order of parts; read when they are asked for, and not kept."""

    def __init__(self, corpus: SparkCorpus, work: _Workspace, files: Sequence[PartFile], actions: Counter[str]) -> None:
        self.work, self.files = work, files
        self._corpus, self._actions = corpus, actions

    def cut(self, sizing: SliceSizing, *, priority: int) -> list[SlicePlan]:
        """Slices of these changes."""
        return self._corpus.cut(self, sizing, priority=priority)

    def counts(self, name: str) -> Counter[str]:
        """The number of changes by action, which is all that is counted."""
        assert name == "action", "nothing else is counted"
        return self._actions

    def names(self) -> Iterator[str]:
        """Files are called after their content."""
        return (each.name for each in self.files)

    def read(self) -> ChangeColumns:
        """All of them: in the order of their URIs, deletes last."""
        tables = [each.read(self.work.folder) for each in self.files]
        if not tables:
            return ChangeColumns(_nothing())
        table = pa.concat_tables(tables).unify_dictionaries()
        deletes: Any = pc.equal(table["action"].cast(pa.string()), pa.scalar(str(Action.DELETE)))
        keyed = table.append_column("last", deletes.cast(pa.int8()))
        return ChangeColumns(keyed.sort_by([("last", "ascending"), ("uri", "ascending")]).drop_columns("last"))

    def __len__(self) -> int:
        return self._actions.total()

    def __iter__(self) -> Iterator[DocumentChange]:
        for each in self.files:
            yield from ChangeColumns(each.read(self.work.folder))

    @overload
    def __getitem__(self, at: int) -> DocumentChange: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[DocumentChange]: ...
    def __getitem__(self, at: int | slice) -> DocumentChange | Sequence[DocumentChange]:
        wanted = range(len(self))[at]
        if isinstance(wanted, range):
            places = {place: number for number, place in enumerate(wanted)}
            found = {places[place]: each for place, each in enumerate(self) if place in places}
            return [found[number] for number in range(len(wanted))]
        return next(each for place, each in enumerate(self) if place == wanted)


def _nothing() -> pa.Table:
    from instep.document_state.difference import CHANGES

    return CHANGES.empty_table()


def _slices(found: pa.Table, work: _Workspace, priority: int) -> list[SlicePlan]:
    """Each bucket's first and last slice are open-ended."""
    rows = found.sort_by([("bucket", "ascending"), ("first", "ascending")]).to_pylist()
    slices: list[SlicePlan] = []
    for bucket, group in groupby(rows, lambda row: row["bucket"]):
        here = list(group)
        for position, row in enumerate(here):
            stored = StoredSlice(str(work.folder / row["file"]), row["at"], row["bytes"], row["digest"])
            slices.append(
                SlicePlan(
                    index=len(slices),
                    bucket=bucket,
                    lower="" if position == 0 else row["first"],
                    upper="" if position == len(here) - 1 else here[position + 1]["first"],
                    units=row["units"],
                    work=row["work"],
                    priority=priority,
                    columns=partial(_changes, work, stored),
                    stored=stored,
                )
            )
    return slices


def _changes(work: _Workspace, stored: StoredSlice) -> ChangeColumns:
    """While this can be called, the folder is there."""
    with Path(stored.file).open("rb") as file:
        file.seek(stored.at)
        return of_stream(file.read(stored.bytes))


class _Workspace:
    """A folder that goes with the last reference to this object."""

    def __init__(self, among: Path) -> None:
        _sweep(among)
        self.folder = among / uuid4().hex
        self.folder.mkdir(parents=True)
        self._gone = weakref.finalize(self, _remove, self.folder)


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):  # Planning leaves nothing behind where nothing was.
        folder.parent.rmdir()


def _sweep(among: Path) -> None:
    with suppress(OSError):
        for each in among.iterdir():
            if time.time() - each.stat().st_mtime > _LEFT_BEHIND:
                shutil.rmtree(each, ignore_errors=True)
