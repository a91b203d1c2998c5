"""A log that is written and folded at the same time, books in every state, and what must hold between two states."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from instep.domain import events as e
from instep.domain.counts import Counts
from instep.domain.fold import apply
from instep.domain.instances import INSTANCE_TRANSITIONS, Instance, InstanceState, Reason
from instep.domain.state import Change, Rejected, State
from instep.domain.wants import WANT_TRANSITIONS, Want, WantState

REF, UP, TOP = "Chunk@global", "Document@global", "Answer@42/9970"
FINGERPRINT = {"chunker": "1"}


class Book:
    """A log that is written and folded at the same time. One event a second."""

    def __init__(self) -> None:
        self.state = State()
        self.log: list[e.Recorded] = []

    @property
    def now(self) -> int:
        return 1_000_000 + 1000 * len(self.log)

    def recorded(self, event: e.Event) -> e.Recorded:
        return e.Recorded(self.state.sequence + 1, self.now, event)

    def try_to(self, event: e.Event) -> tuple[Change, ...] | Rejected:
        recorded = self.recorded(event)
        result = apply(self.state, recorded)
        if not isinstance(result, Rejected):
            self.log.append(recorded)
        return result

    def do(self, event: e.Event) -> tuple[Change, ...]:
        result = self.try_to(event)
        assert not isinstance(result, Rejected), result.reason
        return result

    def refused(self, event: e.Event) -> str:
        before = self.state.copy()
        result = self.try_to(event)
        assert isinstance(result, Rejected)
        assert self.state == before
        return result.name

    def now_of(self, ref: str = REF, generation: str = "") -> Instance:
        instance = self.state.current(ref, generation)
        assert instance is not None
        return instance

    def want(self, id: str, *refs: str, **values: Any) -> WantState:
        self.do(e.WantCreated(want=id, refs=refs or (REF,), **values))
        return self.state_of(id)

    def state_of(self, id: str) -> WantState:
        return self.state.wants[id].state

    def make(self, ref: str = REF, generation: str = "") -> Instance:
        reason = Reason.GENERATION if generation else Reason.FIRST
        self.do(e.InstanceCreated(ref=ref, reason=reason, generation=generation))
        return self.now_of(ref, generation)

    def build(self, ref: str = REF, job: str = "job", generation: str = "", inputs: tuple[str, ...] = ()) -> Instance:
        uuid = self.now_of(ref, generation).uuid
        self.do(e.InstanceBuilding(instance=uuid, job=job, target=100, fingerprint=FINGERPRINT, inputs=inputs))
        return self.now_of(ref, generation)

    def live(self, ref: str = REF, job: str = "job", watermark: int = 100, generation: str = "") -> Instance:
        uuid = self.now_of(ref, generation).uuid
        self.do(e.InstanceLive(instance=uuid, job=job, watermark=watermark, physical="p", counts=Counts()))
        return self.now_of(ref, generation)

    def built(self, ref: str = REF, job: str = "job", watermark: int = 100) -> Instance:
        if self.state.current(ref) is None:
            self.make(ref)
        self.build(ref, job)
        return self.live(ref, job, watermark)

    def refresh(self, ref: str = REF, job: str = "refresh", target: int = 200) -> Instance:
        instance = self.now_of(ref)
        floor = instance.watermark or 0
        self.do(e.InstanceRefreshing(instance=instance.uuid, job=job, floor=floor, target=target))
        return self.now_of(ref)

    def miss(self, want: str, missing: str, ref: str = REF, job: str = "job") -> None:
        self.do(e.DependencyMissed(job=job, instances=(self.now_of(ref).uuid,), want=want, missing=(missing,)))

    def fail(self, ref: str = REF, job: str = "job", *, retry: bool = False) -> Instance:
        uuid = self.now_of(ref).uuid
        self.do(e.InstanceFailed(instance=uuid, job=job, error="disk full", retry=retry))
        return self.state.instances[uuid]


def states() -> dict[str, Callable[[], Book]]:
    """A book for each state that an instance and a want can be in, and for the empty ledger."""

    def missing() -> Book:
        book = Book()
        book.make()
        book.want("w")
        return book

    def building() -> Book:
        book = missing()
        book.build()
        return book

    def waiting() -> Book:
        book = building()
        book.miss("up", UP)
        return book

    def live() -> Book:
        book = building()
        book.live()
        book.do(e.InstanceServed(instance=book.now_of().uuid))
        return book

    def refreshing() -> Book:
        book = live()
        book.want("w2", as_of=150)
        book.refresh(job="job")
        return book

    def tainted() -> Book:
        book = live()
        book.do(e.InstanceTainted(instance=book.now_of().uuid))
        return book

    def expired() -> Book:
        book = live()
        book.do(e.InstanceExpired(instance=book.now_of().uuid))
        return book

    def failed() -> Book:
        book = building()
        book.fail()
        return book

    def rebuilt() -> Book:
        book = live()
        book.do(e.InstanceCreated(ref=REF, reason=Reason.REBUILD))
        return book

    def upstream_failed() -> Book:
        book = waiting()
        book.do(e.WantCanceled(want="up"))
        return book

    def canceled() -> Book:
        book = missing()
        book.do(e.WantCanceled(want="w"))
        return book

    named = (missing, building, waiting, live, refreshing, tainted, expired, failed, rebuilt, upstream_failed, canceled)
    return {"empty": Book, **{each.__name__: each for each in named}}


def check(state: State, before: State, changes: tuple[Change, ...]) -> None:
    """What must hold between two states, one event apart."""
    for uuid, old in before.instances.items():
        new = state.instances.get(uuid)
        if new is None:
            assert old.left
        elif old.left:
            assert new == old
        elif new.state is not old.state:
            assert new.state in INSTANCE_TRANSITIONS[old.state]
    for id, want in before.wants.items():
        now = state.wants.get(id)
        if now is not None and want.given_up and now != want:
            assert now.state is WantState.CANCELED
        elif now is None or want.state.ended:
            assert now in (None, want)
        elif now.state is not want.state:
            assert now.state in WANT_TRANSITIONS[want.state]
    for (ref, generation), uuid in state.canonical.items():
        instance = state.instances[uuid]
        assert (instance.ref, instance.generation, instance.left) == (ref, generation, False)
        assert instance.state in (
            InstanceState.MISSING,
            InstanceState.BUILDING,
            InstanceState.LIVE,
            InstanceState.REFRESHING,
        )
        for wait in instance.waits:
            assert not state.wants[wait].state.ended
    for instance in state.instances.values():
        assert instance.left or state.canonical[instance.key] == instance.uuid
        assert not (instance.left and instance.waits)
    expected: dict[tuple[str, str], dict[str, None]] = {}
    for want in state.wants.values():
        if not want.state.ended:
            for ref in want.refs:
                expected.setdefault((ref, want.generation), {})[want.id] = None
        assert (want.ended_at is None) == (not want.state.ended)
        assert (want.state in (WantState.UPSTREAM_BUILDING, WantState.UPSTREAM_FAILED)) == bool(want.upstream)
    assert state.open == expected
    for key, uuid in state.served.items():
        assert state.instances[uuid].key == key in state.canonical
    assert {(ref, generation) for ref, generation in state.promoted.items()} <= state.served.keys()
    told = [*changes]
    for each in told:
        if isinstance(each, Instance):
            assert each.uuid in state.instances
        elif isinstance(each, Want):
            assert each.id in state.wants
    changed = {each.uuid for each in told if isinstance(each, Instance)}
    assert {uuid for uuid, each in state.instances.items() if before.instances.get(uuid) != each} <= changed
    changed = {each.id for each in told if isinstance(each, Want)}
    assert {id for id, each in state.wants.items() if before.wants.get(id) != each} <= changed
