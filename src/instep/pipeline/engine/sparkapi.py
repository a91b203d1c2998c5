"""The only module that touches Spark's internals, and so the only one that knows classic from Connect."""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import pyarrow as pa

from instep.domain.waves import Stage
from instep.errors import UserError
from instep.servers.calls import within

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import DataFrame, SparkSession


#: How long a JVM may take to be there: two seconds, where nothing else has to be done.
LAUNCH_SECONDS = 45.0
#: How long a JVM may take to end; writing its class archive takes 10 to 20 s.
STOP_SECONDS = 120
#: How long Spark may take to hear that it is not needed any more; then it is left alone.
GOODBYE_SECONDS = 5.0

#: What a Connect server has told of the stages of each group.
_told: dict[str, list[Stage]] = {}

#: Whether files that a Connect session is sent are its own. Servers that PySpark starts have it off: then they are
#: every session's, also when the session has ended and they are deleted, and tasks that look for them fail.
_ISOLATION = "spark.sql.artifact.isolation.enabled"


def is_connect(session: SparkSession) -> bool:
    """Whether the session talks to a Spark Connect server."""
    return type(session).__module__.startswith("pyspark.sql.connect")


class _Spawned(dict[str, Any]):
    """Options of the JVM's process without PySpark's hook between fork and exec, which keeps Ctrl-C away from it: where
    other libraries have threads, a child that runs Python may hang without end. In a process group of its own it hears
    no Ctrl-C either; it ends when its standard input does.
    """

    def __setitem__(self, name: str, value: Any) -> None:
        if name != "preexec_fn":
            super().__setitem__(name, value)


def launch_jvm(conf: SparkConf, log: BinaryIO) -> None:
    """Start the JVM of this process with its words going to `log`, unless there is one already. Raises `TimeoutError`
    when it does not come up: PySpark would wait without end for one that hangs, or ends well.
    """
    from pyspark import SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is None:
        how = _Spawned(stdout=log, stderr=log, process_group=0)
        SparkContext._ensure_initialized(gateway=within(LAUNCH_SECONDS, partial(launch_gateway, conf, how)))


def in_time(seconds: float, call: Callable[[], object]) -> bool:
    """Whether the call was through in that time. It is left alone otherwise, and what it raises is dropped: it is a
    courtesy to a Spark that may not be there any more.
    """

    def body() -> None:
        with suppress(Exception):
            call()

    thread = threading.Thread(target=body, name="spark-courtesy", daemon=True)
    thread.start()
    thread.join(seconds)
    return not thread.is_alive()


def stop(session: SparkSession, *, unheard: bool = False) -> None:
    """Stop a session, and with a classic one its JVM, so that nothing of Spark stays behind. It does so whether Spark
    is still there or not; a Connect server for which it is `unheard` of is told nothing.
    """
    if not is_connect(session):
        in_time(GOODBYE_SECONDS, session.stop)
        end_jvm()
        return
    # Not by its own `stop`, which may wait for minutes and blocks new sessions until then.
    client: Any = session.client
    if not unheard:
        in_time(GOODBYE_SECONDS, client.release_session)
    _hang_up(client)
    _forget_connect(session)


def _hang_up(client: Any) -> None:
    client._channel.close()
    # Else it talks to the server once more when Python ends.
    client._closed = True


def _forget_connect(session: SparkSession) -> None:
    """Stop giving out this session as the active one."""
    anything: Any = type(session)
    if anything._default_session is session:
        anything._default_session = None
    if getattr(anything._active_session, "session", None) is session:
        anything._active_session.session = None


def end_jvm() -> None:
    """End the JVM that this process started, dead or alive, and have PySpark forget it."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    gateway: Any = SparkContext._gateway
    if gateway is None or gateway.proc is None:
        return
    in_time(GOODBYE_SECONDS, gateway.shutdown)
    # The JVM ends when its standard input does.
    with suppress(OSError):
        gateway.proc.stdin.close()
    try:
        gateway.proc.wait(timeout=STOP_SECONDS)
    except subprocess.TimeoutExpired:
        gateway.proc.kill()
        with suppress(subprocess.TimeoutExpired):  # Else it stays a zombie, and Python warns of it.
            gateway.proc.wait(timeout=STOP_SECONDS)
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    anything: Any = SparkSession
    anything._instantiatedSession = anything._activeSession = None


def kill_jvm() -> None:
    """Kill the JVM without a message: a caller that waits for it gets an error."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    if gateway is not None and gateway.proc is not None:
        gateway.proc.kill()


