"""The part of the Python API for dead letters and namespaces."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

from instep.container import Container
from instep.domain.refs import GLOBAL, PartitionRef, RefError
from instep.domain.texts import names_in, unknown_name
from instep.errors import UserError
from instep.project import Project
from instep.telemetry.progress import Progress, Silent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from instep.answers.checkpoints import Checkpoint
    from instep.answers.status import Matrix
    from instep.answers.wants import Letter
    from instep.domain.requests import Kind
    from instep.jobs.namespaces import Deletion


class Namespaces:
    """The methods of `app.Instep` for dead letters and namespaces."""

    project: Project
    _spark: SparkSession | None

    # Dead letters.

    def letters(self, entities: Iterable[str] | None = None) -> list[Letter]:
        """List the dead letters: requests of messages and schedules that were given up.
        `entities`: all by default.
        """
        from instep.requests.dead_letters import letters

        asked = names_in(entities)
        names = {each for name in asked for each in self.project.named(name) or (name,)}
        with closing(Container(self.project).ledger(read_only=True)) as ledger:
            return [each for each in letters(ledger) if not names or each.ref.entity in names]

    def requeue_letters(self, refs: Iterable[str] | None = None, *, by: str = "") -> list[PartitionRef]:
        """Have dead letters tried again, with all their attempts; by default all letters of the project's partitions.
        Raises `UserError` if a named letter belongs to no such partition.
        """
        from instep.entities.partitions import demand_declared
        from instep.project.models import retries_of
        from instep.requests.dead_letters import requeue

        named, container = [], Container(self.project)
        for ref in self._letters(refs):
            try:
                demand_declared(ref, self.project)
                named.append(ref)
            except UserError:
                if refs is not None:
                    raise
        if not named:
            return []  # No ledger is made just to find that it is empty.
        with closing(container.ledger()) as ledger:
            return requeue(ledger, container.ids, named, partial(retries_of, self.project), by=by)

    def drop_letters(self, refs: Iterable[str] | None = None) -> list[PartitionRef]:
        """Forget dead letters; by default all."""
        from instep.requests.dead_letters import drop

        named = self._letters(refs)
        if not named:
            return []
        with closing(Container(self.project).ledger()) as ledger:
            return drop(ledger, named)

    def _letters(self, refs: Iterable[str] | None) -> list[PartitionRef]:
        there = [each.ref for each in self.letters()]
        named = there if refs is None else list(dict.fromkeys(map(_letter, names_in(refs))))
        missing = [str(ref) for ref in named if ref not in there]
        if missing:
            raise UserError(f"there is no dead letter of {', '.join(missing)}", hint="See `instep letters list`.")
        return named

    # What is there.

    @property
    def namespaced(self) -> list[str]:
        """The entities that are indexed by namespaces."""
        return [name for name, entity in self.project.entities.items() if entity.namespaced]

    def matrix(self, namespaces: Iterable[str] = (), entities: Iterable[str] | None = None) -> Matrix:
        """States of the namespaced entities in these namespaces; by default in those that are declared or known."""
        from instep.answers.status import status_matrix
        from instep.jobs.namespaces import namespaces_of

        named = namespaces_of(namespaces)
        names = [name for name in self._names(entities) if name in self.namespaced]
        if named and not names:
            raise UserError("no such entity has a `scope`: it is in no namespace", hint="Leave --namespace out.")
        container = Container(self.project)
        with closing(container), closing(container.ledger(read_only=True)) as ledger:
            return status_matrix(
                lambda: container.bus(ledger).status, names, named or self.project.scopes, only=bool(named)
            )

    def checkpoints(self, entities: Iterable[str] | None = None, namespaces: Iterable[str] = ()) -> list[Checkpoint]:
        """Checkpoints of these entities (all by default) by their keys, and of slices of builds in work; if namespaces
        are named, only in these.
        """
        from instep.answers.checkpoints import checkpoints
        from instep.jobs.namespaces import namespaces_of

        named = namespaces_of(namespaces)
        with closing(Container(self.project).ledger(read_only=True)) as ledger:
            views: list[Checkpoint] = []
            for name in self._names(entities):
                is_namespaced = self.project.entities[name].namespaced
                if named and not is_namespaced:
                    continue
                scopes = (named or self.project.scopes) if is_namespaced else [GLOBAL]
                views += checkpoints(ledger, name, scopes, only=bool(named))
            return views

    def deletion(self, namespace: str) -> Deletion:
        """List what `delete_namespace` would delete, besides rows."""
        from instep.jobs.namespaces import deletion_of, namespace_of

        scope = namespace_of(namespace)
        container = Container(self.project)
        with closing(container), closing(container.ledger(read_only=True)) as ledger:
            return deletion_of(scope, self.namespaced, ledger, container.bus(ledger))

    def delete_namespace(self, namespace: str, *, by: str = "", progress: Progress | None = None) -> Deletion:
        """Delete a namespace, and those below it, in all entities: rows, checkpoints, status. After a crash in the
        middle, the next call does the rest. Raises `UserError` while a job works on it.
        """
        from instep.jobs.namespaces import delete_namespace, namespace_of

        scope = namespace_of(namespace)
        container = Container(self.project, spark=self._spark)
        with closing(container), closing(container.ledger()) as ledger:
            targets = {name: container.table_target(self.project.target_of(name)) for name in self.namespaced}
            context = container.context(ledger, progress or Silent())
            return delete_namespace(scope, targets, container.bus(ledger), context, by=by)

    # Parts.

    def _names(self, entities: Iterable[str] | None) -> list[str]:
        """As they are declared; all of them, if none is named."""
        asked, named = set(names_in(entities)), set[str]()
        for name in asked:
            found = self.project.named(name)
            if not found:
                what, hint = unknown_name("entity", name, self.project.own_names)
                raise UserError(what, hint=hint)
            named.update(found)
        return [name for name in self.project.entities if not asked or name in named]

    def _kinds(self) -> dict[str, Kind]:
        from instep.domain.requests import Kind

        declared = self.project.entities.items()
        return {name: Kind.NAMESPACE if entity.namespaced else Kind.GLOBAL for name, entity in declared}


def _letter(text: str) -> PartitionRef:
    try:
        return PartitionRef.parse(text)
    except RefError as error:
        raise UserError(str(error)) from error
