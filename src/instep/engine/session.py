"""Starting Spark: which Java, which options, in the background, and quietly."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from instep.engine import sparkapi
from instep.engine.home import spark_home
from instep.engine.java import java_problem
from instep.errors import UserError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: What PySpark asks for before it talks Connect.
_CONNECT_NEEDS = ("pandas", "grpc", "grpc_status")

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
        # To the Python workers without TCP: nobody else on the machine can connect, and a job takes 0.2 s less.
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


class LazySpark:
    """A Spark session that starts when it is needed, or ahead of that in the background.

    `given` is a session of the user's: used as it is, never stopped. Without one, a session that is
    already active in this process (a notebook's, a submitted script's) is used the same way.
    """

    def __init__(self, settings: SparkSettings | None = None, given: SparkSession | None = None) -> None:
        self._settings = settings or SparkSettings()
        self._session = given
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
        """The session; waits for a start that is under way. Raises `UserError` when there can be none."""
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

    def close(self) -> None:
        """Stop the session if this object started it. A start still under way is undone when it is through."""
        with self._lock:
            self._closed = True
            session, self._session = self._session, None
            if session is not None and self._ours:
                sparkapi.stop(session)
            self._ours = False

    def _start(self) -> None:
        try:
            active = _active()
            session = active if active is not None else new_session(self._settings)
        except BaseException as error:
            self._error = error
            return
        with self._lock:
            if self._closed and active is None:
                sparkapi.stop(session)
            elif not self._closed:
                self._session, self._ours = session, active is None


def new_session(settings: SparkSettings, *, archive_to: Path | None = None) -> SparkSession:
    """A new session as the settings say. Raises `UserError` when Java or a package is missing.

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
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.builder
    session_builder = builder.remote(address)
    for key, value in settings.config.items():
        session_builder = session_builder.config(key, value)
    try:
        session: SparkSession = session_builder.getOrCreate()
        # The first call that goes over the wire: says now, not in mid-wave, that nobody listens.
        _ = session.version
    except Exception as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UserError(f"Spark Connect does not answer: {reason[:300]}", where=_without_token(address)) from error
    return session


def _without_token(address: str) -> str:
    """A Connect address without its parameters: they may hold a token."""
    return address.split(";", 1)[0]


def _cluster(settings: SparkSettings) -> SparkSession:
    """spark-submit decides everything; else the master and the project's settings do."""
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.builder
    session_builder = builder.appName("instep")
    if not _submitted():
        session_builder = session_builder.master(settings.master)
    for key, value in settings.config.items():
        session_builder = session_builder.config(key, value)
    session: SparkSession = session_builder.getOrCreate()
    return session


def _local(settings: SparkSettings, archive_to: Path | None) -> SparkSession:
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    # Workers are to run in this very environment, whatever `python3` means on the PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    home = spark_home()
    conf = SparkConf(loadDefaults=False).setAppName("instep").setMaster(settings.master)
    options = local_options(home.java_options(archive_to=archive_to), scans=settings.scans)
    for key, value in {**options, **settings.config}.items():
        conf.set(key, value)
    log = settings.log or Path(tempfile.gettempdir()) / f"instep-spark-{os.getpid()}.log"
    with log.open("ab") as stream:
        try:
            # The JVM's own words (warnings about incubator modules, first of all) go to the log.
            with _environment(SPARK_HOME=str(home.folder)):
                sparkapi.launch_jvm(conf, stream)
        except Exception as error:
            raise UserError(f"Spark did not start: {_last_words(log)}", hint=f"All it said: {log}") from error
    return SparkSession(SparkContext(conf=conf))


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