def jvm_exit() -> int | None:
    """The exit code of this process's JVM; None while it runs, or if it is not ours."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    code: int | None = gateway.proc.poll() if gateway is not None and gateway.proc is not None else None
    return code


def driver_cpu() -> float:
    """Seconds of CPU that this process has used, and its JVM, if there is one."""
    used = time.process_time()
    if "pyspark" not in sys.modules:
        return used
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    if gateway is not None and gateway.proc is not None:
        with suppress(OSError):  # It has ended, or this is no Linux.
            state = Path(f"/proc/{gateway.proc.pid}/stat").read_text().rpartition(")")[2].split()
            used += sum(map(int, state[11:13])) / os.sysconf("SC_CLK_TCK")
    return used


def is_over(session: SparkSession) -> bool:
    """Whether nothing will ever run in this session again, as far as can be seen from here."""
    anything: Any = session
    if is_connect(session):
        return bool(anything.is_stopped)
    if jvm_exit() is not None:
        return True
    context = anything._sc._jsc
    try:
        return context is None or bool(context.sc().isStopped())
    except Exception:
        return True


def connect(address: str, session_id: str | None = None) -> SparkSession:
    """A session of its own with a Spark Connect server, or the one of that id. Nothing is sent yet. A server that is
    away is tried for a few seconds only, here and later: PySpark's own choice is ten minutes for each call.
    """
    from pyspark.sql.connect.client.retries import DefaultPolicy
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    from instep.pipeline.engine.connect_channel import WatchedChannelBuilder

    channels = WatchedChannelBuilder(address, lambda: _hang_up(client))
    if session_id is not None:
        channels.set(channels.PARAM_SESSION_ID, session_id)
    # As PySpark's own builder does it: from now on this process is Connect's.
    os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"
    builder: Any = ConnectSession.builder
    session: SparkSession = builder.channelBuilder(channels).create()
    client: Any = session.client
    client.set_retry_policies(
        [DefaultPolicy(max_retries=5, initial_backoff=100, backoff_multiplier=2, max_backoff=2000)]
    )
    atexit.register(_hang_up, client)  # Before it talks to the server once more.
    # The error is in our words.
    warnings.filterwarnings("ignore", message=r"\[RETRIES_EXCEEDED\]")
    return session


def isolated_copy(session: SparkSession) -> str | None:
    """The id of a copy of a Connect session to which files can be sent that no other one has; None if it is such a
    session itself. Raises `UserError` when the server can make none.
    """
    if session.conf.get(_ISOLATION, "true") != "false":
        return None
    session.conf.set(_ISOLATION, "true")  # It counts when a session is made, and a copy has the settings.
    client: Any = session.client
    try:
        made = client.clone()
    except Exception as error:
        if getattr(getattr(error, "code", lambda: None)(), "name", "") != "UNIMPLEMENTED":
            raise
        raise UserError(
            "it gives what one session sends to all of them",
            hint=f"Start it with {_ISOLATION}=true, or with Spark 4.1 or newer.",
        ) from error
    _hang_up(made)  # We talk to it in our own way.
    name: str = made._session_id
    return name


def is_on_this_machine(session: SparkSession) -> bool:
    """Whether all of it runs in processes of this machine that share its files and its Python; a Connect server does
    not say.
    """
    return not is_connect(session) and str(session.sparkContext.master).split("[")[0] == "local"


def explained(frame: DataFrame) -> str:
    """The text that `frame.explain("formatted")` prints."""
    anything: Any = frame
    if is_connect(frame.sparkSession):
        return str(anything._explain_string(mode="formatted"))
    jvm = anything._sc._jvm
    return str(jvm.PythonSQLUtils.explainString(anything._jdf.queryExecution(), "formatted"))


def map_in_arrow(
    frame: DataFrame, function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], schema: str
) -> DataFrame:
    """Call `frame.mapInArrow`, on classic Spark without its needless check that pandas is installed."""
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


@contextmanager
def grouped(session: SparkSession, group: str, pool: str) -> Iterator[None]:
    """A context in which all that this thread starts belongs to `group`, so that it can be watched and cancelled.

    Where Spark schedules fairly, each pool gets its share of the cores. Connect has no way to name one.
    """
    if not is_connect(session):
        session.sparkContext.setJobGroup(group, "Instep wave", interruptOnCancel=True)
        session.sparkContext.setLocalProperty("spark.scheduler.pool", pool)
        yield
        return
    session.addTag(group)
    thread = threading.get_ident()

    def told(stages: Iterable[Any], **_: object) -> None:
        """Called by the thread that waits for an answer, for every one that waits for some in this session."""
        if threading.get_ident() == thread and (known := list(stages)):
            _told[group] = [Stage(each.stage_id, each.num_completed_tasks, each.num_tasks) for each in known]

    session.registerProgressHandler(told)
    try:
        yield
    finally:
        session.removeProgressHandler(told)
        _told.pop(group, None)


def page_of(session: SparkSession) -> str | None:
    """The address of Spark's own page, if it has one (`spark.ui.enabled`) and says it; Connect does not."""
    return None if is_connect(session) else session.sparkContext.uiWebUrl


def slots(session: SparkSession) -> int | None:
    """The number of tasks that run at once, as far as Spark says (Connect does not)."""
    return None if is_connect(session) else int(session.sparkContext.defaultParallelism)


def executors(session: SparkSession) -> int | None:
    """The number of executors that have registered, as far as Spark says (Connect does not). A driver that runs its
    tasks itself is one.
    """
    if is_connect(session):
        return None
    anything: Any = session.sparkContext
    return max(1, int(anything._jsc.sc().getExecutorMemoryStatus().size()) - 1)


def is_standalone(session: SparkSession) -> bool:
    """Whether it belongs to a Spark master of its own, and no other kind of cluster; a Connect server does not say."""
    return not is_connect(session) and str(session.sparkContext.master).startswith("spark://")


def is_alone(session: SparkSession) -> bool:
    """Whether a cluster has given no executor, as far as Spark says: Connect does not, nor one that has ended."""
    if is_connect(session) or is_on_this_machine(session):
        return False
    anything: Any = session.sparkContext
    try:
        return int(anything._jsc.sc().getExecutorMemoryStatus().size()) <= 1  # The driver is there, too.
    except Exception:
        return False


def cancel_group(session: SparkSession, group: str) -> bool:
    """Stop what runs in `group`; whether Spark could still be told. Called from another thread than the one that
    waits.
    """
    call = session.interruptTag if is_connect(session) else session.sparkContext.cancelJobGroup
    return in_time(GOODBYE_SECONDS, partial(call, group))


def stages(session: SparkSession, group: str) -> list[Stage]:
    """The stages of `group` of which Spark has told. Connect does so every two seconds."""
    if is_connect(session):
        return _told.get(group, [])
    tracker = session.sparkContext.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    found = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
    return [Stage(each.stageId, each.numCompletedTasks, each.numTasks) for each in found if each]
