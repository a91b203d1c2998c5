"""Runs a wave as one Spark job: classic (local, submitted, cluster) or Connect."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from instep.domain.waves import Stage, TaskOutcome, Wave, assign_tasks
from instep.error_transport import explained
from instep.errors import Away, InstepError, Transient, UserError
from instep.own_code import send
from instep.pipeline.documents.rows import CHUNK_SCHEMA
from instep.pipeline.engine import sparkapi
from instep.pipeline.engine.engine import ChunkProgram, RowProgram, TableProgram, WaveProgram
from instep.pipeline.engine.path_checks import require_able_executors
from instep.pipeline.engine.pipelining import pipelined
from instep.pipeline.engine.session import LazySpark
from instep.pipeline.engine.spark_job import run_spark_job
from instep.pipeline.engine.task_progress import Counted, counter
from instep.pipeline.engine.transforming import Transform, check_rows, in_a_line, transformed
from instep.pipeline.outcomes import OUTCOME_SCHEMA, merged_outcomes, row_outcomes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: A wave of so much work (rows, for tables) comes before larger ones that run beside it (`pools.xml`).
SHORT_WORK = 200_000


class SparkEngine:
    """Implements `pipeline.engine.engine.Engine` on a Spark session, which starts with the first wave.

    Spark may run a task twice (`spark.task.maxFailures` on clusters; 1 with local masters). That is
    harmless: a transactional target commits only what the outcome rows that came back name, and what
    the lost try staged is never committed; an idempotent one writes the same ids again.
    """

    name = "spark"

    def __init__(self, spark: LazySpark, places: Mapping[str, bool] | None = None) -> None:
        """`places`: absolute paths that executors elsewhere have to see, and whether tasks write there."""
        self._spark = spark
        self._places = places or {}
        self._seen = False
        # One name per engine, registered anew for each wave of documents; the lock keeps two of them from mixing.
        self._source = f"instep_{uuid.uuid4().hex[:12]}"
        self._lock = threading.Lock()

    def run(
        self,
        wave: Wave,
        program: WaveProgram | TableProgram,
        progress: Callable[[int], None] | None = None,
        stages: Callable[[Stage], None] | None = None,
    ) -> Sequence[TaskOutcome]:
        """See the port. A transform of a document program is checked on Spark's plan before anything runs."""
        try:
            session = self._spark.get()
        except Away as error:  # It was there when the wave was planned.
            raise Transient(f"{error.where}: {error.what}" if error.where else error.what) from error
        try:
            self._require_able_executors(session)
            if isinstance(program, TableProgram):
                tell = _Progress(program.units, progress, stages)
                return merged_outcomes(_of_table(session, wave, program, tell), wave)
            for each in getattr(program, "own_functions", list)():
                send(session, each)
            with self._lock, counter() as counted:
                tell = _Progress(sum(len(part.changes) for part in wave.slices), progress, stages, counted)
                if isinstance(program, RowProgram):
                    return self._of_rows(session, wave, program, tell, counted)
                frame = self._frame(session, wave, program, counted)
                return merged_outcomes(_collect(session, frame, wave, tell), wave)
        except Exception as error:
            found = self._spark.explained(session, error)
            if found is error:
                raise
            raise found from error

    def once(self, work: Callable[[], None], *, apart: bool = False) -> float:
        """See the port. The driver of a cluster is what more executors cannot make faster."""
        session = self._spark.get()
        if sparkapi.is_on_this_machine(session) and not apart:
            work()
            return 0.0
        from instep.pipeline.engine.tasks import CPU_SCHEMA, ddl, once_task

        try:
            frame = sparkapi.map_in_arrow(session.range(0, 1, 1, 1), once_task(work), ddl(CPU_SCHEMA))
            done = run_spark_job(session, frame, pool="long")
        except Exception as error:
            found = self._spark.explained(session, error)
            if found is error:
                raise
            raise found from error
        return float(pc.sum(done.column(0)).as_py() or 0.0)

    def ready(self) -> None:
        """Waits for the session to start; executors on other machines are asked whether they see what tasks need."""
        session = self._spark.get()
        try:
            self._require_able_executors(session)
        except Exception as error:
            found = self._spark.explained(session, error)
            if not isinstance(found, Transient):  # The first wave asks again, and is itself tried again.
                raise found from error

    @property
    def page(self) -> str | None:
        """The address of Spark's own page, if it has one."""
        return sparkapi.page_of(self._spark.get())

    def _require_able_executors(self, session: SparkSession) -> None:
        if not self._seen:
            require_able_executors(session, self._places)
            self._seen = True

    def close(self) -> None:
        """Stops the session if it was ours."""
        self._spark.close()

    def _frame(self, session: SparkSession, wave: Wave, program: WaveProgram, counted: Path) -> DataFrame:
        from instep.pipeline.engine.tasks import TASK_SCHEMA, ddl, outcome_task

        transform: Transform | None = getattr(program, "transform", None)
        if transform is None:
            # Each task reads and writes its share: only outcome rows cross the JVM. A data source would do
            # the same, but planning one starts three more kinds of Python process (2.5 s of a cold start on
            # 2 cores).
            shares = assign_tasks(wave.slices, wave.tasks)
            numbers = session.range(0, len(shares), 1, len(shares))
            return sparkapi.map_in_arrow(numbers, outcome_task(shares, Counted(program, counted)), ddl(TASK_SCHEMA))
        from instep.pipeline.engine.datasource import wave_source

        session.dataSource.register(wave_source(self._source, wave, program))
        chunks = transformed(session.read.format(self._source).load(), transform, self._source)
        return sparkapi.map_in_arrow(chunks, _writer(Counted(program, counted), _schema_of(program)), ddl(TASK_SCHEMA))

    def _of_rows(
        self, session: SparkSession, wave: Wave, program: RowProgram, progress: _Progress, counted: Path
    ) -> Sequence[TaskOutcome]:
        """Run a wave of rows. Changes that need no row of the table are done here, beside Spark's work: they
        are few.
        """
        from instep.pipeline.engine.tasks import TASK_SCHEMA, ddl, outcome_of_rows, read_task

        apart = list(program.without_rows(wave))
        done = list(pipelined(program, iter(apart))) if apart else []
        found = pa.Table.from_batches(done, OUTCOME_SCHEMA)
        if sum(each.num_rows for each in apart) < sum(len(part.changes) for part in wave.slices):
            frame = _read_by_spark(lambda: program.changed_rows(lambda: session, wave, self._source))
            check_rows(sparkapi.explained(frame), self._source)
            transform: Transform | None = getattr(program, "transform", None)
            writing = Counted(program, counted)
            if transform is None:
                tasks = sparkapi.map_in_arrow(frame, outcome_of_rows(writing), ddl(TASK_SCHEMA))
            else:
                schema = _schema_of(program)
                chunks = sparkapi.map_in_arrow(frame, read_task(program), ddl(schema))
                writer = _writer(writing, schema)
                tasks = sparkapi.map_in_arrow(transformed(chunks, transform, self._source), writer, ddl(TASK_SCHEMA))
            spark = _collect(session, tasks, wave, progress).cast(TASK_SCHEMA)
            found = pa.concat_tables([found, spark], promote_options="default")
        return row_outcomes(found, wave)


