"""Whatever order events arrive in, a queue says what `domain.pending_queue` says."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Final

import pytest

from instep.domain.pending_queue import KeyRange, pending, register
from instep.queues.engines.queue_engine import PendingStore
from tests.contracts.pending_tables import KEYS, UserTables, created, demand_equal, read

#: Source, a cover and the other, each way, and the word of a consumer, each way.
EVENTS: Final = ("seen", "+salts", "-salts", "+players", "-players", "+ack", "-ack")
ORDERS: Final = dict(enumerate(itertools.product(EVENTS, repeat=4), start=1))

#: The same without consumers, for events before there was a queue.
EARLY: Final = dict(enumerate(itertools.product(EVENTS[:5], repeat=3), start=1))


def expected(order: tuple[str, ...]) -> bool:
    """By the rule, with the step for a version."""
    registers = dict.fromkeys(("salts", "players", "ack"), 0)
    for version, event in enumerate(order, 1):
        if event != "seen":
            name = event[1:]
            registers[name] = max(registers[name], register(version, covered=event[0] == "+"))
    return pending(seen="seen" in order, registers=list(registers.values()))


def happen(tables: UserTables, store: PendingStore, orders: dict[int, tuple[str, ...]], step: int) -> None:
    """The next event of every key; those of one kind at once."""
    for event in EVENTS:
        keys = [key for key, order in orders.items() if order[step] == event]
        change: dict[str, Callable[[list[int]], None]] = {
            "seen": tables.played,
            "+salts": tables.cover,
            "-salts": tables.uncover,
            "+players": lambda keys: tables.cover(keys, by=tables.names.players),
            "-players": lambda keys: tables.uncover(keys, by=tables.names.players),
            "+ack": store.acknowledge,
            "-ack": store.reopen,
        }
        if keys:
            change[event](keys)


class EventsContract:
    """Inherit, and provide the fixture `tables`."""

    @pytest.mark.parametrize("read_between", [False, True])
    def test_every_order_of_events_converges(self, tables: UserTables, read_between: bool) -> None:
        store = created(tables)
        for step in range(4):
            happen(tables, store, ORDERS, step)
            if read_between:
                read(store)
        wanted = sorted((key for key, order in ORDERS.items() if expected(order)), reverse=True)
        assert read(store) == wanted
        demand_equal(store)
        store.clean()
        assert read(store) == wanted
        assert store.compare(KEYS).surplus_count == 0
        assert store.counts().offered == len(wanted)

    @pytest.mark.parametrize("live", [0, 1, 2, 3])
    def test_events_before_live_capture_count_as_much(self, tables: UserTables, live: int) -> None:
        """Replayed, and with the backfill in the midst of what is live."""
        store = tables.open(tables.spec())
        for step in range(3):
            if step == live:
                store.create()
            happen(tables, store, EARLY, step)
        store.create()
        for keys in (KeyRange(0, 49), KeyRange(49, 199), KeyRange(0, 199)):
            done = store.backfill(keys)
        wanted = sorted((key for key, order in EARLY.items() if expected(order)), reverse=True)
        assert (done.keys, done.pending) == (sum("seen" in order for order in EARLY.values()), len(wanted))
        assert read(store) == wanted
        demand_equal(store)

    def test_a_row_that_comes_after_its_cover_reopens_nothing(self, tables: UserTables) -> None:
        store = created(tables)
        tables.cover([1, 2])
        tables.played([1, 1, 2, 3, 3])
        tables.played([1, 3])
        assert read(store) == [3]

    def test_rows_that_the_conditions_leave_out_are_no_events(self, tables: UserTables) -> None:
        store = created(tables)
        tables.played([1, 2])
        tables.played([3], kind="private")
        tables.cover([1], state="bad")
        assert read(store) == [2, 1]
        tables.cover([2])
        tables.cover([2], state="bad")
        assert read(store) == [1]

    def test_many_rows_of_a_key_at_once_are_one_key(self, tables: UserTables) -> None:
        store = created(tables)
        tables.played([5] * 12 + [6] * 12)
        assert read(store) == [6, 5]
        tables.cover([6] * 24)
        assert read(store) == [5]
        tables.uncover([6])
        assert read(store) == [6, 5]
