"""Who gets which requests."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from instep.bus.bus import Bus
from instep.domain.refs import PartitionRef
from instep.domain.request_rules import Policy
from instep.domain.requests import Kind
from instep.errors import Fenced
from tests.contracts.bus.fixtures import NAMESPACE, ONCE, OTHER, PATIENT, Fixtures, ask, ask_global, consumer, taken


class Requests(Fixtures):
    def test_every_handler_of_the_kind_gets_a_request_and_no_other(self, bus: Bus) -> None:
        issues, notes = consumer(bus, "Issue"), consumer(bus, "Note")
        users = consumer(bus, "User", kind=Kind.GLOBAL)
        bus.publish(ask(7))
        for each in (issues, notes):
            delivery = taken(each)
            assert (delivery.entity, delivery.request, delivery.attempt) == (each.name, ask(7), 1)
            each.ack(delivery)
            assert each.next() is None
        assert users.next() is None
        bus.publish(ask_global(8))
        assert taken(users).request == ask_global(8)
        assert issues.next() is None

    def test_a_request_waits_for_a_handler_that_is_not_there_yet(self, bus: Bus) -> None:
        bus.publish(ask(1), ask(2, "1/"))
        bus.publish(ask(3))
        bus.publish(ask(2))  # which is older
        later = consumer(bus)
        assert {taken(later).request, taken(later).request} == {ask(3), ask(2, "1/")}
        assert later.next() is None

    def test_a_handler_that_comes_again_gets_nothing_twice(self, buses: Callable[[], Bus]) -> None:
        first = buses()
        mine = consumer(first)
        first.publish(ask(1))
        mine.ack(taken(mine))
        second = buses()
        again = consumer(second)
        assert again.next() is None
        second.publish(ask(2))
        assert taken(again).request == ask(2)
        assert mine.next() is None

    def test_a_newer_request_replaces_one_that_waits(self, bus: Bus) -> None:
        mine = consumer(bus)
        for watermark in (1, 3, 2):
            bus.publish(ask(watermark))
        delivery = taken(mine)
        assert delivery.request == ask(3)
        mine.ack(delivery)
        assert mine.next() is None

    def test_the_request_that_waited_longest_comes_first(self, bus: Bus) -> None:
        mine, witness = consumer(bus), consumer(bus, "Witness", kind=Kind.GLOBAL)
        bus.publish(ask(1, OTHER.path))
        assert witness.next(0.1) is None  # By the bus's own clock, which this lets go on.
        bus.publish(ask(1))
        assert [taken(mine).request, taken(mine).request] == [ask(1, OTHER.path), ask(1)]

    def test_of_several_for_one_scope_the_newest_counts(self, bus: Bus) -> None:
        mine = consumer(bus)
        bus.publish(ask(2), ask(5), ask(4), ask(1, "42/9971/"))
        bus.publish()
        assert {taken(mine).request, taken(mine).request} == {ask(5), ask(1, "42/9971/")}
        assert mine.next() is None

    def test_one_in_work_is_not_doubled(self, buses: Callable[[], Bus]) -> None:
        """Two handlers on one entity: what is asked meanwhile waits until the first is done."""
        first, second = buses(), buses()
        here, there = consumer(first), consumer(second)
        first.publish(ask(1))
        delivery = taken(here)
        second.publish(ask(2))
        second.publish(ask(3))
        assert there.next() is None
        assert here.next() is None
        here.ack(delivery)
        again = taken(there)
        assert again.request == ask(3)
        assert again.fence > delivery.fence
        there.ack(again)
        assert here.next() is None
        assert there.next() is None

    def test_a_request_that_is_not_newer_changes_nothing(self, bus: Bus) -> None:
        mine = consumer(bus)
        bus.publish(ask(5))
        delivery = taken(mine)
        bus.publish(ask(5))
        bus.publish(ask(4))
        mine.ack(delivery)
        bus.publish(ask(5))
        assert mine.next() is None

    def test_scopes_do_not_wait_for_each_other(self, bus: Bus) -> None:
        mine = consumer(bus)
        bus.publish(ask(1), ask(1, OTHER.path), ask(1, "42/"))
        assert {taken(mine).request.scope.path for _ in range(3)} == {"42/9970/", "42/9971/", "42/"}

    def test_a_slow_consumer_delays_no_other(self, bus: Bus) -> None:
        slow, quick = consumer(bus, "MergeRequest"), consumer(bus, "Issue")
        for watermark in range(1, 6):
            bus.publish(ask(watermark), ask(watermark, OTHER.path))
            if watermark == 1:
                in_work = {taken(slow).id, taken(slow).id}
            for _ in range(2):
                delivery = taken(quick)
                assert delivery.request.watermark == watermark
                quick.ack(delivery)
        assert len(in_work) == 2

    def test_a_consumer_may_change_its_kind(self, bus: Bus) -> None:
        bus.publish(ask(1), ask_global(1))
        consumer(bus)
        changed = consumer(bus, kind=Kind.GLOBAL)
        assert taken(changed).request == ask_global(1)
        assert changed.next() is None
        bus.publish(ask(2))
        assert changed.next() is None

    def test_a_policy_may_change(self, bus: Bus) -> None:
        mine = consumer(bus)
        bus.publish(ask(1))
        delivery = taken(mine)
        again = bus.consumer("Issue", Kind.NAMESPACE, PATIENT)
        assert again.next() is None
        again.ack(delivery)
        with pytest.raises(ValueError, match="is not the name of an entity"):
            consumer(bus, "not/a name")

    def test_an_answer_twice_is_one_answer(self, bus: Bus) -> None:
        mine = consumer(bus)
        bus.publish(ask(1))
        delivery = taken(mine)
        mine.ack(delivery)
        mine.ack(delivery)
        for late in (mine.extend, lambda each: mine.retry(each, "late"), lambda each: mine.dead(each, "late")):
            with pytest.raises(Fenced):
                late(delivery)
        assert mine.next() is None
        assert bus.dead_letters() == []

    def test_forgotten_requests_of_a_namespace_are_not_delivered(self, buses: Callable[[], Bus]) -> None:
        """What waits, is in work, paused or dead, of it and of those in it; and nothing else."""
        bus, admin = buses(), buses()
        mine, others = consumer(bus, policy=ONCE), consumer(bus, "Note")
        inside, beside = ask(2, "42/9970/1/"), ask(2, "42/99701/")
        bus.publish(ask(1), ask_global(1))
        dead = taken(mine)
        mine.dead(dead, "bad")
        bus.publish(ask(1, "42/9970/2/"))
        paused = taken(mine)
        mine.postpone(paused, delay=3_600_000)
        bus.publish(inside)
        in_work = taken(mine)
        bus.publish(beside, ask(2))
        scopes = [each.request.scope for each in (in_work, dead, paused)]
        lost = [PartitionRef(name, scope) for name in ("Issue", "Note") for scope in scopes]
        assert admin.forget(NAMESPACE) == sorted(lost)
        assert admin.forget(NAMESPACE) == []
        assert admin.dead_letters() == []
        for late in (mine.ack, mine.extend, mine.postpone, lambda each: mine.retry(each, "late")):
            with pytest.raises(Fenced):
                late(in_work)
        late_comer = consumer(admin, "Late")
        for each in (mine, others, late_comer):
            assert taken(each).request == beside
            assert each.next() is None
        assert taken(consumer(bus, "User", kind=Kind.GLOBAL)).request == ask_global(1)
        assert [admin.reconcile(), admin.dead_letters()] == [[], []]
        bus.publish(ask(3), ask(3, "42/9970/1/"))
        for each in (mine, others, late_comer):
            again = [taken(each), taken(each)]
            assert {delivery.request for delivery in again} == {ask(3), ask(3, "42/9970/1/")}
            assert all(delivery.attempt == 1 for delivery in again)
            assert all(delivery.fence > in_work.fence for delivery in again if delivery.ref == in_work.ref)
            for delivery in again:
                each.ack(delivery)
            assert each.next() is None

    def test_a_forgotten_request_frees_its_group(self, bus: Bus) -> None:
        policy = Policy(ack_wait=3_600_000, group="source", limit=1)
        mine = consumer(bus, policy=policy)
        bus.publish(ask(1), ask(1, OTHER.path))
        held = taken(mine)
        assert mine.next() is None
        bus.forget(held.request.scope)
        with pytest.raises(Fenced):
            mine.ack(held)
        assert taken(mine).request.scope != held.request.scope
