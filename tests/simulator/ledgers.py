"""Ledgers in databases. On a server one is for many schedules: emptied for each, and with that schedule's clock."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from instep.domain.clock import TIMING, Clock, Timing
from instep.ledger.ledger import Ledger
from tests.doubles.ledger import MemoryLedger

from .scheduler import LedgerClock, Scheduler
from .simulation import NAMING, Chance, Product


class Handed:
    """Implements `domain.clock.Clock` by that of the schedule that goes on."""

    def __init__(self) -> None:
        self.clock: Clock = LedgerClock(Scheduler(Chance(Random(0), 0.0)))

    def now(self) -> int:
        return self.clock.now()

    def monotonic(self) -> float:
        return self.clock.monotonic()

    def sleep(self, seconds: float) -> None:
        self.clock.sleep(seconds)


class Kept:
    """A ledger that stays open, as a `simulation.Product` makes it: `empty` clears the database."""

    def __init__(self, make: Callable[[Clock], Ledger], empty: Callable[[], None]) -> None:
        self._clock = Handed()
        self._empty = empty
        self.ledger = make(self._clock)
        self.product = Product(ledger=self._hand)

    def _hand(self, clock: LedgerClock, timing: Timing) -> Ledger:
        assert timing == TIMING, "the ledger was made with these"
        self._empty()
        self._clock.clock = clock
        return self.ledger


def sqlite_ledger(clock: LedgerClock, timing: Timing) -> Ledger:
    """A new one in memory for each schedule: what is simulated is not a power cut."""
    return MemoryLedger(clock, timing, NAMING)


def server_kept(name: str) -> Kept:
    """On a real PostgreSQL or MariaDB that tests bring up; the clock is the schedule's."""
    from tests.servers.ledgers import mariadb_ledger, postgres_ledger

    database = {"postgresql": postgres_ledger, "mariadb": mariadb_ledger}[name]()
    database.empty()
    return Kept(lambda clock: database.open(clock=clock), database.empty)
