"""The simulator's world without anything that goes wrong by itself: real use cases, and tests say what happens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

from instep.domain.events import DependencyMissed, InstanceTainted, WantCanceled, WantCreated
from instep.domain.instances import Instance
from instep.domain.jobs import PartStatus
from instep.domain.refs import PartitionRef
from instep.domain.wants import Retries, Want
from instep.entities.plan_request import PlanOptions
from instep.jobs.entity_result import EntityResult
from instep.jobs.serve import serve
from tests.simulator.documents import WRONG, Poison, Source
from tests.simulator.scheduler import Crash, Process
from tests.simulator.simulation import MINUTE, Product, Simulation

REF = PartitionRef("Document")
#: Any will do, as chance has no part in what tests ask of it.
SEED = 1
PLAIN = PlanOptions()


class Quiet(Simulation):
    """One entity, whose documents all go in, and processes that run one after the other."""

    def __init__(self, documents: int = 12) -> None:
        super().__init__(SEED, Product())
        self._scheduler.oversleep = lambda milliseconds: milliseconds
        self._weight, self._buckets = 1.0, 1
        for name in [each for each in self.sources if each != REF.entity]:
            del self.sources[name]
        self.source.shrink(documents)

    @property
    def source(self) -> Source:
        return self.sources[REF.entity]

    def process(self, kind: str, entities: Sequence[str], *, exact: bool = False) -> Process:
        """All on one host: who is dead is known at once."""
        process = super().process(kind, entities, exact=exact)
        process.host = "alpha"
        return process

    # What people do.

    def run_once(self, options: PlanOptions = PLAIN) -> EntityResult:
        """`instep run`; its errors are raised."""
        process = self.start_run([REF.entity], wait=0.0, options=options, exact=True)
        self.to_the_end(process)
        result: Any = process.result
        return result[0]  # type: ignore[no-any-return]  # a process may return anything

    def crashes(self, options: PlanOptions = PLAIN) -> None:
        """`instep run`, killed by a hook (see `kill`)."""
        process = self.start_run([REF.entity], wait=0.0, options=options, exact=True)
        self._scheduler.run(lambda: process.over)
        assert process.dead, "it was not killed"

    def work(self) -> None:
        """A worker, until there is nothing left for it."""
        process = self.process("worker", [REF.entity], exact=True)
        setups, context = self.setups(process, [REF.entity]), self.context(process)
        process.start(lambda: serve(setups, context, until_idle=True))
        self.to_the_end(process)

    def watch(self) -> None:
        """A worker that looks at the source as well, once."""
        process = self.process("worker", [REF.entity], exact=True)
        setups, context = self.setups(process, [REF.entity]), self.context(process)
        process.start(lambda: serve(setups, context, until_idle=True, watch=60.0))
        self.to_the_end(process)

    def to_the_end(self, process: Process) -> None:
        """Its errors are raised."""
        self._scheduler.run(lambda: process.over, deadline=self._scheduler.now + 20 * MINUTE)
        if process.error is not None:
            raise process.error
        assert not process.dead

    def run_until(self, reached: Callable[[], bool]) -> None:
        """All processes that were started."""
        self._scheduler.run(reached)

    def taint(self) -> None:
        self.ledger.events.append([InstanceTainted(instance=self.current.uuid)])

    def want(self, id: str, retries: Retries | None = None) -> None:
        self.ledger.events.append([WantCreated(want=id, refs=(str(REF),), retries=retries)])

    def rest(self, seconds: float) -> None:
        """Let this time pass."""
        process = self.process("run", [])
        process.start(lambda: self.context(process).clock.sleep(seconds))
        self.to_the_end(process)

    def upstream_fails(self) -> None:
        """What the job needs, which is at work just now, cannot be had."""
        job = self.current.worked_on_by
        assert job is not None
        missed = DependencyMissed(job=job, instances=(self.current.uuid,), want="up", missing=("Upstream@global",))
        self.ledger.events.append([missed, WantCanceled(want="up")])

    def transform(self, number: int, *, wrong: bool = False) -> None:
        """Another one; a wrong one fails on every third document."""
        self._fingerprint = {"transform": f"{number}{WRONG if wrong else ''}"}

    def edit(self, *numbers: int, poison: Poison | None = None) -> None:
        """New versions of these documents: all of them if none is named."""
        documents = self.source.documents
        for uri, document in list(documents.items()):
            if int(uri.rsplit("/", 1)[1]) in numbers or not numbers:
                version = document.version + 1
                changed = replace(document, version=version, texts=(f"{uri} v{version}",), poison=poison)
                documents[uri] = self.source.versions[uri, str(version)] = changed

    # What happens at a call.

    def before(self, store: object, name: str, act: Callable[[], None], *, times: int = 1) -> None:
        self._hook(store, name, act, times, first=True)

    def after(self, store: object, name: str, act: Callable[[], None], *, times: int = 1) -> None:
        self._hook(store, name, act, times, first=False)

    def _hook(self, store: object, name: str, act: Callable[[], None], times: int, *, first: bool) -> None:
        *stores, name = name.split(".")
        for each in stores:
            store = getattr(store, each)
        real, left = getattr(store, name), times

        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal left
            acts, left = left > 0, left - 1
            if acts and first:
                act()
            try:
                return real(*args, **kwargs)
            finally:
                if acts and not first:
                    act()

        setattr(store, name, call)

    def kill(self) -> None:
        """The running process."""
        process = self._scheduler.running.process
        process.kill()
        raise Crash(process.name)

    def pause(self, seconds: float) -> None:
        """The running process; others go on."""
        self._scheduler.running.process.sleep(seconds * 1000)

    # What there is.

    @property
    def now(self) -> float:
        """Milliseconds; only who waits lets them pass."""
        return self._scheduler.now

    @property
    def current(self) -> Instance:
        found = self.ledger.instances.canonical(REF)
        assert found is not None
        return found

    @property
    def served(self) -> str | None:
        """The instance that the ledger says is served; readers find the same."""
        checkpoint = self.ledger.checkpoints.get(REF)
        assert self.target.served(REF.entity) == (checkpoint.physical if checkpoint else None)
        assert checkpoint is None or checkpoint.physical in self.target.indexes
        return checkpoint.instance if checkpoint else None

    @property
    def reported_status(self) -> Mapping[str, Any]:
        """The last reported status."""
        (found,) = self._status.under("status")
        assert found.value is not None
        return found.value

    def wanted(self, id: str) -> Want:
        found = self.ledger.wants.get(id)
        assert found is not None
        return found

    def parts(self) -> list[PartStatus]:
        """Of all jobs, the newest last."""
        return [part for job in reversed(self.ledger.jobs.newest(100)) for part in job.parts]

    def sound(self) -> Self:
        """The log leads to what is stored, and what is served is what its manifest says."""
        verified = self.ledger.events.verify()
        assert (verified.differences, dict(verified.skipped)) == ((), {})
        self._checker.histories(self.processes)
        assert not self.world.broken, self.world.broken
        return self


def built(documents: int = 12) -> Quiet:
    """A world in which an index is served."""
    world = Quiet(documents)
    assert world.run_once().promoted
    return world


def missing(world: Quiet, *numbers: int) -> None:
    """These documents are gone from the source."""
    for number in numbers:
        del world.source.documents[f"sim://document/{number}"]


def indexed(world: Quiet) -> set[int]:
    """Documents of what is served, by their numbers."""
    instance = world.served
    assert instance is not None
    return {int(uri.rsplit("/", 1)[1]) for uri in world.ledger.documents.entries(instance)}
