"""Starting Spark: which Java, which options, in the background, and quietly."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from instep.error_transport import explained, out_of_memory
from instep.errors import Away, Conflict, Fenced, Transient, Unknown, UserError
from instep.pipeline.engine import sparkapi
from instep.pipeline.engine.class_cache import spark_home
from instep.pipeline.engine.java import find_java, java_problem
from instep.pipeline.engine.master import TRY_LATER, demand_master

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

#: What PySpark asks for before it talks Connect.
_CONNECT_NEEDS = ("pandas", "grpc", "grpc_status")

#: How long a Connect server may take for the first answers, a standalone master to take us in, and another cluster,
#: where that may be a queue.
ANSWER_SECONDS = 10.0
_REGISTER_SECONDS = 10.0
_ADMIT_SECONDS = 300.0

#: What a JVM of Spark ends with when it has no memory left.
_OUT_OF_MEMORY = 52

_LOG4J = Path(__file__).with_name("log4j2.properties")
_POOLS = Path(__file__).with_name("pools.xml")


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """How the project reaches Spark. `remote` (or SPARK_REMOTE) is a Connect address and wins over `master`.

    `scans`: the project has tables, which Spark itself reads.
    """

    master: str = "local[*]"
    remote: str | None = None
    config: Mapping[str, str] = field(default_factory=dict)
    log: Path | None = None
    scans: bool = False

    @property
    def address(self) -> str | None:
        return self.remote or os.environ.get("SPARK_REMOTE") or None

    @property
    def place(self) -> str:
        """Where it runs, with how many cores or not: what shares a process has to agree on it."""
        return "local" if self.is_local else self.master

    @property
    def shown(self) -> str:
        """Where, for people."""
        return _without_token(self.address or self.master)

    @property
    def is_local(self) -> bool:
        return self.address is None and self.master.startswith("local") and not _submitted()


def local_options(java_options: Sequence[str] = (), *, scans: bool = False) -> dict[str, str]:
    """What a local Spark is started with; the project's own settings come on top."""
    # Measured on 2 cores: serial collector 0.4 s less at the start, first-tier compiler only 1.2 s less (5.4 →
    # 4.2 s). The second tier pays in long scans, which document waves do not have: their work is in Python.
    java = ["-XX:+UseSerialGC", f"-Dlog4j2.configurationFile={_LOG4J.as_uri()}"]
    java += [] if scans else ["-XX:TieredStopAtLevel=1"]
    java += [f'"{each}"' if " " in each else each for each in java_options]
    return {
        "spark.driver.extraJavaOptions": " ".join(java),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.python.worker.reuse": "true",
        # To the Python workers without TCP: no other user of the machine can connect, and a job takes 0.2 s less.
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.log.level": "ERROR",
    } | (_SCANS if scans else _DOCUMENTS)


_DOCUMENTS = {
    "spark.driver.memory": "1g",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    # Compiling a plan pays in long scans; the first job of a document wave takes 0.6 s less without.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "4",
}

# 5,000,000 rows of Parquet to Python and back, on 2 cores with other work on them: 6 to 8 s, and 22 s with the options
# of documents. The parallel collector was not faster than the serial one.
_SCANS = {
    "spark.driver.memory": "2g",
    # Each batch has its price, for targets above all: Lance takes half as long again for batches of 10,000 rows. Wide
    # rows come in smaller ones, of 64 MB (`maxBytesPerBatch`).
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    # What has no zone is read as UTC, wherever the machine stands.
    "spark.sql.session.timeZone": "UTC",
    # A large wave does not delay small ones: see `pools.xml`. A core that is taken stays so until its task ends, so
    # tasks are short, half a million rows or so; with many of them the cores also end at about the same time.
    "spark.scheduler.mode": "FAIR",
    "spark.scheduler.allocation.file": _POOLS.as_uri(),
    "spark.sql.files.maxPartitionBytes": "16m",
}


@dataclass
class _Jvm:
    """The classic Spark that Instep started in this process, with its first session, and how many use it. There is one
    at most: Spark has no more in a process.
    """

    session: SparkSession
    settings: SparkSettings
    users: int = 1


