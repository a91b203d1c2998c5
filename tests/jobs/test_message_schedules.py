"""Messages under schedules: delivered twice, in any order, with lost answers and workers that die before they ack."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, cast

import pytest

from instep.bus.bus import Bus, Message
from instep.domain.refs import Scope
from instep.domain.requests import Kind
from instep.errors import Transient, Unknown
from instep.ledger.ledger import Ledger
from instep.requests import messages
from instep.requests.messages import Messages
from instep.telemetry.progress import Silent
from tests.doubles.clock import VirtualClock
from tests.doubles.inbox import MemoryMessages
from tests.doubles.ledger import MemoryLedger
from tests.doubles.through import replaced

ENTITIES = {"Issue": Kind.NAMESPACE, "Note": Kind.NAMESPACE}
SCOPES = [Scope.parse(each) for each in ("1", "2", "42/9970")]
SCHEDULES = 10


class Crash(BaseException):
    """The worker dies here."""


def schedule(seed: int) -> None:
    """Two workers take what is published, among faults; then all is well, and what must hold is checked."""
    chance, clock = random.Random(seed), VirtualClock()
    ledger, bus, published = MemoryLedger(clock), MemoryMessages(), set[tuple[str, int]]()

    def append(real: Callable[..., Any], events: object) -> object:
        if troubled and chance.random() < 0.2:
            raise Transient("the ledger does not answer")
        done = real(events)
        if troubled and chance.random() < 0.2:
            raise chance.choice([Unknown("the ledger did not say what became of it"), Crash()])
        return done

    def worker() -> Messages:
        through = cast("Ledger", replaced(ledger, {"events.append": append}))
        return Messages(lambda: cast("Bus", bus), through, ENTITIES, Silent())

    troubled = True
    for step in range(30):
        scope = chance.choice(SCOPES)
        if chance.random() < 0.6:
            bus.publish(scope, step + 1)
            published.add((str(scope), step + 1))
        chance.shuffle(bus.waiting)
        if chance.random() < 0.3:
            bus.redeliver()
        try:
            worker().take()
        except Crash:
            bus.redeliver()
        stored = {(each.refs[0].partition("@")[2], each.needed) for each in ledger.wants.newest(limit=1_000)}
        for id in bus.acknowledged:
            name, _, as_of = id.rpartition("@")
            assert (name, int(as_of)) in stored, f"{id} was acknowledged and is not stored (seed {seed})"
    troubled = False
    bus.redeliver()
    worker().take()
    found = sorted((each.refs[0], each.needed) for each in ledger.wants.newest(limit=1_000))
    wanted = sorted((f"{entity}@{scope}", as_of) for scope, as_of in published for entity in ENTITIES)
    assert found == wanted, f"each message is one want for each entity (seed {seed})"
    assert ledger.events.verify().differences == ()


def all_schedules() -> None:
    for seed in range(SCHEDULES):
        schedule(seed)


def test_each_message_is_one_want_for_each_entity_whatever_goes_wrong() -> None:
    all_schedules()


def _acknowledged_first(self: Messages, inbox: MemoryMessages, message: Message) -> None:
    inbox.ack(message)
    _store(self, inbox, message)


_store = Messages._store


def test_a_message_acknowledged_before_it_is_stored_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Messages, "_store", _acknowledged_first)
    with pytest.raises(AssertionError, match="is not stored"):
        all_schedules()


def test_a_message_that_is_wanted_twice_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = random.Random(1)
    monkeypatch.setattr(messages, "uuid5", lambda *_: f"{drawn.getrandbits(64):x}")
    with pytest.raises(AssertionError, match="each message is one want"):
        all_schedules()
