"""Replaying the whole log shows what is wrong with the projections, and mends them."""

from __future__ import annotations

from msgspec.structs import replace

from instep.domain.events import InstanceTainted, WantCreated, encode
from instep.domain.instances import InstanceState
from instep.ledger.ledger import Ledger
from instep.ledger.verification import Verified
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
    take_over,
    upstream_fails,
)
from tests.contracts.ledger.fixtures import Fixtures, Intruder


class Verifying(Fixtures):
    def test_nothing_is_wrong_with_nothing(self, ledger: Ledger) -> None:
        assert ledger.events.verify() == Verified(0)
        assert ledger.events.rebuild_projections() == Verified(0)

    def test_nothing_is_wrong_after_a_long_life(self, ledger: Ledger, clock: VirtualClock) -> None:
        ledger.events.append([WantCreated(want=f"{ref}", refs=(f"{ref}",), fresh_within=0) for ref in (REF, OTHER)])
        for job_id, fresh, what in (
            ("first", True, "end"),
            ("second", False, "end"),
            ("third", False, "fail"),
            ("fourth", True, "fail"),
            ("fifth", True, "upstream"),
            ("sixth", True, "taken over"),
        ):
            clock.advance(1)
            part = running(ledger, plans(1), job_id=job_id, fresh=fresh)
            if what == "upstream":
                upstream_fails(ledger, part, job_id)
            worker = "ann" if what != "taken over" else "bob"
            if worker == "bob":
                part = take_over(ledger, job_id=job_id)
                ledger.jobs.start(job_id)
            complete_all(ledger, part, worker, job_id)
            if what in ("fail", "upstream"):
                fail(ledger, part, job_id)
            else:
                end(ledger, part, job_id, worker)
        ledger.events.append([InstanceTainted(instance=canonical_of(ledger).uuid)])
        old = [each.uuid for each in ledger.instances.newest(REF) if each.left][-1:]
        ledger.events.collect(old, [])
        verified = ledger.events.verify()
        assert (verified.differences, verified.skipped) == ((), {})
        assert verified.events == len(ledger.events.rows())

    def test_a_projection_that_was_changed_is_found_and_repaired(self, ledger: Ledger, intruder: Intruder) -> None:
        there = imported(ledger)
        intruder.store(replace(there, state=InstanceState.BUILDING, watermark=7))
        [difference] = ledger.events.verify().differences
        assert all(word in difference for word in (there.uuid, "state", "watermark", "7"))
        assert ledger.events.verify().differences == (difference,), "looking changes nothing"
        assert ledger.events.rebuild_projections() == Verified(1, {}, (difference,))
        assert canonical_of(ledger) == there
        assert ledger.events.verify() == Verified(1)

    def test_a_projection_that_is_gone_is_found_and_repaired(self, ledger: Ledger, intruder: Intruder) -> None:
        there = imported(ledger)
        imported(ledger, OTHER)
        intruder.forget(there.uuid)
        assert any(there.uuid in each for each in ledger.events.verify().differences)
        ledger.events.rebuild_projections()
        assert ledger.events.verify() == Verified(2)
        assert canonical_of(ledger) == there
        assert ledger.instances.newest(REF) == [there]

    def test_an_event_that_nothing_followed_from_is_found_and_repaired(
        self, ledger: Ledger, intruder: Intruder
    ) -> None:
        imported(ledger)
        want = WantCreated(want="lost", refs=(str(OTHER),))
        intruder.write(want.KIND, want.VERSION, encode(want))
        assert any("lost" in each for each in ledger.events.verify().differences)
        ledger.events.rebuild_projections()
        assert ledger.events.verify() == Verified(2)
        assert [each.id for each in ledger.wants.newest(ref=OTHER, open_only=True)] == ["lost"]
        imported(ledger, OTHER)
        assert ledger.wants.newest(open_only=True) == [], "it goes on as if nothing had been"

    def test_unreadable_events_are_named_and_skipped(self, ledger: Ledger, intruder: Intruder) -> None:
        imported(ledger)
        nowhere = encode(InstanceTainted(instance="unknown"))
        for kind, version, body in (
            ("universe.ended", 1, "{}"),
            ("want.created", 1, '{"want": "a", "refs"'),
            ("want.created", 1, '{"want": 7, "refs": []}'),
            ("want.created", 99, "{}"),
            ("instance.tainted", 1, nowhere),
        ):
            intruder.write(kind, version, body)
        skipped = {"unknown-kind": 1, "malformed": 2, "unknown-version": 1, "unknown-instance": 1}
        verified = ledger.events.verify()
        assert (verified.events, verified.skipped, verified.differences) == (6, skipped, ())
        assert [(each.sequence, each.name) for each in verified.skips] == [
            (2, "unknown-kind"),
            (3, "malformed"),
            (4, "malformed"),
            (5, "unknown-version"),
            (6, "unknown-instance"),
        ]
        assert "universe.ended" in verified.skips[0].reason
        assert ledger.events.state().skipped == skipped
        assert [row[2] for row in ledger.events.rows(5)] == ["instance.tainted"], "it is in the log all the same"
        [recorded] = ledger.events.append([WantCreated(want="b", refs=(str(REF),))])
        assert recorded.sequence == 7, "it is no stop"
        assert ledger.events.rebuild_projections() == Verified(7, skipped, skips=verified.skips)
        assert ledger.events.verify() == Verified(7, skipped, skips=verified.skips)

    def test_of_very_many_that_cannot_be_read_some_are_named_and_all_are_counted(
        self, ledger: Ledger, intruder: Intruder
    ) -> None:
        for _ in range(20):
            intruder.write("universe.ended", 1, "{}")
        intruder.write("want.created", 99, "{}")
        verified = ledger.events.verify()
        assert verified.skipped == {"unknown-kind": 20, "unknown-version": 1}
        assert [each.sequence for each in verified.skips] == [1, 2, 3, 4, 5, 21]
