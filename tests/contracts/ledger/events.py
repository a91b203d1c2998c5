"""The event log: all or nothing, in order, without gaps, and the state that it leads to."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import pytest

from instep.domain.events import (
    Event,
    InstanceBuilding,
    InstanceCreated,
    InstanceFailed,
    InstanceTainted,
    Recorded,
    WantCreated,
    decode,
    read,
)
from instep.domain.fold import replay
from instep.domain.instances import InstanceState, Reason
from instep.domain.refs import event_instance_id
from instep.domain.state import State
from instep.errors import Conflict
from instep.ledger.ledger import Ledger
from tests.contracts.ledger.building import (
    OTHER,
    REF,
    START,
    VirtualClock,
    canonical_of,
    complete_all,
    end,
    imported,
    lease_of,
    logged,
    plans,
    running,
)
from tests.contracts.ledger.fixtures import Fixtures
from tests.doubles.ledger import MemoryLedger


def _want(id: str) -> WantCreated:
    return WantCreated(want=id, refs=(str(REF),))


def _everything(ledger: Ledger) -> object:
    return (
        ledger.events.rows(),
        ledger.instances.newest(REF),
        ledger.instances.canonical(REF),
        ledger.wants.newest(),
        ledger.events.state(),
    )


class Events(Fixtures):
    # Appending.

    def test_a_new_ledger_has_no_events(self, ledger: Ledger) -> None:
        assert ledger.events.rows() == []
        assert ledger.events.state() == State(naming=ledger.naming())

    def test_a_ledger_has_an_id_of_its_own_that_never_changes(self, ledger: Ledger) -> None:
        """By which it names instances: another ledger's never have the same names."""
        naming = ledger.naming()
        assert (str(UUID(naming.ledger)), naming.since) == (naming.ledger, 0)
        uuid = ledger.instances.new(lease_of(ledger, "ann"), Reason.FIRST)
        assert ledger.naming() == naming
        assert uuid == event_instance_id(str(REF), "", 1, naming)
        assert uuid != event_instance_id(str(REF), "", 1, MemoryLedger(VirtualClock()).naming())
        assert ledger.events.rebuild_projections().differences == ()

    def test_events_are_numbered_from_one_without_gaps(self, ledger: Ledger, clock: VirtualClock) -> None:
        first = ledger.events.append([_want("a"), _want("b")])
        clock.advance(5)
        second = ledger.events.append([_want("c")])
        assert [*first, *second] == [
            Recorded(1, START, _want("a")),
            Recorded(2, START, _want("b")),
            Recorded(3, START + 5, _want("c")),
        ]
        assert list(read(ledger.events.rows())) == [*first, *second]

    def test_an_event_is_a_row_that_any_program_can_read(self, ledger: Ledger) -> None:
        ledger.events.append([_want("a")])
        [(sequence, at, kind, version, body)] = ledger.events.rows()
        assert (sequence, at, kind, version) == (1, START, "want.created", 3)
        assert decode(kind, version, body) == _want("a")

    def test_the_log_is_read_on_from_where_one_was(self, ledger: Ledger) -> None:
        ledger.events.append([_want(f"{number}") for number in range(7)])
        assert [row[0] for row in ledger.events.rows(0, 3)] == [1, 2, 3]
        assert [row[0] for row in ledger.events.rows(3, 3)] == [4, 5, 6]
        assert [row[0] for row in ledger.events.rows(6, 3)] == [7]
        assert ledger.events.rows(7) == []

    def test_appending_nothing_is_nothing(self, ledger: Ledger) -> None:
        assert ledger.events.append([]) == []
        assert ledger.events.rows() == []

    def test_an_event_sees_those_before_it_in_the_same_call(self, ledger: Ledger) -> None:
        uuid = event_instance_id(str(REF), "", 1, ledger.naming())
        building = InstanceBuilding(instance=uuid, job="job", target=START, fingerprint={})
        ledger.events.append([InstanceCreated(ref=str(REF), reason=Reason.FIRST), building])
        assert canonical_of(ledger).state is InstanceState.BUILDING

    @pytest.mark.parametrize("place", [0, 1, 2])
    def test_a_rejected_event_is_a_conflict_and_nothing_is_appended(self, ledger: Ledger, place: int) -> None:
        imported(ledger)
        before = _everything(ledger)
        batch: list[Event] = [_want("a"), _want("b")]
        batch.insert(place, InstanceTainted(instance="unknown"))
        with pytest.raises(Conflict, match="no instance unknown is known"):
            ledger.events.append(batch)
        assert _everything(ledger) == before
        assert ledger.events.append([_want("c")])[0].sequence == 2, "no number is lost"

    @pytest.mark.parametrize(
        "malformed",
        [
            WantCreated(want="a", refs=()),
            WantCreated(want="a", refs=("Document",)),
            WantCreated(want="", refs=(str(REF),)),
            WantCreated(want="a", refs=(str(REF),), generation="a b"),
            WantCreated(want="a", refs=(str(REF),), fresh_within=-1),
        ],
    )
    def test_an_event_that_could_not_be_decoded_is_not_appended(self, ledger: Ledger, malformed: Event) -> None:
        with pytest.raises(Conflict):
            ledger.events.append([malformed])
        assert ledger.events.rows() == []
        assert ledger.wants.newest() == []

    def test_the_state_follows_from_the_stored_text_of_an_event(self, ledger: Ledger) -> None:
        """Half a character cannot be stored: readers see what is stored in its place."""
        part = running(ledger, plans(1))
        [recorded] = ledger.events.append(
            [InstanceFailed(instance=part.instance, job="job", error="no \udcff such file")]
        )
        assert recorded.event == logged(ledger)[-1]
        failed = ledger.instances.get(part.instance)
        assert failed is not None
        assert failed == ledger.events.state().instances[part.instance]
        assert failed.error == "no ? such file"

    def test_times_in_the_log_never_go_back(self, ledger: Ledger, clock: VirtualClock) -> None:
        ledger.events.append([_want("a")])
        clock.advance(-1_000)
        ledger.events.append([_want("b")])
        clock.advance(1_001)
        ledger.events.append([_want("c")])
        assert [row[1] for row in ledger.events.rows()] == [START, START + 1, START + 1]

    def test_appenders_lose_nothing_and_readers_miss_nothing(self, ledgers: Callable[[], Ledger]) -> None:
        workers, each = 4, 10
        gate, ended = threading.Barrier(workers + 1), threading.Event()
        seen: list[int] = []

        def write(worker: int) -> None:
            mine = ledgers()
            gate.wait()
            for number in range(each):
                mine.events.append([_want(f"{worker}-{number}-{twin}") for twin in "ab"])

        def follow() -> None:
            mine = ledgers()
            gate.wait()
            while True:
                last = ended.is_set()
                rows = mine.events.rows(seen[-1] if seen else 0, 7)
                seen.extend(row[0] for row in rows)
                if last and not rows:
                    return

        ledger = ledgers()
        with ThreadPoolExecutor(workers + 1) as pool:
            reader = pool.submit(follow)
            for writer in [pool.submit(write, worker) for worker in range(workers)]:
                writer.result()
            ended.set()
            reader.result()
        assert seen == list(range(1, 2 * workers * each + 1)), "in order, each once"
        found = [event.want for event in logged(ledger) if isinstance(event, WantCreated)]
        assert len(set(found)) == len(found) == len(seen)
        assert [one[:-1] for one in found[::2]] == [two[:-1] for two in found[1::2]], "nothing comes in between"

    # The state.

    def test_the_state_is_the_fold_of_the_log(self, ledger: Ledger, clock: VirtualClock) -> None:
        ledger.events.append([_want("a")])
        part = running(ledger, plans(1))
        complete_all(ledger, part)
        clock.advance(1)
        end(ledger, part)
        state = ledger.events.state()
        assert state == replay(read(ledger.events.rows()), State(naming=ledger.naming()))
        assert state.current(str(REF)) == ledger.instances.canonical(REF)
        assert state.instances == {each.uuid: each for each in ledger.instances.newest(REF)}
        assert state.wants == {each.id: each for each in ledger.wants.newest()}

    def test_every_call_gives_a_state_of_its_own(self, ledger: Ledger) -> None:
        imported(ledger)
        state = ledger.events.state()
        state.instances.clear()
        state.canonical.clear()
        assert ledger.events.state().current(str(REF)) == canonical_of(ledger)

    def test_the_state_as_of_a_time_or_an_event(self, ledger: Ledger, clock: VirtualClock) -> None:
        part = running(ledger, plans(1))
        complete_all(ledger, part)
        clock.advance(100)
        end(ledger, part)
        clock.advance(100)
        ledger.events.append([InstanceTainted(instance=part.instance, why="wrong")])

        def state_then(**when: int) -> InstanceState | None:
            current = ledger.events.state(**when).current(str(REF))
            return None if current is None else current.state

        assert state_then(at=START - 1) is None
        assert state_then(at=START) is InstanceState.BUILDING
        assert state_then(at=START + 99) is InstanceState.BUILDING
        assert state_then(at=START + 100) is InstanceState.LIVE
        assert state_then(at=START + 200) is InstanceState.MISSING
        assert state_then(at=START + 10**6) is InstanceState.MISSING
        by_event = [state_then(sequence=number) for number in range(6)]
        assert by_event[:3] == [None, InstanceState.MISSING, InstanceState.BUILDING]
        assert by_event[3:] == [InstanceState.LIVE, InstanceState.LIVE, InstanceState.MISSING]
        assert ledger.events.state(sequence=4).reading(str(REF)) is not None
        assert ledger.events.state(sequence=3).reading(str(REF)) is None

    def test_the_past_is_as_it_was_when_others_have_come_since(self, ledger: Ledger, clock: VirtualClock) -> None:
        first = imported(ledger)
        then = ledger.events.state()
        clock.advance(1)
        imported(ledger, OTHER)
        ledger.events.append([InstanceTainted(instance=first.uuid)])
        assert ledger.events.state(at=START) == then == ledger.events.state(sequence=1)
