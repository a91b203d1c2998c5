"""The part of the Python API for requests, handlers and namespaces."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from instep.container import Container
from instep.domain.refs import GLOBAL, PartitionRef, RefError
from instep.errors import Away, Conflict, InstepError, Transient, Unknown, UserError
from instep.project import Project
from instep.telemetry.exposition import counted
from instep.telemetry.progress import Progress, Silent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from instep.answers.checkpoints import Checkpoint
    from instep.answers.status import Matrix
    from instep.bus.bus import Bus, DeadLetter
    from instep.domain.requests import Kind
    from instep.jobs.namespaces import Deletion
    from instep.requests.dispatch import Dispatched
    from instep.requests.handlers import Handler


class Handling:
    """The methods of `app.Instep` for requests, handlers and namespaces."""

    project: Project
    _spark: SparkSession | None

    # Requests.

    def dispatch(
        self,
        namespaces: Iterable[str] = (),
        *,
        global_entities: bool = False,
        watermark: datetime | None = None,
    ) -> list[Dispatched]:
        """Ask handlers, wherever they are, to have these scopes fresh as of a time (now, if none is given). Returns at
        once. By default all that is declared: the global entities, and all namespaces.
        """
        from instep.jobs.namespaces import namespaces_of
        from instep.requests.dispatch import dispatch, scopes_to_ask

        kinds = self._kinds()
        named = namespaces_of(namespaces)
        scopes = scopes_to_ask(kinds, self.project.scopes, named=named, globals_too=global_entities)
        container = Container(self.project)
        with closing(container), closing(container.ledger()) as ledger:
            now = ledger.now()
            wanted = now if watermark is None else round(watermark.timestamp() * 1_000)
            return dispatch(container.bus(ledger), kinds, scopes, watermark=wanted, now=now)

    def dispatch_every(
        self,
        pause: timedelta,
        namespaces: Iterable[str] = (),
        *,
        global_entities: bool = False,
        tell: Callable[[Sequence[Dispatched] | InstepError], None],
    ) -> None:
        """Dispatch again and again, until interrupted. `tell` is given what was asked, or why that did not work."""
        named, clock = tuple(namespaces), Container(self.project).clock
        while True:
            began = clock.monotonic()
            try:
                tell(self.dispatch(named, global_entities=global_entities))
            except (Transient, Unknown, Away) as error:
                tell(error)  # The next one asks for more.
            clock.sleep(max(0.0, began + pause.total_seconds() - clock.monotonic()))

    def serve_handlers(
        self,
        entities: Iterable[str] | None = None,
        *,
        until_idle: bool = False,
        engine: str | None = None,
        progress: Progress | None = None,
        metrics: str | None = None,
    ) -> None:
        """Index what is requested of these entities (all by default), until interrupted; or, with `until_idle`, until
        nothing can be taken. `metrics` as in `run`.
        """
        from instep.requests.handler_pool import HandlerPool

        handlers = self._handlers(entities)
        watch = progress or Silent()
        container = Container(self.project, spark=self._spark, engine=engine)
        served = counted(metrics, partial(watch.say, "metrics"))
        with closing(container), closing(container.ledger()) as ledger, served as counters:
            context = container.context(ledger, watch, counters)
            # Others are not waited for: while they are at it, the handler has something else to do.
            indexer = container.indexer(context, wait_seconds=0.0)
            with HandlerPool(
                handlers, container.bus(ledger), indexer, context, stopping=threading.Event(), until_idle=until_idle
            ) as pool:
                watch.say("handlers", f"ready for requests for {', '.join(each.entity for each in handlers)}")
                pool.wait()

    def letters(self, entities: Iterable[str] | None = None) -> list[DeadLetter]:
        """Requests that were given up; of all entities by default."""
        asked = list(entities or ())
        names = {each for name in asked for each in self.project.named(name) or (name,)}
        container = Container(self.project)
        with closing(container), closing(container.ledger(read_only=True)) as ledger:
            return [each for each in container.bus(ledger).dead_letters() if not names or each.entity in names]

    def requeue_letters(self, refs: Iterable[str] | None = None) -> list[PartitionRef]:
        """Have dead letters tried again, with all their attempts; by default all."""
        return self._answer_letters(refs, lambda bus, ref: bus.requeue(ref.entity, ref.scope))

    def drop_letters(self, refs: Iterable[str] | None = None) -> list[PartitionRef]:
        """Forget dead letters; by default all."""
        return self._answer_letters(refs, lambda bus, ref: bus.drop(ref.entity, ref.scope))

    def _answer_letters(
        self, refs: Iterable[str] | None, answer: Callable[[Bus, PartitionRef], None]
    ) -> list[PartitionRef]:
        there = [each.ref for each in self.letters()]
        named = there if refs is None else list(dict.fromkeys(map(_letter, refs)))
        missing = [str(ref) for ref in named if ref not in there]
        if missing:
            raise UserError(f"there is no dead letter of {', '.join(missing)}", hint="See `instep letters list`.")
        if not named:
            return []  # No ledger is made just to find that it is empty.
        container = Container(self.project)
        done = []
        with closing(container), closing(container.ledger()) as ledger:
            bus = container.bus(ledger)
            for ref in named:
                try:
                    answer(bus, ref)
                except Conflict:
                    continue  # Another process has just handled it.
                done.append(ref)
        return done

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
        """Checkpoints of these entities (all by default) by their keys, and the slices of what is being built; in these
        namespaces alone, if any are named.
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
        """Delete everything of a namespace, and of those in it, in all entities: rows, checkpoints, status. After a
        crash in the middle, the next call does the rest. Raises `UserError` while a job works on it.
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
        asked, named = set(entities or ()), set[str]()
        for name in asked:
            found = self.project.named(name)
            if not found:
                raise UserError(f"no entity is named {name!r}", hint=f"Declared: {', '.join(self.project.own_names)}.")
            named.update(found)
        return [name for name in self.project.entities if not asked or name in named]

    def _kinds(self) -> dict[str, Kind]:
        from instep.domain.requests import Kind

        declared = self.project.entities.items()
        return {name: Kind.NAMESPACE if entity.namespaced else Kind.GLOBAL for name, entity in declared}

    def _handlers(self, entities: Iterable[str] | None) -> list[Handler]:
        from instep.project.models import policy_of
        from instep.requests.handlers import Handler

        kinds = self._kinds()
        return [Handler(name, kinds[name], policy_of(self.project, kinds[name])) for name in self._names(entities)]


def _letter(text: str) -> PartitionRef:
    try:
        return PartitionRef.parse(text)
    except RefError as error:
        raise UserError(str(error)) from error
