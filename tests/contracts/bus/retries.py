"""Requests that fail, and workers that die."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from instep.bus.bus import Bus
from instep.domain.request_rules import MAX_REASON, Policy
from instep.domain.requests import Kind
from instep.domain.storable import storable
from instep.errors import Conflict, Fenced
from tests.contracts.bus.fixtures import (
    HASTY,
    NAMESPACE,
    ONCE,
    OTHER,
    PATIENCE,
    PATIENT,
    Fixtures,
    ask,
    consumer,
    taken,
)

IMPATIENT = Policy(max_attempts=3, backoff=(1,), ack_wait=3_600_000)
SILENT_ONCE = Policy(max_attempts=1, backoff=(1,), ack_wait=200)


class Retries(Fixtures):
    def test_a_retry_comes_back_after_its_delay(self, bus: Bus) -> None:
        mine = consumer(bus)
        bus.publish(ask(1))
        assert mine.retry(taken(mine), "busy")
        assert mine.next() is None  # for an hour
        others = consumer(bus, "Note")
        assert others.retry(taken(others), "busy", delay=1)
        again = taken(others)
        assert (again.attempt, again.request) == (2, ask(1))

    def test_after_the_last_attempt_it_is_a_dead_letter(self, bus: Bus) -> None:
        mine = consumer(bus, policy=IMPATIENT)
        bus.publish(ask(1))
        for attempt in (1, 2, 3):
            delivery = taken(mine)
            assert delivery.attempt == attempt
            assert mine.retry(delivery, f"bad {attempt}") is (attempt < 3)
        assert mine.retry(delivery, "said again") is False
        [letter] = bus.dead_letters()
        assert (letter.entity, letter.request, letter.attempts, letter.reason) == ("Issue", ask(1), 3, "bad 3")
        assert letter.at > 0
        assert mine.next() is None
        bus.publish(ask(2))
        assert taken(mine).attempt == 1

    def test_a_reason_may_be_any_text(self, bus: Bus) -> None:
        mine = consumer(bus, policy=ONCE)
        for number, each in enumerate(["nul\0", "cut \ud83d", "🎉'; --", "x" * 100_000], 1):
            bus.publish(ask(number))
            mine.retry(taken(mine), each)
            [letter] = bus.dead_letters()
            assert letter.reason == storable(each[:MAX_REASON])

    def test_a_pause_holds_for_newer_requests_too(self, bus: Bus) -> None:
        mine = consumer(bus)
        bus.publish(ask(1))
        mine.retry(taken(mine), "busy")
        bus.publish(ask(2))
        assert mine.next() is None

    def test_attempts_are_those_of_the_scope(self, bus: Bus) -> None:
        mine = consumer(bus, policy=IMPATIENT)
        bus.publish(ask(1))
        first = taken(mine)
        bus.publish(ask(2))
        mine.retry(first, "bad")
        again = taken(mine)
        assert (again.request, again.attempt) == (ask(2), 2)

    @pytest.mark.parametrize("when", ["while it was in work", "after it was acknowledged"])
    def test_an_acknowledged_request_leaves_no_attempts(self, bus: Bus, when: str) -> None:
        """What is asked again has all its attempts, however many the one before it took."""
        mine = consumer(bus, policy=IMPATIENT)
        bus.publish(ask(1))
        assert mine.retry(taken(mine), "bad")
        delivery = taken(mine)
        assert delivery.attempt == 2
        if when == "while it was in work":
            bus.publish(ask(2))
            mine.ack(delivery)
        else:
            mine.ack(delivery)
            bus.publish(ask(2))
        for attempt in (1, 2, 3):
            again = taken(mine)
            assert (again.request, again.attempt) == (ask(2), attempt)
            assert mine.retry(again, "bad") is (attempt < 3)

    def test_postponing_spends_no_attempt(self, buses: Callable[[], Bus]) -> None:
        first, second = buses(), buses()
        mine, others = consumer(first, policy=ONCE), consumer(second, policy=ONCE)
        first.publish(ask(1))
        delivery = taken(mine)
        mine.postpone(delivery)
        mine.postpone(delivery)
        again = taken(others)
        assert (again.request, again.attempt) == (ask(1), 1)
        assert again.fence > delivery.fence
        for late in (mine.ack, mine.postpone, lambda each: mine.retry(each, "late")):
            with pytest.raises(Fenced):
                late(delivery)
        first.publish(ask(2))
        others.postpone(again, delay=3_600_000)
        assert mine.next() is None
        assert second.dead_letters() == []

    def test_a_postponed_request_returns_after_its_delay_as_the_newest(self, bus: Bus) -> None:
        mine = consumer(bus, policy=ONCE)
        bus.publish(ask(1))
        first = taken(mine)
        bus.publish(ask(2))
        mine.postpone(first, delay=1)
        again = taken(mine)
        assert (again.request, again.attempt) == (ask(2), 1)
        assert not mine.retry(again, "bad")  # it was the last attempt, as ever

    def test_a_delivery_can_be_declared_dead(self, bus: Bus) -> None:
        mine = consumer(bus)
        bus.publish(ask(1))
        delivery = taken(mine)
        bus.publish(ask(2))
        mine.dead(delivery, "x" * 10_000)
        mine.dead(delivery, "said again")
        [letter] = bus.dead_letters("Issue")
        assert (letter.request, letter.reason, letter.attempts) == (ask(1), "x" * 2_000, 1)
        assert bus.dead_letters("Note") == []
        assert taken(mine).request == ask(2)

    def test_a_later_success_covers_a_dead_letter(self, bus: Bus) -> None:
        mine = consumer(bus)
        bus.publish(ask(1), ask(1, OTHER.path))
        for _ in range(2):
            mine.dead(taken(mine), "bad")
        bus.publish(ask(2))
        delivery = taken(mine)
        assert len(bus.dead_letters()) == 2
        mine.ack(delivery)
        assert [each.ref.scope for each in bus.dead_letters()] == [OTHER]

    def test_dead_letters_are_retried_or_dropped(self, buses: Callable[[], Bus]) -> None:
        bus, admin = buses(), buses()
        mine = consumer(bus, policy=Policy(max_attempts=1))
        bus.publish(ask(1), ask(1, OTHER.path))
        for _ in range(2):
            assert not mine.retry(taken(mine), "bad")
        assert [each.ref.scope for each in admin.dead_letters()] == [NAMESPACE, OTHER]
        admin.drop("Issue", OTHER)
        admin.requeue("Issue", NAMESPACE)
        assert admin.dead_letters() == []
        again = taken(mine)
        assert (again.request, again.attempt) == (ask(1), 1)
        mine.ack(again)
        assert mine.next() is None
        for late in (admin.requeue, admin.drop):
            with pytest.raises(Conflict):
                late("Issue", NAMESPACE)
            with pytest.raises(Conflict):
                late("Nobody", NAMESPACE)

    def test_a_dead_letter_is_not_retried_beside_a_newer_request(self, bus: Bus) -> None:
        mine = consumer(bus)
        bus.publish(ask(1))
        mine.dead(taken(mine), "bad")
        bus.publish(ask(2))
        delivery = taken(mine)
        bus.requeue("Issue", NAMESPACE)
        assert bus.dead_letters() == []
        mine.ack(delivery)
        assert mine.next() is None

    # Workers that die.

    def test_a_silent_workers_request_goes_to_another_and_its_answer_counts_no_more(
        self, buses: Callable[[], Bus]
    ) -> None:
        first, second = buses(), buses()
        silent, heir = consumer(first, policy=HASTY), consumer(second, policy=HASTY)
        first.publish(ask(1))
        lost = taken(silent)
        second.publish(ask(2))
        found = taken(heir)
        assert (found.request, found.attempt) == (ask(2), 2)
        assert found.fence > lost.fence
        for late in (
            silent.ack,
            silent.extend,
            lambda each: silent.retry(each, "late"),
            lambda each: silent.dead(each, "late"),
        ):
            with pytest.raises(Fenced):
                late(lost)
        assert second.dead_letters() == []

    def test_extending_a_delivery_keeps_its_request(self, bus: Bus) -> None:
        short = consumer(bus, policy=HASTY)
        bus.publish(ask(1))
        delivery = taken(short)
        patient = consumer(bus)
        patient.extend(delivery)
        assert short.next(0.5) is None
        patient.ack(delivery)

    def test_a_request_that_kills_its_workers_dies_and_the_subject_continues(self, bus: Bus) -> None:
        mine = consumer(bus, policy=HASTY)
        bus.publish(ask(1))
        for attempt in (1, 2, 3):
            assert taken(mine).attempt == attempt
        bus.publish(ask(2))
        again = taken(mine)
        assert (again.request, again.attempt) == (ask(2), 1)
        [letter] = bus.dead_letters()
        assert (letter.request, letter.attempts) == (ask(1), 3)
        assert "did not answer for the last of 3 attempts" in letter.reason

    def test_reconciling_makes_the_last_crashed_attempt_a_dead_letter(self, buses: Callable[[], Bus]) -> None:
        bus, admin = buses(), buses()
        mine = consumer(bus, policy=SILENT_ONCE)
        patient = consumer(bus, "Note", Policy(max_attempts=1))
        bus.publish(ask(1))
        taken(mine)
        alive = taken(patient)
        # It takes the ack wait: by the bus's own clock, which this lets go on.
        witness = consumer(bus, "Witness", kind=Kind.GLOBAL)
        buried = admin.reconcile()
        while not buried:
            witness.next(0.1)
            buried = admin.reconcile()
        assert [(each.entity, each.request) for each in buried] == [("Issue", ask(1))]
        assert admin.dead_letters() == buried
        assert admin.reconcile() == []
        patient.ack(alive)
        assert consumer(bus).next() is None
        bus.publish(ask(2))
        assert taken(mine).request == ask(2)

    # Groups.

    def test_of_a_group_only_so_many_are_in_work(self, buses: Callable[[], Bus]) -> None:
        first, second = buses(), buses()
        policy = Policy(backoff=(1,), ack_wait=3_600_000, group="source", limit=2)
        issues, notes = consumer(first, "Issue", policy), consumer(second, "Note", policy)
        free = consumer(first, "Free", PATIENT)
        first.publish(ask(1), ask(1, OTHER.path))
        held = [taken(issues), taken(notes)]
        assert issues.next() is None
        assert notes.next() is None
        assert taken(free).attempt == 1
        issues.ack(held[0])
        third = taken(issues)
        assert notes.next() is None
        first.publish(ask(2, OTHER.path), ask(2))  # what waits takes no room, nor gives it
        assert notes.next() is None
        notes.retry(held[1], "bad")
        fourth = taken(notes)
        issues.dead(third, "bad")
        fifth = taken(issues)
        assert notes.next() is None
        notes.ack(fourth)
        issues.ack(fifth)
        assert notes.next(PATIENCE) is not None

    def test_a_consumer_without_work_takes_no_place_in_its_group(self, bus: Bus) -> None:
        """What was asked again waits for the pause of what has failed."""
        policy = Policy(backoff=(3_600_000,), ack_wait=3_600_000, group="source", limit=1)
        issues, notes = consumer(bus, "Issue", policy), consumer(bus, "Note", policy)
        bus.publish(ask(1))
        issues.retry(taken(issues), "bad")
        bus.publish(ask(2))
        assert issues.next() is None
        assert taken(notes).entity == "Note"

    def test_a_late_answer_frees_no_place_of_another_consumer(self, buses: Callable[[], Bus]) -> None:
        """Its request is in work again, under another fence, and so is the room that it takes."""
        first, second = buses(), buses()
        hasty = Policy(backoff=(1,), ack_wait=200, group="source", limit=1)
        patient = Policy(backoff=(1,), ack_wait=3_600_000, group="source", limit=1)
        silent, heir = consumer(first, "Issue", hasty), consumer(second, "Issue", hasty)
        first.publish(ask(1))
        lost = taken(silent)
        found = taken(heir)
        heir = consumer(second, "Issue", patient)
        heir.extend(found)
        notes = consumer(first, "Note", patient)
        for late in (silent.ack, lambda each: silent.retry(each, "late"), lambda each: silent.dead(each, "late")):
            with pytest.raises(Fenced):
                late(lost)
            assert notes.next() is None
        heir.ack(found)
        assert taken(notes).entity == "Note"

    def test_a_silent_consumer_takes_no_place_in_its_group(self, bus: Bus) -> None:
        hasty = Policy(backoff=(1,), ack_wait=200, group="source", limit=1)
        issues, notes = consumer(bus, "Issue", hasty), consumer(bus, "Note", hasty)
        bus.publish(ask(1))
        taken(issues)
        assert taken(notes).entity == "Note"
