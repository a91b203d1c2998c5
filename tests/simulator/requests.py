"""Request messages of other programs: published at any time, delivered twice and in any order, taken by processes that
may die at each call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import cast

from instep.bus.bus import Bus
from instep.domain.refs import PartitionRef, Scope
from instep.domain.requests import Kind
from instep.domain.wants import Retries
from instep.ledger.ledger import Ledger
from instep.requests.messages import Messages
from instep.telemetry.progress import Silent
from tests.doubles.inbox import MemoryMessages

#: The share of schedules that have some.
SHARE = 0.25
#: What has failed is a dead letter at once: a schedule ends before the pauses between tries do.
ONE_TRY = Retries(max_attempts=1)


class Requests:
    """Messages that ask for all entities, and what must become of them."""

    def __init__(self, entities: Sequence[str], seed: int) -> None:
        # Its own: what is requested changes nothing of what else a seed brings.
        self.random = Random(f"requests of {seed}")
        self.some = self.random.random() < SHARE
        self._entities = entities
        self._bus = MemoryMessages()
        self._published: list[tuple[str, int]] = []

    def publish(self, sleep: Callable[[float], None], now: Callable[[], int], over: Callable[[], bool]) -> None:
        """Publish messages, and deliver some of those that were not acknowledged again."""
        while True:
            sleep(self.random.expovariate(1 / 60_000))
            if over():
                return
            if self.random.random() < 0.6:
                as_of = now() + len(self._published)  # No two are as of the same time.
                self._published.append((self._bus.publish(Scope(), as_of), as_of))
            if self._published and self.random.random() < 0.3:
                self._bus.publish(Scope(), *self.random.choice(self._published)[1:])
            self.random.shuffle(self._bus.waiting)
            if self.random.random() < 0.5:
                self._bus.redeliver()

    def take(self, ledger: Ledger) -> None:
        """Store all that wait, as a worker does."""
        entities = dict.fromkeys(self._entities, Kind.GLOBAL)
        Messages(lambda: cast("Bus", self._bus), ledger, entities, Silent(), lambda _: ONE_TRY).take()

    def redeliver(self) -> None:
        """Who took them was silent for too long."""
        self._bus.redeliver()

    def lost(self, ledger: Ledger) -> list[str]:
        """Problems: messages that were acknowledged and are in no want of an entity, or in several."""
        wants = Counter((ref, want.needed) for want in ledger.wants.newest(limit=10_000) for ref in want.refs)
        acknowledged = set(self._bus.acknowledged)
        problems = []
        for id, as_of in self._published:
            for name in self._entities:
                made = wants[str(PartitionRef(name)), as_of]
                if made > 1 or (made == 0 and id in acknowledged):
                    problems.append(f"message {id} is acknowledged and became {made} wants of {name}")
        return problems

    def unanswered(self, ledger: Ledger) -> list[str]:
        """Problems in the end: messages without exactly one want of each entity that is fulfilled or a dead letter."""
        ended = {
            (ref, each.needed) for each in ledger.wants.newest(limit=10_000) if each.state.ended for ref in each.refs
        }
        return self.lost(ledger) + [
            f"message {id} has no want of {name} that has ended"
            for id, as_of in self._published
            for name in self._entities
            if (str(PartitionRef(name)), as_of) not in ended
        ]
