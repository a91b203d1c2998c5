"""Consumers of one pending queue, a world that goes wrong as a seed says, and a quiet end in which all must mend."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from random import Random
from typing import Any

from instep.domain.key_leases import ATTEMPTS, LONGEST_PAUSE, KeyLeaseState
from instep.domain.pending_queue import KeyRange, QueueSource, QueueSpec
from instep.domain.refs import Naming
from instep.errors import InstepError
from instep.ledger.key_leases import KeyFailure
from instep.queues.consumers import Ack, Given, Wanted, acknowledge, fail, next_keys, parked, unpark
from instep.queues.engines.queue_engine import Ask, Offer
from tests.simulator.model import ModelLedger

from .faults import Chaos, Port, World
from .scheduler import LedgerClock, Process, Scheduler
from .simulation import Chance

MINUTE = 60_000
HOUR = 60 * MINUTE
#: How long things go wrong, in milliseconds.
WILD = 45 * MINUTE
#: Rounds of the quiet end: each failure of a key is one, at most.
ROUNDS = 400
CONSUMERS = 3

SPEC = QueueSpec("salts", "id", QueueSource("source", None, None), (), KeyRange(-1, 999), timedelta(0), True, None)


@dataclass
class SimQueue:
    """What consuming needs of a `PendingStore`: offers as generous as any engine may make them."""

    random: Random
    spec: QueueSpec = SPEC
    source: set[int] = field(default_factory=set)
    covers: set[int] = field(default_factory=set)
    acknowledged: set[int] = field(default_factory=set)
    offers: dict[int, int] = field(default_factory=dict)
    version: int = 0
    flips: float = 0.0

    def pending(self, key: int) -> bool:
        return key in self.source and key not in self.covers and key not in self.acknowledged

    # What its live capture sees.

    def insert(self, key: int) -> None:
        self.source.add(key)
        self._offer(key)

    def cover(self, key: int) -> None:
        self.covers.add(key)
        if self.random.random() < 0.7:  # Else an event that crossed it has left its offer.
            self.offers.pop(key, None)

    def uncover(self, key: int) -> None:
        """Covered by any cover or consumer."""
        if key in self.covers | self.acknowledged:
            self.covers.discard(key)
            self.acknowledged.discard(key)
            self._offer(key)

    def _offer(self, key: int) -> None:
        self.version += 1
        self.offers[key] = self.version

    # What consuming calls.

    def read(self, ask: Ask) -> list[Offer]:
        found: list[Offer] = []
        for key in sorted(self.offers, reverse=True):
            if len(found) == ask.limit or (ask.after is not None and key >= ask.after):
                continue
            if self.pending(key):
                found.append(Offer(key, self.offers[key], None))
            else:
                del self.offers[key]
        return found

    def confirm(self, keys: Collection[int]) -> set[int]:
        """Covers come just before this is asked, and are taken back just after."""
        for key in keys:
            if self.random.random() < self.flips:
                self.cover(key)
        found = {key for key in keys if self.pending(key)}
        for key in keys:
            if self.random.random() < self.flips:
                self.uncover(key)
        return found

    def withdraw(self, offers: Sequence[Offer]) -> None:
        for each in offers:
            if self.offers.get(each.key) == each.version:
                del self.offers[each.key]

    def acknowledge(self, keys: Collection[int]) -> None:
        self.acknowledged.update(keys)
        for key in keys:
            self.offers.pop(key, None)


@dataclass(frozen=True, slots=True)
class InHand:
    """A key that a consumer was given, since when and until when."""

    consumer: str
    fence: int
    since: int
    until: int


class QueueSimulation:
    """Builds the world of a seed. `run` plays it; then `broken` must be empty."""

    def __init__(self, seed: int) -> None:
        random = self._random = Random(seed)
        scheduler = self._scheduler = Scheduler(Chance(random, random.choice((0.0, 0.5))))
        rate = random.choice((0.02, 0.05, 0.1))
        chaos = Chaos(random, rate, 3 * rate, left=random.choice((0, 5, 30)), pause=(MINUTE, 3 * MINUTE))
        chaos.focus = frozenset(random.sample(sorted(_CALLS), 2))
        self.world = World(scheduler, chaos)
        self.world.network = Process("network", "nowhere", scheduler)
        self.queue = SimQueue(random)
        self.ledger = ModelLedger(LedgerClock(scheduler), naming=Naming("queue"))
        self._poison = {key for key in range(60) if random.random() < random.choice((0.0, 0.1, 0.4))}
        self._in_hand: dict[int, InHand] = {}
        self.broken = self.world.broken

    def run(self) -> None:
        self._age()
        self.queue.flips = self._random.choice((0.0, 0.1, 0.4))
        self._wild_until = self.world.chaos.until = self._scheduler.now + WILD
        programs: list[tuple[str, Callable[[Process], None]]] = [("writer", self._write), ("person", self._unpark)]
        programs += [(f"consumer {number}", self._consume) for number in range(CONSUMERS)]
        programs.append(("reader", self._consume))
        running = [self._start(name, program) for name, program in programs]
        while self._scheduler.now < self._wild_until:
            self._scheduler.run(lambda: self._scheduler.now >= self._wild_until or any(each.over for each in running))
            for number, (name, program) in enumerate(programs):
                if running[number].over:
                    self._note(running[number])
                    running[number] = self._start(name, program)
        for each in running:
            self._note(each)
        self._scheduler.close()
        self.queue.flips = 0.0
        self._end()

    def _age(self) -> None:
        """Some keys have a past: one more failure parks them."""
        old = self._random.sample(range(60), 10)
        for key in range(60):
            self.queue.insert(key)
        for _ in range(ATTEMPTS - 1):
            self.ledger.key_leases.fail(SPEC.name, [KeyFailure(key, None, "long ago") for key in old])
            self._scheduler.now += LONGEST_PAUSE

    def _start(self, name: str, program: Callable[[Process], None]) -> Process:
        process = Process(name, "here", self._scheduler)
        process.start(lambda: program(process))
        return process

    def _note(self, process: Process) -> None:
        if process.error is not None:
            self.broken.append(f"{process.name}: {type(process.error).__name__}: {process.error}")

    # What goes on.

    def _write(self, process: Process) -> None:
        while True:
            process.sleep(self._random.expovariate(1 / 20_000))
            key = self._random.randrange(60)
            self._random.choice((self.queue.insert, self.queue.insert, self.queue.cover, self.queue.uncover))(key)

    def _unpark(self, process: Process) -> None:
        queue, ledger = self._ports(process)
        while True:
            process.sleep(self._random.expovariate(1 / (10 * MINUTE)))
            try:
                unpark(queue, ledger, list(parked(queue, ledger)))
            except InstepError:
                continue

    def _consume(self, process: Process) -> None:
        """The one named reader does it without leases."""
        queue, ledger = self._ports(process)
        random = self._random
        holder = None if process.name == "reader" else process.name
        while True:
            try:
                wanted = Wanted(random.choice((1, 3, 10)), holder, timedelta(minutes=1))
                given = next_keys(queue, ledger, wanted, random.random())
                for each in given:
                    self._receive(process.name, each)
                process.sleep(random.choice((1_000, 20_000, 20_000, 2 * MINUTE)))
                self._answer(queue, ledger, given)
            except InstepError:
                process.sleep(10_000)
            process.sleep(5_000)

    def _receive(self, consumer: str, given: Given) -> None:
        if given.fence is None or given.until is None:
            return
        new = InHand(consumer, given.fence, given.until - MINUTE, given.until)
        old = self._in_hand.get(given.key)
        if old is not None and old.since < new.until and new.since < old.until:
            self.broken.append(f"{given.key} is shared: {old}, {new}")
        if old is not None and old.fence >= new.fence and old.since <= new.since:
            self.broken.append(f"the fence of {given.key} does not grow: {old}, {new}")
        if old is None or old.fence < new.fence:  # It may have been on its way for longer than it lasts.
            self._in_hand[given.key] = new
        self.world.count("given again" if given.attempts else "given")

    def _answer(self, queue: Any, ledger: Any, given: Sequence[Given]) -> None:
        random = self._random
        said = [each for each in given if random.random() < 0.9]
        for each in said:
            mine = self._in_hand.get(each.key)
            if mine is not None and mine.fence == each.fence:
                # From now on it is free as soon as the call has an effect.
                self._in_hand[each.key] = replace(mine, until=min(mine.until, self.ledger.now()))
        bad = [each for each in said if each.key in self._poison or random.random() < 0.1]
        good = [each for each in said if each not in bad]
        for each in good:
            if random.random() < 0.3:
                self.queue.cover(each.key)
        answers = fail(queue, ledger, [KeyFailure(each.key, each.fence, "poison") for each in bad])
        answers += acknowledge(queue, ledger, [Ack(each.key, each.fence) for each in good])
        for answer in answers:
            self.world.count(str(answer.effect))

    def _ports(self, process: Process) -> tuple[Any, Any]:
        return Port(self.queue, "target", process, self.world), Port(self.ledger, "ledger", process, self.world)

    # How it ends.

    def _end(self) -> None:
        """Faults are over, and one consumer that makes no mistakes goes on until nothing is left but parked poison."""
        queue: Any = self.queue
        for _ in range(ROUNDS):
            given = next_keys(queue, self.ledger, Wanted(10, "last", timedelta(minutes=1)), 0.5)
            bad = [KeyFailure(each.key, each.fence, "poison") for each in given if each.key in self._poison]
            fail(queue, self.ledger, bad)
            good = [Ack(each.key, each.fence) for each in given if each.key not in self._poison]
            acknowledge(queue, self.ledger, good)
            unpark(queue, self.ledger, parked(queue, self.ledger).keys() - self._poison)
            if not given:
                self._scheduler.now += 2 * HOUR
                if not self.ledger.key_leases.count(SPEC.name).keys() - {KeyLeaseState.PARKED}:
                    break
        else:
            self.broken.append(f"there is no end: {self.ledger.key_leases.count(SPEC.name)}")
        pending = {key for key in range(60) if self.queue.pending(key)}
        kept = self.ledger.key_leases.parked(SPEC.name).keys()
        if lost := pending - kept:
            self.broken.append(f"lost: {sorted(lost)}")
        if left := kept - pending:
            self.broken.append(f"parked, though covered: {sorted(left)}")
        if wrong := kept - self._poison:
            self.broken.append(f"parked, though nothing is wrong with it: {sorted(wrong)}")


#: Where a schedule looks closely.
_CALLS = frozenset(
    (
        "key_leases.lease",
        "key_leases.extend",
        "key_leases.fail",
        "key_leases.forget",
        "key_leases.release",
        "key_leases.unpark",
        "acknowledge",
        "withdraw",
    )
)
