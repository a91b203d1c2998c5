"""The engines of a project: chosen for each plan, started when they are needed, and ended together."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from threading import RLock
from typing import TYPE_CHECKING, Final, Literal

from instep.entities.setup import EntitySetup
from instep.errors import InstepError, UserError
from instep.pipeline.engine.choice import EngineChoice, EngineName, choose, choose_for_table, choose_planning, cores_of
from instep.pipeline.engine.installed import demand_pyspark, pyspark_installed
from instep.project import Project
from instep.project.sources import ClickHouseSource, SparkSource
from instep.project.tables import TableEntity

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from instep.ledger.ledger import Ledger
    from instep.pipeline.engine.engine import Engine
    from instep.pipeline.engine.session import LazySpark
    from instep.pipeline.engine.settings import SparkSettings

#: Spark has one size of batches for all that runs in a session: the largest that some entity has.
_BATCH_ROWS: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"

EngineSetting = Literal["auto", "inline", "spark"]


class Engines:
    """The inline engine and Spark of a project, shared by its worker threads. `setting`: the project's, or of a
    command; `given`: a session of the user's; `threads`: so many work at once here, and in a Spark that is in this
    machine alone; `code`: classes that tasks of Spark need.
    """

    def __init__(
        self,
        project: Project,
        setting: EngineSetting,
        given: SparkSession | None,
        threads: int | None,
        code: Callable[[], Iterable[type]],
    ) -> None:
        self.setting: Final = setting
        self._project = project
        self._given = given
        self._threads = threads
        self._code = code
        self._engines: dict[str, Engine] = {}
        self._no_spark: InstepError | None = None
        self._opening = RLock()

    def choose(
        self, setup: EntitySetup, work: int, ledger: Ledger | None = None, *, documents: int = 0
    ) -> EngineChoice:
        """Inline or Spark for this much work (of so many documents), and why; by what the ledger knows of past jobs."""
        warm, cores = self._spark_is_warm(), self.cores()
        known = ledger.paces.of(setup.ref.entity, setup.how) if ledger and work else ()
        if setup.scanned:
            return choose_for_table(
                work,
                warm=warm,
                cores=cores,
                known=known,
                here=setup.reads_here,
                configured=self.setting,
                installed=pyspark_installed(),
            )
        if setup.batched:  # Its vectors are fetched by this process.
            inline = choose(
                "inline",
                work,
                documents=documents,
                needs_spark=False,
                warm=warm,
                cores=cores,
                slower=setup.slower,
                known=known,
            )
            return replace(inline, reason="its texts are embedded by a batch API")
        return choose(
            self.setting,
            work,
            documents=documents,
            needs_spark=setup.needs_spark,
            warm=warm,
            cores=cores,
            in_process=setup.in_process,
            slower=setup.slower,
            known=known,
            installed=pyspark_installed(),
        )

    def choose_planning(self, rows: int) -> tuple[EngineName, str]:
        """The place to list and compare so many rows of a source, and the reason."""
        return choose_planning(self.setting, rows, warm=self._spark_is_warm(), installed=pyspark_installed())

    def engine(self, choice: EngineChoice) -> Engine:
        """The engine chosen, kept for the next entity."""
        with self._opening:
            if choice.name not in self._engines:
                self._engines[choice.name] = self._new(choice.name)
            return self._engines[choice.name]

    def demand_installed(self, setups: Iterable[EntitySetup]) -> None:
        """Raises `UserError` if one of these runs on Spark alone, and PySpark is not installed."""
        on_spark = any(each.needs_spark or (each.scanned and not each.reads_here) for each in setups)
        if self.setting == "spark" or on_spark:
            demand_pyspark(inline=on_spark or self.setting == "inline")

    def prepare(self, setup: EntitySetup) -> None:
        """Start Spark in the background where no estimate can speak against it."""
        if self.setting == "spark" or setup.needs_spark:
            self.engine(self.choose(setup, 0))

    def spark(self) -> SparkSession:
        """The session, started if need be."""
        if self._no_spark is not None:  # Looked for a moment ago: what else needs it does not wait for it again.
            raise self._no_spark
        with self._opening:
            lazy = self._lazy_spark
        return lazy.get()

    def close(self) -> None:
        """End what was started here: a session of the user's stays."""
        for engine in self._engines.values():
            engine.close()
        self._engines.clear()
        if "_lazy_spark" in self.__dict__:
            self._lazy_spark.close()

    @property
    def starts_spark(self) -> bool:
        """Whether the project's work needs Spark, whatever there is to do, or says how Spark is to be started."""
        project = self._project
        needed = any(each.needs_spark for each in project.entities.values())
        return needed or self.setting == "spark" or "spark" in project.model_fields_set

    def cores(self) -> int:
        """Those of a session that is given, as far as it says; else of the declared one."""
        if self._given is not None:
            from instep.pipeline.engine.sparkapi import slots

            with suppress(Exception):  # It may be over: then its first wave says so.
                if known := slots(self._given):
                    return known
        return cores_of(self._master, self._project.spark.remote)

    def driver_cpu(self) -> float | None:
        """Seconds of the processor that Spark's driver has taken, where it is not on this machine."""
        if self._given is None and self.spark_settings().is_local:
            return None
        from instep.pipeline.engine import sparkapi

        here = self._given is not None and sparkapi.is_on_this_machine(self._given)
        return None if here else sparkapi.driver_cpu()

    def spark_settings(self) -> SparkSettings:
        """The way in which the project has Spark started."""
        from instep.pipeline.engine.settings import SparkSettings

        project = self._project
        # A log in the state folder if that is there: looking (`check`) creates nothing.
        log = project.state_dir / "spark.log" if project.state_dir.is_dir() else None
        tables = [each for each in project.entities.values() if isinstance(each, TableEntity)]
        batches = {_BATCH_ROWS: str(max(each.batch_rows for each in tables))} if tables else {}
        config = {**batches, **project.spark_config}
        scans = any(isinstance(each.source, SparkSource | ClickHouseSource) for each in project.entities.values())
        return SparkSettings(self._master, project.spark.remote, config, log, scans=scans)

    def check_spark(self) -> str:
        """Start Spark and describe it. Raises `UserError` when it does not work, which `spark` raises from then on."""
        from instep.pipeline.engine.doctor import examine

        try:
            demand_pyspark()
            return examine(self.spark_settings())
        except InstepError as error:
            self._no_spark = error
            raise

    def describe_spark(self) -> str:
        """Describe the Spark that would be started. Raises `UserError` when it is needed and not installed."""
        if not pyspark_installed():
            if self.starts_spark:
                demand_pyspark(inline=self.setting == "inline")
            return "PySpark is not installed, and not needed: all work is done in this process"
        when = "never: the project says `engine: inline`" if self.setting == "inline" else "when there is much to do"
        shown = self.spark_settings().shown
        from pyspark import __version__

        return f"PySpark {__version__}; starts at {shown} {when} (instep check --spark tries it)"

    def _spark_is_warm(self) -> bool:
        return self._given is not None or "spark" in self._engines

    def _new(self, name: str) -> Engine:
        if name == "inline":
            from instep.pipeline.engine.inline import InlineEngine

            return InlineEngine(self._threads)
        self._lazy_spark.begin()
        from instep.pipeline.engine.spark_engine import SparkEngine

        return SparkEngine(self._lazy_spark, self._project.places_of_tasks)

    @cached_property
    def _lazy_spark(self) -> LazySpark:
        demand_pyspark(inline=self.setting == "inline")
        from instep.pipeline.engine.session import LazySpark

        return LazySpark(self.spark_settings(), self._given, code=self._code)

    @property
    def _master(self) -> str:
        """A cluster's threads are for the cluster to say."""
        master = self._project.spark.master
        return f"local[{self._threads}]" if self._threads and master.startswith("local") else master


def describe_java() -> str:
    """The Java that Spark would use. Raises `UserError` when there is none that it can."""
    from instep.pipeline.engine.java import find_java, java_problem, java_version

    problem = java_problem()
    if problem:
        raise UserError(problem)
    java = find_java()
    assert java is not None, "no problem was found"
    return f"Java {java_version(java)} ({java})"
