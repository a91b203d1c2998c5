"""Container: the composition root, the only place that knows which adapter implements which port."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

from instep.bus.status_reporter import StatusReporter
from instep.domain.clock import TIMING, Timing
from instep.domain.refs import PartitionRef
from instep.domain.texts import hide, names_in
from instep.engines import Engines, EngineSetting, describe_java
from instep.entities import targets
from instep.entities.documents.setup import DocumentSetup
from instep.entities.documents.wiring import document_setup
from instep.entities.ownership import owner_in
from instep.entities.partitions import all_refs, all_upstream_refs, apart, declared_refs, demand_declared, demanded_refs
from instep.entities.setup import EntitySetup
from instep.errors import Away, InstepError, Transient, UserError
from instep.ledger.liveness import LockFiles
from instep.ledger.open import open_ledger
from instep.planning.contacts import ContactFiles
from instep.planning.context import Context
from instep.planning.loaded import Loaded
from instep.project import Project
from instep.project.addresses import is_url
from instep.project.documents import DocumentEntity
from instep.project.load import declared_at
from instep.project.models import group_of
from instep.project.secrets import secrets_of
from instep.project.tables import TableEntity
from instep.system import RandomIds, SystemClock, Threads
from instep.targets.on_disk import is_there
from instep.targets.ownership import NO_OWNER, Owner
from instep.telemetry.progress import Counters, Progress, Uncounted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from instep.answers.cluster import ClusterState
    from instep.answers.doctor import Finding
    from instep.bus.bus import Bus, StatusKeys
    from instep.domain.clock import Clock, Ids
    from instep.entities.tables.setup import TableSetup
    from instep.entities.tables.wiring import Catalog, TableEntities
    from instep.ledger.ledger import Ledger
    from instep.targets.document_target import DocumentTarget
    from instep.targets.table_target import TableTarget

#: Seconds after which status keys try again to open a bus that could not be opened.
_BUS_PAUSE_SECONDS = 30.0


class Container:
    """A project's adapters, made when they are asked for. `close` ends a Spark session of our own. `threads`: so many
    work at once in this process, and in a Spark session that is in this machine alone; by default as many as it has
    cores.
    """

    def __init__(
        self,
        project: Project,
        *,
        spark: SparkSession | None = None,
        engine: str | None = None,
        threads: int | None = None,
        clock: Clock | None = None,
        ids: Ids | None = None,
        timing: Timing = TIMING,
    ) -> None:
        if engine not in (None, "auto", "inline", "spark"):
            raise UserError(f"unknown engine {engine!r}", hint="Allowed: auto, inline, spark.")
        hide(secrets_of(project))
        self.project = project
        self.clock: Clock = clock or SystemClock()
        self._made_at = self.clock.monotonic()
        self.ids: Ids = ids or RandomIds()
        self.timing = timing if project.lease == TIMING.lease else timing.lasting(project.lease)
        setting = cast("EngineSetting", engine or project.engine)
        self.engines = Engines(project, setting, spark, threads, self._target_classes)
        self._targets: dict[str, DocumentTarget] = {}
        self._table_targets: dict[str, TableTarget] = {}
        self._owner: Owner | None = None
        self._bus: Bus | None = None
        #: Until when the bus is not opened again for status keys, and why it could not be.
        self._bus_refused: tuple[float, InstepError] | None = None
        #: Workers of entities are threads, and share one container.
        self._opening = threading.RLock()

    def ledger(self, *, read_only: bool = False) -> Ledger:
        ledger = open_ledger(
            self.project.ledger_url,
            clock=self.clock,
            read_only=read_only,
            timing=self.timing,
            state=self.project.state_url,
        )
        owner = owner_in(ledger)
        with self._opening:
            if owner != self._owner:
                self._owner = owner
                self._targets.clear()
                self._table_targets.clear()
        return ledger

    @property
    def owner(self) -> Owner:
        """The ledger for which targets are used: the one that was opened last."""
        if self._owner is None:
            self.ledger(read_only=True).close()
        assert self._owner is not None, "a ledger has an id"
        return self._owner

    def bus(self, ledger: Ledger) -> Bus:
        """The bus for messages and status; closed with the container. Raises `UserError` when it is out of reach."""
        from instep.bus.open import open_bus

        with self._opening:
            if self._bus is None:
                self._bus = open_bus(self.project.bus, ledger)
            return self._bus

    def _status_keys(self, ledger: Ledger) -> StatusKeys:
        """The bus's, which jobs do not wait for: when it could not be opened, that is not tried again for a while."""
        with self._opening:
            if self._bus is None and self._bus_refused and self.clock.monotonic() < self._bus_refused[0]:
                raise self._bus_refused[1]
            try:
                return self.bus(ledger).status
            except InstepError as error:
                self._bus_refused = self.clock.monotonic() + _BUS_PAUSE_SECONDS, error
                raise

    @property
    def _lock_files(self) -> LockFiles:
        return LockFiles(self.project.state_dir / "workers")

    def contacts(self, ledger: Ledger, *, kept: bool = True) -> ContactFiles:
        """Notes of when targets were asked."""
        return ContactFiles(self.project.state_dir / "contacts", ledger.naming().ledger, self._is_there, kept)

    def _is_there(self, ref: PartitionRef, physical: str, aliases: Sequence[str]) -> bool | None:
        """Whether an index and these aliases are there, as far as files tell; None if they are reached by a URL."""
        target = self.project.resolved_target(self.project.target_of(ref.entity))
        return None if is_url(target.uri) else is_there(target.type, Path(target.uri), physical, aliases)

    def context(self, ledger: Ledger, progress: Progress, counters: Counters | None = None) -> Context:
        """The context of use cases that work on jobs, with real services."""
        from instep.jobs.job_log import LoggedProgress

        return Context(
            ledger=ledger,
            clock=self.clock,
            ids=self.ids,
            background=Threads(progress.say),
            random=random.random,
            timing=self.timing,
            liveness=self._lock_files,
            progress=LoggedProgress(progress, ledger),
            status_reporter=StatusReporter(lambda: self._status_keys(ledger), progress, self.stop_waiting),
            choose=partial(self.engines.choose, ledger=ledger),
            engine=self.engines.engine,
            prepare=self.engines.prepare,
            counters=counters or Uncounted(),
            contacts=self.contacts(ledger),
            loaded=Loaded(ledger.present() - self._age, self._changed_code),
            group=partial(group_of, self.project),
            named=lambda name: declared_refs([name], self.project),
            driver_cpu=self.engines.driver_cpu,
            retention=self.project.retention,
        )

    @property
    def _age(self) -> int:
        """Milliseconds since the project was taken as it is."""
        return round(1_000 * (self.clock.monotonic() - self._made_at))

    def _changed_code(self, ref: PartitionRef) -> list[str]:
        from instep.pipeline.code_fingerprint import changed_code
        from instep.pipeline.loading import meant_by

        return changed_code(meant for each in self.project.entities[ref.entity].functions for meant in meant_by(each))

    @property
    def tables(self) -> frozenset[str]:
        """Names of the entities that are indexed from tables."""
        return frozenset(name for name, each in self.project.entities.items() if isinstance(each, TableEntity))

    def setups(self, entities: Iterable[str] | None = None) -> list[EntitySetup]:
        """The partitions asked for (all, if none is named), by priority, then as declared. An entity stands for all its
        partitions, and `MergeRequest@42/9970` for one of them.
        """
        named = names_in(entities)
        return self.setups_of(
            apart(declared_refs(named, self.project), self.project) if named else demanded_refs(self.project)
        )

    def setups_of(self, refs: Iterable[PartitionRef]) -> list[EntitySetup]:
        """The setups of partitions by priority, then in this order. What their tables look like is asked again, and of
        each source once.
        """
        self._make_own_code_importable()
        ordered = sorted(refs, key=lambda ref: -self.project.entities[ref.entity].priority)
        tables = any(ref.entity in self.tables for ref in ordered)
        with self._opening:
            catalog = self._tables.catalog() if tables else None
            return [self._setup(ref, catalog) for ref in ordered]

    def _make_own_code_importable(self) -> None:
        """Functions and classes may be in modules of the project's folder."""
        project = self.project
        named = any(each.functions for each in project.entities.values())
        if (named or targets.own_targets(project)) and str(project.root) not in sys.path:
            # At the end: nothing there passes for a library.
            sys.path.append(str(project.root))

    def _setup(self, ref: PartitionRef, catalog: Catalog | None) -> EntitySetup:
        if catalog is None or isinstance(self.project.entities[ref.entity], DocumentEntity):
            target = self._document_target(self.project.target_of(ref.entity))
            setup = document_setup(self.project, ref.entity, target, self.engines.spark, self.engines.choose_planning)
            if setup.in_process and self.engines.setting == "spark":
                raise UserError(
                    f"the target {setup.target_name} is one in this process, which tasks of Spark cannot reach",
                    where=str(ref),
                    hint="Run it with --engine inline, or name a server.",
                )
            return setup
        return self._tables.setup(ref.entity, ref.scope, catalog)

    @cached_property
    def _tables(self) -> TableEntities:
        from instep.entities.tables.wiring import TableEntities  # Brings Arrow.

        return TableEntities(self.project, self.engines.spark, self.table_target)

    def columns_seen(self, entity: str) -> list[tuple[str, str]]:
        """Names and types of a table's columns, if they were asked for already."""
        return [(each.name, str(each.type)) for each in self._tables.seen.get(entity, ())]

    def one_each(self) -> list[EntitySetup]:
        """A setup of each entity, in whichever partition: to look into what is served of it."""
        return self.setups_of(map(PartitionRef, self.project.entities))

    def documents(self, entities: Iterable[str] | None = None) -> list[DocumentSetup]:
        """The setups of these entities (all, if none is named) that are documents. Raises `UserError` for one that is
        named and is not.
        """
        found = self.setups(entities)
        documents = [each for each in found if isinstance(each, DocumentSetup)]
        if not documents or (entities and len(documents) < len(found)):
            others = ", ".join(dict.fromkeys(each.ref.entity for each in found if not isinstance(each, DocumentSetup)))
            raise UserError(
                f"no documents are in {others}: they are tables", hint="Ask the target itself for its rows."
            )
        return documents

    def table_setups(self, entities: Iterable[str] | None = None) -> list[TableSetup]:
        """The setups of these entities (all, if none is named) that are tables without versions. Raises `UserError` for
        one that is named and is not.
        """
        from instep.entities.tables.setup import TableSetup

        found = self.setups(entities)
        tables = [each for each in found if isinstance(each, TableSetup) and not each.reads_here]
        if followed := [each.ref.entity for each in found if each.reads_here and (entities or not tables)]:
            hint = "Its versions tell what is deleted. To read all of it again: instep run --full-refresh"
            raise UserError(f"{', '.join(dict.fromkeys(followed))}: a table with versions is not reconciled", hint=hint)
        if not tables or (entities and len(tables) < len(found)):
            others = ", ".join(dict.fromkeys(each.ref.entity for each in found if not isinstance(each, TableSetup)))
            raise UserError(f"{others}: documents are compared otherwise", hint="Run: instep diff")
        return tables

    def upstream(self, entities: Iterable[str] | None = None) -> list[EntitySetup]:
        """The setups of direct and indirect dependencies of these entities, without themselves."""
        asked = declared_refs(entities or (), self.project)
        return self.setups_of(all_upstream_refs(self.project, asked))

    def with_upstream(self, ref: PartitionRef) -> list[EntitySetup]:
        """The setups of a partition and its upstream. Raises `UserError` if the project cannot have it."""
        demand_declared(ref, self.project)
        return self.setups_of([ref, *all_upstream_refs(self.project, [ref])])

    def stop_waiting(self) -> None:
        """Have the bus wait for no server that is away, since this process stops."""
        if self._bus is not None:
            self._bus.stop_waiting()

    def close_bus(self) -> None:
        with self._opening:
            bus, self._bus = self._bus, None
        if bus is not None:
            bus.close()

    def close(self) -> None:
        self.close_bus()
        self.engines.close()

    def check(self, *, spark: bool) -> list[Finding]:
        from instep.answers import doctor
        from instep.queues.open import queue_checks

        others: dict[str, Callable[[], str]] = dict(queue_checks(self.project))
        if self.project.lineage is not None:
            others["lineage"] = self.project.lineage.check
        if self._owner is None:
            try:
                self.ledger(read_only=True).close()
            except InstepError:
                self._owner = NO_OWNER  # The ledger's own finding says why.
        return list(
            doctor.check(
                self.setups_of(all_refs(self.project)),
                open_ledger=self._describe_ledger,
                state=self._describe_state,
                java=describe_java,
                spark=self.engines.check_spark if spark else self.engines.describe_spark,
                java_needed=spark,
                others=others,
            )
        )

    def check_cluster(self) -> ClusterState:
        from instep.answers.cluster import examine

        if self._owner is None:
            try:
                self.ledger(read_only=True).close()
            except InstepError:
                self._owner = NO_OWNER  # Before its first run a project has none.
        types = {name: each.type for name, each in self.project.targets.items()}
        return examine(
            self.setups_of(all_refs(self.project)), types, self.engines.spark, self.engines.spark_settings().shown
        )

    def _target_classes(self) -> list[type]:
        """Classes of targets that the project brings: tasks of Spark write with them."""
        self._make_own_code_importable()
        return [targets.target_class(self.project, name) for name in targets.own_targets(self.project)]

    def _document_target(self, name: str) -> DocumentTarget:
        if name not in self._targets:
            self._targets[name] = targets.document_target(self.project, name).owned_by(self.owner)
        return self._targets[name]

    def table_target(self, name: str) -> TableTarget:
        if name not in self._table_targets:
            self._make_own_code_importable()
            self._table_targets[name] = targets.table_target(self.project, name).owned_by(self.owner)
        return self._table_targets[name]

    def _describe_ledger(self) -> str:
        with closing(self.ledger(read_only=True)) as ledger:
            others = sorted(ledger.checkpoints.entities() - {ref.entity for ref in all_refs(self.project)})
        if not others:
            return self.project.ledger_label
        names = ", ".join(others)
        return (
            f"{self.project.ledger_label}, also of what is not declared here (by another project, or before): {names}"
        )

    def _describe_state(self) -> str:
        from instep.ledger.state_files import state_files

        locks, url = self._lock_files.check(), self.project.state_url
        if url is None:
            return locks
        try:
            # Before there is a ledger, in a folder beside those of ledgers.
            return state_files(url, self.owner.id or "check").probe()
        except (UserError, Transient) as error:
            place = declared_at(self.project, "state")
            hint = getattr(error, "hint", None) or (
                "Check the address, that the store answers, and that its credentials are in the environment."
            )
            kind = Away if isinstance(error, Transient) else UserError
            raise kind(getattr(error, "what", str(error)), where=place, hint=hint) from error
