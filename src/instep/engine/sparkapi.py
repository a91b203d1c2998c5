"""The only module that touches Spark's internals, and so the only one that knows classic from Connect."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, BinaryIO

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import DataFrame, SparkSession


#: How long a JVM may take to end; writing its class archive takes 10 to 20 s.
STOP_SECONDS = 120


def is_connect(session: SparkSession) -> bool:
    """Whether the session talks to a Spark Connect server."""
    return type(session).__module__.startswith("pyspark.sql.connect")


class _Spawned(dict[str, Any]):
    """How the JVM is started, but for what PySpark wants run in the child between fork and exec, to keep Ctrl-C away
    from it: where other libraries have threads, a child that runs Python may hang for ever. In a process group of its
    own it hears no Ctrl-C either; it ends when its standard input does.
    """

    def __setitem__(self, name: str, value: Any) -> None:
        if name != "preexec_fn":
            super().__setitem__(name, value)


def launch_jvm(conf: SparkConf, log: BinaryIO) -> None:
    """Start the JVM of this process with its words going to `log`, unless there is one already."""
    from pyspark import SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is None:
        how = _Spawned(stdout=log, stderr=log, process_group=0)
        SparkContext._ensure_initialized(gateway=launch_gateway(conf, how))


def stop(session: SparkSession) -> None:
    """Stop a session, and with a classic one its JVM, so that nothing of Spark stays behind."""
    session.stop()
    if is_connect(session):
        return
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is None or gateway.proc is None:
        return
    gateway.shutdown()
    # The JVM ends when its standard input does.
    gateway.proc.stdin.close()
    gateway.proc.wait(timeout=STOP_SECONDS)
    SparkContext._gateway = SparkContext._jvm = None


def explained(frame: DataFrame) -> str:
    """What `frame.explain("formatted")` prints."""
    anything: Any = frame
    if is_connect(frame.sparkSession):
        return str(anything._explain_string(mode="formatted"))
    jvm = anything._sc._jvm
    return str(jvm.PythonSQLUtils.explainString(anything._jdf.queryExecution(), "formatted"))


def map_in_arrow(
    frame: DataFrame, function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], schema: str
) -> DataFrame:
    """`frame.mapInArrow`; on classic Spark without its needless check that pandas is installed."""
    if is_connect(frame.sparkSession):
        return frame.mapInArrow(function, schema)
    from pyspark.sql.classic.dataframe import DataFrame as ClassicFrame
    from pyspark.sql.pandas import functions
    from pyspark.util import PythonEvalType

    make: Any = functions
    udf: Any = make.vectorized_udf(function, schema, PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    # Quoted: a dot in a name would mean a field of a structure.
    column: Any = udf(*[frame[f"`{name.replace('`', '``')}`"] for name in frame.columns])
    anything: Any = frame
    mapped: DataFrame = ClassicFrame(anything._jdf.mapInArrow(column._jc, False, None), frame.sparkSession)
    return mapped


def join_group(session: SparkSession, group: str, pool: str) -> None:
    """What this thread starts from now on belongs to `group`, so that it can be watched and cancelled.

    Where Spark schedules fairly, each pool gets its share of the cores. Connect has no way to name one.
    """
    if is_connect(session):
        session.addTag(group)
        return
    session.sparkContext.setJobGroup(group, "Instep wave", interruptOnCancel=True)
    session.sparkContext.setLocalProperty("spark.scheduler.pool", pool)


def cancel_group(session: SparkSession, group: str) -> None:
    """Stop what runs in `group`. Called from another thread than the one that waits for it."""
    if is_connect(session):
        session.interruptTag(group)
    else:
        session.sparkContext.cancelJobGroup(group)


def tasks_done(session: SparkSession, group: str) -> tuple[int, int]:
    """Tasks of `group` that have finished, and how many there are; 0 where Spark does not say (Connect)."""
    if is_connect(session):
        return 0, 0
    tracker = session.sparkContext.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
    known = [stage for stage in stages if stage]
    return sum(stage.numCompletedTasks for stage in known), sum(stage.numTasks for stage in known)