def _read_by_spark(frame: Callable[[], DataFrame]) -> DataFrame:
    try:
        return frame()
    except InstepError:
        raise
    except Exception as error:
        found = explained(error)
        if isinstance(found, InstepError):
            raise found from error
        raise UserError(f"Spark cannot read the table: {in_a_line(error)}") from error


def _of_table(session: SparkSession, wave: Wave, program: TableProgram, progress: _Progress) -> pa.Table:
    from instep.pipeline.engine.tasks import TASK_SCHEMA, ddl, row_task

    frame = _read_by_spark(lambda: program.frame(lambda: session))
    return _collect(session, sparkapi.map_in_arrow(frame, row_task(program.write), ddl(TASK_SCHEMA)), wave, progress)


def _schema_of(program: WaveProgram) -> pa.Schema:
    """The columns of chunk rows, before a transform."""
    return program.chunk_schema() if isinstance(program, ChunkProgram) else CHUNK_SCHEMA


def _writer(program: WaveProgram, schema: pa.Schema) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    from instep.pipeline.engine.tasks import told

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return told(program.write(_as_chunks(batches, schema)))

    return write


def _as_chunks(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Spark loosens nullability on the way, and says moments in the session's zone; the columns the transform added
    stay behind ours.
    """
    own = len(schema)
    for batch in batches:
        columns = [values.cast(each.type) for values, each in zip(batch.columns[:own], schema, strict=True)]
        fields = [*schema, *list(batch.schema)[own:]]
        yield pa.RecordBatch.from_arrays([*columns, *batch.columns[own:]], schema=pa.schema(fields))


class _Progress:
    """Tells how many units are done: by Spark's tasks, of which it says how many are, not which (an even share each is
    near enough), and by what tasks have `counted`.
    """

    def __init__(
        self,
        units: int,
        tell: Callable[[int], None] | None,
        tell_stage: Callable[[Stage], None] | None,
        counted: Path | None = None,
    ) -> None:
        self._units = units
        self._tell = tell
        self._tell_stage = tell_stage
        self._told = 0
        self._counted = counted

    def look(self, stages: Sequence[Stage]) -> None:
        """Report the progress of stages. The number of tasks may grow, and one that is run again counts twice: then
        nothing is reported until there is more progress.
        """
        if self._tell_stage:
            for each in stages:
                self._tell_stage(each)
        done, tasks = sum(each.done for each in stages), sum(each.tasks for each in stages)
        share = self._units * min(done, tasks) // max(1, tasks)
        if self._counted is not None:
            share = max(share, min(self._units, self._counted.stat().st_size))
        self._tell_until(share)

    def end(self) -> None:
        """Report all units as done, also those that Spark has not reported."""
        self._tell_until(self._units)

    def _tell_until(self, units: int) -> None:
        if self._tell and units > self._told:
            self._tell(units - self._told)
            self._told = units


def _collect(session: SparkSession, frame: DataFrame, wave: Wave, progress: _Progress) -> pa.Table:
    found = run_spark_job(session, frame, pool="short" if wave.work <= SHORT_WORK else "long", look=progress.look)
    progress.end()
    return found