#: Sessions start and end one at a time; `_jvm` and `_connected` are of this process.
_TURN = threading.RLock()
_jvm: _Jvm | None = None
#: Sessions with Connect servers that Instep opened: each has one owner, and is never taken for a user's.
_connected: weakref.WeakSet[Any] = weakref.WeakSet()


class LazySpark:
    """A Spark session that starts when it is needed, or ahead of that in the background.

    `given` is a session of the user's: used as it is, never stopped. Without one, a session that is
    already active in this process (a notebook's, a submitted script's) is used the same way. What Instep itself
    has started here is shared by all that run in this process, each in a session of its own, and ends with the last of
    them. `archive_to`: see `home`.
    """

    def __init__(
        self,
        settings: SparkSettings | None = None,
        given: SparkSession | None = None,
        *,
        archive_to: Path | None = None,
    ) -> None:
        self._settings = settings or SparkSettings()
        self._archive_to = archive_to
        self._session = given
        self._jvm: _Jvm | None = None
        self._ours = False
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._closed = False

    @property
    def warm(self) -> bool:
        """Whether a session is there (or on its way), so that using it costs no start."""
        return self._session is not None or self._thread is not None or _active() is not None

    def begin(self) -> None:
        """Start in the background; errors wait for `get`."""
        with self._lock:
            if self._session is None and self._thread is None:
                self._thread = threading.Thread(target=self._start, name="spark-start", daemon=True)
                self._thread.start()

    def get(self) -> SparkSession:
        """The session; waits for a start that is under way. One of ours that is over is replaced. Raises `Away` when
        Spark is out of reach, and `UserError` when there can be none.
        """
        with self._lock:
            session = self._session
            if session is not None and self._ours and sparkapi.is_over(session):
                self._session, self._thread = None, None
                self._let_go(session)
        self.begin()
        thread = self._thread
        if thread is not None:
            thread.join()
        with self._lock:
            if self._error is not None:
                error, self._error, self._thread = self._error, None, None
                raise error
            if self._session is None:
                raise UserError("this Spark session is closed already")
            return self._session

    def explained(self, session: SparkSession, error: Exception) -> Exception:
        """An error of what was done in the session, as one that says who should act. A session that is over is left:
        the next `get` starts another one, if it was ours.
        """
        code = None if sparkapi.is_connect(session) else sparkapi.jvm_exit()
        found = explained(error)
        if not isinstance(found, Transient) and not sparkapi.is_over(session):
            return found
        if isinstance(found, UserError | Fenced | Conflict | Unknown):
            return found
        with self._lock:
            mine = self._session is session and self._ours
            if mine:
                self._session, self._thread = None, None
                self._let_go(session)
        if code == _OUT_OF_MEMORY:
            return out_of_memory()
        why = str(found) if isinstance(found, Transient) else f"Spark has ended: {found}"
        if not mine and sparkapi.is_over(session):
            return Away(f"the Spark session that was given has ended: {why}", hint="Make another one, then run again.")
        return Transient(why)

    def close(self, *, at_once: bool = False) -> None:
        """End what this object started, if nothing else in this process uses it. A start still under way is undone when
        it is through. `at_once`: no archive is written.
        """
        with self._lock:
            self._closed = True
            session, self._session = self._session, None
            if session is not None and self._ours:
                self._let_go(session, at_once=at_once)

    def _start(self) -> None:
        try:
            session, jvm, ours = self._opened()
        except BaseException as error:
            self._error = error
            return
        with self._lock:
            self._jvm, self._ours = jvm, ours
            if not self._closed:
                self._session = session
            elif ours:
                self._let_go(session)

    def _opened(self) -> tuple[SparkSession, _Jvm | None, bool]:
        """A session, with the Spark of this process that it is one of, if it is; and whether it is ours."""
        global _jvm  # noqa: PLW0603 -- a process has one Spark, and so one variable for it
        with _TURN:
            active = _active()
            if active is not None and not _made_here(active) and not sparkapi.is_over(active):
                return active, None, False
            if self._settings.address:
                if _jvm is not None:
                    raise _other_spark(_jvm.settings, self._settings)
                session = new_session(self._settings)
                _connected.add(session)
                return session, None, True
            if _jvm is not None and sparkapi.is_over(_jvm.session):
                sparkapi.stop(_jvm.session)
                _jvm = None
            if _jvm is None:
                session = new_session(self._settings, archive_to=self._archive_to)
                _jvm = _Jvm(session, self._settings)
                return session, _jvm, True
            if _jvm.settings.place != self._settings.place:
                raise _other_spark(_jvm.settings, self._settings)
            session = _beside(_jvm.session, self._settings)
            _jvm.users += 1
            return session, _jvm, True

    def _let_go(self, session: SparkSession, *, at_once: bool = False) -> None:
        global _jvm  # noqa: PLW0603 -- see `_opened`
        jvm, self._jvm, self._ours = self._jvm, None, False
        with _TURN:
            if jvm is None:
                _connected.discard(session)
                sparkapi.stop(session)
                return
            jvm.users -= 1
            over = sparkapi.is_over(jvm.session)
            if jvm is _jvm and (over or not jvm.users):
                if at_once:
                    sparkapi.kill_jvm()
                sparkapi.stop(jvm.session)
                _jvm = None


