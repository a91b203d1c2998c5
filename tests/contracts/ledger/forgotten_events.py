"""What is forgotten of the event log: the state that it led to, and all that follows, stay as they are."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from instep.domain.events import Event, InstanceTainted, WantCanceled, WantCreated
from instep.domain.instances import InstanceState, Reason
from instep.domain.refs import event_instance_id
from instep.errors import UserError
from instep.ledger.ledger import Ledger
from instep.ledger.log_start import FEW
from tests.contracts.ledger.building import (
    OTHER,
    REF,
    VirtualClock,
    canonical_of,
    complete_all,
    end,
    fail,
    imported,
    plans,
    running,
    upstream_fails,
)
from tests.contracts.ledger.fixtures import Fixtures, Intruder


def wants(first: int, count: int = FEW) -> list[Event]:
    made: list[Event] = [WantCreated(want=f"{number}", refs=(str(OTHER),)) for number in range(first, first + count)]
    return [*made, *(WantCanceled(want=f"{number}", by="ann") for number in range(first, first + count - 1))]


def forget_all(ledger: Ledger, before: int) -> int:
    """How many events were forgotten."""
    number = 0
    while some := ledger.events.forget(before, limit=200):
        number += some
    return number


class ForgettingEvents(Fixtures):
    def _lived(self, ledger: Ledger, clock: VirtualClock) -> None:
        """Builds, refreshes, failures, a taint and many wants."""
        for number, (fresh, what) in enumerate(((True, "end"), (False, "taint"), (True, "upstream"), (True, "fail"))):
            clock.advance(1)
            part = running(ledger, plans(1), job_id=f"{number}", fresh=fresh)
            if what == "upstream":
                upstream_fails(ledger, part, f"{number}")
            complete_all(ledger, part, "ann", f"{number}")
            (fail if what in ("fail", "upstream") else end)(ledger, part, f"{number}")
            if what == "taint":
                ledger.events.append([InstanceTainted(instance=canonical_of(ledger).uuid)])
        ledger.events.append(wants(0))
        clock.advance(1)

    def test_the_state_stays_and_so_does_what_the_next_events_lead_to(
        self, ledger: Ledger, ledgers: Callable[[], Ledger], clock: VirtualClock
    ) -> None:
        self._lived(ledger, clock)
        past, before = ledger.present(), clock.now()
        clock.advance(5)
        ledger.events.append([WantCreated(want="young", refs=(str(REF),), as_of=1)])
        state, last = ledger.events.state(), ledger.events.rows(limit=10_000)[-1][0]
        skipped = ledger.events.verify().skipped
        assert ledger.events.forgettable(before) == last - 1
        assert forget_all(ledger, before) == last - 1
        assert ledger.events.forgettable(before) == forget_all(ledger, before) == 0
        assert [row[0] for row in ledger.events.rows()] == [last]
        for each in (ledger, ledgers()):
            assert each.events.state() == each.events.state(at=clock.now()) == state
            verified = each.events.verify()
            assert (verified.events, verified.forgotten, verified.differences) == (1, last - 1, ())
            assert verified.skipped == skipped
        assert ledger.events.rebuild_projections().differences == ()
        assert ledger.events.state() == state
        assert ledger.events.state(at=past).sequence == last - 1
        [recorded] = ledger.events.append([InstanceTainted(instance=imported(ledger, OTHER).uuid)])
        after = ledger.instances.canonical(OTHER)
        assert recorded.sequence == last + 2, "a number is never given twice"
        assert after is not None
        assert (after.uuid, after.reason) == (
            event_instance_id(str(OTHER), "", recorded.sequence, ledger.naming()),
            Reason.TAINT,
        )
        assert ledger.events.verify().differences == ()

    def test_more_is_forgotten_from_where_it_was_left(self, ledger: Ledger, clock: VirtualClock) -> None:
        for number in range(3):
            clock.advance(10)
            ledger.events.append(wants(1_000 * number))
            ledger.events.collect((), [f"{1_000 * number + each}" for each in range(FEW - 1)])
            clock.advance(10)
            state = ledger.events.state()
            assert forget_all(ledger, clock.now()) == 2 * FEW
            assert ledger.events.state() == state
            verified = ledger.events.verify()
            assert (verified.events, verified.forgotten, verified.differences) == (0, 2 * FEW * (number + 1), ())
        assert [each.id for each in ledger.wants.newest(open_only=True)] == ["2255", "1255", "255"]

    def test_few_events_and_those_that_are_young_stay(self, ledger: Ledger, clock: VirtualClock) -> None:
        self._lived(ledger, clock)
        rows = ledger.events.rows(limit=10_000)
        at = rows[0][1] + 2
        assert ledger.events.forgettable(at) == 0
        assert forget_all(ledger, at) == 0
        assert ledger.events.rows(limit=10_000) == rows
        many = len(ledger.events.state().wants)
        ledger.events.append(wants(5_000, 2))
        assert many >= FEW
        clock.advance(1)
        assert forget_all(ledger, clock.now()) == len(rows) + 3
        ledger.events.append([WantCanceled(want="255"), *wants(6_000, 128)])
        clock.advance(1)
        assert ledger.events.forgettable(clock.now()) == forget_all(ledger, clock.now()) == 0, "fewer than what is kept"

    def test_what_was_known_at_a_forgotten_time_is_said_to_be_forgotten(
        self, ledger: Ledger, clock: VirtualClock
    ) -> None:
        self._lived(ledger, clock)
        before = clock.now()
        clock.advance(5)
        ledger.events.append([WantCreated(want="young", refs=(str(REF),))])
        assert "0" in ledger.events.state(at=before).wants
        forget_all(ledger, before)
        with pytest.raises(UserError, match="forgotten"):
            ledger.events.state(at=before - 2)
        assert "young" not in ledger.events.state(at=before).wants
        assert "young" in ledger.events.state(at=clock.now()).wants

    def test_a_projection_that_was_changed_is_found_and_repaired_all_the_same(
        self, ledger: Ledger, intruder: Intruder, clock: VirtualClock
    ) -> None:
        there = imported(ledger)
        ledger.events.append(wants(0))
        clock.advance(1)
        assert forget_all(ledger, clock.now())
        intruder.store(replace(there, state=InstanceState.BUILDING, watermark=7))
        [difference] = ledger.events.verify().differences
        assert there.uuid in difference
        ledger.events.rebuild_projections()
        assert ledger.events.verify().differences == ()
        assert canonical_of(ledger) == there

    def test_the_oldest_of_the_jobs_that_are_not_old_says_what_may_be(
        self, ledger: Ledger, clock: VirtualClock
    ) -> None:
        assert ledger.retention.oldest(clock.now()) == clock.now()
        part = running(ledger, plans(1), job_id="old")
        complete_all(ledger, part, "ann", "old")
        end(ledger, part, "old")
        clock.advance(10)
        began = clock.now()
        part = running(ledger, plans(1), job_id="long", fresh=False)
        clock.advance(10)
        assert ledger.retention.oldest(clock.now()) == began
        assert ledger.retention.oldest(began - 5) == began - 5
        complete_all(ledger, part, "ann", "long")
        end(ledger, part, "long")
        assert ledger.retention.oldest(clock.now()) == began, "it ended just now"
        clock.advance(1)
        assert ledger.retention.oldest(clock.now()) == clock.now()
