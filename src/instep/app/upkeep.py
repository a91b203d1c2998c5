"""The part of the Python API for upkeep: buckets, differences, repairs, adoption, the ledger's projections."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from instep.answers.answer_list import Answers
from instep.container import Container
from instep.domain.refs import PartitionRef
from instep.entities.generations import build_hint, checked_generation, generation_of
from instep.entities.plan_request import PlanOptions
from instep.errors import UserError
from instep.project import Project
from instep.project.documents import MAX_BUCKETS, DocumentEntity
from instep.telemetry.progress import Progress, Silent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from instep.answers.buckets import Buckets
    from instep.answers.differences import Comparison
    from instep.answers.reconciliations import Reconciliation
    from instep.answers.runs import Runs
    from instep.entities.setup import EntitySetup
    from instep.jobs.adoption import Adoption
    from instep.ledger.ledger import Ledger
    from instep.ledger.verification import Verified

#: How long a run waits for another one on the same entity unless told otherwise, in seconds.
WAIT_SECONDS = 600.0


class Upkeep:
    """The methods of `app.Instep` for upkeep."""

    project: Project
    _spark: SparkSession | None

    def buckets(self, entities: Iterable[str] | None = None, *, generation: str | None = None) -> Answers[Buckets]:
        """Content of each bucket of these entities (all documents by default), and the latency of its changes."""
        from instep.answers.buckets import buckets

        container, name = Container(self.project), checked_generation(generation)
        with closing(container), closing(container.ledger(read_only=True)) as ledger:
            return Answers(buckets(container.documents(entities), ledger, name))

    def diff(
        self,
        entities: Iterable[str] | None = None,
        *,
        generation: str | None = None,
        deep: bool = False,
        progress: Progress | None = None,
    ) -> Answers[Comparison]:
        """Compare targets with source and ledger. Writes nothing. `deep`: also texts, titles and
        vectors against what the source now gives.
        """
        from instep.answers.differences import compare

        container, name = Container(self.project, spark=self._spark), checked_generation(generation)
        with closing(container), closing(container.ledger(read_only=True)) as ledger:
            return Answers(compare(container.documents(entities), ledger, name, progress or Silent(), deep=deep))

    def repair(
        self,
        entities: Iterable[str] | None = None,
        *,
        allow_deletes: bool = False,
        engine: str | None = None,
        wait: float = WAIT_SECONDS,
        generation: str | None = None,
        progress: Progress | None = None,
    ) -> Runs:
        """Compare targets with source and ledger, and repair the differences by a job. Changes of the source are left
        to the next run.
        """
        options = PlanOptions(allow_deletes=allow_deletes, generation=checked_generation(generation), repair=True)
        container = Container(self.project, spark=self._spark, engine=engine)
        with closing(container), closing(container.ledger()) as ledger:
            return _run(container, container.documents(entities), ledger, options, wait=wait, progress=progress)

    def reconciliations(
        self,
        entities: Iterable[str] | None = None,
        *,
        generation: str | None = None,
        progress: Progress | None = None,
    ) -> Answers[Reconciliation]:
        """Compare keys and watermarks of tables with their indexes. Writes nothing."""
        from instep.answers.reconciliations import reconciliations

        container, name = Container(self.project, spark=self._spark), checked_generation(generation)
        with closing(container), closing(container.ledger(read_only=True)) as ledger:
            return Answers(reconciliations(container.table_setups(entities), ledger, name, progress or Silent()))

    def reconcile(
        self,
        entities: Iterable[str] | None = None,
        *,
        allow_deletes: bool = False,
        wait: float = WAIT_SECONDS,
        generation: str | None = None,
        progress: Progress | None = None,
    ) -> Runs:
        """Compare keys and watermarks of tables with their indexes, and repair what differs by a job: rows that are
        gone from the source are deleted, those that are missing or older are read again.
        """
        options = PlanOptions(allow_deletes=allow_deletes, generation=checked_generation(generation), repair=True)
        container = Container(self.project, spark=self._spark)
        with closing(container), closing(container.ledger()) as ledger:
            return _run(container, container.table_setups(entities), ledger, options, wait=wait, progress=progress)

    def rebalance(
        self,
        entity: str,
        buckets: int,
        *,
        allow_deletes: bool = False,
        allow_empty: bool = False,
        engine: str | None = None,
        wait: float = WAIT_SECONDS,
        generation: str | None = None,
        progress: Progress | None = None,
    ) -> Runs:
        """Rebuild an entity with another number of buckets, beside the served index; the new index replaces that once
        it is verified. Declare the same number in the project, too: runs refuse another one.
        """
        if not 1 <= buckets <= MAX_BUCKETS:
            raise UserError(f"{buckets} buckets are out of range", hint=f"Allowed: 1 to {MAX_BUCKETS}.")
        name = checked_generation(generation)
        options = PlanOptions(allow_deletes=allow_deletes, generation=name, reroute=True, allow_empty=allow_empty)
        container = Container(self.project, spark=self._spark, engine=engine)
        with closing(container), closing(container.ledger()) as ledger:
            setups = [replace(setup, buckets=buckets) for setup in container.documents([entity])]
            for setup in setups:
                _demand_something(setup.ref, ledger, generation_of(ledger, setup.ref, name))
            return _run(container, setups, ledger, options, wait=wait, progress=progress)

    def adopt(
        self,
        entities: Iterable[str] | None = None,
        *,
        generation: str | None = None,
        agree: Callable[[Sequence[Adoption]], bool] = lambda _: True,
        by: str = "",
        progress: Progress | None = None,
    ) -> list[Adoption]:
        """Take over indexes that another ledger made: this project's own, if its ledger was lost, or those of a project
        that gives them up. `agree` is called with the found ones first; if it returns False, nothing is written.
        """
        from instep.jobs import adoption

        container, name = Container(self.project, spark=self._spark), checked_generation(generation)
        with closing(container), closing(container.ledger()) as ledger:
            context = container.context(ledger, progress or Silent())
            looked = (
                adoption.find(setup, context, generation_of(ledger, setup.ref, name))
                for setup in container.setups(entities)
            )
            found = [each for each in looked if each is not None]
            if not found or not agree(found):
                return found
            return [adoption.adopt(each, context, by=by) for each in found]

    def migrate_ledger(self) -> str:
        """Make the ledger's tables, or upgrade them. Returns the ledger's name, without secrets."""
        Container(self.project).ledger().close()
        return self.project.ledger_label

    def verify_ledger(self) -> Verified:
        """Replay the ledger's log, and compare the stored projections with it. Changes nothing."""
        with closing(Container(self.project).ledger(read_only=True)) as ledger:
            return ledger.events.verify()

    def rebuild_ledger(self) -> Verified:
        """Rebuild the stored projections from the ledger's log. Returns the differences found before."""
        container = Container(self.project)
        with closing(container.ledger(read_only=True)) as ledger:
            verified = ledger.events.verify()
        if not verified.events and not verified.forgotten:
            return verified  # No ledger is made just to find that it is empty.
        with closing(container.ledger()) as ledger:
            return ledger.events.rebuild_projections()

    def declared_buckets(self, entity: str) -> int | None:
        """The number of buckets that the project declares; None for a table."""
        declared = self.project.entities[entity]
        return declared.buckets if isinstance(declared, DocumentEntity) else None


def _demand_something(ref: PartitionRef, ledger: Ledger, generation: str) -> None:
    """Check that something is built or in work: a first build takes the number of buckets from the project."""
    if ledger.checkpoints.get(ref, generation) is None and ledger.jobs.unfinished(ref, generation) is None:
        raise UserError(f"nothing is built of {ref} that could be rebalanced", hint=build_hint(ledger, ref, generation))


def _run(
    container: Container,
    setups: Sequence[EntitySetup],
    ledger: Ledger,
    options: PlanOptions,
    *,
    wait: float,
    progress: Progress | None,
) -> Runs:
    from instep.answers.runs import Runs
    from instep.jobs.run import run_entities

    return Runs(
        run_entities(
            setups,
            container.context(ledger, progress or Silent()),
            options,
            wait_seconds=wait,
            upstream=container.upstream(setup.ref.entity for setup in setups),
            find=container.with_upstream,
        )
    )
