"""Wants, builds, taints, expiries, failures, rebuilds, missed dependencies, collection and restarts in any order,
against a model that knows nothing of events: one list of builds a partition, and wants that are looked at again
and again until nothing changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from instep.domain import events as e
from instep.domain.counts import Counts
from instep.domain.fold import replay
from instep.domain.instances import Instance, Reason
from instep.domain.lineage import collectable, collectable_wants, history
from instep.domain.snapshot import dump, load
from instep.domain.state import Rejected, State
from tests.domain.book import REF, TOP, UP, Book, check

REFS = [REF, UP, TOP, "Extra@7"]
refs = st.sampled_from(REFS)


@dataclass
class Build:
    state: str = "Missing"
    watermark: int = 0
    waits: set[str] = field(default_factory=set)


@dataclass
class Wish:
    refs: list[str]
    needed: int | None
    state: str = "Idle"
    blocks: list[tuple[str, Build]] = field(default_factory=list)


class Model:
    """What the fold should come to, worked out the slow way."""

    def __init__(self) -> None:
        self.builds: dict[str, list[Build]] = {}
        self.wishes: dict[str, Wish] = {}

    def now(self, ref: str) -> Build | None:
        return self.builds[ref][-1] if ref in self.builds else None

    def state(self, ref: str) -> str:
        build = self.now(ref)
        return "" if build is None else build.state

    def next(self, ref: str, state: str) -> None:
        """The build ends so, and another takes its place."""
        self.builds[ref][-1].state = state
        self.builds[ref].append(Build())

    def content(self, wish: Wish, ref: str) -> bool:
        build = self.now(ref)
        usable = build is not None and build.state in ("Live", "Refreshing")
        return usable and build is not None and (wish.needed is None or build.watermark >= wish.needed)

    def open(self, ref: str) -> Iterator[Wish]:
        for wish in self.wishes.values():
            if wish.state in ("Idle", "Building", "UpstreamBuilding") and ref in wish.refs:
                yield wish

    def fail(self, ref: str, state: str) -> None:
        for wish in list(self.open(ref)):
            if not self.content(wish, ref):
                wish.state = state

    def propagate(self) -> None:
        while self._released() or self._followed():
            pass

    def _released(self) -> bool:
        for id, wish in self.wishes.items():
            if wish.state in ("Idle", "Building", "UpstreamBuilding"):
                continue
            for ref, build in wish.blocks:
                if build is not self.now(ref) or id not in build.waits:
                    continue
                build.waits.discard(id)
                if wish.state != "Successful":
                    self.fail(ref, "UpstreamFailed")
                    if build.state == "Building":
                        self.next(ref, "Failed")
                    elif build.state == "Refreshing":
                        build.state = "Live"
                        build.waits.clear()
                return True
        return False

    def _followed(self) -> bool:
        for wish in self.wishes.values():
            if wish.state not in ("Idle", "Building", "UpstreamBuilding"):
                continue
            rest = [self.now(ref) for ref in wish.refs if not self.content(wish, ref)]
            if not rest:
                now = "Successful"
            elif any(each and each.waits for each in rest):
                now = "UpstreamBuilding"
            elif any(each and each.state in ("Building", "Refreshing") for each in rest):
                now = "Building"
            else:
                now = "Idle"
            if now != wish.state:
                wish.state = now
                return True
        return False

    def needs(self, ref: str) -> set[str]:
        """What a partition waits for, and what that waits for, and so on."""
        found: set[str] = set()
        pending = [ref]
        while pending:
            build = self.now(pending.pop())
            for wait in build.waits if build else ():
                for each in self.wishes[wait].refs:
                    if each not in found:
                        found.add(each)
                        pending.append(each)
        return found


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.book = Book()
        self.model = Model()
        self.number = 0

    def name(self, prefix: str) -> str:
        self.number += 1
        return f"{prefix}{self.number}"

    def emit(self, event: e.Event, *, allowed: bool) -> bool:
        before = self.book.state.copy()
        result = self.book.try_to(event)
        assert isinstance(result, Rejected) != allowed, (event, result)
        if not isinstance(result, Rejected):
            check(self.book.state, before, result)
        return allowed

    def uuid(self, ref: str) -> str:
        instance = self.book.state.current(ref)
        return "unknown" if instance is None else instance.uuid

    def job(self, ref: str) -> str:
        instance = self.book.state.current(ref)
        return (instance.worked_on_by if instance else None) or "idle job"

    @rule(ref=refs)
    def create(self, ref: str) -> None:
        if self.emit(e.InstanceCreated(ref=ref, reason=Reason.FIRST), allowed=not self.model.state(ref)):
            self.model.builds[ref] = [Build()]
            self.model.propagate()

    @rule(ref=refs, others=st.sets(refs))
    def build(self, ref: str, others: set[str]) -> None:
        usable = [
            self.uuid(each) for each in sorted(others - {ref}) if self.model.state(each) in ("Live", "Refreshing")
        ]
        event = e.InstanceBuilding(
            instance=self.uuid(ref), job=self.name("j"), target=50, fingerprint={}, inputs=tuple(usable)
        )
        if self.emit(event, allowed=self.model.state(ref) == "Missing"):
            self.model.builds[ref][-1].state = "Building"
            self.model.propagate()

    @rule(ref=refs, watermark=st.integers(0, 50))
    def live(self, ref: str, watermark: int) -> None:
        event = e.InstanceLive(
            instance=self.uuid(ref), job=self.job(ref), watermark=watermark, physical="p", counts=Counts()
        )
        if self.emit(event, allowed=self.model.state(ref) == "Building"):
            self.model.builds[ref][-1] = Build("Live", watermark)
            self.model.propagate()

    @rule(ref=refs, how=st.sampled_from(["taint", "expire", "rebuild"]), times=st.integers(1, 3))
    def whole_lives(self, ref: str, how: str, times: int) -> None:
        """Chance alone seldom makes long histories."""
        for _ in range(times):
            self.replace(ref, how)
            self.create(ref)
            self.build(ref, set(REFS))
            self.live(ref, 50)
            self.serve(ref)

    @rule(ref=refs, retry=st.booleans())
    def fail(self, ref: str, retry: bool) -> None:
        event = e.InstanceFailed(instance=self.uuid(ref), job=self.job(ref), error="why", retry=retry)
        if self.emit(event, allowed=self.model.state(ref) == "Building"):
            if not retry:
                self.model.fail(ref, "Failed")
            self.model.next(ref, "Failed")
            self.model.propagate()

    @rule(ref=refs)
    def refresh(self, ref: str) -> None:
        event = e.InstanceRefreshing(instance=self.uuid(ref), job=self.name("j"), floor=0, target=100)
        if self.emit(event, allowed=self.model.state(ref) == "Live"):
            self.model.builds[ref][-1].state = "Refreshing"
            self.model.propagate()

    @rule(ref=refs, watermark=st.integers(0, 100))
    def refreshed(self, ref: str, watermark: int) -> None:
        build = self.model.now(ref)
        event = e.InstanceRefreshed(instance=self.uuid(ref), job=self.job(ref), watermark=watermark, counts=Counts())
        allowed = build is not None and build.state == "Refreshing" and watermark >= build.watermark
        if self.emit(event, allowed=allowed):
            self.model.builds[ref][-1] = Build("Live", watermark)
            self.model.propagate()

    @rule(ref=refs, retry=st.booleans())
    def refresh_failed(self, ref: str, retry: bool) -> None:
        event = e.RefreshFailed(instance=self.uuid(ref), job=self.job(ref), error="why", retry=retry)
        if self.emit(event, allowed=self.model.state(ref) == "Refreshing"):
            if not retry:
                self.model.fail(ref, "Failed")
            self.model.builds[ref][-1] = Build("Live", self.model.builds[ref][-1].watermark)
            self.model.propagate()

    @rule(ref=refs, how=st.sampled_from(["taint", "expire", "rebuild", "fingerprint"]))
    def replace(self, ref: str, how: str) -> None:
        uuid = self.uuid(ref)
        event: e.Event = {
            "taint": e.InstanceTainted(instance=uuid, why="wrong"),
            "expire": e.InstanceExpired(instance=uuid, ttl=5),
            "rebuild": e.InstanceCreated(ref=ref, reason=Reason.REBUILD),
            "fingerprint": e.InstanceCreated(ref=ref, reason=Reason.FINGERPRINT),
        }[how]
        if self.emit(event, allowed=self.model.state(ref) == "Live"):
            self.model.next(ref, {"taint": "Tainted", "expire": "Expired"}.get(how, "Live"))
            self.model.propagate()

    @rule(ref=refs)
    def drop(self, ref: str) -> None:
        known = ref in self.model.builds or any(self.model.open(ref))
        if self.emit(e.PartitionDropped(ref=ref, by="ann"), allowed=known):
            for wish in list(self.model.open(ref)):
                wish.state = "Canceled"
            self.model.builds.pop(ref, None)
            self.model.propagate()
            assert not {ref for ref, _ in self.book.state.served} & {ref}

    @rule(chosen=st.lists(refs, min_size=1, max_size=3, unique=True), needed=st.none() | st.integers(0, 110))
    def want(self, chosen: list[str], needed: int | None) -> None:
        id = self.name("w")
        self.emit(e.WantCreated(want=id, refs=tuple(chosen), as_of=needed), allowed=True)
        self.model.wishes[id] = Wish(chosen, needed)
        self.model.propagate()

    @precondition(lambda self: self.model.wishes)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(list(self.model.wishes)))
        wish = self.model.wishes[id]
        if self.emit(e.WantCanceled(want=id), allowed=wish.state in ("Idle", "Building", "UpstreamBuilding")):
            wish.state = "Canceled"
            self.model.propagate()

    @rule(ref=refs, missing=refs, needed=st.none() | st.integers(0, 110))
    def miss(self, ref: str, missing: str, needed: int | None) -> None:
        id = self.name("d")
        build = self.model.now(ref)
        event = e.DependencyMissed(
            job=self.job(ref), instances=(self.uuid(ref),), want=id, missing=(missing,), as_of=needed
        )
        allowed = build is not None and ref != missing and ref not in self.model.needs(missing)
        if self.emit(event, allowed=allowed) and build is not None:
            self.model.wishes[id] = Wish([missing], needed, blocks=[(ref, build)])
            # The fold lets no want wait for a dependency that is there already; nor does this.
            build.waits.add(id)
            self.model.propagate()

    @rule(ref=refs)
    def serve(self, ref: str) -> None:
        self.emit(e.InstanceServed(instance=self.uuid(ref)), allowed=self.model.state(ref) in ("Live", "Refreshing"))

    @precondition(lambda self: any(each.left for each in self.book.state.instances.values()))
    @rule(data=st.data())
    def report_too_late(self, data: st.DataObject) -> None:
        """A job that lost its instance, or a user who means the one before."""
        uuid = data.draw(st.sampled_from([each.uuid for each in self.book.state.instances.values() if each.left]))
        job = self.book.state.instances[uuid].job or "j"
        late: list[e.Event] = [
            e.InstanceLive(instance=uuid, job=job, watermark=1, physical="p", counts=Counts()),
            e.InstanceFailed(instance=uuid, job=job, error="late"),
            e.InstanceTainted(instance=uuid),
        ]
        self.emit(data.draw(st.sampled_from(late)), allowed=False)

    @rule(keep=st.sampled_from([0, 0, 50, 20_000]))
    def collect(self, keep: int) -> None:
        state, now = self.book.state, self.book.now
        before = dict(state.instances)
        uuids = collectable(state, now, keep)
        wants = collectable_wants(state, self.book.now, keep)
        self.emit(e.Collected(instances=tuple(uuids), wants=tuple(wants)), allowed=True)
        for id in wants:
            del self.model.wishes[id]
        young = {each.uuid for each in before.values() if each.ended_at is None or now - each.ended_at < keep}
        self.forgotten_as_it_should_be(before, young | set(state.served.values()))

    def forgotten_as_it_should_be(self, before: dict[str, Instance], sure: set[str]) -> None:
        """`sure`: what is canonical, served or young stays, so does what waits for an open want, and the one before
        each of these; of all that is there, what it was made from; and nothing that is neither of these.
        """
        state = self.book.state
        there = state.instances.keys()
        assert sure <= there
        waited_for = {each for want in state.wants.values() if not want.state.ended for each in want.blocks}
        befores = {before[each].previous for each in sure | (waited_for & before.keys())} & before.keys()
        assert befores <= there
        inputs = {each for instance in state.instances.values() for each in instance.inputs}
        assert inputs <= there
        assert there <= sure | befores | inputs | waited_for

    @rule()
    def crash(self) -> None:
        """A process starts again from a snapshot: nothing of what it knew was only in memory."""
        loaded = load(dump(self.book.state))
        assert isinstance(loaded, State)
        assert loaded == self.book.state
        assert list(loaded.served) == list(self.book.state.served)
        self.book.state = loaded

    @invariant()
    def same_as_the_model(self) -> None:
        state = self.book.state
        found: dict[str, Any] = {
            ref: instance.state.value
            for (ref, _), uuid in state.canonical.items()
            for instance in [state.instances[uuid]]
        }
        assert found == {ref: builds[-1].state for ref, builds in self.model.builds.items()}
        assert {id: want.state.value for id, want in state.wants.items()} == {
            id: wish.state for id, wish in self.model.wishes.items()
        }

    def teardown(self) -> None:
        """The log says it all: folded again, as text, in one go or in two, it gives the same."""
        rows = [
            (each.sequence, each.at, each.event.KIND, each.event.VERSION, e.encode(each.event))
            for each in self.book.log
            if isinstance(each.event, e.Event)
        ]
        whole = replay(e.read(rows))
        assert whole == self.book.state
        assert not whole.skipped
        half = load(dump(replay(e.read(rows[: len(rows) // 2]))))
        assert isinstance(half, State)
        assert replay(e.read(rows[len(rows) // 2 :]), half) == whole
        for ref in REFS:
            sequences = [each.sequence for each in history(whole, ref)]
            assert sequences == sorted(set(sequences), reverse=True)


Machine.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestMachine = Machine.TestCase
