"""The Python API: `instep.load("instep.yaml")` gives an `Instep`; the command line calls the same.

import instep

project = instep.load("instep.yaml")
project.run()
for found in project.search("how do I configure it"):
    print(found.source_uri, found.snippet)
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING
from warnings import warn

from instep.answers.answer_list import Answers
from instep.app.evaluation import Evaluation
from instep.app.in_thread import stopped_when_cancelled
from instep.app.instances import Instances
from instep.app.jobs import Jobs
from instep.app.lineage import lineage_sent
from instep.app.namespaces import Namespaces
from instep.app.open_project import OpenProject
from instep.app.queues import Queues
from instep.app.searches import Searches
from instep.app.upkeep import WAIT_SECONDS, Upkeep
from instep.app.wants import Wants
from instep.container import Container
from instep.domain.texts import names_in
from instep.domain.whole_numbers import demand_whole
from instep.entities.generations import built, checked_generation, generation_of
from instep.entities.plan_request import PlanOptions
from instep.errors import InstepError, Interrupted, Transient, Unknown, UserError
from instep.jobs.target_order import problem_of
from instep.planning.plan import plan_entity, unplanned
from instep.project import Project, load_project
from instep.telemetry.progress import Progress, Silent
from instep.telemetry.prometheus import counted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from instep.answers.cluster import ClusterState
    from instep.answers.configuration import Setting
    from instep.answers.doctor import Finding
    from instep.answers.overview import Failure
    from instep.answers.plan import Plan
    from instep.answers.runs import Runs
    from instep.answers.status import Partition
    from instep.entities.setup import EntitySetup
    from instep.jobs.promote import Promotion


def load(path: str | os.PathLike[str] | None = None) -> Instep:
    """Open the project in `path` (a file or folder; by default here or in a folder above).

    Raises `UserError` with file and line if the project file is wrong.
    """
    return Instep(load_project(Path(path) if path is not None else None))


class Instep(Evaluation, Instances, Jobs, Namespaces, Queues, Searches, Upkeep, Wants):
    """One project, ready to be planned, run and searched. Give `spark` to use a Spark session of your own."""

    def __init__(self, project: Project, *, spark: SparkSession | None = None) -> None:
        if not isinstance(project, Project):
            raise UserError(f"Instep takes a Project, not {type(project).__name__}; `instep.load(path)` opens a file")
        self.project = project
        self._spark = spark
        self._open = OpenProject(project)

    def __repr__(self) -> str:
        return f"Instep({self.project.name!r}, in {self.project.root})"

    def plan(
        self,
        entities: Iterable[str] | None = None,
        *,
        full_refresh: bool = False,
        retry_failures: bool = False,
        allow_deletes: bool = False,
        allow_empty: bool = False,
        full_listing: bool = False,
        generation: str | None = None,
        explain: bool = False,
        skipped: bool = False,
        progress: Progress | None = None,
    ) -> Answers[Plan]:
        """Plan a run: the work, and the reasons for it. Writes nothing.

        `explain`: give the reason for every document. `skipped`: list the files that no `include` takes, too. If one of
        several entities cannot be planned, its plan has a `problem`, and the others are planned all the same.
        """
        from instep.answers.plan import cost_answer, plan_answer

        names, name = names_in(entities), checked_generation(generation)
        if progress is None and not names:
            self._warn_of_passed_over()
        options = PlanOptions(
            full_refresh, retry_failures, allow_deletes, name, allow_empty=allow_empty, full_listing=full_listing
        )
        watch = progress or Silent()
        container = Container(self.project, spark=self._spark)
        with closing(container), closing(container.ledger(read_only=True)) as ledger:
            indexes, setups = cache(ledger.partitions.indexes), container.setups(names)
            contacts = container.contacts(ledger, kept=False)

            def planned(setup: EntitySetup) -> Plan:
                container.engines.demand_installed((setup,))
                found = plan_entity(
                    setup,
                    ledger,
                    options,
                    generation_of(ledger, setup.ref, name),
                    choose=partial(container.engines.choose, ledger=ledger),
                    listing=_listing(watch, setup.ref.label),
                    indexes=indexes,
                    contacts=contacts,
                )
                setup.demand_packages(found.found)
                if outage := setup.outage(found.found):
                    warnings = [*found.found.warnings, f"a run would wait: {outage}"]
                    found = replace(found, found=replace(found.found, warnings=warnings))
                left_out = setup.not_included() if skipped else None
                cost = cost_answer(setup, found, partial(watch.say, setup.ref.label))
                return plan_answer(found, explain=explain, skipped=left_out, cost=cost)

            if len(setups) == 1:
                return Answers([planned(setups[0])])
            plans: Answers[Plan] = Answers()
            for setup in setups:
                try:
                    plans.append(planned(setup))
                except InstepError as error:
                    problem = problem_of("cannot be planned", setup.ref, error)
                    found = unplanned(setup, name or "", container.engines.choose, problem)
                    plans.append(plan_answer(found, explain=explain))
            return plans

    def run(
        self,
        entities: Iterable[str] | None = None,
        *,
        full_refresh: bool = False,
        retry_failures: bool = False,
        allow_deletes: bool = False,
        allow_empty: bool = False,
        full_listing: bool = False,
        engine: str | None = None,
        wait: float = WAIT_SECONDS,
        generation: str | None = None,
        progress: Progress | None = None,
        expected: dict[str, str] | None = None,
        metrics: str | None = None,
        stopping: threading.Event | None = None,
    ) -> Runs:
        """Bring entities in step with their sources, those of higher priority first.

        `generation`: build or refresh this one, beside the others; by default the promoted one is refreshed.
        `allow_deletes`: delete all that is gone from the source, however much.
        `allow_empty`: let an index become empty if its source is empty.
        `full_listing`: list all of a source as it is now, and read no inventory.
        `expected`: digests of a saved plan, by reference: run exactly that plan, or nothing.
        `metrics`: the address (`HOST:PORT`) at which counters are served during the run, for Prometheus.
        `stopping`: when another thread sets it, the run stops as at Ctrl-C, after the wave in work at the latest, and
        raises `Interrupted`; the next run resumes its job.
        """
        from instep.answers.runs import Runs
        from instep.jobs.run import run_entities
        from instep.jobs.stopping import Stopping, stoppable

        names, watch, name = names_in(entities), progress or Silent(), checked_generation(generation)
        if progress is None and not names:
            self._warn_of_passed_over()
        options = PlanOptions(
            full_refresh, retry_failures, allow_deletes, name, allow_empty=allow_empty, full_listing=full_listing
        )
        container = Container(self.project, spark=self._spark, engine=engine)
        served = counted(metrics, partial(watch.say, "metrics"))
        with closing(container), closing(container.ledger()) as ledger, served as counters:
            context = container.context(ledger, watch, counters)
            try:
                with lineage_sent(container, context):
                    done = run_entities(
                        container.setups(names),
                        context if stopping is None else stoppable(context, stopping),
                        options,
                        wait_seconds=wait,
                        expected=expected,
                        upstream=container.upstream(names),
                        find=container.with_upstream,
                    )
            except Stopping:
                raise Interrupted("the run was stopped", hint="Run again to resume.") from None
        return Runs(done)

    def _warn_of_passed_over(self) -> None:
        """Warn the caller's caller of entities of which nothing is indexed."""
        if told := self.project.passed_over:
            warn(told, stacklevel=3)

    #: `run`, to be awaited. Cancelled, it stops, and is waited for.
    arun = stopped_when_cancelled(run)

    def promote(
        self, ref: str, generation: str, *, allow_deletes: bool = False, allow_empty: bool = False, by: str = ""
    ) -> Promotion:
        """Serve this generation to readers that name none, from now on. Raises `UserError` if its build is not good
        enough. `allow_deletes`: however many fewer rows it has; `allow_empty`: even if it has none.
        """
        from instep.jobs.promote import promote

        found, name = self._ref(ref), checked_generation(generation)
        container = Container(self.project)
        with closing(container.ledger(read_only=True)) as ledger:
            built(ledger, found, name or "")  # No ledger is made just to find that it is empty.
        (setup,) = container.setups([found.entity])
        with closing(container), closing(container.ledger()) as ledger:
            context = container.context(ledger, Silent())
            return promote(setup, name or "", context, allow_deletes=allow_deletes, allow_empty=allow_empty, by=by)

    def status(self, entities: Iterable[str] | None = None, *, generation: str | None = None) -> Answers[Partition]:
        """State, size and freshness of each entity, in the promoted generation or another."""
        from instep.answers.status import entity_status

        container = Container(self.project)
        with closing(container.ledger(read_only=True)) as ledger:
            name = checked_generation(generation)
            return Answers(entity_status(setup, ledger, name) for setup in container.setups(entities))

    def retry_job(
        self, job_id: str, *, engine: str | None = None, wait: float = WAIT_SECONDS, progress: Progress | None = None
    ) -> Runs:
        """Run those entities of a job again in which something failed, with all their failed documents.

        An empty list if nothing failed.
        """
        from instep.answers.jobs import entities_to_retry, find_job
        from instep.answers.runs import Runs

        with closing(Container(self.project).ledger(read_only=True)) as ledger:
            found = entities_to_retry(find_job(ledger, job_id))
        return Runs(
            result
            for generation, names in found.items()
            for result in self.run(
                names, retry_failures=True, generation=generation, engine=engine, wait=wait, progress=progress
            )
        )

    def worker(
        self,
        entities: Iterable[str] | None = None,
        *,
        until_idle: bool = False,
        watch: float | None = None,
        allow_deletes: bool = False,
        engine: str | None = None,
        threads: int | None = None,
        progress: Progress | None = None,
        metrics: str | None = None,
    ) -> None:
        """Work on jobs of these entities (all by default) that any server planned, until interrupted.

        With `until_idle`, it ends when nothing is left to do. With `watch`, it also looks at the sources every so many
        seconds, and indexes what has changed. `threads`: the number that work at once, unless a cluster does the work.
        `metrics`: see `run`.
        """
        from instep.jobs.missing_status import MissingStatus
        from instep.jobs.serve import serve_each_entity
        from instep.pipeline.early_loading import load_early
        from instep.project.models import retries_of
        from instep.requests.messages import Messages
        from instep.requests.schedules import Schedules
        from instep.requests.wants import fail_undeclared

        container = Container(self.project, spark=self._spark, engine=engine, threads=threads)
        names, watching = names_in(entities), progress or Silent()
        served = counted(metrics, partial(watching.say, "metrics"))
        with closing(container), closing(container.ledger()) as ledger, served as counters:
            setups, context = container.setups(names), container.context(ledger, watching, counters)
            # It would take wants, and fail them, which a worker elsewhere could fulfil.
            container.engines.demand_installed(setups)
            kinds, timing, every = self._kinds(), context.timing, context.background.every
            if watch is not None and not until_idle:
                context.background.beside(load_early, "loading")

            def look_for_undeclared() -> bool:
                with suppress(Transient, Unknown):  # The worker itself says that the ledger is away.
                    fail_undeclared(ledger, kinds, after=timing.orphan)
                return True

            look_for_undeclared()
            ends = [every(timing.sweep / 1_000, look_for_undeclared, "undeclared")]
            messages = Messages(
                lambda: container.bus(ledger),
                ledger,
                kinds,
                watching,
                partial(retries_of, self.project),
                namespaces=self.project.scopes,
            )
            missing = MissingStatus({setup.ref.entity for setup in setups}, context)
            schedules = Schedules(
                {setup.ref: each for setup in setups if (each := self.project.schedule_of(setup.ref))},
                ledger,
                partial(retries_of, self.project),
            )
            if schedules.take():
                ends.append(every(timing.poll / 1_000, schedules.take, "schedules"))
            if self.project.bus is not None:
                if until_idle:
                    messages.take()
                    missing.write()
                ends.append(every(timing.poll / 1_000, messages.take, "messages"))
                ends.append(every(timing.poll / 1_000, missing.write, "status"))
            try:
                with lineage_sent(container, context):
                    serve_each_entity(
                        setups,
                        context,
                        until_idle=until_idle,
                        watch=watch,
                        options=PlanOptions(allow_deletes=allow_deletes),
                        anew=lambda: container.setups(names),
                        setups_of=container.setups_of,
                        open_ended=[name for name in self.namespaced if not names or name in names],
                    )
            finally:
                messages.stop()
                missing.stop()
                container.close_bus()  # Ends a question that would wait for half a minute when the bus is away.
                for end in ends:
                    end()

    def configuration(self) -> list[Setting]:
        """All settings of the project, defaults included, without secrets."""
        from instep.answers.configuration import configuration

        return configuration(self.project)

    def failures(self, entities: Iterable[str] | None = None, *, limit: int = 100) -> Answers[Failure]:
        """Documents that could not be indexed, newest first: which, at what stage, why."""
        demand_whole(limit=limit)
        from instep.answers.overview import Failure
        from instep.ledger.failures import FailureFilter

        container = Container(self.project)
        with closing(container.ledger(read_only=True)) as ledger:
            refs = None if entities is None else [setup.ref for setup in container.setups(entities)]
            return Answers(map(Failure.model_validate, ledger.failures.page(only=FailureFilter(refs), limit=limit)))

    @property
    def starts_spark(self) -> bool:
        """Whether `check` starts Spark unasked: its work needs it, or the project says how it is to be started."""
        return Container(self.project).engines.starts_spark

    def check(self, *, spark: bool = False) -> Answers[Finding]:
        """Check Java, Spark, the ledger, and target, source, embedder and transform of each entity. Spark is started if
        the project's work needs it, if the project says how to start it, or if `spark` says so.
        """
        container = Container(self.project, spark=self._spark)
        try:
            return Answers(container.check(spark=spark or container.engines.starts_spark))
        finally:
            container.close()

    def check_cluster(self) -> ClusterState:
        """Check on every executor of Spark that it has what tasks need."""
        container = Container(self.project, spark=self._spark)
        try:
            return container.check_cluster()
        finally:
            container.close()


def _listing(progress: Progress, entity: str) -> Callable[[int], None]:
    return lambda found: progress.listing(entity, found)


__all__ = ["Instep", "load"]