def _made_here(session: SparkSession) -> bool:
    """Whether it is of a Spark that Instep started, and not the user's."""
    if sparkapi.is_connect(session):
        return session in _connected
    return _jvm is not None and session.sparkContext is _jvm.session.sparkContext


def _other_spark(there: SparkSettings, wanted: SparkSettings) -> UserError:
    return UserError(
        f"this process uses Spark at {there.shown} already, and can use no other one beside it: {wanted.shown}",
        hint="Run them one after the other, or in processes of their own.",
    )


def _beside(session: SparkSession, settings: SparkSettings) -> SparkSession:
    """Another session of the same Spark, with settings of its own as far as they can still be chosen."""
    made = session.newSession()
    for key, value in {**(local_options(scans=settings.scans) if settings.is_local else {}), **settings.config}.items():
        if key.startswith("spark.sql.") and made.conf.isModifiable(key):
            made.conf.set(key, value)
    return made


def new_session(settings: SparkSettings, *, archive_to: Path | None = None) -> SparkSession:
    """A new session as the settings say. Raises `UserError` when Java or a package is missing, and `Away` when no
    server answers there.

    `archive_to`: a local JVM writes its class archive there when it ends (see `home`).
    """
    if settings.address:
        return _connect(settings.address, settings)
    problem = java_problem()
    if problem:
        raise UserError(problem)
    return _local(settings, archive_to) if settings.is_local else _cluster(settings)


def _connect(address: str, settings: SparkSettings) -> SparkSession:
    missing = [name for name in _CONNECT_NEEDS if find_spec(name) is None]
    if missing:
        raise UserError(
            f"Spark Connect needs packages that are not installed ({', '.join(missing)})",
            hint="Install them: pip install 'instep[connect]'",
        )
    where = _without_token(address)
    try:
        session = sparkapi.connect(address)
    except Exception as error:
        raise UserError(f"that is no address of Spark Connect: {_first_line(error)}", where=where) from error
    failed: list[Exception] = []
    isolated: list[str | None] = []

    def first_calls() -> None:
        try:
            # A call over the wire: an absent server is found now, not in mid-wave.
            _ = session.version
            for key, value in settings.config.items():
                if session.conf.isModifiable(key):
                    session.conf.set(key, value)
            isolated.append(sparkapi.isolated_copy(session))
        except Exception as error:
            failed.append(error)

    through = sparkapi.in_time(ANSWER_SECONDS, first_calls)
    if through and not failed:
        (copy,) = isolated
        if copy is None:
            return session
        sparkapi.stop(session)
        return sparkapi.connect(address, copy)
    sparkapi.stop(session, unheard=True)
    if not failed:
        raise Away(f"Spark Connect does not answer within {ANSWER_SECONDS:.0f} s", where=where, hint=TRY_LATER)
    found = explained(failed[0])
    if isinstance(found, UserError):
        raise UserError(f"Spark Connect cannot be used: {found.what}", where=where, hint=found.hint) from failed[0]
    if isinstance(found, Transient):
        why = str(found).removeprefix("Spark is out of reach: ")
        raise Away(f"Spark Connect does not answer: {why[:300]}", where=where, hint=TRY_LATER) from failed[0]
    raise UserError(f"Spark Connect refuses: {_first_line(found)}", where=where) from failed[0]


