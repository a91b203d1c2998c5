"""Plan a corpus on Spark: it is listed, compared and cut in tasks, and only numbers and slices come back.

What tasks write lies in a folder that they share with this process, and is removed when nobody refers to the plan any
more; what a process leaves behind that was killed, a later one removes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import reduce
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from instep.document_state.columns import ListedElsewhere
from instep.document_state.corpus_parts import by_part, parts_for
from instep.document_state.pieces import Recorded
from instep.domain.manifest import Action, Difference
from instep.domain.promotion_rules import Tally
from instep.error_transport import explained, packed
from instep.errors import InstepError, UserError
from instep.pipeline.documents.corpus import (
    FOUND,
    KEPT,
    LISTED,
    SUMS,
    TALLIED,
    Comparison,
    Corpus,
    PartRows,
    counts_of,
    problems_of,
)
from instep.pipeline.documents.stored_changes import CUT, Cutting, PartFile, StoredChanges, Workspace
from instep.pipeline.engine import sparkapi
from instep.pipeline.engine.path_checks import require_able_executors
from instep.pipeline.engine.spark_job import run_spark_job
from instep.pipeline.engine.tasks import ddl, frozen_afterwards
from instep.sources.document_source import Listing
from instep.sources.files_corpus import FilesCorpus
from instep.sources.tables.row_documents import FramedTable, Member, PortionedTable, RowDocuments
from instep.sources.tables.spark_rows import rows_of
from instep.sources.tables.table_source import Sessions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from instep.pipeline.engine.engine import Batches

#: Rows that a task lists, about.
_ROWS: Final = 200_000
#: Tasks that list files, at most.
_TASKS: Final = 1_024
#: Files of which nothing is recorded may be many more than those that were listed when it was decided to use tasks.
_UNKNOWN: Final = 12_800_000

#: Makes the files of a record in a folder, all of them `afresh` if asked; None: nothing is recorded.
Recording: TypeAlias = "Callable[[Path, bool], Recorded | None]"


@dataclass(frozen=True)
class SparkCorpus:
    """Compares sources of so many `rows`, about, in tasks of a Spark session, which share `folder` with this one."""

    spark: Sessions
    folder: Path
    rows: int

    def compared(
        self,
        source: Corpus,
        recording: Recording,
        failed: Mapping[str, str],
        *,
        buckets: int,
        retry_failures: bool,
        of_build: bool = False,
    ) -> tuple[Listing, Difference]:
        """The listing of a source, and its changes since its documents were recorded. `of_build`: see `Comparison`."""
        work = Workspace(self.folder)
        comparison = self._comparison(source, recording, failed, work, buckets, retry_failures=retry_failures)
        comparison = replace(comparison, of_build=of_build)
        found = self._of_parts(comparison, recording, FOUND, Comparison.compared)
        sums = counts_of(found)
        files = [
            PartFile(row["file"], [int(each) for each in row["buckets"].split()])
            for row in found.select(["part", "file", "buckets"]).sort_by("part").to_pylist()
            if row["file"]
        ]
        stored = StoredChanges(self._cut, work, files, Counter({str(each): sums[str(each)] for each in Action}))
        listed = ListedElsewhere(sums["listed"], sums["orphans"])
        changes = Difference(stored.few(), **{each: sums[each] for each in SUMS})
        return Listing(listed, problems_of(found), orphans=listed.orphans), changes

    def listed(self, source: Corpus, parts: int) -> PartRows:
        """List all rows of a source, in a number of parts."""
        work = Workspace(self.folder)
        comparison = Comparison(source, None, {}, parts, 1, retry_failures=False, folder=work.folder)
        found = self._of_parts(comparison, lambda folder, afresh: None, KEPT, Comparison.kept)
        files = {row["part"]: row["file"] for row in found.select(["part", "file"]).to_pylist() if row["file"]}
        return PartRows(work, files, problems_of(found))

    def tally(self, source: Corpus, recording: Recording, failures: Mapping[str, str]) -> Tally:
        """The numbers by which a build of all rows would be judged, if those fail again that failed at this version."""
        work = Workspace(self.folder)
        comparison = self._comparison(source, recording, failures, work, 1, retry_failures=False)
        found = self._of_parts(comparison, recording, TALLIED, Comparison.tallied)
        return Tally(*(int(pc.sum(found[name]).as_py()) for name in Tally._fields))

    def _comparison(
        self,
        source: Corpus,
        recording: Recording,
        failed: Mapping[str, str],
        work: Workspace,
        buckets: int,
        *,
        retry_failures: bool,
    ) -> Comparison:
        recorded = recording(work.folder, False)
        if recorded is not None and not self._sees(recorded.base.folder):
            recorded = recording(work.folder, True)  # Into the folder of plans, which tasks do see.
        unknown = recorded is None and isinstance(source, FilesCorpus)
        parts = parts_for(max(self.rows, recorded.documents if recorded else 0, _UNKNOWN if unknown else 0))
        return Comparison(source, recorded, by_part(failed, parts), parts, buckets, retry_failures, work.folder)

    def _of_parts(
        self,
        comparison: Comparison,
        recording: Recording,
        schema: pa.Schema,
        of_parts: Callable[[Comparison, Batches], Batches],
    ) -> pa.Table:
        """A row, or some, of each part."""
        recorded = comparison.recorded
        with ExitStack() as told:
            for each in comparison.source.members if isinstance(comparison.source, RowDocuments) else ():
                if isinstance(each.table, FramedTable):
                    told.enter_context(each.table.told())
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
        nothing = "CAST(NULL AS BINARY) AS rows", "CAST(NULL AS ARRAY<STRING>) AS problems"
        every = session.range(0, parts, 1, 1).selectExpr("CAST(id AS INT) AS part", *nothing)
        together = rows.union(every).repartitionById(parts, "part")
        return sparkapi.map_in_arrow(together, task, ddl(schema))

    def _listed(self, comparison: Comparison) -> DataFrame:
        """The rows of all that the source is."""
        source = comparison.source
        if isinstance(source, FilesCorpus):
            return self._listed_files(comparison, source)
        assert isinstance(source, RowDocuments), "tables"
        source.check()
        members = enumerate(source.members)
        frames = [self._listed_of(comparison, number, each) for number, each in members]
        return reduce(lambda every, one: every.union(one), frames)

    def _listed_files(self, comparison: Comparison, source: FilesCorpus) -> DataFrame:
        """The rows of files: each task lists portions that do not lie together, as neighbours may be large alike."""
        portions = source.portions()
        tasks = max(1, min(len(portions), _TASKS))

        def of_portions(numbers: Batches) -> Batches:
            def rows() -> Batches:
                chosen = (portions[at::tasks] for batch in numbers for at in batch.column(0).to_numpy().tolist())
                problems: list[str] = []
                yield from comparison.listed(source.listed(chain.from_iterable(chosen), problems.append))
                if problems:
                    yield comparison.unlisted(problems)

            return frozen_afterwards(packed(rows()))

        return sparkapi.map_in_arrow(self.spark().range(0, tasks, 1, tasks), of_portions, ddl(LISTED))

    def _listed_of(self, comparison: Comparison, number: int, member: Member) -> DataFrame:
        """The rows of a table: of its portions, or as Spark reads them."""
        table, columns = member.table, member.columns
        if isinstance(table, FramedTable):

            def of_frame(rows: Batches) -> Batches:
                return frozen_afterwards(packed(comparison.listed((rows_of(batch, columns) for batch in rows), number)))

            return sparkapi.map_in_arrow(table.frame(columns), of_frame, ddl(LISTED))
        assert isinstance(table, PortionedTable), "asked for"
        portions = table.portions(columns, _ROWS)

        def of_portions(numbers: Batches) -> Batches:
            chosen = (portions[number] for batch in numbers for number in batch.column(0).to_numpy().tolist())
            rows = chain.from_iterable(each.listed() for each in chosen)
            return frozen_afterwards(packed(comparison.listed(rows, number)))

        numbers = self.spark().range(0, len(portions), 1, max(1, len(portions)))
        return sparkapi.map_in_arrow(numbers, of_portions, ddl(LISTED))

    def _cut(self, cutting: Cutting, buckets: Sequence[int]) -> pa.Table:
        """See `stored_changes.Cut`: a task for each bucket."""

        def cut(numbers: Batches) -> Batches:
            chosen = (
                cutting.cut(buckets[number]) for batch in numbers for number in batch.column(0).to_numpy().tolist()
            )
            return frozen_afterwards(packed(chosen))

        numbers = self.spark().range(0, len(buckets), 1, len(buckets))
        return self._answer(sparkapi.map_in_arrow(numbers, cut, ddl(CUT)))

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
