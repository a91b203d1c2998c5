"""Namespaces: what is deleted with one, whenever its deletion dies, and what is left alone."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest

from instep.bus.bus import Bus
from instep.bus.open import open_bus
from instep.bus.status_reporter import StatusReporter
from instep.domain.counts import Counts
from instep.domain.events import WantCreated, WantFailed
from instep.domain.instances import Reason
from instep.domain.jobs import JobPart, JobState, SlicePlan
from instep.domain.refs import PartitionRef, Scope
from instep.domain.status import status_key
from instep.domain.wants import Retries, WantState
from instep.domain.waves import SliceOutcome
from instep.errors import UserError
from instep.jobs.acquisition import Busy
from instep.jobs.namespaces import delete_namespace, deletion_of, namespaces_of
from instep.ledger.leases import Lease
from instep.ledger.ledger import Ledger
from instep.ledger.open import open_ledger
from instep.ledger.parts import NewPart
from instep.planning.context import Context
from instep.targets.table_target import TableTarget
from tests.doubles.clock import VirtualClock
from tests.doubles.ledger import MemoryLedger
from tests.jobs.progress_log import ProgressLog, context

SCOPE = Scope.parse("42")
INSIDE, BESIDE, SAME_DIGITS = "Issue@42/9970", "Issue@7", "Issue@421"
REFS = ("Issue@42", INSIDE, BESIDE, SAME_DIGITS, "Note@42")


_numbers = itertools.count(1)


class Crash(BaseException):
    """The process dies here."""


class Rows:
    """The part of a table target that a deletion uses: rows by their paths."""

    def __init__(self, entity: str) -> None:
        self.alias = entity
        self.rows: dict[str, set[str]] = defaultdict(set)
        self.epochs: dict[str, int] = {}

    def served(self, alias: str) -> str | None:
        assert alias == self.alias
        return f"{alias}__f1" if self.rows.get(f"{alias}__f1") is not None else None

    def leftovers(self, alias: str, *, idle_seconds: float) -> list[str]:
        return [each for each in self.rows if each != self.served(alias)]

    def exists(self, physical: str) -> bool:
        return physical in self.rows

    def mine(self, name: str) -> bool:
        return True

    def delete_scope(self, physical: str, prefix: str, *, epoch: int) -> None:
        self.epochs[prefix] = max(epoch, self.epochs.get(prefix, 0))
        self.rows[physical] = {path for path in self.rows[physical] if not path.startswith(prefix)}


class World:
    def __init__(self, ledger: Ledger, bus: Bus, clock: VirtualClock) -> None:
        self.ledger, self.bus, self.clock = ledger, bus, clock
        self.targets = {entity: Rows(entity) for entity in ("Issue", "Note")}
        self.steps: list[str] = []
        #: The process is killed before this step.
        self.dies_at: int | None = None
        self.dead = False
        for ref in REFS:
            self.index(PartitionRef.parse(ref))
        self.targets["Issue"].rows["Issue__old"] = {"42/9970/", "7/"}

    def index(self, ref: PartitionRef) -> None:
        """It has a row, a checkpoint, a status key and a dead letter."""
        job = worker = f"{ref}#{next(_numbers)}"
        self.ledger.workers.register(worker, kind="run", host="elsewhere", pid=1)
        self.ledger.jobs.begin(job, worker, {})
        lease = self.ledger.leases.acquire(ref, job, worker)
        assert isinstance(lease, Lease)
        instance = self.ledger.instances.new(lease, Reason.FIRST)
        part = JobPart(ref, instance, f"{ref.entity}__f1", {}, 1, lease.epoch, 0, True)
        self.ledger.parts.plan(job, [NewPart(part, [SlicePlan(0, 0, "", "", 1, 1, 1, b"")])])
        self.ledger.jobs.start(job)
        claims = self.ledger.slices.claim(job, ref, worker, work=9, limit=9)
        done = [SliceOutcome(each.slice_id, each.fence, Counts(read=1, written=1)) for each in claims]
        self.ledger.slices.complete(part, worker, done, job_id=job)
        assert self.ledger.parts.begin_finish(job, ref, worker)
        self.ledger.parts.finish(job, part, JobState.COMPLETED, worker_id=worker, promote=True)
        self.ledger.workers.retire(worker)
        self.targets[ref.entity].rows[f"{ref.entity}__f1"].add(ref.scope.path)
        self.bus.status.put(status_key(ref), {"state": "Indexed", "epoch": lease.epoch})
        letter = f"letter {next(_numbers)}"
        self.ledger.events.append(
            [
                WantCreated(want=letter, refs=(str(ref),), as_of=self.ledger.present() + 1, retries=Retries()),
                WantFailed(want=letter, error="bad", final=True),
            ]
        )

    def delete(self, scope: Scope = SCOPE) -> None:
        """Every step is counted: those of targets, ledger and bus that change something."""
        ledger = cast(
            "Ledger", Stepped(self, self.ledger, "", partitions=Stepped(self, self.ledger.partitions, "drop"))
        )
        bus = cast("Bus", Stepped(self, self.bus, "purge", status=Stepped(self, self.bus.status, "delete")))
        targets = {name: cast("TableTarget", self._stepped(rows)) for name, rows in self.targets.items()}
        delete_namespace(scope, targets, bus, self.context(ledger))

    def _stepped(self, rows: Rows) -> Stepped:
        """Its part in a scope is itself: the rows have their paths."""
        stepped = Stepped(self, rows, "delete_scope")
        stepped._parts["within"] = lambda scope: stepped
        return stepped

    def context(self, ledger: Ledger) -> Context:
        status_reporter = StatusReporter(lambda: self.bus.status, ProgressLog())
        return context(
            ProgressLog(), clock=self.clock, background=self.clock, ledger=ledger, status_reporter=status_reporter
        )

    def left(self) -> dict[str, Any]:
        refs = {each.ref for entity in self.targets for each in self.ledger.checkpoints.of_entity(entity)}
        return {
            "rows": {name: set(paths) for rows in self.targets.values() for name, paths in rows.rows.items()},
            "checkpoints": {str(ref) for ref in refs},
            "keys": {each.key for each in self.bus.status.under("status")},
            "letters": {ref for want in self.ledger.wants.given_up() for ref in want.refs},
        }


class Stepped:
    """A store one of whose calls is a step."""

    def __init__(self, world: World, real: object, step: str, **parts: object) -> None:
        self._world, self._real, self._step, self._parts = world, real, step, parts

    def __getattr__(self, name: str) -> Any:
        if name in self._parts:
            return self._parts[name]
        real = getattr(self._real, name)
        if len(self._world.steps) == self._world.dies_at and (name == self._step or self._world.dead):
            self._world.dead = True  # It cannot even clear away behind itself.
            raise Crash
        if name != self._step:
            return real

        def call(*args: Any, **kwargs: Any) -> Any:
            self._world.steps.append(f"{name} {args[0].ref if isinstance(args[0], Lease) else args[0]}")
            return real(*args, **kwargs)

        return call


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    clock = VirtualClock()
    with closing(open_ledger(f"sqlite:///{tmp_path}/ledger.db", clock=clock)) as ledger:
        yield World(ledger, open_bus(None, ledger), clock)


#: What is left when 42, and all in it, is gone.
REST = {
    "rows": {"Issue__f1": {"7/", "421/"}, "Issue__old": {"7/"}, "Note__f1": set()},
    "checkpoints": {BESIDE, SAME_DIGITS},
    "keys": {"status.7.Issue", "status.421.Issue"},
}


def rest(world: World) -> dict[str, Any]:
    """Dead letters of other namespaces aside."""
    found = world.left()
    found["letters"] = {each for each in found["letters"] if Scope.parse(each.partition("@")[2]).path.startswith("42/")}
    return found


def want(world: World, *refs: str) -> str:
    id = f"want {next(_numbers)}"
    world.ledger.events.append([WantCreated(want=id, refs=refs, as_of=world.ledger.present() + 1)])
    return id


def state(world: World, id: str) -> WantState:
    found = world.ledger.wants.get(id)
    assert found is not None
    return found.state


WANTED = REST | {"letters": set()}


def test_deleting_a_namespace_removes_all_of_it_and_nothing_else(world: World) -> None:
    found = deletion_of(SCOPE, world.targets, world.ledger, world.bus)
    assert list(map(str, found.partitions)) == ["Issue@42", INSIDE, "Note@42"]
    assert found.keys == ["status.42.9970.Issue", "status.42.Issue", "status.42.Note"]
    world.delete()
    assert rest(world) == WANTED
    assert set(world.targets["Issue"].epochs) == {"42/", "42/9970/"}  # a late writer there is refused
    assert deletion_of(SCOPE, world.targets, world.ledger, world.bus).empty
    assert world.ledger.events.verify().differences == ()


def in_memory() -> World:
    clock = VirtualClock()
    ledger = MemoryLedger(clock)
    return World(ledger, open_bus(None, ledger), clock)


@pytest.mark.proof
def test_a_deletion_that_is_killed_anywhere_is_completed_by_the_next() -> None:
    undisturbed = in_memory()
    undisturbed.delete()
    assert len(undisturbed.steps) > 9
    for step in range(len(undisturbed.steps)):
        world = in_memory()
        world.dies_at = step
        with pytest.raises(Crash):
            world.delete()
        assert world.steps == undisturbed.steps[:step]
        world.dies_at = None
        world.clock.sleep(10 * 60)  # The lease of who is dead runs out.
        world.delete()
        assert rest(world) == WANTED, step
        assert world.ledger.events.verify().differences == ()


def test_deletion_removes_requests_then_rows_then_records_then_status() -> None:
    world = in_memory()
    world.delete()
    calls = [each.partition(" ")[0] for each in world.steps]
    assert calls[0] == "purge"
    assert calls.index("drop") > calls.index("delete_scope")
    assert calls.index("delete") > max(place for place, each in enumerate(calls) if each == "drop")


def test_a_namespace_can_be_deleted_twice_and_indexed_again(world: World) -> None:
    world.delete()
    world.delete()
    world.index(PartitionRef.parse(INSIDE))
    assert INSIDE in world.left()["checkpoints"]
    assert "42/9970/" in world.targets["Issue"].rows["Issue__f1"]
    world.delete(Scope.parse("42/9970"))
    assert rest(world) == WANTED


def test_requests_before_a_deletion_are_dropped_and_later_ones_are_done(world: World) -> None:
    """A namespace of which only a want is known, too."""
    gone = [want(world, each) for each in (INSIDE, "Issue@42/7", "Note@42", "Pear@42")]
    other = want(world, BESIDE)
    world.delete()
    assert [state(world, each) for each in gone] == [WantState.CANCELED] * 4
    canceled = world.ledger.wants.get(gone[0])
    assert canceled is not None
    assert canceled.error == "canceled: namespace 42 was deleted"
    assert state(world, other) is WantState.IDLE
    assert {"42/", "42/9970/", "42/7/"} <= set(world.targets["Issue"].epochs)
    assert state(world, want(world, INSIDE)) is WantState.IDLE


def test_nothing_is_forgotten_while_a_job_works_on_a_part_of_it(world: World) -> None:
    id = want(world, INSIDE)
    world.ledger.workers.register("busy", kind="run", host="elsewhere", pid=1)
    world.ledger.jobs.begin("at-it", "busy", {})
    assert isinstance(world.ledger.leases.acquire(PartitionRef.parse("Note@42"), "at-it", "busy"), Lease)
    with pytest.raises(Busy):
        world.delete()
    assert state(world, id) is WantState.IDLE


def test_nothing_is_deleted_while_a_job_works_on_a_part_of_it(world: World) -> None:
    world.ledger.workers.register("busy", kind="run", host="elsewhere", pid=1)
    world.ledger.jobs.begin("at-it", "busy", {})
    assert isinstance(world.ledger.leases.acquire(PartitionRef.parse(INSIDE), "at-it", "busy"), Lease)
    before = world.left()
    with pytest.raises(Busy) as refused:
        world.delete()
    assert refused.value.exit_code == 75
    assert "If that process is gone, it is free in 5m at the latest." in (refused.value.hint or "")
    assert world.left() == before
    assert world.steps == []
    world.ledger.workers.retire("busy")
    world.delete()
    assert rest(world) == WANTED


def test_namespaces_lie_beside_each_other() -> None:
    assert namespaces_of(["42/9970", "7", "42/9970/", "421"]) == [
        Scope.parse("42/9970"),
        Scope.parse("7"),
        Scope.parse("421"),
    ]
    for texts in (["42", "42/9970"], ["42/9970/1", "7", "42/9970"]):
        with pytest.raises(UserError, match="lies in namespace"):
            namespaces_of(texts)
