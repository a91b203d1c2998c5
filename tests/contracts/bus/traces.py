"""In which trace requests were asked for."""

from __future__ import annotations

from instep.bus.bus import Bus
from instep.telemetry.context import within
from tests.contracts.bus.fixtures import OTHER, Fixtures, ask, consumer, taken

FIRST = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
#: With as long a tracestate as there is.
SECOND = f"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00 vendor={'x' * 248},other={'y' * 250}"


class Traces(Fixtures):
    def test_a_request_is_delivered_with_its_trace(self, bus: Bus) -> None:
        mine = consumer(bus)
        with within(FIRST):
            bus.publish(ask(1))
        with within(SECOND):
            bus.publish(ask(1, OTHER.path))
        bus.publish(ask(1, "1/"))
        later = consumer(bus, "Later")
        for each in (mine, later):
            found = [taken(each) for _ in range(3)]
            assert {one.request.scope.path: one.trace for one in found} == {
                "42/9970/": FIRST,
                OTHER.path: SECOND,
                "1/": "",
            }

    def test_of_requests_that_become_one_the_newest_says_the_trace(self, bus: Bus) -> None:
        mine = consumer(bus)
        with within(FIRST):
            bus.publish(ask(1))
        with within(SECOND):
            bus.publish(ask(3))
        with within(FIRST):
            bus.publish(ask(2))
        delivery = taken(mine)
        assert (delivery.request, delivery.trace) == (ask(3), SECOND)
        mine.postpone(delivery)
        delivery = taken(mine)
        assert delivery.trace == SECOND
        bus.publish(ask(4))
        mine.ack(delivery)
        assert taken(mine).trace == "", "who is in no trace begins none for others"

    def test_a_retried_dead_letter_joins_the_trace_of_its_requeue(self, bus: Bus) -> None:
        mine = consumer(bus)
        with within(FIRST):
            bus.publish(ask(1))
        mine.dead(taken(mine), "bad")
        with within(SECOND):
            bus.requeue("Issue", ask(1).scope)
        assert taken(mine).trace == SECOND
