"""The fold: what holds for every state and event, and for a replay."""

from __future__ import annotations

import copy

import msgspec
import pytest

from instep.domain import events as e
from instep.domain.counts import Counts
from instep.domain.fold import apply, follow, replay
from instep.domain.instances import InstanceState, Reason
from instep.domain.refs import PartitionRef, event_instance_id, instance_id
from instep.domain.state import Rejected, State
from instep.domain.wants import WantState
from tests.domain.book import FINGERPRINT, REF, TOP, UP, Book, check, states


def events(uuid: str) -> list[e.Event]:
    """At least one event of every kind, about the instance and the want of `states`."""
    created = [e.InstanceCreated(ref=REF, reason=reason) for reason in Reason]
    return [
        *created,
        e.InstanceImported(ref=REF, build=1, job="job", watermark=1, physical="p", fingerprint={}),
        e.InstanceBuilding(instance=uuid, job="job", target=100, fingerprint=FINGERPRINT),
        e.InstanceLive(instance=uuid, job="job", watermark=100, physical="p", counts=Counts()),
        e.InstanceFailed(instance=uuid, job="job", error="why", retry=True),
        e.InstanceFailed(instance=uuid, job="job", error="why"),
        e.InstanceRefreshing(instance=uuid, job="job", floor=100, target=200),
        e.InstanceRefreshed(instance=uuid, job="job", watermark=200, counts=Counts()),
        e.RefreshFailed(instance=uuid, job="job", error="why", retry=True),
        e.RefreshFailed(instance=uuid, job="job", error="why"),
        e.InstanceTainted(instance=uuid),
        e.InstanceExpired(instance=uuid),
        e.InstanceServed(instance=uuid),
        e.GenerationPromoted(ref=REF, generation=""),
        e.GenerationPromoted(ref=REF, generation="v2"),
        e.PartitionDropped(ref=REF, by="ann"),
        e.PartitionDropped(ref=REF, generations=("", "v2")),
        e.Collected(instances=(uuid,)),
        e.Collected(wants=("w",)),
        e.WantCreated(want="w", refs=(REF,)),
        e.WantCreated(want="new", refs=(REF, UP), as_of=120),
        e.WantFailed(want="w", error="no source"),
        e.WantFailed(want="w", error="no source", final=True),
        e.WantCanceled(want="w"),
        e.WantCanceled(want="up"),
        e.DependencyMissed(job="job", instances=(uuid,), want="new", missing=(UP, TOP)),
        e.DependencyMissed(job="job", instances=(uuid,), want="new", missing=(REF,)),
    ]


def test_the_pairs_cover_every_state_and_every_kind_of_event() -> None:
    books = [make() for make in states().values()]
    assert {each.state for book in books for each in book.state.instances.values()} == set(InstanceState)
    assert {each.state for book in books for each in book.state.wants.values()} == set(WantState)
    assert {type(each) for each in events("x")} == set(e.EVENTS.types.values())


@pytest.mark.parametrize("name", states())
def test_every_pair_of_state_and_event_is_defined(name: str) -> None:
    for which in ("first", "canonical", "unknown"):
        for number in range(len(events(""))):
            book = states()[name]()
            first = next(iter(book.state.instances), "unknown")
            current = book.state.current(REF)
            uuid = {"first": first, "canonical": current.uuid if current else "unknown", "unknown": "unknown"}[which]
            before = book.state.copy()
            event = events(uuid)[number]
            case = f"{event} about the {which} instance"
            try:
                result = book.try_to(event)
                if isinstance(result, Rejected):
                    assert result.name
                    assert len(result.reason.split()) > 3
                    assert book.state == before
                else:
                    assert book.state.sequence == before.sequence + 1
                    check(book.state, before, result)
            except Exception as error:
                error.add_note(case)
                raise


def test_instance_uuids_are_those_of_the_standard_and_unique() -> None:
    import uuid

    from instep.domain.refs import INSTANCE_NAMESPACE

    assert event_instance_id(REF, "", 5) == str(uuid.uuid5(INSTANCE_NAMESPACE, f"{REF}#event:5"))
    assert event_instance_id(REF, "v2", 5) == str(uuid.uuid5(INSTANCE_NAMESPACE, f"{REF}+v2#event:5"))
    ids = {event_instance_id(ref, gen, n) for ref in (REF, UP) for gen in ("", "v2") for n in range(500)}
    assert len(ids) == 2000
    assert str(instance_id(PartitionRef.parse(REF), 5)) not in ids


def test_only_the_next_event_is_applied_and_trying_changes_nothing() -> None:
    book = Book()
    event = e.InstanceCreated(ref=REF, reason=Reason.FIRST)
    for sequence in (0, 2):
        result = apply(book.state, e.Recorded(sequence, 1, event))
        assert isinstance(result, Rejected)
        assert result.name == "out-of-order"
    assert book.state == State()


def test_a_replay_skips_rejected_events_and_counts_them_by_reason() -> None:
    created = e.InstanceCreated(ref=REF, reason=Reason.FIRST)
    log = [
        e.Recorded(1, 1, created),
        e.Recorded(2, 2, e.Unreadable("malformed", "no JSON")),
        e.Recorded(3, 3, e.Unreadable("unknown-kind", "no such event")),
        e.Recorded(4, 4, created),
        e.Recorded(4, 4, created),
        e.Recorded(7, 5, e.InstanceCreated(ref=UP, reason=Reason.FIRST)),
        e.Recorded(8, 6, e.WantCreated(want="w", refs=(REF,))),
    ]
    state = replay(log)
    assert state.skipped == {"malformed": 1, "unknown-kind": 1, "not-allowed": 1, "missing": 2}
    assert state.sequence == 8
    assert set(state.canonical) == {(REF, ""), (UP, "")}
    assert state.wants["w"].state is WantState.IDLE
    assert follow(state, log[0]) == ()
    assert state == replay(log)


def test_an_event_of_no_known_type_is_refused() -> None:
    class Other(e.Event, frozen=True):
        pass

    assert isinstance(apply(State(), e.Recorded(1, 1, Other())), Rejected)


def test_replaying_twice_gives_the_same_state() -> None:
    for make in states().values():
        book = make()
        assert replay(book.log) == replay(copy.deepcopy(book.log)) == book.state
        rows = [
            (r.sequence, r.at, type(r.event).KIND, 1, e.encode(r.event))
            for r in book.log
            if isinstance(r.event, e.Event)
        ]
        assert replay(e.read(rows)) == book.state


def test_values_are_frozen() -> None:
    book = Book()
    instance = book.make()
    with pytest.raises(AttributeError):
        instance.ref = UP  # type: ignore[misc] # the point of the test
    assert isinstance(instance, msgspec.Struct)