def _first_line(error: Exception) -> str:
    said = str(error).strip()
    return said.splitlines()[0][:300] if said else type(error).__name__


def _without_token(address: str) -> str:
    """A Connect address without its parameters: they may hold a token."""
    return address.split(";", 1)[0]


def _cluster(settings: SparkSettings) -> SparkSession:
    """spark-submit decides everything; else the master and the project's settings do."""
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

    if _submitted():
        builder: Any = SparkSession.builder
        submitted = builder.appName("instep")
        for key, value in settings.config.items():
            submitted = submitted.config(key, value)
        session: SparkSession = submitted.getOrCreate()
        return session
    if settings.master.startswith("spark://"):
        demand_master(settings.master)
    conf = SparkConf(loadDefaults=False).setAppName("instep").setMaster(settings.master)
    for key, value in settings.config.items():
        conf.set(key, value)
    return _launched(conf, settings, {})


def _local(settings: SparkSettings, archive_to: Path | None) -> SparkSession:
    from pyspark import SparkConf

    # Workers are to run in this very environment, whatever `python3` means on the PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    home = spark_home()
    conf = SparkConf(loadDefaults=False).setAppName("instep").setMaster(settings.master)
    options = local_options(home.java_options(archive_to=archive_to), scans=settings.scans)
    for key, value in {**options, **settings.config}.items():
        conf.set(key, value)
    return _launched(conf, settings, {"SPARK_HOME": str(home.folder)})


def _launched(conf: SparkConf, settings: SparkSettings, environment: Mapping[str, str]) -> SparkSession:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    log = settings.log or Path(tempfile.gettempdir()) / f"instep-spark-{os.getpid()}.log"
    hint = f"All it said: {log}"
    with log.open("ab") as stream:
        try:
            # The JVM's own words (warnings about incubator modules, first of all) go to the log. Its Python workers
            # import nothing from the folder that this process happens to stand in.
            with _environment(**environment, PYTHONSAFEPATH="1"):
                sparkapi.launch_jvm(conf, stream)
        except TimeoutError as error:
            why = f"{find_java()} does not come up within {sparkapi.LAUNCH_SECONDS:.0f} s"
            raise UserError(f"Spark did not start: {why}", hint=hint) from error
        except Exception as error:
            sparkapi.end_jvm()
            raise UserError(f"Spark did not start: {_last_words(log)}", hint=hint) from error
    late = threading.Event()

    def give_up() -> None:
        late.set()
        sparkapi.kill_jvm()

    # A master that is none, or a cluster that has no time, is waited for without end by Spark itself.
    watchdog = threading.Timer(_REGISTER_SECONDS if settings.master.startswith("spark://") else _ADMIT_SECONDS, give_up)
    watchdog.daemon = True
    watchdog.start()
    try:
        return SparkSession(SparkContext(conf=conf))
    except Exception as error:
        found = explained(error)  # While the JVM can be asked.
        sparkapi.end_jvm()
        if late.is_set() or isinstance(found, Transient):
            raise Away(
                "the Spark master does not let it in", where=settings.master, hint=f"{TRY_LATER} {hint}"
            ) from error
        raise UserError(f"Spark did not start: {_first_line(found)}", hint=hint) from error
    finally:
        watchdog.cancel()


@contextmanager
def _environment(**values: str) -> Iterator[None]:
    before = {key: os.environ.get(key) for key in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = value


def _last_words(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it gave no reason"


def _submitted() -> bool:
    """Whether spark-submit started this process."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _active() -> SparkSession | None:
    """A session that already lives in this process; never imports Spark to find out."""
    if "pyspark.sql" not in sys.modules:
        return None
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    try:
        session: SparkSession = SparkSession.active()
    except PySparkRuntimeError:
        return None
    return session
