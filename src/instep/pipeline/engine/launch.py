"""Starting Spark: on this machine, on a cluster, or by a Connect server; with the right Java, and quietly."""

from __future__ import annotations

import os
import re
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from instep.error_transport import explained, first_line
from instep.errors import Away, Transient, UserError
from instep.pipeline.engine import sparkapi
from instep.pipeline.engine.class_cache import spark_home
from instep.pipeline.engine.connect import connect
from instep.pipeline.engine.java import find_java, java_problem
from instep.pipeline.engine.master import TRY_LATER, demand_master
from instep.pipeline.engine.settings import SparkSettings, local_options, submitted

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

#: How long a standalone master may take to admit the application, and another cluster, where that may be a queue.
_REGISTER_SECONDS = 120.0
_ADMIT_SECONDS = 300.0

#: Settings whose values may be secrets: no command line, page or event log of Spark shows them. Spark's own rule leaves
#: out keys of accounts and private keys.
_WITHHELD = "secret|passw|token|credential|key"
_REDACTION = "spark.redaction.regex"
_MAY_BE_SECRET = re.compile(rf"{_WITHHELD}|^spark\.executorEnv\.", re.IGNORECASE)


def new_session(settings: SparkSettings, *, archive_to: Path | None = None) -> SparkSession:
    """A new session as the settings say. Raises `UserError` when Java or a package is missing, and `Away` when no
    server answers there.

    `archive_to`: a local JVM writes its class archive there when it ends (see `home`).
    """
    if settings.address:
        return connect(settings.address, settings)
    problem = java_problem()
    if problem:
        raise UserError(problem)
    return _local(settings, archive_to) if settings.is_local else _cluster(settings)


def _cluster(settings: SparkSettings) -> SparkSession:
    """spark-submit decides everything; else the master and the project's settings do."""
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

    if submitted():
        builder: Any = SparkSession.builder
        named = builder.appName("instep")
        for key, value in settings.config.items():
            named = named.config(key, value)
        session: SparkSession = named.getOrCreate()
        return session
    if settings.master.startswith("spark://"):
        demand_master(settings.master)
    conf = SparkConf(loadDefaults=False).setAppName("instep").setMaster(settings.master)
    for key, value in settings.config.items():
        conf.set(key, value)
    # spark-submit takes it from there, whatever the environment says; without it, PySpark looks at that alone.
    python = settings.config.get("spark.pyspark.python")
    # The driver's JVM runs Python as well, to plan data sources: by that name it finds the one of this environment.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    return _launched(conf, settings, python, {"PATH": path})


def _local(settings: SparkSettings, archive_to: Path | None) -> SparkSession:
    from pyspark import SparkConf

    # Workers are to run in this very environment, whatever `python3` means on the PATH.
    python = os.environ.get("PYSPARK_PYTHON") or sys.executable
    home = spark_home()
    conf = SparkConf(loadDefaults=False).setAppName("instep").setMaster(settings.master)
    options = local_options(home.java_options(archive_to=archive_to), scans=settings.scans)
    for key, value in {**options, **settings.config}.items():
        conf.set(key, value)
    return _launched(conf, settings, python, {"SPARK_HOME": str(home.folder)})


def _launched(
    conf: SparkConf, settings: SparkSettings, python: str | None, environment: Mapping[str, str]
) -> SparkSession:
    """A session with a JVM of its own, whose tasks run this `python`, if one is named. The environment of this process
    is as before in the end: the next session may be another project's.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    # The JVM is started with them on its command line, which all users of the machine can read; secrets are told it
    # afterwards. (None of them is needed to start it.)
    conf.setIfMissing(_REDACTION, f"(?i){_WITHHELD}")
    told = [each for each in conf.getAll() if each[0] == _REDACTION or not _MAY_BE_SECRET.search(each[0])]
    shown = SparkConf(loadDefaults=False).setAll(told)

    named = {"PYSPARK_PYTHON": python} if python else {}
    log = settings.log or Path(tempfile.gettempdir()) / f"instep-spark-{os.getpid()}.log"
    hint = f"All it said: {log}"
    with log.open("ab") as stream:
        try:
            # The JVM's own words (warnings about incubator modules, first of all) go to the log. Its Python workers
            # import nothing from the folder that this process happens to stand in.
            with _environment(**environment, **named, PYTHONSAFEPATH="1"):
                sparkapi.launch_jvm(shown, stream)
        except TimeoutError as error:
            why = f"{find_java()} does not come up within {sparkapi.LAUNCH_SECONDS:.0f} s"
            # A machine that is busy, mostly: it passes.
            raise Away(f"Spark did not start: {why}", hint=f"{TRY_LATER} {hint}") from error
        except Exception as error:
            sparkapi.end_jvm()
            raise UserError(f"Spark did not start: {_last_words(log)}", hint=hint) from error
    late = threading.Event()

    def give_up() -> None:
        late.set()
        sparkapi.kill_jvm()

    # A master that is none, or a cluster that has no time, is waited for without end by Spark itself, which unpacks
    # archives before it asks.
    alone = settings.master.startswith("spark://") and "spark.archives" not in settings.config
    watchdog = threading.Timer(_REGISTER_SECONDS if alone else _ADMIT_SECONDS, give_up)
    watchdog.daemon = True
    watchdog.start()
    try:
        with _environment(**named):
            return SparkSession(SparkContext(conf=conf))
    except Exception as error:
        found = explained(error)  # While the JVM can be asked.
        sparkapi.end_jvm()
        if late.is_set() or isinstance(found, Transient):
            raise Away(
                "the Spark master does not let it in", where=settings.master, hint=f"{TRY_LATER} {hint}"
            ) from error
        raise UserError(f"Spark did not start: {first_line(found)}", hint=hint) from error
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
