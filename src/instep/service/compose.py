"""The composition root: the only place that knows which adapter stands behind which port."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal, cast

from instep.domain.timing import TIMING, Timing
from instep.engine.choice import EngineChoice, choose, cores_of
from instep.errors import UserError
from instep.ledger.open import open_ledger
from instep.project import LanceTarget as DeclaredLance
from instep.project import Project
from instep.project.dependencies import upstream_names
from instep.service.context import Context
from instep.service.documents.setup import DocumentSetup
from instep.service.documents.wiring import document_setup
from instep.service.liveness import LockFiles
from instep.service.progress import Progress
from instep.service.setup import EntitySetup
from instep.system import RandomIds, SystemClock, Threads

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from instep.domain.clock import Clock, Ids
    from instep.engine.port import Engine
    from instep.engine.session import SparkSettings
    from instep.ledger.port import Ledger
    from instep.service.check import Finding
    from instep.targets.port import DocumentTarget

EngineSetting = Literal["auto", "inline", "spark"]


class Workshop:
    """A project's adapters, made when they are asked for. `close` ends a Spark session of our own."""

    def __init__(
        self,
        project: Project,
        *,
        spark: SparkSession | None = None,
        engine: str | None = None,
        clock: Clock | None = None,
        ids: Ids | None = None,
        timing: Timing = TIMING,
    ) -> None:
        if engine not in (None, "auto", "inline", "spark"):
            raise UserError(f"unknown engine {engine!r}", hint="Allowed: auto, inline, spark.")
        self.project = project
        self.clock: Clock = clock or SystemClock()
        self.ids: Ids = ids or RandomIds()
        self.timing = timing
        self._given = spark
        self._setting = cast("EngineSetting", engine or project.engine)
        self._engines: dict[str, Engine] = {}
        self._targets: dict[str, DocumentTarget] = {}

    def ledger(self, *, read_only: bool = False) -> Ledger:
        return open_ledger(self.project.ledger_url, clock=self.clock, read_only=read_only, timing=self.timing)

    def context(self, ledger: Ledger, progress: Progress) -> Context:
        """What use cases that work on jobs need, with everything real behind it."""
        return Context(
            ledger=ledger,
            clock=self.clock,
            ids=self.ids,
            background=Threads(),
            random=random.random,
            timing=self.timing,
            liveness=LockFiles(self.project.state_dir / "workers"),
            progress=progress,
            choose=self.choose,
            engine=self.engine,
            prepare=self.prepare,
        )

    def setups(self, entities: Iterable[str] | None = None) -> list[EntitySetup]:
        """The entities asked for (all, if none is named), by priority, then as declared."""
        declared = self.project.entities
        names = list(dict.fromkeys(entities)) if entities else list(declared)
        for name in names:
            if name not in declared:
                raise UserError(f"no entity is named {name!r}", hint=f"Declared: {', '.join(declared)}.")
        if str(self.project.root) not in sys.path:
            # Transforms are named as modules of the project's folder.
            sys.path.insert(0, str(self.project.root))
        names.sort(key=lambda name: -declared[name].priority)
        return [document_setup(self.project, name, self._target(self.project.target_of(name))) for name in names]

    def documents(self, entities: Iterable[str] | None = None) -> list[DocumentSetup]:
        """Of these entities (all, if none is named) those that are documents. Raises `UserError` for one that is named
        and is not.
        """
        found = self.setups(entities)
        documents = [each for each in found if isinstance(each, DocumentSetup)]
        if not documents or (entities and len(documents) < len(found)):
            others = ", ".join(dict.fromkeys(each.ref.entity for each in found if not isinstance(each, DocumentSetup)))
            raise UserError(
                f"no documents are in {others}: they are tables", hint="Ask the target itself for its rows."
            )
        return documents

    def upstream(self, entities: Iterable[str] | None = None) -> list[EntitySetup]:
        """What the entities asked for are made from, themselves aside."""
        names = list(dict.fromkeys(entities or ()))
        found = upstream_names(self.project.entities, names)
        return self.setups(found) if found else []

    def choose(self, setup: EntitySetup, work: int) -> EngineChoice:
        """Inline or Spark for this much work, and why."""
        spark = self.project.spark
        return choose(
            self._setting,
            work,
            transform=setup.needs_spark,
            warm=self._lazy_spark_is_warm(),
            cores=cores_of(spark.master, spark.remote),
        )

    def engine(self, choice: EngineChoice) -> Engine:
        """The engine chosen, kept for the next entity."""
        if choice.name not in self._engines:
            self._engines[choice.name] = self._new_engine(choice.name)
        return self._engines[choice.name]

    def prepare(self, setup: EntitySetup) -> None:
        """Start Spark in the background where no estimate can speak against it."""
        if self._setting == "spark" or setup.needs_spark:
            self.engine(self.choose(setup, 0))

    def close(self) -> None:
        for engine in self._engines.values():
            engine.close()
        self._engines.clear()

    def check(self) -> list[Finding]:
        from instep.service import check

        transforms = any(entity.transform for entity in self.project.entities.values())
        return list(
            check.check(
                self.setups(),
                open_ledger=self._describe_ledger,
                java=_describe_java,
                spark=self._describe_spark,
                java_needed=transforms or self._setting == "spark",
            )
        )

    def _lazy_spark_is_warm(self) -> bool:
        return self._given is not None or "spark" in self._engines

    def _new_engine(self, name: str) -> Engine:
        if name == "inline":
            from instep.engine.inline import InlineEngine

            return InlineEngine()
        from instep.engine.session import LazySpark
        from instep.engine.spark import SparkEngine

        lazy = LazySpark(self._spark_settings(), self._given)
        lazy.begin()
        return SparkEngine(lazy)

    def _spark_settings(self) -> SparkSettings:
        from instep.engine.session import SparkSettings

        spark = self.project.spark
        # A log in the state folder if that is there: looking (`check`) creates nothing.
        log = self.project.state_dir / "spark.log" if self.project.state_dir.is_dir() else None
        return SparkSettings(spark.master, spark.remote, self.project.spark_config, log)

    def _target(self, name: str) -> DocumentTarget:
        if name not in self._targets:
            from instep.targets.lance import LanceTarget

            declared = self.project.resolved_target(name)
            assert isinstance(declared, DeclaredLance), "what documents need"
            self._targets[name] = LanceTarget(declared.uri, storage_options=declared.storage())
        return self._targets[name]

    def _describe_ledger(self) -> str:
        self.ledger(read_only=True).close()
        return self.project.ledger_label

    def _describe_spark(self) -> str:
        from instep.engine.doctor import examine

        return examine(self._spark_settings())


def _describe_java() -> str:
    from instep.engine.java import find_java, java_problem, java_version

    problem = java_problem()
    if problem:
        raise UserError(problem)
    java = find_java()
    assert java is not None, "no problem was found"
    return f"Java {java_version(java)} ({java})"
