"""A worker of its own, in a thread, for each wanted entity, so that none waits behind another's work."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial

from instep.domain.refs import PartitionRef
from instep.domain.wants import Want
from instep.errors import InstepError, Transient, Unknown
from instep.jobs.idleness import Idleness
from instep.jobs.job_starter import passes
from instep.jobs.stopping import StoppableClock, Stopping
from instep.jobs.want_scheduler import fail_wants
from instep.own_faults import own_faults
from instep.planning.context import Context

#: Serves the partitions that there are in this context until it is told to stop, under this name.
Serve = Callable[[Callable[[], Sequence[PartitionRef]], Context, threading.Event, str], None]


def of_one_entity(want: Want) -> bool:
    """Whether it names partitions of one entity alone. One that names more is done as one job."""
    return len({ref.partition("@")[0] for ref in want.refs}) == 1


class EntityWorkers:
    """The threads of one process. Use it as a context manager: on exit they stop, and give back what they hold.

    A thread starts with the first want of its entity, and stays. It serves the partitions that are `declared`, and of
    an `open_ended` entity those that a want names in other namespaces, as long as one does.
    """

    def __init__(
        self,
        declared: Mapping[str, Sequence[PartitionRef]],
        open_ended: Collection[str],
        context: Context,
        serve: Serve,
        idleness: Idleness | None = None,
    ) -> None:
        """`idleness`: of this process, if that is to end when all are idle."""
        self._declared = declared
        self._open_ended = open_ended
        self._context = context
        self._serve = serve
        self._idleness = idleness
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._threads: dict[str, threading.Thread] = {}
        self._undeclared: dict[str, tuple[PartitionRef, ...]] = {}
        self._failure: BaseException | None = None

    def __enter__(self) -> EntityWorkers:
        timing = self._context.timing
        self._end_looks = self._context.background.every(timing.poll / 1_000, self._look, "wants")
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._context.status_reporter.stop()  # A thread may be waiting for a bus that is away.
        self._end_looks()
        deadline = self._context.clock.monotonic() + self._context.timing.grace / 1_000
        for thread in list(self._threads.values()):
            thread.join(max(0.0, deadline - self._context.clock.monotonic()))

    def has(self, ref: PartitionRef) -> bool:
        """Whether a thread looks after the partition."""
        return ref.entity in self._threads

    def begin(self) -> bool:
        """Start a thread for each entity that is wanted and has none. Whether there was any. Raises the error that a
        thread has ended with.
        """
        if self._failure is not None:
            raise self._failure
        with self._lock:
            new = self._wanted() - self._threads.keys()
            for entity in sorted(new):
                if self._idleness is not None:
                    self._idleness.add(entity)
                run = partial(self._run, entity)
                self._threads[entity] = threading.Thread(target=run, name=f"worker-{entity}", daemon=True)
                self._threads[entity].start()
        return bool(new)

    def _look(self) -> bool:
        try:
            if not self._stopping.is_set() and self._failure is None:
                self.begin()
        except (Transient, Unknown):
            pass  # The worker itself says that the ledger is away.
        return not self._stopping.is_set()

    def _wanted(self) -> set[str]:
        """The entities that are wanted. Also notes the undeclared namespaces in which they are."""
        ledger, entities = self._context.ledger, set[str]()
        undeclared: dict[str, list[PartitionRef]] = {}
        for ref in ledger.wants.refs_in_hand():
            if ref in self._declared.get(ref.entity, ()):
                entities.add(ref.entity)
            elif ref.entity in self._open_ended and not ref.scope.is_global:
                undeclared.setdefault(ref.entity, []).append(ref)
        # Their wants may have ended already, and their jobs not.
        before = [ref for refs in self._undeclared.values() for ref in refs]
        busy = {each.part.ref for each in ledger.open_parts.on(before) if each.error is None} if before else set()
        for ref in sorted(busy):
            if ref not in undeclared.setdefault(ref.entity, []):
                undeclared[ref.entity].append(ref)
        self._undeclared = {entity: tuple(refs) for entity, refs in undeclared.items()}
        return entities | undeclared.keys()

    def _partitions(self, entity: str) -> list[PartitionRef]:
        return [*self._declared.get(entity, ()), *self._undeclared.get(entity, ())]

    def _run(self, entity: str) -> None:
        context = replace(self._context, clock=StoppableClock(self._context.clock, self._stopping))
        try:
            with own_faults():
                self._serve(partial(self._partitions, entity), context, self._stopping, entity)
        except Stopping:
            pass
        except InstepError as error:
            # Its source cannot be opened, say: the others go on, and this is tried again when it is wanted.
            self._context.progress.say(entity, str(error))
            if not self._refused(entity, error):
                if self._idleness is not None:
                    self._idleness.forget(entity)  # The process may end during the pause.
                self._stopping.wait(self._context.timing.rest / 1_000)
            with self._lock:
                del self._threads[entity]
                if self._idleness is not None:
                    self._idleness.forget(entity, again=True)
        except BaseException as error:
            self._failure = error

    def _refused(self, entity: str, error: InstepError) -> bool:
        """Spend an attempt of the wants on what a user has to mend. Whether there were any; an outage spends none."""
        try:
            return not passes(error) and fail_wants(self._context.ledger, self._partitions(entity), str(error))
        except InstepError:
            return False  # The ledger is away, too.
